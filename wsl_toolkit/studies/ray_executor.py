"""A study on a Ray cluster: tasks with resources, results as they come, and nodes that may die.

Ray core alone is used. Ray's own retries are off, since a task that is done again must leave out what has arrived: the
executor notices a death, and gives what is unfinished to another node. Results are written by the driver, so that a
study can go from this machine to a cluster and back at any moment.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import attrs

from wsl_toolkit.data.loading import load_data
from wsl_toolkit.errors import ConfigError, DataError, PluginError, ResourceError, one_line
from wsl_toolkit.studies.executor import Cluster, Ended, Event, Finished, usable_cores
from wsl_toolkit.studies.flights import Flight, SameSets
from wsl_toolkit.studies.node_worker import Message, Terms, describe_node, differences, needed_versions, perform
from wsl_toolkit.studies.tasks import Task

if TYPE_CHECKING:
    from wsl_toolkit.plugins.registry import Registry
    from wsl_toolkit.studies.description import Study

WAIT_SECONDS = 1.0
PATIENCE_SECONDS = 120.0
"""For so long a cluster may have no node that could do a task."""
KEPT = 4
"""Datasets that stay in the cluster's shared memory; a study goes through them one after the other."""


class RayExecutor:
    """Does tasks on the nodes of a Ray cluster."""

    name = "ray"

    def __init__(self, cluster: Cluster, limit: int | None = None) -> None:
        self.ray = import_ray()
        self.cluster = cluster
        self.limit = limit
        self._owns = connect(self.ray, cluster.address, limit)
        # Ray prints a node's death on standard output, which is the study's own.
        self._redirected = contextlib.redirect_stdout(sys.stderr)
        self._redirected.__enter__()
        self._perform = self.ray.remote(perform).options(max_retries=0, **self._resources())
        self._flights: dict[Any, Flight] = {}
        self._grounded: list[Flight] = []
        self._data: dict[str, tuple[Any, ...]] = {}
        self._versions: dict[str, str] = {}
        self._sets = SameSets()
        self._counted: tuple[float, list[int]] = (-math.inf, [])
        self._idle_since: float | None = None

    def _resources(self) -> dict[str, Any]:
        wanted: dict[str, Any] = {"num_cpus": self.cluster.cpus, "num_gpus": self.cluster.gpus}
        return {**wanted, "memory": self.cluster.memory} if self.cluster.memory else wanted

    # ------------------------------------------------------------- readiness

    def prepare(self, study: Study, registry: Registry) -> None:
        """Ask every node what is installed there; name what a study's components need and a node lacks."""
        self._versions = needed_versions(study, registry)
        nodes = [node for node in self._nodes() if self._slots_of(node)]
        if not nodes:
            raise ConfigError(
                f"no node of the cluster at {self.cluster.address} can do a task that takes {self._wish()}; it has "
                f"{describe_resources(self.ray.cluster_resources())}"
            )
        found = self._describe(nodes)
        wrong = [f"{where}: {'; '.join(reasons)}" for where, reasons in found.items() if reasons]
        if wrong:
            raise PluginError(
                f"study {study.name} cannot start on this cluster. {' | '.join(wrong)}. Install the same versions on "
                "every node"
            )

    def _describe(self, nodes: list[dict[str, Any]]) -> dict[str, list[str]]:
        """Return what is wrong with each node, by a name that people know."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        ask = self.ray.remote(describe_node)
        answers = {
            f"node {node['NodeManagerAddress']} ({node['NodeID'][:8]})": ask.options(
                num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            ).remote()
            for node in nodes
        }
        found: dict[str, list[str]] = {}
        for where, answer in answers.items():
            try:
                found[where] = differences(self._versions, self.ray.get(answer)["versions"])
            except Exception as error:
                found[where] = [f"wsl-toolkit is missing or does not start ({last_line(error)})"]
        return found

    def _nodes(self) -> list[dict[str, Any]]:
        return [node for node in self.ray.nodes() if node["Alive"]]

    def _slots_of(self, node: dict[str, Any]) -> int:
        """Return how many tasks a node can do at once."""
        has = node["Resources"]
        wanted = (("CPU", self.cluster.cpus), ("GPU", self.cluster.gpus), ("memory", self.cluster.memory))
        return int(min(has.get(kind, 0.0) // amount for kind, amount in wanted if amount))

    def _slots(self) -> list[int]:
        """Return the slots of all nodes, counted anew now and then: nodes come and go."""
        now = time.monotonic()
        if now - self._counted[0] > WAIT_SECONDS:
            self._counted = (now, [self._slots_of(node) for node in self._nodes()])
        return self._counted[1]

    def _wish(self) -> str:
        parts = [f"{self.cluster.cpus} CPU", f"{self.cluster.gpus:g} GPU", f"{self.cluster.memory / 2**30:.1f} GB"]
        amounts = (self.cluster.cpus, self.cluster.gpus, self.cluster.memory)
        return ", ".join(part for part, amount in zip(parts, amounts, strict=True) if amount)

    # ----------------------------------------------------------------- tasks

    @property
    def free(self) -> int:
        """How many more tasks the cluster can do now, or as many as were asked for."""
        total = self.limit if self.limit is not None else sum(self._slots())
        return max(0, total - len(self._flights) - len(self._grounded))

    def submit(self, task: Task) -> None:
        """Send a task to whichever node has room."""
        device = "cpu" if task.device == "auto" and not self.cluster.gpus else task.device
        # Nodes need not share a disk with this process, so jobs save no state there.
        sent = attrs.evolve(task, device=device, data_dir=task.data_dir.resolve(), checkpoints=None, home=None)
        self._launch(Flight(sent))

    def _launch(self, flight: Flight) -> None:
        task = flight.rest
        terms = Terms(
            digest=task.jobs[0].data,
            source=self._source(task),
            versions=self._versions,
            threads=self.cluster.cpus,
            share=max([1, *self._slots()]),
        )
        self._flights[self._perform.remote(task, terms)] = flight

    def _source(self, task: Task) -> tuple[Any, ...]:
        """Return a reference to the task's data, put into shared memory once; nodes fetch it when they need it."""
        job = task.jobs[0]
        if self.cluster.node_data or not job.data:
            return ()
        if job.data not in self._data:
            while len(self._data) >= KEPT:
                del self._data[next(iter(self._data))]
            self._data[job.data] = (self._put(task),)
        return self._data[job.data]

    def _put(self, task: Task) -> Any:
        from wsl_toolkit.plugins.loading import load_plugins
        from wsl_toolkit.studies.shipping import pack, packed_bytes

        job = task.jobs[0]
        data = load_data(job.run_config().create("dataset", load_plugins().registry), task.data_dir)
        if data.digest() != job.data:
            raise DataError(f"the data of {data.name} changed while the study ran: restore it, then resume")
        packed = pack(data)
        smallest = min(node["Resources"].get("object_store_memory", math.inf) for node in self._nodes())
        if (size := packed_bytes(packed)) > smallest / 2:
            raise ResourceError(
                f"{data.name} ({size / 2**30:.1f} GB) does not fit into the shared memory of the cluster's smallest "
                f"node ({smallest / 2**30:.1f} GB): put the files below {task.data_dir} on every node and add "
                "--node-data"
            )
        return self.ray.put(packed)

    # ---------------------------------------------------------------- events

    def events(self) -> Iterator[Event]:
        """Yield what tasks said, waiting for it for a moment; deaths are dealt with here."""
        self._check_patience()
        for flight in [flight for flight in self._grounded if flight.due <= time.monotonic()]:
            self._grounded.remove(flight)
            self._launch(flight)
        if not self._flights:
            time.sleep(min(WAIT_SECONDS, 0.1))
            return
        ready, _ = self.ray.wait(list(self._flights), num_returns=1, timeout=WAIT_SECONDS)
        if ready and len(self._flights) > 1:
            ready, _ = self.ray.wait(list(self._flights), num_returns=len(self._flights), timeout=0)
        for stream in ready:
            yield from self._hear(stream)

    def _hear(self, stream: Any) -> Iterator[Event]:
        flight = self._flights[stream]
        try:
            messages: list[Message] = self.ray.get(next(stream))
        except Exception as error:  # of Ray itself: what a task raises comes as a message
            del self._flights[stream]
            yield from self._died(flight, error)
            return
        for message in messages:
            event = flight.heard(message)
            if isinstance(event, Finished):
                self._sets.check(event.result)
            elif isinstance(event, Ended):
                del self._flights[stream]
            yield event

    def _died(self, flight: Flight, error: Exception) -> Iterator[Event]:
        """Begin what is left of a task again, later and wherever there is room."""
        ended = flight.died(last_line(error), "out of memory? give tasks more with --task-memory")
        if ended is None:
            self._grounded.append(flight)
        else:
            yield ended

    def _check_patience(self) -> None:
        """Give up when no node has been able to do anything for long."""
        if sum(self._slots()):
            self._idle_since = None
            return
        self._idle_since = self._idle_since or time.monotonic()
        if time.monotonic() - self._idle_since > PATIENCE_SECONDS:
            raise ResourceError(
                f"the cluster at {self.cluster.address} has had no node with {self._wish()} for "
                f"{PATIENCE_SECONDS:.0f} s; everything finished is kept: resume the study when there is one"
            )

    def close(self) -> None:
        """Stop all work at once, and leave the cluster if this executor joined it."""
        for stream in self._flights:
            with contextlib.suppress(Exception):  # the cluster itself may be what went away
                self.ray.cancel(stream, force=True)
        self._flights.clear()
        self._grounded.clear()
        if self._owns:
            self.ray.shutdown()
        self._redirected.__exit__(None, None, None)


