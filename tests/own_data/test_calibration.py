"""A temperature from candidate sets alone: right where they say enough, near 1 where they do not."""

from __future__ import annotations

import math

import attrs
import pytest
import torch

from tests.own_data.test_trees import quadrants
from wsl_toolkit.data.dataset import Data
from wsl_toolkit.own_data import calibration, fitting
from wsl_toolkit.own_data.calibration import COLDEST, calibration_error, set_log_loss, set_log_losses, temperature
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.system import random_streams


def proper(n: int, classes: int, others: float, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log p(y|x) and sets into which each wrong class comes with the same chance: a proper setting."""
    stream = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(n, classes, generator=stream, dtype=torch.float64)
    y = torch.multinomial(logits.softmax(1), 1, generator=stream)
    mask = torch.rand(n, classes, generator=stream) < others
    return logits, mask.scatter(1, y, True)


def test_the_loss_is_the_likelihood_of_the_set():
    logits, mask = proper(50, 4, 0.4)
    wanted = -(logits.softmax(1) * mask).sum(1).log()
    torch.testing.assert_close(set_log_losses(logits, mask), wanted)
    informative = ~mask.all(1)
    assert set_log_loss(logits, mask) == pytest.approx(float(wanted[informative].mean()))
    assert set_log_losses(1e4 * logits, mask).isfinite().all()


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("others", [0.0, 0.3, 0.6])
def test_the_temperature_undoes_what_made_proper_sets_improbable(scale, others):
    logits, mask = proper(6000, 5, others)
    assert temperature(scale * logits, mask) == pytest.approx(scale, rel=0.12)


def test_sets_that_say_nothing_leave_the_temperature_at_one():
    logits, mask = proper(200, 4, 0.3)
    assert temperature(5 * logits, torch.ones_like(mask)) == 1.0
    # The likelihood of the complement of a class is flat where that class is improbable anyway.
    assert temperature(torch.zeros(50, 4), mask[:50]) == pytest.approx(1.0, abs=1e-3)


def test_where_all_predictions_are_covered_the_likelihood_wants_no_temperature_and_the_prior_keeps_one():
    """Σ_{j∈s} p_T,j grows to 1 as T falls to 0: the maximum of the likelihood alone is at the edge."""
    logits, _ = proper(40, 4, 0.0)
    mask = torch.ones(40, 4, dtype=torch.bool).scatter(1, logits.argmin(1, keepdim=True), False)
    losses = [set_log_loss(logits / t, mask) for t in (1, 0.5, 0.2, COLDEST)]
    assert losses == sorted(losses, reverse=True)
    found = temperature(logits, mask)
    assert 0.3 < found < 1
    few = temperature(logits[:5], mask[:5])
    assert found < few <= 1


def test_the_calibration_error_is_the_gap_between_confidence_and_share_right():
    confidence = torch.cat([torch.full((20,), 0.9), torch.full((20,), 0.6)])
    probabilities = torch.stack([confidence, 1 - confidence], 1)
    labels = torch.tensor([0] * 16 + [1] * 4 + [0] * 14 + [1] * 6)  # 0.8 and 0.7 right
    assert calibration_error(probabilities, labels) == pytest.approx(0.1, abs=1e-6)
    unknown = torch.full((7,), -1)
    more = torch.cat([probabilities, probabilities[:7]])
    assert calibration_error(more, torch.cat([labels, unknown])) == pytest.approx(0.1, abs=1e-6)
    assert calibration_error(probabilities[:19], labels[:19]) is None
    assert math.isclose(calibration_error(torch.eye(2)[labels], labels), 0.0, abs_tol=1e-12)


def test_beyond_a_thousand_examples_the_temperature_is_that_of_models_of_nine_tenths():
    x, _, sets = quadrants(1200)
    data = Data(name="made", x=x.double(), candidates=sets, num_classes=4)
    registry = load_plugins().registry
    options = fitting.options_for(registry, estimator=("cc", {}), epochs=1, lr=0.1, weight_decay=0.0, batch_size=256)
    found = fitting.fit(data, registry, options, torch.arange(1200))
    order = torch.randperm(1200, generator=random_streams.stream(0, "validation"))
    logits, masks = [], []
    for number in range(3):
        held_out = order[120 * number : 120 * (number + 1)]
        rest = torch.cat([order[: 120 * number], order[120 * (number + 1) :]]).sort().values
        part = fitting.fit(data, registry, attrs.evolve(options, calibrate=False), rest)
        logits.append(part.logits(data.x, held_out))
        masks.append(sets.mask()[held_out])
    wanted = calibration.temperature(torch.cat(logits), torch.cat(masks))
    assert found.temperature == pytest.approx(wanted, rel=1e-3)
    assert found.temperature != pytest.approx(found.tried[0]["temperature"], rel=1e-6)
