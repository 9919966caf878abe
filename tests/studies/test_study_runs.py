"""Whole studies: done once, paired, tracked, resumed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from wsl_toolkit.cli.study_progress import SilentStudy
from wsl_toolkit.errors import ConfigError, InterruptedRunError
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.runs.tracking.runs_table import KEY
from wsl_toolkit.runs.tracking.store import Tracker, default_uri
from wsl_toolkit.studies.cells import CellState
from wsl_toolkit.studies.codes import results_of
from wsl_toolkit.studies.description import Study
from wsl_toolkit.studies.driver import Driver, study_states
from wsl_toolkit.studies.executor import Event, Inline
from wsl_toolkit.studies.parsing import from_dict
from wsl_toolkit.studies.store import StudyFolder, known_studies
from wsl_toolkit.studies.tracking import StudyOutbox, experiment_name

pytestmark = pytest.mark.usefixtures("small_pictures")

Run = Callable[..., list[CellState]]


def files(home: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (home / "jobs").iterdir()}


def test_all_methods_of_a_trial_share_their_splits_and_candidate_sets(small: dict[str, Any], run_in: Run) -> None:
    ppl, cc = run_in(small)
    hashes = [[result.candidates_hash for result in state.finished] for state in (ppl, cc)]
    assert hashes[0] == hashes[1]
    assert len(set(hashes[0])) == 2  # each trial has its own
    search = [s.results[0].candidates_hash for s in ppl.searches[0].scored]
    assert set(search) == {hashes[0][0]}  # the search is on the first trial's problem


def test_what_is_finished_is_never_done_again(small: dict[str, Any], run_in: Run, tmp_path: Path) -> None:
    first = run_in(small)
    before = files(tmp_path)
    assert len(before) == 2 * (2 + 2)
    assert run_in(small) == first
    assert files(tmp_path) == before


def test_a_lost_result_is_computed_again_to_the_same_numbers_and_nothing_else_is(
    small: dict[str, Any], run_in: Run, tmp_path: Path
) -> None:
    states = run_in(small)
    before = files(tmp_path)
    victim = states[0].finished[1]
    folder = StudyFolder(tmp_path, "small")
    lost = folder.result_path(victim.job.id, victim.made_by)
    lost.unlink()
    damaged = folder.result_path(states[1].finished[0].job.id, states[1].finished[0].made_by)
    damaged.write_text(damaged.read_text()[:100])
    again = run_in(small)
    # One model alone instead of two stacked is another plan: the same numbers, to float tolerance.
    for new, old in ((again[0].finished[1], victim), (again[1].finished[0], states[1].finished[0])):
        assert new.history.keys() == old.history.keys()
        for name, values in new.history.items():
            assert values == pytest.approx(old.history[name], rel=1e-5)
    changed = {name for name, when in files(tmp_path).items() if before.get(name) != when}
    assert changed == {lost.name, damaged.name, damaged.with_suffix(".damaged").name}


def test_a_study_uses_what_another_one_has_computed(small: dict[str, Any], run_in: Run, tmp_path: Path) -> None:
    run_in(small)
    before = files(tmp_path)
    small["name"] = "figure"
    assert all(state.done for state in run_in(small))
    assert files(tmp_path) == before
    small["methods"] = [*small["methods"], "average"]
    run_in(small)
    assert len(files(tmp_path)) == len(before) + 4
    assert known_studies(tmp_path) == ["figure", "small"]


def test_an_interrupted_study_keeps_what_is_finished_and_says_how_to_go_on(
    small: dict[str, Any], run_in: Run, tmp_path: Path
) -> None:
    class Interrupted(Inline):
        """Ctrl-C after the first group."""

        def events(self) -> Iterator[Event]:
            if files(tmp_path):
                raise KeyboardInterrupt
            yield from super().events()

    with pytest.raises(InterruptedRunError, match="wsl study resume small"):
        run_in(small, executor=Interrupted())
    before = files(tmp_path)
    assert len(before) == 2
    assert all(state.done for state in run_in(small))
    assert before.items() <= files(tmp_path).items()


def test_a_cell_with_trials_of_its_own_searches_no_longer_once_it_is_done(
    small: dict[str, Any], run_in: Run, tmp_path: Path
) -> None:
    small["settings"] = [{**small["settings"][0], "trials": 1}]
    run_in(small)
    folder = StudyFolder(tmp_path, "small")
    driver = Driver(
        from_dict(small, "test"), folder, load_plugins().registry, Inline(), SilentStudy(), None, data_dir=tmp_path
    )
    assert all(work.state.done for work in driver.cells)
    assert not any(work.searches for work in driver.cells)


def test_trials_can_select_each_for_itself(small: dict[str, Any], run_in: Run) -> None:
    small["selection"] = {"per_trial": True}
    for state in run_in(small):
        assert [search.seed for search in state.searches] == [0, 1]
        assert len(state.points) == 2
        for search, trial in zip(state.searches, state.finished, strict=True):
            assert search.chosen is not None
            assert trial.job.seed == search.seed
            assert trial.job.config["lr"] == search.chosen.point["lr"]


def test_runs_that_can_be_stacked_are_and_come_to_the_same_as_one_by_one(
    small: dict[str, Any], run_in: Run, tmp_path: Path
) -> None:
    """The plain way is forced by pretending that stacking never pays."""
    small["methods"] = [{"estimator": "lw", "search": {"estimator.leverage": [0.0, 1.0, 2.0]}}]
    (stacked,) = run_in(small, home=tmp_path / "stacked")
    assert [s.results[0].plan["stacked"] for s in stacked.searches[0].scored] == [6] * 6
    assert [result.plan["stacked"] for result in stacked.finished] == [2, 2]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("wsl_toolkit.training.train.why_it_does_not_pay", lambda trainers: "for the test")
        (alone,) = run_in(small, home=tmp_path / "alone")
    assert [s.results[0].plan["stacked"] for s in alone.searches[0].scored] == [1] * 6
    assert stacked.points == alone.points
    for one, other in zip(stacked.searches[0].scored, alone.searches[0].scored, strict=True):
        assert one.point == other.point
        assert one.results[0].candidates_hash == other.results[0].candidates_hash
        for name, values in one.results[0].history.items():
            assert values == pytest.approx(other.results[0].history[name], rel=1e-4)


def test_what_cannot_be_stacked_is_trained_one_by_one_and_that_is_said(
    small: dict[str, Any], run_in: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    small["training"] = {**small["training"], "optimizer": "rmsprop"}
    states = run_in(small)
    assert all(state.done for state in states)
    assert {result.plan["stacked"] for state in states for result in state.finished} == {1}
    said = capsys.readouterr().err
    assert said.count("only sgd, adam and adamw step many models at once") == 1


def test_nothing_is_searched_where_there_is_no_space(small: dict[str, Any], run_in: Run) -> None:
    small["search"] = {}
    small["training"] = {**small["training"], "lr": 0.05}
    for state in run_in(small):
        assert state.searches == ()
        assert [result.job.config["lr"] for result in state.finished] == [0.05, 0.05]


def test_data_that_changed_since_the_study_began_is_refused(small: dict[str, Any], run_in: Run, tmp_path: Path) -> None:
    run_in(small)
    record = tmp_path / "studies" / "small" / "data.json"
    assert json.loads(record.read_text()).keys() == {"digits"}
    record.write_text(json.dumps({"digits": "0" * 64}))
    with pytest.raises(ConfigError, match="the data of digits has changed since study small began"):
        run_in(small)


def test_two_processes_cannot_drive_one_study(small: dict[str, Any], tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path, "small")
    folder.create()
    assert not folder.is_running()
    with folder.lock():
        other = StudyFolder(tmp_path, "small")
        assert other.is_running()
        with pytest.raises(ConfigError, match="being run by another process"), other.lock():
            pass
    assert not folder.is_running()


def test_a_study_name_cannot_leave_its_folder(tmp_path: Path) -> None:
    for name in ("../up", "a/b", "", ".hidden", "/root"):
        with pytest.raises(ConfigError, match="letters, digits"):
            StudyFolder(tmp_path, name)


class Tracked:
    """A study's experiment in a fresh database."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.notes: list[str] = []

    def outbox(self, study: Study) -> StudyOutbox:
        self.tracker = Tracker(default_uri(self.home), experiment_name(study.name), self.home)
        return StudyOutbox(self.tracker, study, self.notes.append)

    def runs(self) -> dict[str, Any]:
        found = list(self.tracker.client.search_runs([self.tracker.experiment_id], max_results=1000))
        keys = [run.data.tags[KEY] for run in found]
        assert len(keys) == len(set(keys)), "a run was recorded twice"
        return dict(zip(keys, found, strict=True))

    def history(self, run_id: str, metric: str) -> list[tuple[int, float]]:
        return [(m.step, m.value) for m in self.tracker.client.get_metric_history(run_id, metric)]


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory) -> Tracked:
    return Tracked(tmp_path_factory.mktemp("tracked"))


