"""The paper's own numbers: the empirical risks of its Tables 3 and 4 (`paper.csv`), to stand beside ours."""

from __future__ import annotations

import csv
import functools
from importlib import resources

import attrs


@attrs.frozen(kw_only=True)
class PaperRisk:
    """One place of a table: mean and standard error over 5 trials; bold there is the smallest error of its row."""

    mean: float
    stderr: float
    bold: bool

    def __str__(self) -> str:
        return f"{self.mean:.3f} ± {self.stderr:.3f}"


@functools.cache
def paper_risks() -> dict[tuple[str, str, float, str], PaperRisk]:
    """Return the published risks by dataset, backbone, α and method; LW is left out where it learned nothing."""
    text = (resources.files("wsl_toolkit") / "studies" / "report" / "paper.csv").read_text(encoding="utf-8")
    return {
        (row["dataset"], row["backbone"], float(row["alpha"]), row["method"]): PaperRisk(
            mean=float(row["risk_mean"]), stderr=float(row["risk_stderr"]), bold=row["bold"] == "yes"
        )
        for row in csv.DictReader(text.splitlines())
    }
