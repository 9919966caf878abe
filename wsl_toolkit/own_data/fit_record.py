"""What people see of a fit in MLflow: a description, a table of classes, what was tried, a calibration picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import torch

from wsl_toolkit.data.dataset import Data
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.own_data.description import title
from wsl_toolkit.own_data.held_out import HeldOut
from wsl_toolkit.own_data.model_file import Model, class_names_of
from wsl_toolkit.own_data.result_files import write_frame

CLASSES, TRIED, PICTURE = "classes.csv", "tried.csv", "figures/calibration.png"
MOST_CLASSES = 30
"""Of many classes, so many are in the description; the file has all."""


@attrs.frozen(kw_only=True, eq=False)
class FitRecord:
    """What is kept of a fit beside its model."""

    model: Model
    report: HeldOut
    classes: list[dict[str, Any]]
    """A row a class."""
    seconds: float

    @classmethod
    def of(cls, model: Model, data: Data, candidates: CandidateSets, report: HeldOut, seconds: float) -> FitRecord:
        """Collect what is to be seen."""
        return cls(model=model, report=report, classes=class_rows(data, candidates, report), seconds=seconds)

    @property
    def description(self) -> str:
        """The run's description, in Markdown: the chosen model, how it does, and the classes."""
        about, report = self.model.about, self.report
        lines = [
            f"**{title(about)}** by `wsl fit` on {about['data']}: of {max(1, len(about['tried']))} "
            f"choices it makes held-out candidate sets likeliest; {self.seconds:.0f} s.",
            "",
            f"On {report.examples:,} held-out examples: "
            + ", ".join(f"{name} {value:.4f}" for name, value in self.numbers.items()),
            "",
        ]
        headings = list(self.classes[0])
        lines += ["| " + " | ".join(headings) + " |", "|---" * len(headings) + "|"]
        for row in self.classes[:MOST_CLASSES]:
            cells = ("" if value is None else str(value).replace("|", "\\|") for value in row.values())
            lines.append("| " + " | ".join(cells) + " |")
        rest = len(self.classes) - MOST_CLASSES
        return "\n".join([*lines, *([f"… and {rest:,} more in {CLASSES}"] if rest > 0 else [])])

    @property
    def numbers(self) -> dict[str, float]:
        """What was measured on the held-out examples, the most telling first."""
        report = self.report
        found = {
            "accuracy": report.accuracy,
            "covering rate": report.covering_rate,
            "log loss of the sets": report.set_log_loss,
            "calibration error": report.calibration_error,
        }
        return {name: value for name, value in found.items() if value is not None}

    def write(self, folder: Path) -> None:
        """Write the files that go to the store with the run; the picture where enough true labels are known."""
        import pandas as pd

        write_frame(pd.DataFrame(self.classes), folder / CLASSES)
        if self.model.about["tried"]:
            write_frame(pd.DataFrame(self.model.about["tried"]), folder / TRIED)
        if self.report.calibration_error is not None and self.report.confidence is not None:
            from wsl_toolkit.runs.figures import Calibration, reliability_diagram
            from wsl_toolkit.system.figure_style import save

            assert self.report.right is not None
            (folder / PICTURE).parent.mkdir(exist_ok=True)
            found = Calibration.of(self.report.confidence, self.report.right)
            save(reliability_diagram(found, title(self.model.about)), folder / PICTURE)


def class_rows(data: Data, candidates: CandidateSets, report: HeldOut) -> list[dict[str, Any]]:
    """Return for each class how many sets hold it, how often it was predicted and, where that is known, how rightly."""
    counts = candidates.class_counts().tolist()
    names = class_names_of(data)
    predicted = torch.bincount(report.predicted, minlength=len(names)).tolist()
    known = torch.bincount(report.labels[report.labels >= 0], minlength=len(names)).tolist()
    hits = report.labels[(report.labels >= 0) & (report.predicted == report.labels)]
    right = torch.bincount(hits, minlength=len(names)).tolist()
    rows = [
        {"class": name, "sets that hold it": counts[j], "predicted, held out": predicted[j]}
        | ({"known, held out": known[j], "of them right": right[j]} if report.known_labels else {})
        for j, name in enumerate(names)
    ]
    return sorted(rows, key=lambda row: -row["sets that hold it"])
