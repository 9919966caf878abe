"""Mistakes that were found in public implementations: each test fails if ours made the same one."""

from __future__ import annotations

import copy

import pytest
import torch
from test_formulas import as_mask, make
from test_numerics import learned_state, random_sets

from wsl_toolkit import CandidateSets
from wsl_toolkit.losses import cross_entropy
from wsl_toolkit.training.risk import Risk

LOGITS = torch.tensor([[1.0, -0.5, 0.3, 2.0, 0.0]], dtype=torch.float64)


def test_the_mcl_bounds_divide_by_the_size_of_the_complement_not_of_the_set():
    mask = as_mask([{0, 3}], 5)
    inside = torch.softmax(LOGITS, -1)[mask].sum()
    assert make("mcl-log").loss(LOGITS, mask, {}).item() == pytest.approx((4 / 3 * -inside.log()).item())
    assert make("mcl-exp").loss(LOGITS, mask, {}).item() == pytest.approx((4 / 3 * (-inside).exp()).item())
    assert make("mcl-mae").loss(LOGITS, mask, {}).item() == pytest.approx((4 / 3 * (1 - inside)).item())


def test_the_denominator_of_mcl_divides_the_complement_term_alone():
    mask = as_mask([{0, 3}], 5)
    ell = cross_entropy(LOGITS)[0]
    right = ell[[0, 3]].sum() - (5 - 1 - 3) / 3 * ell[[1, 2, 4]].sum()
    divided_twice = (ell[[0, 3]].sum() - (5 - 1 - 3) * ell[[1, 2, 4]].sum()) / 3
    found = make("mcl").loss(LOGITS, mask, {})[0]
    assert found.item() == pytest.approx(right.item())
    assert found.item() != pytest.approx(divided_twice.item(), abs=0.1)


def test_nn_clamps_the_risk_of_a_class_not_the_loss_of_a_complementary_label():
    """Two examples whose own unbiased losses are negative, but no class has a negative risk."""
    logits = torch.tensor([[-2.0, 0.0, 0.0], [3.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    mask = as_mask([{1, 2}, {1, 2}, {0, 2}, {0, 1}], 3)
    nn = make("cl-nn")
    state = learned_state(nn, mask, logits)
    risks = nn.partial_risks(logits, mask, state)
    found = nn.objective(logits, mask, state)
    by_label = sum(nn.loss(logits[i : i + 1], mask[i : i + 1], state)[0].clamp(min=0) for i in range(4)) / 4
    assert found.item() == pytest.approx(risks.clamp(min=0).sum().item())
    assert found.item() != pytest.approx(by_label.item(), abs=0.05)


def test_the_second_term_of_lw_is_alive_from_the_first_step_on():
    mask = as_mask([{0, 3}], 5)
    lw = make("lw")
    start, learned = lw.init_state(mask), lw.update(LOGITS, mask, {})
    for state in (start, learned):
        f = LOGITS.clone().requires_grad_()
        off_the_set = torch.where(mask, 0.0, state["weight"])
        lw.loss(f, mask, {"weight": off_the_set}).sum().backward()
        assert float(f.grad.abs().max()) > 0.01
    assert learned["weight"][~mask].sum().item() == pytest.approx(1)
    assert learned["weight"][mask].sum().item() == pytest.approx(1)


@pytest.mark.parametrize("name", ["ppl", "proden", "rc", "pcpl", "lw"])
def test_confidences_are_constants_of_the_graph(name: str):
    estimator = make(name)
    mask = as_mask([{0, 3}], 5)
    f = LOGITS.clone().requires_grad_()
    state = estimator.update(f, mask, estimator.init_state(mask))
    assert not any(value.requires_grad for value in state.values())


@pytest.mark.parametrize("name", ["ppl", "proden", "rc", "pcpl", "lw"])
def test_confidences_are_part_of_a_checkpoint(name: str):
    rng = torch.Generator().manual_seed(0)
    mask, index = random_sets(rng, 20, 5), torch.arange(20)
    risk = Risk(make(name), CandidateSets.from_mask(mask))
    _, rows = risk.gather(index)
    risk.write_batch(risk.estimator.update(torch.randn(20, 5, generator=rng), mask, rows), rows)
    risk.scatter(index, mask, rows)
    saved = copy.deepcopy(risk.state_dict())
    fresh = Risk(make(name), CandidateSets.from_mask(mask))
    _, before = fresh.gather(index)
    fresh.load_state_dict(saved)
    _, after = fresh.gather(index)
    for key, value in rows.items():
        assert torch.equal(after[key], value)
        assert not torch.allclose(before[key], value)


def test_the_priors_of_nn_and_ga_are_part_of_a_checkpoint():
    mask = as_mask([{1, 2}, {1, 2}, {0, 2}], 3)
    risk = Risk(make("cl-nn"), CandidateSets.from_mask(mask))
    assert torch.allclose(risk.state_dict()["shared_prior"], torch.tensor([2 / 3, 1 / 3, 0.0]))


@pytest.mark.parametrize("num_classes", [128, 1000, 2000])
def test_cc_leaves_the_number_of_sets_out_of_its_logarithm(num_classes: int):
    """1/(2^{K-1} - 1) is 0 in float32 from K = 128 on, and its logarithm has no gradient."""
    f = torch.randn(4, num_classes, generator=torch.Generator().manual_seed(0)).requires_grad_()
    mask = torch.zeros(4, num_classes, dtype=torch.bool)
    mask[:, :3] = True
    value = make("cc").objective(f, mask, {})
    value.backward()
    assert bool(torch.isfinite(value))
    assert bool(torch.isfinite(f.grad).all())
    assert float(f.grad.abs().max()) > 1e-4


@pytest.mark.parametrize("name", ["mcl", "mcl-log", "mcl-exp", "mcl-mae", "cl", "cl-pc", "scl-nl", "scl-exp"])
def test_a_full_set_is_no_infinite_loss_though_its_complement_is_empty(name: str):
    full = torch.ones(1, 5, dtype=torch.bool)
    assert make(name).loss(LOGITS, full, {}).item() == pytest.approx(0, abs=1e-12)


def test_pcpl_as_printed_has_no_gradient_where_its_confidences_are_fresh():
    """Why it is declared as one that cannot train: whatever the sets say, p̂ = p is a standstill."""
    rng = torch.Generator().manual_seed(0)
    pcpl = make("pcpl")
    assert not pcpl.trains
    f = torch.randn(10, 5, generator=rng, dtype=torch.float64, requires_grad=True)
    mask = random_sets(rng, 10, 5)
    pcpl.objective(f, mask, pcpl.update(f, mask, {})).backward()
    assert float(f.grad.abs().max()) < 1e-15