def test_a_study_is_one_experiment_of_parents_and_children_delivered_once(
    small: dict[str, Any], run_in: Run, tracked: Tracked
) -> None:
    study = from_dict(small, "test")
    outbox = tracked.outbox(study)
    states = run_in(study, home=tracked.home, outbox=outbox)
    outbox.finish_study(None, complete=True)
    runs = tracked.runs()
    assert len(runs) == 1 + 2 + 8
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    root = runs["study"].info.run_id
    cell = runs[f"cell:{states[0].cell.label}"]
    assert cell.data.tags["mlflow.parentRunId"] == root
    finals = [result.final["test/accuracy"] for result in states[0].finished]
    assert cell.data.metrics["test/accuracy_mean"] == pytest.approx(sum(finals) / 2)
    assert "test/accuracy_stderr" in cell.data.metrics
    assert cell.data.params["selected.lr"] == str(states[0].points[0]["lr"])
    trial = states[0].finished[0]
    child = runs[outbox.key(trial)]
    assert child.data.tags["mlflow.parentRunId"] == cell.info.run_id
    assert child.data.params["estimator.name"] == "ppl"
    wanted = [(epoch, value) for epoch, value in enumerate(trial.history["test/accuracy"], start=1)]
    assert tracked.history(child.info.run_id, "test/accuracy") == wanted
    search = [run for run in runs.values() if run.data.tags.get("wsl.purpose") == "selection"]
    assert search
    assert not any(name.startswith("test/") for run in search for name in run.data.metrics)


