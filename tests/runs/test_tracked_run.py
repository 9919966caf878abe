"""A run while it trains: a quick store is sent to often, and a network that MLflow cannot write costs no run."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
import torch

from tests.waiting import until
from wsl_toolkit.runs.folder import FINISHED, RUNNING, RunFolder
from wsl_toolkit.runs.tracking.store import Tracker, default_uri
from wsl_toolkit.runs.tracking.tracked_run import FLUSH_SECONDS, TrackedRun
from wsl_toolkit.training.engine import EpochRecord


class Stubborn(torch.nn.Module):
    """Its path depends on its data, which torch.export refuses."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if float(x.sum()) > 0 else -x


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory) -> TrackedRun:
    home = tmp_path_factory.mktemp("tracked") / "wsl-runs"
    tracker = Tracker(default_uri(home), "wsl-digits", home)
    folder = RunFolder.new(home)
    folder.enter()
    folder.note(name="one", params={}, started=1, status=RUNNING, experiment="wsl-digits")
    made = TrackedRun(tracker, folder)
    made.begin(offline_allowed=False)
    return made


def test_how_often_a_store_is_sent_to_depends_on_its_own_time_not_on_when_its_answer_is_looked_at(
    tracked: TrackedRun,
) -> None:
    tracked.log_epoch(tracked.folder.append(EpochRecord(epoch=1, metrics={"train/risk": 0.5}, seconds=0.1)))
    tracked.flush()
    sending = tracked._sending
    assert sending is not None
    until(lambda: sending.request.is_done)
    sending.request.seconds = 0.01
    time.sleep(1)
    tracked.flush()
    assert tracked._next_flush - time.monotonic() <= FLUSH_SECONDS


def test_a_network_that_mlflow_cannot_write_costs_no_run(tracked: TrackedRun, tmp_path: Path) -> None:
    tracked.log_model(Stubborn(), torch.ones(2, 3))
    tracked.finish(FINISHED)
    run = tracked.tracker.client.get_run(tracked.run_id)
    assert run.info.status == FINISHED
    assert "the model could not be kept with the run" in (tracked.warning or "")
    assert run.data.metrics["train/risk"] == 0.5


SAID = """
import logging, sys
from wsl_toolkit.runs.tracking.library import import_mlflow_pytorch
for name in [name for name in sys.modules if name.startswith("mlflow.pytorch")]:
    del sys.modules[name]  # as in a program that has not imported it
if MLFLOW:
    import mlflow.pytorch
else:
    import_mlflow_pytorch()
logging.getLogger("wsl_toolkit").warning("features are not kept")
"""


@pytest.mark.parametrize(("who", "lines"), [("MLFLOW = True", []), ("MLFLOW = False", ["features are not kept"])])
def test_warnings_are_shown_after_mlflow_was_imported_which_would_silence_them(
    who: str, lines: list[str], warm_python: Path
) -> None:
    done = subprocess.run([warm_python, "-c", who + SAID], capture_output=True, text=True, timeout=120, check=True)
    assert done.stderr.splitlines() == lines
