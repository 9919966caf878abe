"""`wsl run` end to end, through plugins, into a real MLflow store."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from wsl_toolkit import train
from wsl_toolkit.cli import main

pytestmark = pytest.mark.usefixtures("small_pictures")

BASE = ["run", "--estimator", "ppl", "--generator", "mcl-skewed"]


def wsl(*arguments: str) -> Result:
    """Call the command in this process; a defect of ours surfaces as a traceback in the test."""
    return CliRunner(env={"WSL_TRACEBACK": "1"}).invoke(main, list(arguments))


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory, fresh_database_in: Callable[[Path], None]) -> Iterator[Path]:
    """A working directory that the tests of this module share."""
    with pytest.MonkeyPatch.context() as patch:
        path = tmp_path_factory.mktemp("workspace")
        fresh_database_in(path)
        patch.chdir(path)
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        yield path


@pytest.fixture(scope="module")
def client(workspace: Path) -> Any:
    from wsl_toolkit.runs.tracking.library import import_mlflow
    from wsl_toolkit.runs.tracking.store import default_uri

    return import_mlflow().MlflowClient(tracking_uri=default_uri(workspace / "wsl-runs"))


@pytest.fixture(scope="module")
def one_run(workspace: Path) -> dict[str, Any]:
    result = wsl(*BASE, "--epochs", "3", "--tag", "purpose=test", "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def five_trials(workspace: Path) -> dict[str, Any]:
    result = wsl(*BASE, "--trials", "5", "--epochs", "2", "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_defaults_reach_93_percent_over_five_seeds() -> None:
    """From Python, to the bits of the command (tests/api/test_experiments.py) and without its figures and models."""
    found = train(trials=5)
    assert found.metrics["test/accuracy"] >= 0.93
    assert 0 < found.stderr["test/accuracy"] < 0.02


def test_trials_are_children_of_one_parent_with_mean_and_standard_error(
    five_trials: dict[str, Any], client: Any
) -> None:
    parent = client.get_run(five_trials["run_id"])
    children = client.search_runs(
        [five_trials["experiment_id"]], f"tags.`mlflow.parentRunId` = '{five_trials['run_id']}'"
    )
    accuracies = [child.data.metrics["test/accuracy"] for child in children]
    assert sorted(int(child.data.params["seed"]) for child in children) == [0, 1, 2, 3, 4]
    assert parent.data.metrics["test/accuracy_mean"] == pytest.approx(sum(accuracies) / 5)
    variance = sum((a - sum(accuracies) / 5) ** 2 for a in accuracies) / 4
    assert parent.data.metrics["test/accuracy_stderr"] == pytest.approx((variance / 5) ** 0.5)
    assert all(child.info.status == "FINISHED" for child in [parent, *children])


def test_parameters_metrics_and_provenance_are_tracked(one_run: dict[str, Any], client: Any) -> None:
    run = client.get_run(one_run["run_id"])
    assert run.data.params["generator.alpha"] == "0.7"
    assert run.data.params["estimator.name"] == "ppl"
    assert run.data.tags["wsl.provenance.estimator"].startswith("wsl-toolkit ")
    assert run.data.tags["purpose"] == "test"
    assert run.data.tags["wsl.torch"]
    assert "test accuracy" in run.data.tags["mlflow.note.content"]
    assert [m.step for m in client.get_metric_history(one_run["run_id"], "train/risk")] == [1, 2, 3]
    for name in ("validation/covering_rate", "validation/approximated_accuracy", "validation/oracle_accuracy"):
        assert 0 <= run.data.metrics[name] <= 1


def test_the_dataset_and_the_candidate_sets_are_inputs(one_run: dict[str, Any], client: Any) -> None:
    inputs = {i.dataset.name: i.dataset.digest for i in client.get_run(one_run["run_id"]).inputs.dataset_inputs}
    assert set(inputs) == {"digits", "candidate-sets"}
    assert one_run["trials"][0]["candidates"]["hash"].startswith(inputs["candidate-sets"])


def test_the_tracked_candidate_sets_read_back(one_run: dict[str, Any], client: Any) -> None:
    from wsl_toolkit.labels.candidate_sets import CandidateSets
    from wsl_toolkit.runs.tracking.store import CANDIDATES_FILE

    sets = CandidateSets.load(client.download_artifacts(one_run["run_id"], CANDIDATES_FILE))
    assert sets.content_hash == one_run["trials"][0]["candidates"]["hash"]
    assert sets.class_names == tuple("0123456789")


def test_config_figure_and_model_are_artifacts(one_run: dict[str, Any], client: Any, workspace: Path) -> None:
    run_id = one_run["run_id"]
    figure = Path(client.download_artifacts(run_id, "figures/learning_curve.png"))
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert 'name = "mcl-skewed"' in Path(client.download_artifacts(run_id, "config.toml")).read_text()


def test_pictures_are_kept_with_the_run_they_belong_to(
    one_run: dict[str, Any], five_trials: dict[str, Any], client: Any
) -> None:
    def figures(run: dict[str, Any]) -> set[str]:
        return {Path(file.path).stem for file in client.list_artifacts(run["run_id"], "figures")}

    own = {"learning_curve", "true_label_confidence", "candidate_sizes", "reliability", "ambiguous"}
    assert figures(one_run) == own
    assert figures(five_trials) == {"learning_curve", "true_label_confidence"}


def test_the_tracked_model_predicts_as_well_as_the_run_said(one_run: dict[str, Any], workspace: Path) -> None:
    import torch

    from wsl_toolkit.data.dataset import split
    from wsl_toolkit.plugins.loading import load_plugins
    from wsl_toolkit.runs.tracking.store import default_uri, speaking_to
    from wsl_toolkit.system.random_streams import stream

    with speaking_to(default_uri()) as mlflow:
        model = mlflow.pytorch.load_model(f"runs:/{one_run['run_id']}/model")
    data = load_plugins().registry.create("dataset", "digits", {}).load(Path())
    test = split(data, 0.1, 0.2, stream(0, "split")).test
    assert test is not None
    assert data.y is not None
    with torch.no_grad():
        accuracy = (model(data.x[test]).argmax(1) == data.y[test]).float().mean()
    assert float(accuracy) == pytest.approx(one_run["mean"]["test/accuracy"])


def test_rerunning_the_saved_config_gives_the_same_numbers(
    one_run: dict[str, Any], client: Any, workspace: Path
) -> None:
    config = client.download_artifacts(one_run["run_id"], "config.toml")
    again = wsl("run", "--config", config, "--json")
    assert json.loads(again.stdout)["trials"][0]["metrics"] == one_run["trials"][0]["metrics"]


def test_another_process_gives_the_same_bits_and_the_estimator_does_not_change_the_sets(
    one_run: dict[str, Any], workspace: Path, warm_python: Path
) -> None:
    """The other process runs one thread as this one does: the same execution plan."""
    command = [warm_python, "-P", "-m", "wsl_toolkit.cli"]

    def elsewhere(estimator: str) -> dict[str, Any]:
        arguments = [*BASE, "--epochs", "3", "--json", "--quiet", "--estimator", estimator]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["trials"][0]

    here = wsl(*BASE, "--epochs", "3", "--json", "--quiet", "--estimator", "cc")
    mine, same, other = one_run["trials"][0], elsewhere("ppl"), json.loads(here.stdout)["trials"][0]
    assert same["metrics"] == mine["metrics"]
    assert same["candidates"] == other["candidates"] == mine["candidates"]
    assert other["metrics"] != mine["metrics"]


def test_a_run_leaves_no_address_behind_that_would_decide_where_the_next_one_goes(one_run: dict[str, Any]) -> None:
    """MLflow's own functions put it into the environment."""
    assert "MLFLOW_TRACKING_URI" not in os.environ


