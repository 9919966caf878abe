"""One outbox for runs, studies and fits: an entry is delivered once, however often and by whomever it is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from wsl_toolkit.errors import TrackingError
from wsl_toolkit.runs.tracking.outbox import OPEN, DeletedRunError, Entry, Outbox, Value
from wsl_toolkit.runs.tracking.store import Tracker, default_uri

TAG = "wsl.key"


@pytest.fixture(scope="module")
def tracker(tmp_path_factory: pytest.TempPathFactory) -> Tracker:
    home = tmp_path_factory.mktemp("outbox") / "wsl-runs"
    return Tracker(default_uri(home), "wsl-outbox", home)


@pytest.fixture
def entry(request: pytest.FixtureRequest, tmp_path: Path) -> Entry:
    (tmp_path / "hello.txt").write_text("hello")
    return Entry(
        key=request.node.name,
        name="one",
        params={"lr": 0.1},
        tags={"colour": "blue"},
        description="first",
        inputs=[{"name": "digits", "digest": "0" * 64, "context": "training"}],
        metrics=[Value("train/risk", 1 / step, 1000 + step, step) for step in range(1, 1201)],
        files=[(tmp_path / "hello.txt", "texts")],
        status="FINISHED",
        started=1,
        ended=2000,
    )


def runs(tracker: Tracker, entry: Entry) -> list[Any]:
    return list(tracker.client.search_runs([tracker.experiment_id], f"tags.`{TAG}` = '{entry.key}'"))


def steps(tracker: Tracker, run_id: str) -> list[int]:
    return [value.step for value in tracker.client.get_metric_history(run_id, "train/risk")]


def test_an_entry_is_in_the_store_as_it_was_described(tracker: Tracker, entry: Entry) -> None:
    done = Outbox(tracker, TAG).deliver(entry)
    (run,) = runs(tracker, entry)
    assert (run.info.run_id, run.info.status, run.info.run_name) == (done.run_id, "FINISHED", "one")
    assert (run.info.start_time, run.info.end_time) == (1, 2000)
    assert run.data.params == {"lr": "0.1"}
    assert run.data.tags["colour"] == "blue"
    assert run.data.tags["mlflow.note.content"] == "first"
    assert [item.dataset.name for item in run.inputs.dataset_inputs] == ["digits"]
    assert steps(tracker, done.run_id) == list(range(1, 1201))
    assert [file.path for file in tracker.client.list_artifacts(done.run_id, "texts")] == ["texts/hello.txt"]
    assert (done.values, done.files) == (1200, 1)


def test_what_is_there_is_not_sent_again_and_what_is_missing_is(tracker: Tracker, entry: Entry) -> None:
    half = attrs.evolve(entry, metrics=entry.metrics[:700], status="RUNNING", params={})
    first = Outbox(tracker, TAG).deliver(half)
    assert tracker.client.get_run(first.run_id).info.status == "RUNNING"
    again = Outbox(tracker, TAG)  # as of another process, which knows nothing
    assert again.deliver(half).values == 0
    assert again.deliver(entry) == (first.run_id, 500, 1)
    (run,) = runs(tracker, entry)
    assert run.data.params == {"lr": "0.1"}
    assert steps(tracker, first.run_id) == list(range(1, 1201))


def test_an_entry_that_nobody_works_on_never_says_running(
    tracker: Tracker, entry: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tracker.client, "log_batch", killed)
    with pytest.raises(KeyboardInterrupt):
        Outbox(tracker, TAG).deliver(entry)
    (run,) = runs(tracker, entry)
    assert run.info.status == OPEN


def test_a_run_whose_making_was_not_answered_is_found_by_its_key_and_a_late_double_is_deleted(
    tracker: Tracker, entry: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox, make = Outbox(tracker, TAG), tracker.client.create_run

    def lost(*args: Any, **kwargs: Any) -> None:
        make(*args, **kwargs)
        raise ConnectionError("the answer is lost")

    monkeypatch.setattr(tracker.client, "create_run", lost)
    with pytest.raises(ConnectionError):
        outbox.deliver(entry)
    monkeypatch.undo()
    make(tracker.experiment_id, tags={TAG: entry.key}, start_time=5)
    done = outbox.deliver(entry)
    (run,) = runs(tracker, entry)
    assert (run.info.run_id, run.info.status) == (done.run_id, "FINISHED")


@pytest.mark.parametrize("kept", [0, 1])
def test_a_store_that_says_yes_and_keeps_nothing_has_not_got_it(
    kept: int, tracker: Tracker, entry: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox, send, left = Outbox(tracker, TAG), tracker.client.log_batch, [kept]

    def forgetful(run_id: str, **content: Any) -> None:
        if "metrics" in content:
            left[0] -= 1
        if left[0] >= 0:
            send(run_id, **content)

    monkeypatch.setattr(tracker.client, "log_batch", forgetful)
    with pytest.raises(TrackingError, match="did not keep"):
        outbox.deliver(entry)
    monkeypatch.undo()
    (run,) = runs(tracker, entry)
    assert run.info.status == OPEN
    outbox.deliver(entry)
    assert steps(tracker, run.info.run_id) == list(range(1, 1201))


def test_a_run_that_the_user_deleted_stays_deleted(tracker: Tracker, entry: Entry) -> None:
    done = Outbox(tracker, TAG).deliver(attrs.evolve(entry, metrics=()))
    tracker.client.delete_run(done.run_id)
    with pytest.raises(DeletedRunError):
        Outbox(tracker, TAG).deliver(entry)
    assert runs(tracker, entry) == []


def test_a_run_that_the_store_lost_is_made_anew(tracker: Tracker, entry: Entry) -> None:
    done = Outbox(tracker, TAG).deliver(attrs.evolve(entry, run_id="0123456789abcdef0123456789abcdef"))
    assert done.run_id != "0123456789abcdef0123456789abcdef"
    assert len(runs(tracker, entry)) == 1
