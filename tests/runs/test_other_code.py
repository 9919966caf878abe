"""A run that goes on under other code: refused, unless told; then it says so."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.changing_plugin import METRIC, SOURCE, ZERO, ChangingPlugin
from wsl_toolkit.cli import main
from wsl_toolkit.errors import CheckpointError
from wsl_toolkit.plugins.code_identity import named_in
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.runs.folder import KILLED, find_folder
from wsl_toolkit.runs.tracked_trial import TrackedTrial
from wsl_toolkit.runs.tracking.store import Tracker, default_uri
from wsl_toolkit.training.checkpoints import Checkpoints, Place
from wsl_toolkit.training.trial_checkpoints import TrialCheckpoints

pytestmark = pytest.mark.usefixtures("small_pictures")

Wsl = Callable[..., Result]


@pytest.fixture
def wsl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_database: None) -> Wsl:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(main, list(arguments))

    return call


@pytest.fixture
def stopped(wsl: Wsl, plugin: ChangingPlugin, monkeypatch: pytest.MonkeyPatch) -> str:
    """A run that was stopped in its third epoch of three, the second being saved."""
    return stop_a_run(wsl, monkeypatch)


def stop_a_run(wsl: Wsl, monkeypatch: pytest.MonkeyPatch, *more: str) -> str:
    end = TrackedTrial.on_epoch_end

    def stop(self: TrackedTrial, record: Any) -> None:
        if record.epoch == 3:
            raise KeyboardInterrupt
        end(self, record)

    with monkeypatch.context() as patch:
        patch.setattr(TrackedTrial, "on_epoch_end", stop)
        components = ("--estimator", "bent", "--backbone", "straight")
        done = wsl("run", *components, "--epochs", "3", "--batch-size", "512", "--checkpoint-every", "1", *more)
    assert done.exit_code == 130, done.output
    (folder,) = Path("wsl-runs/runs").iterdir()
    return folder.name


def newest(run: str) -> dict[str, Any]:
    state = Checkpoints(Path("wsl-runs/runs") / run / "checkpoints").newest()
    assert state is not None
    return state


def tags_of(run: str) -> dict[str, str]:
    home = Path("wsl-runs").resolve()
    return dict(Tracker(default_uri(home), "wsl-digits", home).client.get_run(run).data.tags)


def test_a_run_under_other_code_is_refused_and_goes_on_where_that_is_asked_for_and_says_so(
    wsl: Wsl, plugin: ChangingPlugin, stopped: str
) -> None:
    first = newest(stopped)["code"]["estimator bent"]
    assert tags_of(stopped)["wsl.provenance.estimator"] == first
    before = {path: path.read_bytes() for path in Path("wsl-runs/runs").rglob("*") if path.is_file()}
    plugin.install(source=ZERO)
    refused = wsl("run", "--resume", stopped)
    assert refused.exit_code == 2
    assert f"estimator bent: {first} → wsl-bent 1.0 (source " in refused.stderr
    assert "--other-code" in refused.stderr
    assert find_folder(Path("wsl-runs"), stopped).fact("status") == KILLED
    after = {path: path.read_bytes() for path in Path("wsl-runs/runs").rglob("*") if path.is_file()}
    assert after == before

    done = wsl("run", "--resume", stopped, "--other-code", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["mean"]["train/risk"] == 0.0
    second = newest(stopped)["code"]["estimator bent"]
    assert second != first
    tags = tags_of(stopped)
    assert tags["wsl.provenance.estimator"] == f"{first}, then {second}"
    assert "then" not in tags["wsl.provenance.dataset"]


def test_a_comment_is_not_other_code_and_a_missing_plugin_is_named(
    wsl: Wsl, plugin: ChangingPlugin, stopped: str
) -> None:
    plugin.uninstall()
    refused = wsl("run", "--resume", stopped)
    assert refused.exit_code == 2
    assert "needs backbone 'straight', which wsl-bent 1.0 provided" in refused.stderr
    assert 'pip install "wsl-bent==1.0"' in refused.stderr
    plugin.install(source=SOURCE.replace("return SCALE", "# the same\n        return SCALE"))
    done = wsl("run", "--resume", stopped, "--quiet")
    assert done.exit_code == 0, done.output
    assert "then" not in tags_of(stopped)["wsl.provenance.estimator"]


def test_a_run_of_release_0_1_which_recorded_no_code_is_gone_on_with(
    wsl: Wsl, plugin: ChangingPlugin, stopped: str
) -> None:
    folder = Path("wsl-runs/runs") / stopped
    facts = json.loads((folder / "run.json").read_text())
    del facts["codes"], facts["checksum"]
    facts["tags"]["wsl.provenance.estimator"] = "wsl-bent 0.9"
    (folder / "run.json").write_text(json.dumps(facts))
    state = newest(stopped)
    del state["code"]
    for path in (folder / "checkpoints").glob("*.pt"):
        path.unlink()
    Checkpoints(folder / "checkpoints").save(Place(epoch=state["epoch"], step=state["step"]), state)
    plugin.install(source=ZERO)
    done = wsl("run", "--resume", stopped, "--quiet")
    assert done.exit_code == 0, done.output
    tags = tags_of(stopped)
    assert tags["wsl.provenance.estimator"].startswith("wsl-bent 0.9, then wsl-bent 1.0 (source ")


def test_a_checkpoint_of_other_code_is_refused_by_itself(plugin: ChangingPlugin, stopped: str) -> None:
    files = Checkpoints(Path("wsl-runs/runs") / stopped / "checkpoints")
    code = newest(stopped)["code"]
    assert TrialCheckpoints(files, codes=[code]).place == Place(epoch=2)
    other = {**code, "toolkit": "wsl-toolkit 9.9"}
    assert TrialCheckpoints(files, codes=[code, other]).place == Place(epoch=2)
    with pytest.raises(CheckpointError, match=r"written by other code \(toolkit: .* → wsl-toolkit 9\.9\)"):
        TrialCheckpoints(files, codes=[other])


def test_a_plugins_metric_is_part_of_the_code_where_it_decides_which_model_is_kept(plugin: ChangingPlugin) -> None:
    plugin.install(metric=METRIC)
    registry = load_plugins().registry
    monitored = {"monitor": "validation/sureness"}
    assert named_in(monitored, registry) == ()
    assert named_in({"monitor": "validation/covering_rate", "keep": "best"}, registry) == ()
    for decides in ({"keep": "best"}, {"patience": 3}):
        assert named_in(monitored | decides, registry) == (("metric", "sureness"),)


def test_a_run_that_keeps_the_best_epoch_by_another_metric_is_refused(
    wsl: Wsl, plugin: ChangingPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin.install(metric=METRIC)
    run = stop_a_run(wsl, monkeypatch, "--monitor", "validation/sureness", "--keep", "best")
    plugin.install(metric=METRIC.replace(".amax(-1)", ".amin(-1)"))
    refused = wsl("run", "--resume", run)
    assert refused.exit_code == 2
    assert "metric sureness: wsl-bent 1.0 (source " in refused.stderr
    plugin.install()
    assert "needs metric 'sureness', which wsl-bent 1.0 provided" in wsl("run", "--resume", run).stderr


def test_other_code_without_a_run_to_go_on_with_is_a_mistake(wsl: Wsl) -> None:
    assert "--other-code goes with --resume" in wsl("run", "--other-code").stderr


def test_a_model_whose_backbone_is_gone_names_its_distribution(wsl: Wsl, plugin: ChangingPlugin) -> None:
    with Path("rows.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["a", "b", "candidates"])
        rows.writerows([[i % 7, i % 5, "x|y" if i % 3 else "y|z"] for i in range(60)])
    fitted = wsl("fit", "rows.csv", "--backbone", "straight", "--epochs", "1", "--out", "model", "--no-track")
    assert fitted.exit_code == 0, fitted.output
    assert wsl("predict", "model", "rows.csv").exit_code == 0
    plugin.uninstall()
    refused = wsl("predict", "model", "rows.csv")
    assert refused.exit_code == 2
    assert "needs backbone 'straight', which wsl-bent 1.0 provided" in refused.stderr
