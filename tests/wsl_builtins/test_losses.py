"""The multi-class losses as mathematics: limits, bounds, continuity, and no infinity anywhere."""

from __future__ import annotations

import math

import pytest
import torch
from estimator_literals import ell
from hypothesis import given, settings
from hypothesis import strategies as st

from wsl_toolkit import losses

LOGITS = st.lists(st.floats(-8, 8), min_size=2, max_size=6)


@pytest.mark.parametrize("name", losses.MULTICLASS_LOSSES)
@settings(max_examples=50, deadline=None)
@given(f=LOGITS)
def test_each_loss_is_its_formula_for_every_class(name: str, f: list[float]):
    found = losses.MULTICLASS_LOSSES[name](torch.tensor(f, dtype=torch.float64))
    assert found.tolist() == pytest.approx([ell(name, f, j) for j in range(len(f))], rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", losses.MULTICLASS_LOSSES)
def test_each_loss_is_zero_where_the_class_is_certain_and_positive_elsewhere(name: str):
    found = losses.MULTICLASS_LOSSES[name](torch.tensor([500.0, 0.0, 0.0], dtype=torch.float64))
    assert found[0].item() == pytest.approx(0, abs=1e-12)
    assert bool((found[1:] > 0.9).all())


def test_gce_runs_from_cross_entropy_to_mae():
    f = torch.tensor([1.5, -0.5, 0.2], dtype=torch.float64)
    assert torch.allclose(losses.gce(f, q=1.0), losses.mae(f))
    assert torch.allclose(losses.gce(f, q=1e-7), losses.cross_entropy(f), atol=1e-5)


def test_mae_sums_to_a_constant_over_the_classes():
    """The symmetry that makes it robust, and `mcl-mae` a single term."""
    f = torch.randn(20, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.allclose(losses.mae(f).sum(-1), torch.full((20,), 6.0, dtype=torch.float64))


@pytest.mark.parametrize("tau", [2.0, 10.0, 50.0])
def test_phuber_continues_cross_entropy_with_its_tangent(tau: float):
    """At p = 1/τ value and slope agree from both sides."""
    around = []
    for shift in (1e-7, -1e-7):
        p = 1 / tau + shift
        f = torch.tensor([math.log(p), math.log(1 - p)], dtype=torch.float64, requires_grad=True)
        value = losses.phuber_ce(f, tau)[0]
        value.backward()
        around.append((value.item(), f.grad[0].item()))
    assert around[0] == pytest.approx(around[1], abs=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", [*losses.MULTICLASS_LOSSES, "log_not"])
def test_values_and_gradients_are_finite_at_extreme_logits(name: str, dtype: torch.dtype):
    function = losses.MULTICLASS_LOSSES.get(name, losses.log_not)
    for f in ([1e4, -1e4, 0.0], [-1e4, -1e4, 1e4], [1e4, 1e4, 1e4], [200.0, 0.0, 0.0], [20.0, 0.0, 0.0]):
        logits = torch.tensor(f, dtype=dtype, requires_grad=True)
        found = function(logits)
        found.sum().backward()
        assert found.dtype == torch.float32
        assert bool(torch.isfinite(found).all()), f
        assert bool(torch.isfinite(logits.grad).all()), f


@settings(max_examples=100, deadline=None)
@given(f=st.lists(st.floats(-300, 300), min_size=2, max_size=6))
def test_log_not_is_a_logsumexp_without_the_class(f: list[float]):
    found = losses.log_not(torch.tensor(f, dtype=torch.float64))
    top = max(f)
    total = top + math.log(sum(math.exp(v - top) for v in f))
    for j in range(len(f)):
        rest = [v for k, v in enumerate(f) if k != j]
        highest = max(rest)
        expected = highest + math.log(sum(math.exp(v - highest) for v in rest)) - total
        assert found[j].item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_log_not_has_the_right_gradient_also_where_two_classes_tie():
    f = torch.tensor([[0.3, 0.3, -1.0], [2.0, 0.0, 1.0]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(losses.log_not, (f,))


def test_a_common_offset_does_not_cost_the_set_probability_its_digits():
    f, s = torch.tensor([0.5, -0.25, 1.0]), torch.tensor([True, False, True])
    near = losses.log_set_probability(f, s)
    assert losses.log_set_probability(f + 8192, s).item() == pytest.approx(near.item(), abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1.0, 1e4])
@pytest.mark.parametrize("shape", [(5,), (losses._MANY_ROWS, 2), (300, 10), (2, 200, 15), (300, 16), (3, 10)])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmaxes_and_their_gradients_are_torchs(name: str, shape: tuple[int, ...], scale: float, dtype: torch.dtype):
    rng = torch.Generator().manual_seed(0)
    f = (scale * torch.randn(shape, generator=rng, dtype=dtype)).requires_grad_()
    weights = torch.randn(shape, generator=rng, dtype=dtype)
    ours, theirs = getattr(losses, name)(f), getattr(torch, name)(f, dim=-1)
    torch.testing.assert_close(ours, theirs)
    (mine,), (expected,) = (torch.autograd.grad((weights * each).sum(), f) for each in (ours, theirs))
    torch.testing.assert_close(mine, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [3, 400])
def test_log_not_is_exact_where_two_classes_share_almost_everything(rows: int, dtype: torch.dtype):
    """Two classes near 1/2, in every layout, with all roundings of their difference; and a third that counts or not."""
    rng = torch.Generator().manual_seed(0)
    level = 20 * torch.randn(rows, 1, generator=rng, dtype=torch.float64)
    apart = torch.cat([torch.zeros(rows // 2 + 1), 1e-7 * torch.randn(rows - rows // 2 - 1, generator=rng)]).double()
    for third in (-1e4, -30.0, -1.0):
        f = torch.cat([level, level + apart.unsqueeze(1), level + third], dim=1).to(dtype)
        wide = f.double()
        sums = [torch.logsumexp(wide[:, [k for k in range(3) if k != j]], 1) for j in range(3)]
        expected = torch.stack(sums, 1) - torch.logsumexp(wide, 1, keepdim=True)
        torch.testing.assert_close(losses.log_not(f).double(), expected, rtol=2e-6, atol=1e-12)


def test_softmaxes_of_many_models_are_those_of_each():
    f = torch.randn(3, 200, 7, generator=torch.Generator().manual_seed(0))
    for together in (
        torch.vmap(losses.log_softmax)(f),
        torch.vmap(losses.log_softmax, 1, 1)(f.movedim(0, 1)).movedim(1, 0),
    ):
        torch.testing.assert_close(together, torch.log_softmax(f, -1))
