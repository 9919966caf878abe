"""What is measured after each epoch: the only reader of clean labels, and each such metric says so in the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs
import torch
from torch import Tensor, nn

from wsl_toolkit.data.inputs import Inputs
from wsl_toolkit.data.problem import Problem
from wsl_toolkit.training.engine import predict
from wsl_toolkit.training.metrics import SIZE_BEFORE, TRUE_LABEL_KEPT, Measured, measured_on
from wsl_toolkit.training.residency import placed
from wsl_toolkit.training.risk import Risk

Evaluation = Callable[[nn.Module, Risk], dict[str, Tensor]]
"""Measures a model after an epoch; the only place where clean labels may be."""


@attrs.frozen(kw_only=True, eq=False)
class LogitEvaluation:
    """An evaluation that needs logits on fixed inputs and nothing else, so that many models can share the pass."""

    inputs: Mapping[str, Tensor | Inputs]
    score: Callable[[dict[str, Tensor], Risk], dict[str, Tensor]]
    """From the logits of each part and the risk to metrics."""

    def __call__(self, model: nn.Module, risk: Risk) -> dict[str, Tensor]:
        """Evaluate one model."""
        return self.score({name: predict(model, part) for name, part in self.inputs.items()}, risk)


@attrs.frozen(kw_only=True, eq=False)
class _Part:
    """A held-out part: its inputs, its candidate sets where it has some, its true labels where some are known."""

    name: str
    inputs: Tensor | Inputs
    rows: Tensor | None = None
    sets: Tensor | None = None
    labels: Tensor | None = None
    class_counts: Tensor | None = None
    class_values: Tensor | None = None

    def measure(self, logits: Tensor, risk: Risk) -> dict[str, Tensor]:
        """Return the part's metrics; one that does not say that it reads clean labels is given none."""
        found: dict[str, Tensor] = {}
        blind = Measured(logits=logits, estimator=risk.estimator, shared=risk.shared(), rows=self.rows, sets=self.sets)
        seeing = attrs.evolve(blind, labels=self.labels, class_counts=self.class_counts, class_values=self.class_values)
        for metric in measured_on(self.name):
            assert metric.compute is not None
            value = metric.compute(seeing if metric.reads == "clean labels" else blind)
            if value is not None:
                found[metric.name] = value
        return found


def evaluation(problem: Problem, device: torch.device) -> LogitEvaluation:
    """Return what is measured on a problem's held-out parts, as far as they have sets or labels."""
    parts = {part.name: part for part in _parts(problem, device)}
    change = _change(problem)

    def score(logits: dict[str, Tensor], risk: Risk) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for name, own in logits.items():
            found |= parts[name].measure(own, risk)
        return found | change

    return LogitEvaluation(inputs={name: part.inputs for name, part in parts.items()}, score=score)


def _change(problem: Problem) -> dict[str, Tensor]:
    """Return what is known of what a transform did to the sets, the same after every epoch."""
    if problem.change is None:
        return {}
    found = {SIZE_BEFORE: torch.tensor(problem.change.size_before)}
    if problem.change.true_label_kept is not None:
        found[TRUE_LABEL_KEPT] = torch.tensor(problem.change.true_label_kept)
    return found


def _parts(problem: Problem, device: torch.device) -> list[_Part]:
    found = []
    held_out = problem.validation_candidates
    if held_out is not None and len(rows := held_out.labelled()):
        found.append(
            _Part(
                name="validation",
                inputs=placed(problem.validation_x, device),
                rows=rows.to(device),
                sets=held_out.mask(rows).to(device),
                labels=_known(problem.clean.validation, device),
            )
        )
    test_labels = _known(problem.clean.test, device)
    if test_labels is not None:
        counts, values = (
            None if given is None else given.to(device) for given in (problem.class_counts, problem.class_values)
        )
        found.append(
            _Part(
                name="test",
                inputs=placed(problem.test_x, device),
                labels=test_labels,
                class_counts=counts,
                class_values=values,
            )
        )
    return found


def _known(labels: Tensor | None, device: torch.device) -> Tensor | None:
    """Return labels if at least one is known, on the device."""
    return labels.to(device) if labels is not None and bool((labels >= 0).any()) else None
