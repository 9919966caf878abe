"""A study on a real two-node Ray cluster: the same results, whoever dies, and to and fro between cluster and laptop."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from ray_nodes import PATIENCE, RayCluster

from tests.waiting import until

pytestmark = [pytest.mark.system, pytest.mark.timeout(900), pytest.mark.xdist_group("ray")]

SMALL: dict[str, Any] = {
    "name": "to-and-fro",
    "trials": 2,
    "training": {"epochs": 6, "batch_size": 128, "validation": 0.1},
    "search": {"epochs": 3, "space": {"lr": [0.01, 0.1], "weight_decay": [1e-4]}},
    "settings": [{"dataset": "digits", "generator": {"name": "mcl-skewed", "alpha": 0.8}, "backbone": "linear"}],
    "methods": [{"estimator": "ppl", "label": "PPL"}, {"estimator": "cc", "label": "CC"}],
}


def plugin(folder: Path, name: str, version: str) -> str:
    """Install a third party's plugin below a folder, as pip would; return what PYTHONPATH must hold."""
    about = folder / f"wsl_{name}-{version}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: wsl-{name}\nVersion: {version}\n")
    (about / "entry_points.txt").write_text(f"[wsl_toolkit]\n{name} = wsl_{name}\n")
    (folder / f"wsl_{name}.py").write_text(
        "import attrs\nfrom wsl_toolkit import Estimator, Kind, Setting, hookimpl\n"
        "from wsl_toolkit.losses import cross_entropy\n\n\n"
        "@attrs.frozen(kw_only=True)\nclass Far(Estimator):\n"
        '    """The mean loss over the candidates."""\n\n    name = "NAME"\n    assumption = Setting.GENERAL\n'
        "    kind = Kind.HEURISTIC\n\n    def loss(self, logits, candidates, state):\n"
        "        return (candidates * cross_entropy(logits)).sum(-1) / candidates.sum(-1)\n\n\n"
        "@hookimpl\ndef wsl_register_estimators():\n    return [Far]\n".replace("NAME", name)
    )
    return str(folder)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    """Two nodes, on both of which, as on the driver's side, a third party's plugin is installed."""
    made = RayCluster(PYTHONPATH=plugin(tmp_path_factory.mktemp("plugin"), "far", "0.1"))
    try:
        made.add_node()
        yield made
    finally:
        made.stop()


