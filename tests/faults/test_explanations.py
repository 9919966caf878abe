"""What is no fault but looks like one is explained, once."""

from __future__ import annotations

from pathlib import Path

import pytest
from fault_tools import wsl_here

from wsl_toolkit.runs.folder import same_metrics
from wsl_toolkit.runs.tracked_trial import _explain
from wsl_toolkit.training.engine import EpochRecord


class Session:
    """As much of a session as explanations need."""

    def __init__(self) -> None:
        self.notes: dict[str, str] = {}

    def note_once(self, kind: str, text: str) -> None:
        self.notes.setdefault(kind, text)


def record(epoch: int, risk: float) -> EpochRecord:
    return EpochRecord(epoch=epoch, metrics={"train/risk": risk}, seconds=0.1)


def test_a_negative_risk_is_explained_and_a_positive_one_is_not() -> None:
    session = Session()
    _explain(session, record(1, 0.3), None)  # type: ignore[arg-type]
    assert session.notes == {}
    _explain(session, record(7, -0.25), None)  # type: ignore[arg-type]
    _explain(session, record(8, -0.5), None)  # type: ignore[arg-type]
    assert list(session.notes) == ["negative"]
    assert "-0.25 at epoch 7" in session.notes["negative"]
    assert "not a fault of the run" in session.notes["negative"]


def test_an_epoch_that_comes_out_anew_is_noticed_to_the_last_bit() -> None:
    session = Session()
    _explain(session, record(3, 0.5), record(3, 0.5))  # type: ignore[arg-type]
    assert session.notes == {}
    _explain(session, record(3, 0.5), record(3, 0.5000000000000001))  # type: ignore[arg-type]
    assert "did not come out as it did before" in session.notes["differs"]


@pytest.mark.parametrize(
    ("one", "other", "same"), [(1.0, 1.0, True), (float("nan"), float("nan"), True), (0.1, 0.2, False)]
)
def test_metrics_agree_to_the_last_bit_or_not(one: float, other: float, same: bool) -> None:
    assert same_metrics({"a": one}, {"a": other}) is same
    assert not same_metrics({"a": one}, {"a": other, "b": 1.0})


def test_a_negative_risk_is_said_once_in_a_real_run(workspace: Path) -> None:
    """An unbiased estimator with a large step over-fits at once; the note comes once for all trials."""
    arguments = ("run", "--estimator", "cl", "--generator", "cl", "--epochs", "4", "--trials", "2", "--lr", "0.5")
    said = wsl_here(workspace, *arguments, "--quiet")
    assert said.count("the empirical risk is negative") == 1
