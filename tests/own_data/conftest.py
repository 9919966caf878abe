"""Made tables and a way to call `wsl` as a user does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from wsl_toolkit.cli import main

CLASSES = ("chat noir", "chien fidèle", "éléphant d'Afrique", "oie cendrée")


class Wsl:
    """Calls `wsl` in a directory of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def __call__(self, *arguments: object, code: int = 0) -> Result:
        result = CliRunner().invoke(main, [str(argument) for argument in arguments])
        assert result.exit_code == code, f"{result.exit_code}: {result.output}\n{result.exception!r}"
        assert "Traceback" not in result.output
        return result

    def json(self, *arguments: object) -> dict:
        return json.loads(self(*arguments).stdout)

    def refused(self, *arguments: object) -> str:
        """Return the one-line error of a call that must fail as a user's mistake."""
        return " ".join(self(*arguments, code=2).output.split())

    def files(self) -> set[str]:
        return {str(path.relative_to(self.home)) for path in self.home.rglob("*")}


@pytest.fixture
def wsl(tmp_path, monkeypatch) -> Wsl:
    monkeypatch.chdir(tmp_path)
    return Wsl(tmp_path)


def zoo_rows(n: int = 240, seed: int = 0) -> list[dict[str, str]]:
    """Animals with 20 % of the features missing, string categories, and names with spaces and accents."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, len(CLASSES), n)
    weight = 10.0**y + rng.normal(0, 0.2, n)
    height = 5.0 * y + rng.normal(0, 1, n)
    coat = np.array(["poil noir", 'poil, "roux"', "peau grise", "plumes"])[y]
    missing = rng.random((n, 3)) < 0.2
    rows = []
    for i in range(n):
        wrong = rng.random(len(CLASSES)) < 0.3
        wrong[y[i]] = True
        if wrong.all():
            wrong[(y[i] + 1) % len(CLASSES)] = False
        rows.append(
            {
                "nom": f"bête {i}",
                "poids (kg)": "" if missing[i, 0] else repr(float(weight[i])),
                "taille": "NA" if missing[i, 1] else repr(float(height[i])),
                "pelage": "" if missing[i, 2] else str(coat[i]),
                "espèces": "|".join(np.array(CLASSES)[wrong]),
                "vérité": CLASSES[y[i]] if i % 2 else "",
            }
        )
    return rows


def write_csv(path: Path, rows: list[dict[str, str]]) -> Path:
    import csv

    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


ZOO = ("--candidates-column", "espèces", "--label-column", "vérité", "--id-column", "nom")


@pytest.fixture
def zoo(tmp_path) -> Path:
    return write_csv(tmp_path / "zoo.csv", zoo_rows())