def start(cluster: RayCluster, home: Path, *arguments: str, **env: str) -> subprocess.Popen[str]:
    home.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "wsl_toolkit.cli", "study", *arguments]
    return subprocess.Popen(
        command, cwd=home, env={**cluster.env, **env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


def finish(driver: subprocess.Popen[str], code: int = 0) -> str:
    out, said = driver.communicate(timeout=600)
    assert driver.returncode == code, f"{out}\n{said}"
    assert "Traceback" not in said
    return out + said


def results(home: Path) -> dict[str, dict[str, Any]]:
    """What each job came to, by its id."""
    return {path.stem: json.loads(path.read_text()) for path in (home / "wsl-runs" / "jobs").glob("*.json")}


def assert_equal_studies(one: Path, other: Path, name: str) -> None:
    """The same jobs with the same histories, the same choices, the same table of trials; stacks may round otherwise."""
    mine, theirs = results(one), results(other)
    assert mine.keys() == theirs.keys()
    for job, result in mine.items():
        assert result["status"] == theirs[job]["status"]
        assert result["candidates_hash"] == theirs[job]["candidates_hash"]
        for metric, values in result["history"].items():
            assert theirs[job]["history"][metric] == pytest.approx(values, rel=1e-4, abs=1e-4), f"{job} {metric}"
    tables = [_rows(home / "wsl-runs" / "studies" / name / "report") for home in (one, other)]
    assert len(tables[0]) == len(tables[1]) > 0
    for left, right in zip(*tables, strict=True):
        assert left.keys() == right.keys()
        for column, value in left.items():
            assert right[column] == (pytest.approx(value, rel=1e-4, abs=1e-4) if isinstance(value, float) else value)


def _rows(report: Path) -> list[dict[str, Any]]:
    """The lines of trials.csv and search.csv, numbers as numbers; seconds are no result."""
    found: list[dict[str, Any]] = []
    for name in ("trials.csv", "search.csv"):
        with (report / name).open() as file:
            rows = list(csv.DictReader(file))
        found += [{key: _number(value) for key, value in row.items() if "seconds" not in key} for row in rows]
    return found


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def test_a_study_goes_from_the_laptop_to_the_cluster_and_back(cluster: RayCluster, tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(tomli_w.dumps(SMALL))
    ray = ("--executor", "ray", "--address", cluster.address)
    finish(start(cluster, tmp_path / "local", "run", str(file), "--jobs", "2"))
    for name, first, second in (("there", (), ray), ("back", ray, ())):
        home = tmp_path / name
        driver = start(cluster, home, "run", str(file), *first)
        until(lambda home=home: len(results(home)) >= 2, "no results come")
        os.killpg(driver.pid, signal.SIGKILL)
        driver.communicate()
        before = {path.name: path.read_bytes() for path in (home / "wsl-runs" / "jobs").glob("*.json")}
        finish(start(cluster, home, "resume", SMALL["name"], *second))
        after = {path.name: path.read_bytes() for path in (home / "wsl-runs" / "jobs").glob("*.json")}
        assert before.items() <= after.items(), "a finished run was done again"
        assert_equal_studies(tmp_path / "local", home, SMALL["name"])


def test_a_plugin_that_a_node_lacks_or_has_in_another_version_is_named_with_the_node_before_anything_starts(
    cluster: RayCluster, tmp_path: Path
) -> None:
    def study(name: str) -> tuple[str, ...]:
        file = tmp_path / f"{name}.toml"
        file.write_text(tomli_w.dumps({**SMALL, "name": name, "methods": [{"estimator": name, "label": name}]}))
        return ("run", str(file), "--executor", "ray", "--address", cluster.address)

    home = tmp_path / "home"
    here = plugin(tmp_path / "here", "near", "0.3")
    said = finish(start(cluster, home, *study("near"), PYTHONPATH=here), code=2)
    assert "study near cannot start on this cluster" in said
    assert said.count("wsl-near is missing (0.3 is needed)") == 2, "both nodes are named"
    node = cluster.add_node(PYTHONPATH=plugin(tmp_path / "new", "far", "0.2"))
    try:
        said = finish(start(cluster, home, *study("far")), code=2)
        assert said.count("wsl-far is 0.2, not 0.1 as here") == 1, "two nodes have what the driver has"
        assert not results(home)
    finally:
        count = cluster.alive()
        node.kill()
        until(lambda: cluster.alive() < count, "the cluster does not notice that a node is gone")
    finish(start(cluster, home, *study("far")))
    assert len(results(home)) == 4


def test_a_cluster_that_cannot_be_joined_is_one_clear_line(cluster: RayCluster, tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(tomli_w.dumps(SMALL))
    run = ("run", str(file), "--executor", "ray")
    said = finish(start(cluster, tmp_path, *run, "--address", cluster.address, "--task-cpus", "64"), code=2)
    assert "can do a task that takes 64 CPU; it has 2 CPU" in said
    wrong = tmp_path / "wrong-token"
    wrong.write_text("0" * 64)
    said = finish(start(cluster, tmp_path, *run, "--address", cluster.address, RAY_AUTH_TOKEN_PATH=str(wrong)), code=2)
    assert "no Ray cluster can be joined" in said


def test_table_3_in_small_survives_the_death_of_a_node_and_equals_the_local_one(
    cluster: RayCluster, tmp_path: Path
) -> None:
    quick = ("run", "paper-table-3", "--quick")
    finish(start(cluster, tmp_path / "local", *quick, "--jobs", "2"))
    expected = len(results(tmp_path / "local"))
    ray = ("--executor", "ray", "--address", cluster.address, "--json")
    driver = start(cluster, tmp_path / "cluster", *quick, *ray)
    until(lambda: len(results(tmp_path / "cluster")) >= expected // 2, "half of the study", 4 * PATIENCE)
    assert driver.poll() is None
    cluster.nodes[1].kill()
    out, said = driver.communicate(timeout=600)
    assert driver.returncode == 0, said
    assert json.loads(out)["complete"] is True, "what Ray says of the death is not on standard output"
    assert_equal_studies(tmp_path / "local", tmp_path / "cluster", "paper-table-3-quick")