def test_a_terminal_user_sees_a_table_and_where_to_look(workspace: Path) -> None:
    result = wsl(*BASE, "--epochs", "1")
    for text in ("test accuracy", "empirical risk", "covering rate", "mean |s|", "training time", "wsl ui"):
        assert text in result.stdout
    assert "epoch 1/1" in result.stderr


def test_the_table_is_shown_before_figures_and_model_are_written(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wsl_toolkit.cli import run as command
    from wsl_toolkit.runs.tracking.tracked_run import TrackedRun

    events: list[str] = []
    show, put = command._show, TrackedRun._put
    monkeypatch.setattr(command, "_show", lambda *given: (events.append("shown"), show(*given)))
    monkeypatch.setattr(TrackedRun, "_put", lambda self, name, write: (events.append(name), put(self, name, write)))
    assert wsl(*BASE, "--epochs", "1").exit_code == 0
    at = events.index("shown")
    assert events.count("shown") == 1
    assert "config.toml" in events[:at]
    assert {"model", "figures/learning_curve.png"} <= set(events[at:])


def test_dry_run_prints_a_config_and_trains_nothing(workspace: Path, client: Any) -> None:
    import tomllib

    result = wsl(*BASE, "--generator-alpha", "0.9", "--dry-run")
    assert tomllib.loads(result.stdout)["generator"] == {"name": "mcl-skewed", "alpha": 0.9}
    assert "epoch" not in result.stderr


def test_help_shows_the_chosen_components_options() -> None:
    assert "--generator-alpha" in wsl("run", "--generator", "mcl-skewed", "--help").output
    assert "ratio of successive size probabilities" not in wsl("run", "--generator", "cl", "--help").output
    assert "--backbone-widths" in wsl("run", "--backbone", "mlp", "--help").output


def test_a_run_outside_the_estimators_promise_says_so_once_and_is_tagged(workspace: Path, client: Any) -> None:
    result = wsl("run", "--estimator", "mcl", "--generator", "flip-class", "--epochs", "1", "--json")
    assert result.exit_code == 0, result.output
    assert result.stderr.count("note:") == 1
    assert "mcl is unbiased in MCL" in result.stderr
    assert "mcl is unbiased" in client.get_run(json.loads(result.stdout)["run_id"]).data.tags["wsl.notes"]


def test_an_exception_while_training_leaves_a_failed_run_with_its_message(workspace: Path, client: Any) -> None:
    result = CliRunner().invoke(main, [*BASE, "--epochs", "2", "--lr", "1e30", "--estimator", "cc"])
    assert result.exit_code == 4
    assert "the loss became" in result.stderr
    experiment = client.get_experiment_by_name("wsl-digits").experiment_id
    newest = client.search_runs([experiment], order_by=["attributes.start_time DESC"], max_results=1)[0]
    assert newest.info.status == "FAILED"
    assert "the loss became" in newest.data.tags["mlflow.note.content"]
