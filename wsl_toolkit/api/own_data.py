"""Ambiguous labels of one's own, from Python: can they be learned from, by what, and which label is the likeliest."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wsl_toolkit.api.components import make_component, registry_with
from wsl_toolkit.api.data import as_data, make_data
from wsl_toolkit.api.display import shown
from wsl_toolkit.components import Backbone, Dataset, Estimator
from wsl_toolkit.data.dataset import Data
from wsl_toolkit.own_data import cleaning, fitting
from wsl_toolkit.own_data.audit import figures, page, report
from wsl_toolkit.training.config import DEFAULT_COMPONENTS

if TYPE_CHECKING:
    import pandas as pd

DataOrInputs = Any
"""Data, a dataset's name or a file's path; or inputs, beside which the candidate sets are given."""


class AuditReport:
    """What candidate sets are like, which assumptions they refute, and which estimators fit them."""

    def __init__(self, found: report.Audit) -> None:
        self.found = found
        """All that was found, as `wsl audit` has it."""

    @property
    def best_estimator(self) -> str:
        """The first estimator of the list that can be used."""
        return self.found.best_estimator

    @property
    def notes(self) -> tuple[str, ...]:
        """What one should know, the gravest first."""
        return self.found.notes

    def summary(self) -> pd.DataFrame:
        """Return the counts: examples, classes, sizes, full sets, the most ambiguous pair."""
        import pandas as pd

        return pd.DataFrame(report.summary_lines(self.found).items(), columns=["what", "value"])

    def settings(self) -> pd.DataFrame:
        """Return a row a setting: whether its assumption is refuted, and why."""
        import pandas as pd

        rows = [(str(setting), verdict, why) for setting, (verdict, why) in self.found.verdicts.items()]
        return pd.DataFrame(rows, columns=["setting", "verdict", "why"])

    def checks(self) -> pd.DataFrame:
        """Return a row a test: the setting, the question, the p-value, the finding."""
        import pandas as pd

        rows = [check.to_dict() for check in self.found.checks]
        return pd.DataFrame(rows, columns=["setting", "question", "method", "verdict", "p_value", "words"])

    def estimators(self) -> pd.DataFrame:
        """Return the installed estimators, those that fit these sets first, with the reason."""
        import pandas as pd

        return pd.DataFrame([each.to_dict() for each in self.found.recommendations])

    def annotators(self) -> pd.DataFrame:
        """Return a row an annotator: answers, sizes, reliability with its interval; none where they are not apart."""
        return self._of_annotators("people")

    def agreements(self) -> pd.DataFrame:
        """Return a row a pair of annotators: how often their sets have a class in common, and how much of them."""
        return self._of_annotators("agreements")

    def look_next(self) -> pd.DataFrame:
        """Return the examples from which one more answer is expected to tell most, and whose."""
        return self._of_annotators("look_next")

    def _of_annotators(self, what: str) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame([] if self.found.annotators is None else self.found.annotators.to_dict()[what])

    def figures(self) -> dict[str, Any]:
        """Return the plots as matplotlib figures: sizes, classes, companions."""
        counts = self.found.counts
        made = {
            "sizes": figures.sizes_figure(counts),
            "classes": figures.classes_figure(counts),
            "companions": figures.companions_figure(counts),
        }
        return {name: shown(figure) for name, figure in made.items()}

    def to_html(self) -> str:
        """Return the whole audit as a self-contained page."""
        return page.page(self.found)

    def __repr__(self) -> str:
        counts = self.found.counts
        return (
            f"AuditReport({self.found.name}: {counts.examples:,} sets of {counts.num_classes} classes, "
            f"first choice {self.best_estimator})"
        )

    def _repr_html_(self) -> str:
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
        return f"<p>{html.escape(repr(self))}</p><ul>{notes}</ul>{self.settings().to_html(index=False)}"


def audit(
    x: DataOrInputs, sets: Any = None, *, y: Any = None, classes: Sequence[Any] | None = None, seed: int = 0
) -> AuditReport:
    """Count what is in candidate sets, test every setting's assumption on them, and order the estimators.

    Give inputs and candidate sets (and true labels `y`, where they are known, for tests that need some), or data.
    """
    return AuditReport(report.audit(_own(x, sets, y, classes), registry_with(), seed=seed))


class Cleaning:
    """The most likely label of every example, judged by models that did not learn from it."""

    def __init__(self, data: Data, found: cleaning.Cleaned, estimator: str) -> None:
        self.found = found
        """The verdicts as tensors."""
        self.estimator = estimator
        self._data = data

    def table(self) -> pd.DataFrame:
        """Return a row an example: its label, the confidence, its candidates, its place in the list for review."""
        return cleaning.to_frame(self._data, self.found)

    def ambiguous(self, most: int | None = None) -> pd.DataFrame:
        """Return the rows of `table` in the order in which a person should look for labels that are left open."""
        return self.table().sort_values("ambiguous").head(most)

    def suspicious(self, most: int | None = None) -> pd.DataFrame:
        """Return the rows of `table` in the order in which a person should look for sets that miss the truth."""
        return self.table().sort_values("suspicious").head(most)

    @property
    def summary(self) -> dict[str, Any]:
        """How sure the labels are and, where true labels are known, how many are right."""
        return cleaning.summarise(self._data, self.found)

    def __repr__(self) -> str:
        known = {key: value for key, value in self.summary.items() if value is not None and value != []}
        words = ", ".join(f"{k} {v:.4f}" if isinstance(v, float) else f"{k} {v}" for k, v in known.items())
        return f"Cleaning({self.estimator}: {words})"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self))}</p>{self.table().sort_values('review').head(10).to_html(index=False)}"


def clean(
    x: DataOrInputs,
    sets: Any = None,
    *,
    y: Any = None,
    classes: Sequence[Any] | None = None,
    folds: int = 5,
    estimator: str | Mapping[str, Any] | Estimator | None = None,
    backbone: str | Mapping[str, Any] | Backbone | None = None,
    budget: str = "quick",
    epochs: int | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    weight_decay: float | None = None,
    seed: int = 0,
    device: str = "auto",
) -> Cleaning:
    """Give every example its most likely label with a confidence, out of fold, and rank the examples for review.

    What is not given is chosen as `wsl clean` does: the audit's first estimator, the model by the data and by
    held-out sets, as far as `budget` (quick, normal or thorough) allows.
    """
    data = _own(x, sets, y, classes)
    registry = registry_with()
    method = report.best_estimator(data, registry, seed=seed) if estimator is None else estimator
    told = {"epochs": epochs, "batch_size": batch_size, "lr": lr, "weight_decay": weight_decay}
    if backbone is None and fitting.means_a_network(told):
        backbone = DEFAULT_COMPONENTS["backbone"]
    options = fitting.FitOptions(
        estimator=make_component("estimator", method),
        backbone=None if backbone is None else make_component("backbone", backbone),
        budget=budget,
        epochs=epochs,
        batch_size=batch_size,
        lr=lr,
        weight_decay=weight_decay,
        seed=seed,
        device=device,
    )
    components = [options.estimator] if options.backbone is None else [options.estimator, options.backbone]
    found = cleaning.clean(data, registry_with(*components), options, folds=folds)
    return Cleaning(data, found, options.estimator.name)


def _own(x: Any, sets: Any, y: Any, classes: Sequence[Any] | None) -> Data:
    """Return data with candidate sets, from either form in which it is given."""
    if sets is None and isinstance(x, Data | Dataset | str | Path | tuple):
        return as_data(x)
    return make_data(x, sets, y=y, classes=classes)
