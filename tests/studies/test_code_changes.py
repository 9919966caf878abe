"""Results know their code: what another plugin's code made is not reused silently, and never mixed in a cell."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from click.testing import CliRunner, Result

from tests.changing_plugin import METRIC, SOURCE, ZERO, ChangingPlugin
from wsl_toolkit.cli import main
from wsl_toolkit.cli.study_progress import SilentStudy
from wsl_toolkit.errors import InterruptedRunError
from wsl_toolkit.plugins import code_identity
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.runs.tracking.store import Tracker, default_uri
from wsl_toolkit.studies.cells import cell_state
from wsl_toolkit.studies.codes import check_plugins, compare, other_code, results_of
from wsl_toolkit.studies.driver import StudyError, run_study, study_states
from wsl_toolkit.studies.executor import Inline
from wsl_toolkit.studies.parsing import from_dict
from wsl_toolkit.studies.plan import data_digests, make_plan
from wsl_toolkit.studies.report.build import Report, as_plain, as_text, build_report
from wsl_toolkit.studies.store import Results, StudyFolder
from wsl_toolkit.studies.tracking import KEY, experiment_name
from wsl_toolkit.studies.worker import TaskWorker

pytestmark = pytest.mark.usefixtures("small_pictures")

STUDY: dict[str, Any] = {
    "name": "bent",
    "trials": 2,
    "training": {"epochs": 2, "batch_size": 256, "validation": 0.1},
    "search": {"epochs": 1, "space": {"lr": [0.01, 0.1]}},
    "settings": [{"dataset": "digits", "generator": "mcl-skewed", "backbone": "straight"}],
    "methods": ["bent"],
}
Wsl = Callable[..., Result]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def wsl(here: Path, monkeypatch: pytest.MonkeyPatch, fresh_database: None) -> Wsl:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    Path("bent.toml").write_text(tomli_w.dumps(STUDY))

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(main, list(arguments))

    return call


def start(study: dict[str, Any] = STUDY, *, keep_old: bool = False, again: bool = False) -> str:
    """Start the study as `wsl study run` does, but without MLflow and figures; return what it says first."""
    registry, described = load_plugins().registry, from_dict(study, "test")
    folder = StudyFolder(Path("wsl-runs"), "bent")
    folder.create()
    check_plugins(described, folder, registry)
    digests = data_digests(described, registry, Path())
    plan = make_plan(described, described, folder, registry, digests, {}, keep_old=keep_old, again=again)
    folder.check_data(digests)
    folder.write_study(described)
    if again:
        folder.begin_again()
    run_study(described, folder, registry, Inline(), SilentStudy(), None, data_dir=Path(), keep_old=keep_old)
    return "\n".join(plan.lines)


def report() -> Report:
    folder, registry = StudyFolder(Path("wsl-runs"), "bent"), load_plugins().registry
    states = study_states(folder.read_study(), folder, registry)
    return build_report(folder.read_study(), states, other_code=other_code(states, folder, registry))


def run(wsl: Wsl, *more: str, code: int = 0) -> Result:
    done = wsl("study", "run", "bent.toml", "--executor", "inline", *more)
    assert done.exit_code == code, done.output
    return done


def files() -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in Path("wsl-runs/jobs").glob("*.json")}


def risks() -> list[float]:
    folder = StudyFolder(Path("wsl-runs"), "bent")
    (state,) = study_states(folder.read_study(), folder, load_plugins().registry)
    return [result.final["train/risk"] for result in state.finished]


def codes() -> set[str]:
    """Return the short names of the codes that the results of the study's cell were made by."""
    folder = StudyFolder(Path("wsl-runs"), "bent")
    (state,) = study_states(folder.read_study(), folder, load_plugins().registry)
    return {result.made_by for result in results_of(state)}


def test_changed_source_is_said_and_computed_anew_and_the_old_code_finds_its_results_again(
    wsl: Wsl, plugin: ChangingPlugin
) -> None:
    run(wsl)
    first, sound, made_by = files(), risks(), codes()
    assert len(first) == 4
    assert min(sound) > 0
    assert "made by other code" not in wsl("study", "status", "bent").output

    plugin.install(source=SOURCE.replace("return SCALE", "# the same\n        return SCALE"))
    assert "4 runs kept, 0 runs to be computed" in run(wsl, "--dry-run").stdout

    plugin.install(source=ZERO)
    for command in (("study", "status", "bent"), ("report", "bent")):
        said = " ".join(wsl(*command).output.split())
        assert "4 results were made by other code than is installed" in said
        assert "estimator bent: wsl-bent 1.0 (source " in said
    plan = run(wsl, "--dry-run").stdout
    assert "4 results were made by other code than is installed; computed anew (--keep-old uses what is there):" in plan
    assert "0 runs kept, 4 runs to be computed" in plan
    assert files() == first

    done = run(wsl)
    assert "estimator bent: wsl-bent 1.0 (source " in done.stderr
    assert "backbone straight: wsl-bent 1.0" in done.stderr
    assert "(4 results)" in done.stderr
    assert risks() == [0.0, 0.0]
    assert codes().isdisjoint(made_by)
    assert first.items() <= files().items(), "what the old code made is not touched"
    assert len(files()) == 8

    plugin.install()
    assert "4 runs kept, 0 runs to be computed" in start()
    assert risks() == sound
    assert codes() == made_by
    assert len(files()) == 8


