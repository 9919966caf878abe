"""The contract of a metric: a number of the whole part, from what it declares that it reads and nothing else."""

from __future__ import annotations

import math

import attrs
import torch
from torch import Tensor

from wsl_toolkit.components import Metric
from wsl_toolkit.testing.batches import random_sets
from wsl_toolkit.testing.common import ComponentContract, global_randomness_untouched, not_applicable, stream
from wsl_toolkit.testing.small_training import MeanLoss
from wsl_toolkit.training.metrics import Measured

EXAMPLES, CLASSES = 40, 5


class MetricContract(ComponentContract):
    """Give `component`."""

    def test_it_is_a_finite_number(self, component: Metric) -> None:
        """Of moderate logits and of extreme ones; a share lies between 0 and 1."""
        for scale in (1.0, 1e4):
            value = _value(component, _part(component, scale=scale))
            assert value is not None, "it has no value where all that it reads is there"
            assert math.isfinite(value), f"it is {value} for logits of about {scale:g}"
            assert component.scale != "share" or -1e-6 <= value <= 1 + 1e-6, f"it is {value}, which is no share"

    def test_the_order_of_examples_does_not_matter(self, component: Metric) -> None:
        """A part has none."""
        part = _part(component)
        order = torch.randperm(EXAMPLES, generator=stream(5))
        one, other = _value(component, part), _value(component, _reordered(part, order))
        assert one is not None
        assert other is not None
        assert math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-6), f"in another order it is {other}, not {one}"

    def test_without_clean_labels_it_has_no_value_if_it_reads_them(self, component: Metric) -> None:
        """Where nobody knows the labels it must say None."""
        if component.reads != "clean labels":
            not_applicable("it reads candidates alone")
        value = _value(component, attrs.evolve(_part(component), labels=None))
        assert value is None, f"it is {value} where no label is known: return None"

    def test_arguments_and_global_randomness_are_left_alone(self, component: Metric) -> None:
        """Other metrics read the same logits."""
        part = _part(component)
        kept = part.logits.clone()
        with global_randomness_untouched(f"metric {component.name}"):
            _value(component, part)
        assert torch.equal(part.logits, kept), "it writes into the logits"


def _part(metric: Metric, *, scale: float = 1.0) -> Measured:
    """Return a part as evaluation gives it: sets only of the validation part, labels only to those that read them."""
    rng = stream(3)
    logits = scale * torch.randn(EXAMPLES, CLASSES, generator=rng)
    sets = random_sets(EXAMPLES, CLASSES, rng)
    labels = sets.long().argmax(1) if metric.reads == "clean labels" else None
    held_out = metric.part == "validation"
    return Measured(
        logits=logits,
        estimator=MeanLoss(),
        shared={},
        rows=torch.arange(EXAMPLES) if held_out else None,
        sets=sets if held_out else None,
        labels=labels,
    )


def _reordered(part: Measured, order: Tensor) -> Measured:
    return attrs.evolve(
        part,
        logits=part.logits[order],
        sets=None if part.sets is None else part.sets[order],
        labels=None if part.labels is None else part.labels[order],
    )


def _value(metric: Metric, part: Measured) -> float | None:
    value = metric.compute(part)
    return None if value is None else float(value)