def test_delivering_again_changes_nothing_and_a_half_delivered_run_is_completed(
    small: dict[str, Any], run_in: Run, tracked: Tracked
) -> None:
    study = from_dict(small, "test")
    states = run_in(study, home=tracked.home, outbox=tracked.outbox(study))
    before = {key: run.info.run_id for key, run in tracked.runs().items()}
    trial = states[0].finished[0]
    run_id = before[tracked.outbox(study).key(trial)]
    # As if the driver had died after sending the metrics and before closing the run.
    tracked.tracker.client.update_run(run_id, status="SCHEDULED")
    outbox = tracked.outbox(study)
    run_in(study, home=tracked.home, outbox=outbox)
    assert {key: run.info.run_id for key, run in tracked.runs().items()} == before
    assert tracked.runs()[outbox.key(trial)].info.status == "FINISHED"
    wanted = [(epoch, value) for epoch, value in enumerate(trial.history["train/risk"], start=1)]
    assert tracked.history(run_id, "train/risk") == wanted


def test_a_cell_shows_the_present_description_and_nothing_of_an_earlier_one(
    small: dict[str, Any], run_in: Run, tracked: Tracked
) -> None:
    small["name"] = "changed"
    study = from_dict(small, "test")
    outbox = tracked.outbox(study)
    outbox.begin()
    before = run_in(study, home=tracked.home, outbox=outbox)[0]
    changed = from_dict({**small, "trials": 3, "training": {**small["training"], "epochs": 4}}, "test")
    outbox = tracked.outbox(changed)
    outbox.begin()
    after = run_in(changed, home=tracked.home, outbox=outbox)[0]
    runs = tracked.runs()
    cell = runs[f"cell:{after.cell.label}"]
    finals = [result.final["test/accuracy"] for result in after.finished]
    assert len(finals) == 3
    assert cell.data.metrics["test/accuracy_mean"] == pytest.approx(sum(finals) / 3)
    below = {key for key, run in runs.items() if run.data.tags.get("mlflow.parentRunId") == cell.info.run_id}
    assert below == {outbox.key(result) for result in results_of(after)}
    (earlier,) = [run for key, run in runs.items() if key.startswith(f"earlier cell:{after.cell.label}")]
    assert earlier.info.run_name.endswith("(earlier description)")
    for trial in before.finished:
        assert runs[outbox.key(trial)].data.tags["mlflow.parentRunId"] == earlier.info.run_id
    # The same description again leaves everything where it is.
    outbox = tracked.outbox(changed)
    outbox.begin()
    run_in(changed, home=tracked.home, outbox=outbox)
    assert {key: run.info.run_id for key, run in tracked.runs().items()} == {k: r.info.run_id for k, r in runs.items()}