def test_a_new_version_is_computed_anew_though_the_description_is_the_same(here: Path, plugin: ChangingPlugin) -> None:
    start()
    plugin.install("1.1")
    said = start()
    assert "4 results were made by other code than is installed; computed anew" in said
    assert re.search(
        r"estimator bent: wsl-bent 1\.0 \(source (\w+)\) → wsl-bent 1\.1 \(source \1\) \(4 results\)", said
    )
    assert "0 runs kept, 4 runs to be computed" in said
    assert len(files()) == 8
    assert len(codes()) == 1
    assert not report().other_code.results


def test_keep_old_uses_them_and_the_report_says_so(here: Path, plugin: ChangingPlugin) -> None:
    start()
    before, sound = files(), risks()
    plugin.install(source=ZERO)
    said = start(keep_old=True)
    assert "4 results were made by other code than is installed; used all the same, because of --keep-old" in said
    assert "4 runs kept, 0 runs to be computed" in said
    assert files() == before
    assert risks() == sound
    assert "4 results were made by other code than is installed" in as_text(report(), "markdown")
    # One trial more: it is computed by the code that is there, and mixing is said.
    more = {**STUDY, "trials": 3}
    start(more, keep_old=True)
    assert risks() == [*sound, 0.0]
    for form in ("markdown", "latex"):
        assert "RESULTS OF DIFFERENT CODE are mixed" in as_text(report(), form)
    assert len(as_plain(report())["cells"][0]["code"]) == 2
    # Without the option the cell is of one code again.
    start(more)
    assert risks() == [0.0, 0.0, 0.0]
    assert len(codes()) == 1


def stops_after(results: int, patch: pytest.MonkeyPatch) -> None:
    """Have the worker be interrupted after so many results."""
    train, left = TaskWorker.run, [results]

    def dying(self: Any, *given: Any) -> Any:
        for outcome in train(self, *given):
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            yield outcome

    patch.setattr(TaskWorker, "run", dying)


