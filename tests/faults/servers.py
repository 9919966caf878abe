"""A real MLflow server, quick to start: its application in a forked process, to be killed and started again."""

from __future__ import annotations

import os
import socket
import urllib.error
import urllib.request
from pathlib import Path

from fault_tools import Started

from tests.waiting import until


def _serve(uri: str, artifacts: str, port: int) -> None:
    import uvicorn
    from mlflow.server import constants

    os.environ["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"
    os.environ[constants.BACKEND_STORE_URI_ENV_VAR] = uri
    os.environ[constants.REGISTRY_STORE_URI_ENV_VAR] = uri
    os.environ[constants.ARTIFACT_ROOT_ENV_VAR] = "mlflow-artifacts:/"
    os.environ[constants.ARTIFACTS_DESTINATION_ENV_VAR] = artifacts
    os.environ[constants.SERVE_ARTIFACTS_ENV_VAR] = "true"
    uvicorn.run("mlflow.server.fastapi_app:app", host="127.0.0.1", port=port, log_level="warning")


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A tracking server on a database of its own."""

    def __init__(self, folder: Path, database: Path) -> None:
        self.folder = folder
        self.database = database
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self.process: Started | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        uri = f"sqlite:///{self.database}"
        self.process = Started(self.folder, _serve, uri, str(self.folder / "served"), self.port)
        until(self._answers)

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.process.is_alive(), self.process.said
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=2):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def kill(self) -> None:
        """Kill it with -9."""
        if self.process is not None:
            self.process.kill()
