"""A model loads with mlflow.pyfunc and answers raw rows from a real served endpoint."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.own_data.conftest import CLASSES, ZOO, Wsl, write_csv, zoo_rows

pytestmark = pytest.mark.usefixtures("small_pictures")

FEATURES = ["poids (kg)", "taille", "pelage"]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory) -> Path:
    """Where a model was fitted to `m`, and what it says of its table was written to `p.json`, once."""
    home = tmp_path_factory.mktemp("fitted")
    zoo = write_csv(home / "zoo.csv", zoo_rows())
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        wsl = Wsl(home)
        wsl("fit", zoo, *ZOO, "--out", "m", "--epochs", 10, "--quiet", "--tracking-uri", "sqlite:///t.db")
        wsl("predict", "m", zoo, "--out", "p.json")
    return home


@pytest.fixture
def served_rows(wsl, fitted) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A copy of that place to work in; return raw rows with gaps, and what `wsl predict` says of them."""
    shutil.copytree(fitted, wsl.home, dirs_exist_ok=True)
    rows = pd.read_csv("zoo.csv")[FEATURES].head(20)
    assert rows.isna().any().all()
    return rows, pd.read_json("p.json").head(20)


def test_pyfunc_and_the_tracked_model_answer_as_predict_does(wsl, served_rows):
    import mlflow

    from wsl_toolkit.runs.tracking.store import speaking_to

    rows, expected = served_rows
    here = mlflow.pyfunc.load_model("m")
    pd.testing.assert_frame_equal(here.predict(rows), expected, check_dtype=False, atol=1e-9, rtol=1e-9)
    assert [column.name for column in here.metadata.signature.inputs.inputs] == FEATURES
    assert (
        here.input_example is not None
        if hasattr(here, "input_example")
        else (wsl.home / "m/input_example.json").is_file()
    )

    with speaking_to("sqlite:///t.db"):
        runs = mlflow.search_runs(search_all_experiments=True)
        assert len(runs) == 1
        assert runs["params.estimator.name"][0] == "ppl"
        assert runs["status"][0] == "FINISHED"
        tracked = mlflow.pyfunc.load_model(f"runs:/{runs['run_id'][0]}/model")
    pd.testing.assert_frame_equal(tracked.predict(rows), expected, check_dtype=False, atol=1e-9, rtol=1e-9)


def test_no_file_of_a_model_is_a_pickle(wsl, served_rows):
    for path in (wsl.home / "m").rglob("*"):
        if path.is_file():
            assert path.suffix in (".safetensors", ".json", ".yaml", ".txt", ""), path
            assert not path.read_bytes().startswith(b"\x80\x04"), path


def test_a_missing_or_misspelt_column_is_an_error_and_whole_numbers_are_numbers(served_rows):
    import mlflow

    from wsl_toolkit.errors import DataError

    rows, _ = served_rows
    model = mlflow.pyfunc.load_model("m")
    for wrong in (rows.drop(columns="pelage"), rows.rename(columns={"pelage": "pelages"})):
        with pytest.raises(mlflow.MlflowException, match="missing inputs \\['pelage'\\]"):
            model.predict(wrong)
    whole = pd.DataFrame({"poids (kg)": [4, 100], "taille": np.array([3, 5], dtype=np.int32), "pelage": "plumes"})
    pd.testing.assert_frame_equal(model.predict(whole), model.predict(whole.astype({"taille": float})))
    with pytest.raises(DataError, match="row 1, column 'taille': 'x' is not a number"):
        model.predict(whole.assign(taille="x"))
    gaps = pd.DataFrame({"poids (kg)": [None], "taille": [None], "pelage": [None]})
    assert model.predict(gaps)["probability"].between(0, 1).all()


def test_no_row_of_the_data_is_in_the_model_unless_asked(wsl, zoo):
    fit = ("--epochs", 1, "--lr", 0.1, "--weight-decay", 0, "--quiet", "--no-track")
    wsl("fit", zoo, *ZOO, "--out", "m", *fit)
    example = json.loads((wsl.home / "m" / "input_example.json").read_text())
    assert example["columns"] == FEATURES
    assert example["data"] == [[0.0, 0.0, "peau grise"]]
    raw = pd.read_csv(zoo)
    numbers = {repr(value) for name in FEATURES[:2] for value in raw[name].dropna()}
    for path in (wsl.home / "m").rglob("*.json"):
        assert not any(number in path.read_text() for number in numbers), path
    wsl("fit", zoo, *ZOO, "--out", "n", *fit, "--example-rows", 3)
    shown = json.loads((wsl.home / "n" / "input_example.json").read_text())["data"]
    assert len(shown) == 3
    assert any(repr(cell) in numbers for row in shown for cell in row)