def import_ray() -> Any:
    """Import Ray; its usage statistics are off unless the user wants them."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    return ray


def connect(ray: Any, address: str, limit: int | None) -> bool:
    """Join a cluster, or start one on this machine for `local`; return whether there is something to leave later."""
    if ray.is_initialized():
        return False
    if address.startswith("ray://"):
        raise ConfigError(
            "ray:// is for clients outside a cluster, which is not supported: run the study on a node of the cluster, "
            "with --address auto or HOST:PORT"
        )
    shown = os.environ.get("WSL_TRACEBACK") == "1"
    options: dict[str, Any] = {"log_to_driver": shown, "logging_level": logging.ERROR}
    if address == "local":
        options |= {"num_cpus": limit or usable_cores(), "include_dashboard": False}
    try:
        ray.init(address=address, **options)
    except Exception as error:
        raise ConfigError(
            f"no Ray cluster can be joined at {address!r} ({last_line(error)}): start one with `ray start --head`, "
            "give its --address, and its token if it asks for one (RAY_AUTH_MODE, RAY_AUTH_TOKEN_PATH)"
        ) from None
    return True


def describe_resources(resources: dict[str, float]) -> str:
    """Return a cluster's resources in words."""
    memory = resources.get("memory", 0.0) / 2**30
    return f"{resources.get('CPU', 0):g} CPU, {resources.get('GPU', 0):g} GPU, {memory:.1f} GB in all"


def last_line(error: BaseException) -> str:
    """Return the end of what Ray says, where the reason stands; before it there may be a whole traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else one_line(error))[:200]
