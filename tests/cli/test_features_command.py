"""`wsl features`: computes once, lists, writes a dataset; and features that were computed elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import wsl_toolkit as wsl
from wsl_toolkit.cli import main


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["features", *arguments])


def told(*arguments: str) -> Any:
    done = call(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_features_are_computed_once_listed_and_written_as_a_dataset(here: Path) -> None:
    assert "No features are kept here" in call("--list").output
    first = told("digits", "--backbone", "mlp", "--backbone-widths", "20,10")
    assert (first["computed"], first["examples"], first["width"]) == (True, 1797, 10)
    again = told("digits", "--backbone", "mlp", "--backbone-widths", "20,10", "--out", "digits.npz")
    assert (again["computed"], again["key"], again["out"]) == (False, first["key"], "digits.npz")
    other = told("digits", "--backbone", "mlp", "--backbone-widths", "20,11")
    assert other["key"] != first["key"]
    kept = told("--list")
    assert {each["key"] for each in kept} == {first["key"], other["key"]}
    assert {each["bytes"] for each in kept} == {Path(each["path"]).stat().st_size for each in kept}
    assert {(each["data"], each["examples"]) for each in kept} == {("digits", 1797)}
    assert "digits" in call("--list").output

    data, digits = wsl.load_data("digits.npz"), wsl.load_data("digits")
    assert data.x.shape == (1797, 10)
    assert data.y is not None
    assert digits.y is not None
    assert data.y.tolist() == digits.y.tolist()
    assert wsl.train(data, generator="mcl", epochs=2, lr=0.5).network[1].in_features == 10  # type: ignore[index]


def test_the_run_uses_what_the_command_computed(here: Path) -> None:
    told("digits", "--backbone", "mlp", "--backbone-widths", "20,10")
    heard: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("wsl_toolkit.runs.features.embed", lambda *given: heard.append(1))
        wsl.train("digits", backbone={"name": "mlp", "widths": [20, 10], "frozen": True}, epochs=1)
    assert heard == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name a DATASET, or list what is kept"),
        (("digits",), "name the network, with --backbone"),
        (("--list", "digits"), "leave DATASET and --backbone out"),
        (("digitz", "--backbone", "mlp"), "Did you mean 'digits'?"),
        (("digits", "--backbone", "mlpp"), "Did you mean 'mlp'?"),
        (("nothing.npz", "--backbone", "mlp"), "there is no file nothing.npz"),
        (("digits", "--backbone", "mlp", "--out", "there.npz"), "there.npz exists already: --force replaces it"),
        (("digits", "--backbone", "mlp", "--out", "new.xyz"), "no installed dataset reads 'new.xyz'"),
        (("digits", "--imbalance", "3", "--backbone", "mlp", "--out", "new.npz"), "--imbalance thins"),
        (("digits", "--backbone", "lenet"), "needs images of at least 16×16 pixels"),
    ],
)
def test_mistakes_are_named_and_nothing_is_kept(here: Path, arguments: tuple[str, ...], message: str) -> None:
    (here / "there.npz").write_text("mine")
    done = call(*arguments)
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())
    assert (here / "there.npz").read_text() == "mine"
    assert not (here / "wsl-runs" / "features").exists()


def test_features_of_ones_own_are_read_from_an_archive_and_from_parquet(here: Path) -> None:
    import pandas as pd

    rng = np.random.default_rng(0)
    y = rng.integers(4, size=200)
    # Means are 8.5 deviations apart: one example in ten thousand is on the wrong side, unless rows were mixed up.
    x = rng.normal(size=(200, 6)).astype("float32") + 6 * np.eye(4, 6, dtype="float32")[y]
    np.savez("own.npz", x=x[:150], y=y[:150], test_x=x[150:], test_y=y[150:])
    names = ["ant", "bee", "cat", "dog"]
    sets = [sorted({names[label], str(rng.choice(names))}) for label in y]
    table = pd.DataFrame(x, columns=[f"f{column}" for column in range(6)])
    table.assign(candidates=sets, label=[names[label] for label in y]).to_parquet("own.parquet")
    archive, parquet = wsl.load_data("own.npz"), wsl.load_data("own.parquet")
    assert np.array_equal(archive.x, x[:150])
    assert np.array_equal(archive.test_x, x[150:])
    assert np.array_equal(parquet.x, x)
    assert np.array_equal(parquet.y, y)
    assert parquet.candidates is not None
    assert np.array_equal(parquet.candidates.mask(), [[name in own for name in names] for own in sets])
    learned = wsl.train(archive, generator={"name": "mcl-skewed", "alpha": 0.5}, epochs=20, lr=0.1)
    assert learned.metrics["test/accuracy"] > 0.95
    assert wsl.train(parquet, estimator="proden", epochs=20, lr=0.1).metrics["test/accuracy"] > 0.95
