"""Estimators that are the same, and what ties the others together."""

from __future__ import annotations

import math

import pytest
import torch
from test_formulas import make
from test_numerics import learned_state, random_sets

from wsl_toolkit.losses import MULTICLASS_LOSSES


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits, sets of every size, and other logits for the confidences."""
    rng = torch.Generator().manual_seed(11)
    logits, source = torch.randn(2, 200, 6, generator=rng, dtype=torch.float64) * 2
    return logits, random_sets(rng, 200, 6), source


@pytest.mark.parametrize("base", MULTICLASS_LOSSES)
def test_cl_averaged_over_the_complement_is_mcl(batch, base: str):
    logits, mask, _ = batch
    assert torch.allclose(make("cl", base).loss(logits, mask, {}), make("mcl", base).loss(logits, mask, {}))


def test_mcl_mae_is_mcl_with_the_mae_loss(batch):
    logits, mask, _ = batch
    assert torch.allclose(make("mcl-mae").loss(logits, mask, {}), make("mcl", "mae").loss(logits, mask, {}))


def test_rc_is_ppl_in_loss_start_update_and_order(batch):
    logits, mask, source = batch
    rc, ppl = make("rc"), make("ppl")
    assert rc.update_when == ppl.update_when == "after"
    assert torch.equal(rc.init_state(mask)["confidence"], ppl.init_state(mask)["confidence"])
    states = [estimator.update(source, mask, {}) for estimator in (rc, ppl)]
    assert torch.equal(states[0]["confidence"], states[1]["confidence"])
    assert torch.equal(rc.loss(logits, mask, states[0]), ppl.loss(logits, mask, states[1]))


def test_proden_differs_from_ppl_only_in_when_it_updates(batch):
    logits, mask, source = batch
    proden, ppl = make("proden"), make("ppl")
    assert (proden.update_when, ppl.update_when) == ("before", "after")
    state = proden.update(source, mask, {})
    assert torch.equal(proden.loss(logits, mask, state), ppl.loss(logits, mask, ppl.update(source, mask, {})))


def test_with_fresh_confidences_the_gradient_of_ppl_is_that_of_cc(batch):
    """They differ only by how old the confidences are."""
    logits, mask, source = batch
    gradients = {}
    for name, state in (("ppl", make("ppl").update(logits, mask, {})), ("cc", {})):
        f = logits.clone().requires_grad_()
        make(name).objective(f, mask, state).backward()
        gradients[name] = f.grad
    assert torch.allclose(gradients["ppl"], gradients["cc"])
    f = logits.clone().requires_grad_()
    make("ppl").objective(f, mask, make("ppl").update(source, mask, {})).backward()
    assert not torch.allclose(f.grad, gradients["cc"], atol=1e-3)


def test_average_is_ppl_at_its_start(batch):
    logits, mask, _ = batch
    ppl = make("ppl")
    assert torch.allclose(make("average").loss(logits, mask, {}), ppl.loss(logits, mask, ppl.init_state(mask)).double())


def test_uniform_forward_correction_is_negative_learning_up_to_a_constant(batch):
    logits, mask, _ = batch
    forward = make("cl-forward", "uniform").loss(logits, mask, {})
    assert torch.allclose(forward, make("scl-nl").loss(logits, mask, {}) + math.log(5))


def test_the_skewed_matrix_with_ratio_one_is_the_uniform_one(batch):
    from wsl_toolkit.plugins.loading import load_plugins

    logits, mask, _ = batch
    general = load_plugins().registry.create("estimator", "cl-forward", {"matrix": "skewed", "ratio": 1.0})
    found = general.loss(logits, mask, learned_state(general, mask, logits))
    assert torch.allclose(found, make("cl-forward", "uniform").loss(logits, mask, {}), atol=1e-6)


def test_every_method_is_ordinary_supervised_learning_on_singletons(batch):
    """|s| = 1 is an ordinary label; only the two that change the loss itself differ."""
    logits, _, source = batch
    mask = torch.eye(6, dtype=torch.bool).repeat(34, 1)[:200]
    expected = make("supervised").loss(logits, mask, {})
    for name in ("ppl", "proden", "rc", "cc", "mcl", "mcl-log", "cl", "average"):
        estimator = make(name)
        found = estimator.loss(logits, mask, learned_state(estimator, mask, source))
        assert torch.allclose(found, expected), name


def test_pairwise_comparison_on_a_singleton_compares_the_label_with_every_other(batch):
    logits, _, _ = batch
    mask = torch.eye(6, dtype=torch.bool).repeat(34, 1)[:200]
    against = torch.sigmoid(logits - (logits * mask).sum(-1, keepdim=True))
    assert torch.allclose(make("cl-pc").loss(logits, mask, {}), (against * ~mask).sum(-1))


def test_negative_risks_turn_the_step_of_ga_around_and_leave_the_others_alone():
    """Two classes' risks; where one is negative, only that one is stepped on, upwards."""
    logits = torch.tensor([[9.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, -1.0]], dtype=torch.float64)
    mask = ~torch.eye(3, dtype=torch.bool)
    ga = make("cl-ga")
    state = learned_state(ga, mask, logits)

    def gradient(objective) -> torch.Tensor:
        f = logits.clone().requires_grad_()
        objective(f).backward()
        return f.grad

    assert float(ga.partial_risks(logits, mask, state).min()) > 0
    assert torch.allclose(
        gradient(lambda f: ga.objective(f, mask, state)), gradient(lambda f: ga.partial_risks(f, mask, state).sum())
    )
    logits = torch.tensor([[-9.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    risks = ga.partial_risks(logits, mask, state)
    assert float(risks.min()) < 0 < float(risks.max())
    ascent = gradient(lambda f: -ga.partial_risks(f, mask, state)[risks < 0].sum())
    assert torch.allclose(gradient(lambda f: ga.objective(f, mask, state)), ascent)
    descent = gradient(lambda f: ga.partial_risks(f, mask, state).sum())
    assert not torch.allclose(ascent, descent)