def test_a_study_under_way_has_a_row_for_each_cell_with_the_numbers_so_far(
    small: dict[str, Any], run_in: Run, tracked: Tracked
) -> None:
    small["name"] = "under-way"
    study = from_dict(small, "test")
    done = run_in(study, home=tracked.home)
    first, second = done[0].finished
    folder = StudyFolder(tracked.home, "under-way")
    for lost in (second.job, *done[1].all_jobs()):  # as if the study had been stopped before these were done
        for path in folder.jobs.glob(f"{lost.id}.*"):
            path.unlink()
    outbox = tracked.outbox(study)
    outbox.begin()
    for state in study_states(study, folder, load_plugins().registry):
        outbox.update_cell(state)
    rows = {key.partition(":")[2]: run for key, run in tracked.runs().items() if key.startswith("cell:")}
    partly, untouched = (rows[state.cell.label] for state in done)
    assert {run.info.status for run in rows.values()} == {"SCHEDULED"}
    assert partly.data.metrics["trials"] == 1
    assert partly.data.metrics["accuracy"] == pytest.approx(first.final["test/accuracy"], abs=5e-5)
    assert "accuracy" not in untouched.data.metrics
    shown = {"method": "cc", "data": "digits", "network": "linear", "generator": "mcl-skewed", "alpha": "0.8"}
    assert untouched.data.tags.items() >= shown.items()
    after = run_in(study, home=tracked.home, outbox=tracked.outbox(study))
    row = tracked.runs()[f"cell:{after[0].cell.label}"]
    assert (row.info.status, row.data.metrics["trials"]) == ("FINISHED", 2)
    assert row.data.metrics["accuracy"] == pytest.approx(row.data.metrics["test/accuracy_mean"], abs=5e-5)


def test_a_store_that_goes_away_stops_nothing_and_gets_everything_on_resuming(
    small: dict[str, Any], run_in: Run, tracked: Tracked, monkeypatch: pytest.MonkeyPatch
) -> None:
    small["name"] = "interrupted"
    study = from_dict(small, "test")
    outbox = tracked.outbox(study)
    calls = {"left": 12}
    send = outbox.client.log_batch

    def dying(*args: Any, **kwargs: Any) -> Any:
        calls["left"] -= 1
        if calls["left"] < 0:
            raise ConnectionError("the store at http://user:secret@host is gone")
        return send(*args, **kwargs)

    monkeypatch.setattr(outbox.client, "log_batch", dying)
    states = run_in(study, home=tracked.home, outbox=outbox)
    assert all(state.done for state in states)
    assert [note for note in tracked.notes if "wsl study resume interrupted" in note]
    assert not [note for note in tracked.notes if "secret" in note]
    monkeypatch.undo()
    assert any(run.info.status == "SCHEDULED" for run in tracked.runs().values())
    outbox = tracked.outbox(study)
    run_in(study, home=tracked.home, outbox=outbox)
    outbox.finish_study(None, complete=True)
    runs = tracked.runs()
    assert len(runs) == 1 + 2 + 8
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    for state in states:
        for trial in state.finished:
            wanted = [(epoch, value) for epoch, value in enumerate(trial.history["train/risk"], start=1)]
            assert tracked.history(runs[outbox.key(trial)].info.run_id, "train/risk") == wanted


def test_everything_that_the_oracle_selected_says_so_in_the_store(
    small: dict[str, Any], run_in: Run, tracked: Tracked
) -> None:
    small |= {"name": "oracle", "selection": {"rule": "oracle-accuracy"}, "methods": ["cc"], "trials": 1}
    study = from_dict(small, "test")
    run_in(study, home=tracked.home, outbox=tracked.outbox(study))
    runs = tracked.runs()
    assert len(runs) == 1 + 1 + 3
    for run in runs.values():
        assert run.info.run_name.endswith("ORACLE selection")
        assert "ORACLE" in run.data.tags["wsl.selection"]
