"""A model loads with mlflow.pyfunc and answers raw rows from a real served endpoint."""

from __future__ import annotations

import json
import os
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

from tests.own_data.conftest import CLASSES, ZOO

FEATURES = ["poids (kg)", "taille", "pelage"]


@pytest.fixture
def served_rows(wsl, zoo) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Fit a model to `m`; return raw rows with gaps, and what `wsl predict` says of them."""
    wsl("fit", zoo, *ZOO, "--out", "m", "--epochs", 10, "--quiet", "--tracking-uri", "sqlite:///t.db")
    rows = pd.read_csv(zoo)[FEATURES].head(20)
    assert rows.isna().any().all()
    wsl("predict", "m", zoo, "--out", "p.json")
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


def test_a_row_without_an_optional_column_is_a_row_with_a_gap(served_rows):
    import mlflow

    rows, _ = served_rows
    model = mlflow.pyfunc.load_model("m")
    gap = rows.assign(pelage=None)
    pd.testing.assert_frame_equal(model.predict(rows.drop(columns="pelage")), model.predict(gap))


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