def test_again_computes_everything_and_what_was_there_is_replaced_only_by_what_is_new(
    here: Path, plugin: ChangingPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    start()
    before = files()
    with monkeypatch.context() as patch:
        stops_after(2, patch)
        with pytest.raises(InterruptedRunError):
            start(again=True)
    after = files()
    assert after.keys() == before.keys(), "nothing is lost when it is interrupted"
    assert sum(after[name] != before[name] for name in before) == 2
    assert "2 runs kept, 2 runs to be computed" in start()  # which is what `wsl study resume` does
    assert all(files()[name] != before[name] for name in before)
    assert "4 runs kept, 0 runs to be computed" in start()


def test_a_cell_never_mixes_though_the_code_changes_between_kill_and_resume(
    here: Path, plugin: ChangingPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        stops_after(3, patch)
        with pytest.raises(InterruptedRunError):
            start()
    assert len(files()) == 3
    plugin.install(source=ZERO)
    assert "3 results were made by other code" in start()
    assert risks() == [0.0, 0.0]
    assert len(codes()) == 1


def test_a_worker_with_other_code_than_the_study_was_started_with_refuses(here: Path, plugin: ChangingPlugin) -> None:
    """The source is changed after the driver has read it and before a worker imports it."""

    class Late(Inline):
        def submit(self, task: Any) -> None:
            plugin.install(source=ZERO)
            self.__init__()  # type: ignore[misc]  # a worker that begins now
            super().submit(task)

    study = from_dict(STUDY, "test")
    folder = StudyFolder(Path("wsl-runs"), "bent")
    folder.create()
    registry = load_plugins().registry
    folder.check_data(data_digests(study, registry, Path()))
    with pytest.raises(StudyError, match=r"changed while the study was running .*estimator bent: wsl-bent 1\.0"):
        run_study(study, folder, registry, Late(), SilentStudy(), None, data_dir=Path())
    assert files() == {}


def test_without_the_plugin_the_report_has_its_numbers_and_resume_names_the_distribution(
    wsl: Wsl, plugin: ChangingPlugin
) -> None:
    start()
    before = json.loads(wsl("report", "bent", "--json").stdout)
    plugin.uninstall()
    after = json.loads(wsl("report", "bent", "--json").stdout)
    assert after["cells"] == before["cells"]
    assert after["complete"]
    assert after["tables"][0]["values"] == before["tables"][0]["values"]
    assert any("wsl-bent 1.0" in line and "→ not installed" in line for line in after["other_code"]["changes"])
    status = wsl("study", "status", "bent")
    assert "4 of 4 runs done; complete" in status.output
    assert "\\begin{tabular}" in wsl("report", "bent", "--format", "latex").stdout
    Path("longer.toml").write_text(tomli_w.dumps({**STUDY, "trials": 3}))
    for command in (
        ("study", "resume", "bent"),
        ("study", "run", "bent.toml"),
        ("study", "run", "longer.toml"),
        ("study", "resume", "bent", "--dry-run"),
    ):
        refused = wsl(*command, "--executor", "inline")
        assert refused.exit_code == 2
        assert "wsl-bent 1.0 provided" in refused.stderr
        assert 'pip install "wsl-bent==1.0"' in refused.stderr


LESS_SURE = METRIC.replace(".amax(-1)", ".amin(-1)")
SURE = {**STUDY, "selection": {"rule": "sureness"}}


def test_a_plugins_metric_that_selects_is_part_of_the_code_of_results(here: Path, plugin: ChangingPlugin) -> None:
    plugin.install(metric=METRIC)
    start(SURE)
    made_by = codes()
    assert "4 runs kept, 0 runs to be computed" in start(SURE)
    plugin.install(metric=METRIC.replace("return part", "# the same\n        return part"))
    assert "4 runs kept, 0 runs to be computed" in start(SURE)
    plugin.install(metric=LESS_SURE)
    said = start(SURE)
    assert "4 results were made by other code than is installed; computed anew" in said
    assert re.search(
        r"metric sureness: wsl-bent 1\.0 \(source \w+\) → wsl-bent 1\.0 \(source \w+\) \(4 results\)", said
    )
    assert "estimator bent" not in said
    assert codes().isdisjoint(made_by)
    # The search's two jobs keep their names; it now chooses another point, whose two trials are others.
    assert len({name.partition(".")[0] for name in files()}) == 6


def test_a_metric_that_selects_nothing_is_no_part_of_the_code(here: Path, plugin: ChangingPlugin) -> None:
    plugin.install(metric=METRIC)
    start()
    plugin.install(metric=LESS_SURE)
    assert "4 runs kept, 0 runs to be computed" in start()
    nothing_searched = {key: value for key, value in SURE.items() if key != "search"}
    start(nothing_searched)
    plugin.install(metric=METRIC)
    assert "2 runs kept, 0 runs to be computed" in start(nothing_searched)


def test_without_the_plugin_whose_metric_selected_the_report_has_its_numbers(wsl: Wsl, plugin: ChangingPlugin) -> None:
    plugin.install(metric=METRIC.replace('"higher"', '"lower"'))
    start(SURE)
    before = json.loads(wsl("report", "bent", "--json").stdout)
    plugin.uninstall()
    shown = wsl("report", "bent", "--json")
    assert shown.exit_code == 0, shown.stderr
    after = json.loads(shown.stdout)
    assert after["cells"] == before["cells"]
    assert after["tables"] == before["tables"], "the search's choice and its remarks too"
    refused = wsl("study", "resume", "bent", "--executor", "inline")
    assert refused.exit_code == 2
    assert 'pip install "wsl-bent==1.0"' in refused.stderr
    plugin.install()  # all that is missing now is the metric
    refused = wsl("study", "resume", "bent", "--executor", "inline")
    assert refused.exit_code == 2
    assert "study bent needs metric 'sureness', which wsl-bent 1.0 provided" in refused.stderr


@pytest.mark.parametrize("content", ["", "[1]", '{"name": 3}', '{"rule": "sureness"}'])
def test_a_damaged_record_of_the_metric_says_that_the_rule_is_not_known(
    wsl: Wsl, plugin: ChangingPlugin, content: str
) -> None:
    plugin.install(metric=METRIC)
    folder = StudyFolder(Path("wsl-runs"), "bent")
    folder.create()
    folder.write_study(from_dict(SURE, "test"))
    (folder.path / "rule.json").write_text(content)
    plugin.uninstall()
    refused = wsl("report", "bent")
    assert refused.exit_code == 2
    assert "or a metric of a plugin that is installed, not 'sureness'" in refused.stderr


def test_results_of_release_0_1_count_as_made_by_other_code(here: Path, plugin: ChangingPlugin) -> None:
    """They did not record it: they are shown, computed anew by default, and kept where that is asked for."""
    start()
    jobs = Path("wsl-runs/jobs")
    for path in list(jobs.glob("*.json")):
        new = json.loads(path.read_text())
        old = {key: value for key, value in new.items() if key not in ("code", "checksum")}
        (jobs / f"{path.name.partition('.')[0]}.json").write_text(json.dumps(old))
        path.unlink()
    for path in Path("wsl-runs/studies/bent/cells").iterdir():
        path.unlink()
    assert report().complete
    assert "all of it: code that was not recorded (release 0.1) → wsl-toolkit" in report().standing
    assert "4 results were made by other code than is installed; used all the same" in start(keep_old=True)
    assert len(files()) == 4
    assert "4 results were made by other code than is installed; computed anew" in start()
    assert len(files()) == 8


def test_the_store_has_a_run_for_each_code_with_provider_and_version(wsl: Wsl, plugin: ChangingPlugin) -> None:
    run(wsl)
    plugin.install("1.1", source=ZERO)
    run(wsl)
    home = Path("wsl-runs").resolve()
    tracker = Tracker(default_uri(home), experiment_name("bent"), home)
    runs = {r.data.tags[KEY]: r for r in tracker.client.search_runs([tracker.experiment_id], max_results=1000)}
    jobs = {key: r.data.tags for key, r in runs.items() if key.startswith("job:")}
    assert len(jobs) == 8
    providers = [tags["wsl.provenance.estimator"].partition(" (")[0] for tags in jobs.values()]
    assert sorted(providers) == ["wsl-bent 1.0"] * 4 + ["wsl-bent 1.1"] * 4
    assert {tags["wsl.provenance.dataset"].partition(" ")[0] for tags in jobs.values()} == {"wsl-toolkit"}
    (cell,) = [r for key, r in runs.items() if key.startswith("cell:")]
    (earlier,) = [r for key, r in runs.items() if key.startswith("earlier cell:")]
    assert cell.data.metrics["train/risk_mean"] == 0.0
    assert earlier.data.metrics["train/risk_mean"] > 0
    assert earlier.info.run_name.endswith("(earlier code)")
    for key, tags in jobs.items():
        parent = cell if "wsl-bent 1.1" in tags["wsl.provenance.estimator"] else earlier
        assert tags["mlflow.parentRunId"] == parent.info.run_id, key


def test_a_sampled_search_visits_the_same_points_whatever_code_computes_them(wsl: Wsl, plugin: ChangingPlugin) -> None:
    """The first batch of a random search depends on its seed alone; its jobs keep their names."""
    pytest.importorskip("optuna")
    search = {"strategy": "random", "points": 3, "batch": 3, "epochs": 1, "space": {"lr": {"low": 0.01, "high": 0.1}}}
    study = {**STUDY, "search": search, "trials": 1}
    start(study)
    first = {name.partition(".")[0] for name in files()}
    plugin.install(source=SOURCE.replace("return SCALE *", "return 1.0 *"))
    start(study)
    assert {name.partition(".")[0] for name in files()} == first
    assert len(files()) == 2 * len(first)


def test_a_thousand_results_are_compared_without_reading_a_source_twice(
    here: Path, plugin: ChangingPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    start()
    folder = StudyFolder(Path("wsl-runs"), "bent")
    (state,) = study_states(folder.read_study(), folder, load_plugins().registry)
    plugin.install(source=ZERO)
    calls: list[str] = []
    hashed = code_identity.ast.parse
    monkeypatch.setattr(code_identity.ast, "parse", lambda *given: calls.append("") or hashed(*given))
    results = Results(folder, load_plugins().registry)
    assert compare(results_of(state) * 250, results).results == 4
    assert 0 < len(calls) < 20


def test_weights_of_the_same_name_and_other_content_make_other_results(tmp_path: Path) -> None:
    import torch
    from torchvision import models

    path = tmp_path / "start.pth"
    backbone = {"name": "torchvision", "model": "squeezenet1_1", "size": 32, "weights": str(path)}
    study = {**STUDY, "settings": [{"dataset": "digits", "generator": "mcl-skewed", "backbone": backbone}]}
    study["methods"] = [{"estimator": "ppl"}]
    found = []
    for seed in (1, 2, 1):
        torch.manual_seed(seed)
        torch.save(models.squeezenet1_1(weights=None).state_dict(), path)
        registry, described = load_plugins().registry, from_dict(study, "test")
        digests = data_digests(described, registry, tmp_path)
        assert len(digests) == 2, "the data's, and the weights'"
        results = Results(StudyFolder(tmp_path, "bent"), registry, digests, held_out={})
        found.append({job.id for cell in described.cells() for job in cell_state(cell, results, registry).missing})
    assert found[0] == found[2]
    assert not found[0] & found[1]