def test_the_store_has_the_metrics_the_classes_what_was_tried_and_a_calibration_picture(wsl, tmp_path):
    import mlflow

    from wsl_toolkit.runs.tracking.store import speaking_to

    table = write_csv(tmp_path / "zoo.csv", zoo_rows(300))
    fit = ("--epochs", 2, "--lr", 0.1, "--weight-decay", 0, "--tracking-uri", "sqlite:///t.db")
    found = wsl.json("fit", table, *ZOO, "--out", "m", *fit, "--json")
    with speaking_to("sqlite:///t.db"):
        client = mlflow.MlflowClient()
        run = client.get_run(found["run_id"])
        metrics = run.data.metrics
        for name in ("covering_rate", "set_log_loss", "calibration_error", "calibration_error_before"):
            assert metrics[f"held_out/{name}"] == pytest.approx(found["held_out"][name])
        assert metrics["test/accuracy"] == pytest.approx(found["held_out"]["accuracy"])
        assert metrics["seconds"] > 0
        assert metrics["temperature"] == found["temperature"]
        assert run.data.params["backbone.name"] == "linear"
        note = run.data.tags["mlflow.note.content"]
        assert "**linear** by `wsl fit` on zoo" in note
        assert all(f"| {name} |" in note for name in CLASSES)
        kept = {item.path for item in client.list_artifacts(found["run_id"])}
        assert {"classes.csv", "tried.csv", "figures"} <= kept
        path = client.download_artifacts(found["run_id"], "figures/calibration.png", str(tmp_path))
        assert Path(path).read_bytes().startswith(b"\x89PNG")
        classes = pd.read_csv(client.download_artifacts(found["run_id"], "classes.csv", str(tmp_path)))
    assert sorted(classes["class"]) == sorted(CLASSES)
    assert classes["predicted, held out"].sum() == found["held_out"]["examples"]
    assert classes["known, held out"].sum() == found["held_out"]["known_labels"]
    share = classes["of them right"].sum() / classes["known, held out"].sum()
    assert share == pytest.approx(found["held_out"]["accuracy"])


@pytest.mark.system
def test_a_served_endpoint_answers_raw_rows_with_class_names(wsl, served_rows):
    rows, expected = served_rows
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    scripts = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    environment["MLFLOW_ALLOW_PICKLE_DESERIALIZATION"] = "false"
    command = [str(scripts / "mlflow"), "models", "serve", "-m", "m", "--env-manager", "local", "-p", str(port)]
    log = (wsl.home / "server.log").open("w")
    server = subprocess.Popen(
        [*command, "-w", "1"], cwd=wsl.home, env=environment, stdout=log, stderr=log, start_new_session=True
    )
    try:
        wait_for(f"http://127.0.0.1:{port}/ping", server, wsl.home / "server.log")
        split = json.loads(rows.to_json(orient="split", index=False, double_precision=15))
        answer = post(f"http://127.0.0.1:{port}/invocations", {"dataframe_split": split})["predictions"]
        assert [row["label"] for row in answer] == expected["label"].tolist()
        assert {row["label"] for row in answer} <= set(CLASSES)
        got = np.array([[row[f"p({name})"] for name in sorted(CLASSES)] for row in answer])
        np.testing.assert_allclose(got, expected.filter(regex=r"^p\(").to_numpy(), atol=1e-6)
        with pytest.raises(urllib.error.HTTPError) as refused:
            post(f"http://127.0.0.1:{port}/invocations", {"dataframe_split": {"columns": ["taille"], "data": [["x"]]}})
        assert refused.value.code == 400
        whole = {"dataframe_split": {"columns": FEATURES, "data": [[4, 3, "plumes"]]}}
        (row,) = post(f"http://127.0.0.1:{port}/invocations", whole)["predictions"]
        assert row["label"] in CLASSES
        for column, value, told in (("pelages", "plumes", "pelage"), ("pelage", "plumes", "is not a number")):
            body = {"dataframe_split": {"columns": [*FEATURES[:2], column], "data": [[4.0, "x", value]]}}
            with pytest.raises(urllib.error.HTTPError) as refused:
                post(f"http://127.0.0.1:{port}/invocations", body)
            assert refused.value.code == 400
            assert told in refused.value.read().decode()
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)
        log.close()


def wait_for(url: str, server: subprocess.Popen, log: Path) -> None:
    end = time.monotonic() + 180
    while time.monotonic() < end:
        assert server.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:
            time.sleep(0.5)
    raise AssertionError(f"no answer from {url}: {log.read_text()}")


def post(url: str, body: dict) -> dict:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)
