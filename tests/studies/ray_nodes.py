"""A real Ray cluster on this machine: one raylet a node, a token to enter, ended by the ids of its own processes.

Nodes speak over the loopback interface, each from an address of its own: Ray would replace 127.0.0.1 by the machine's
outer address, so they begin at 127.0.0.2. Its servers listen on all interfaces all the same, hence the token.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path

from tests.waiting import until

PATIENCE = 120
MARK = "WSL_TEST_NODE"
STORE_BYTES = 150 * 2**20
SOON = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "3000",
    "RAY_health_check_failure_threshold": "3",
}
"""So that a dead node is missed after seconds, not after half a minute."""


def processes_with(mark: str) -> list[int]:
    """The processes whose environment holds a node's mark: they inherit it from one another, and nobody else has it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"{MARK}={mark}".encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return [pid for pid in found if pid != os.getpid()]


class Node:
    """One node: `ray start --block` and all that it starts."""

    def __init__(self, cluster: RayCluster, arguments: list[str], env: Mapping[str, str]) -> None:
        self.mark = uuid.uuid4().hex
        ray = Path(sys.executable).with_name("ray")
        own = f"127.0.0.{2 + len(cluster.nodes)}"
        command = [str(ray), "start", "--block", "--node-ip-address", own, "--num-cpus", "1", "--num-gpus", "0"]
        command += ["--object-store-memory", str(STORE_BYTES), "--disable-usage-stats", *arguments]
        self.log = cluster.folder / f"node-{self.mark}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, env={**cluster.env, **env, MARK: self.mark}, stdout=log, stderr=log, cwd=cluster.folder
            )

    def kill(self) -> None:
        """End the node as a power cut would: every process at once, without a word."""
        for _ in range(50):
            for pid in processes_with(self.mark):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.1)
            if not processes_with(self.mark):
                return
        raise AssertionError(f"processes {processes_with(self.mark)} of a node do not end")


class RayCluster:
    """A head and other nodes, one core each."""

    def __init__(self, **env: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="wsl-ray-"))  # short, for the names of sockets are limited
        token = self.folder / "token"
        token.write_text(secrets.token_hex(32))
        token.chmod(0o600)
        self.env = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
        self.env |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "OMP_NUM_THREADS": "1", **SOON, **env}
        with socket.socket() as probe:
            probe.bind(("127.0.0.2", 0))
            self.address = f"127.0.0.2:{probe.getsockname()[1]}"
        head = ["--head", "--port", self.address.partition(":")[2], "--include-dashboard", "false"]
        self.nodes: list[Node] = []
        self.nodes.append(Node(self, [*head, "--temp-dir", str(self.folder)], {}))
        try:
            until(self._listens, "the head does not listen")
        except AssertionError as error:
            said = self.nodes[0].log.read_text()
            self.stop()
            raise AssertionError(f"{error}: {said}") from None

    def _listens(self) -> bool:
        host, _, port = self.address.partition(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0

    def add_node(self, **env: str) -> Node:
        """Start another node, and wait until it is part of the cluster."""
        before = self.alive()
        node = Node(self, ["--address", self.address], env)
        self.nodes.append(node)
        until(lambda: self.alive() > before, f"no node came, see {node.log}")
        return node

    def alive(self) -> int:
        """How many nodes the cluster counts."""
        code = (
            "import ray, logging; ray.init(address='" + self.address + "', logging_level=logging.ERROR,"
            " log_to_driver=False); print(sum(node['Alive'] for node in ray.nodes()))"
        )
        done = subprocess.run([sys.executable, "-c", code], env=self.env, capture_output=True, text=True, timeout=60)
        return int(done.stdout.split()[0]) if done.returncode == 0 else 0

    def stop(self) -> None:
        """End all nodes."""
        for node in reversed(self.nodes):
            node.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
