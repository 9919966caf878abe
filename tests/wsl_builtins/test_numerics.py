"""Every estimator's gradient, and its behaviour where numbers are extreme, sets are extreme, or models are stacked."""

from __future__ import annotations

import pytest
import torch
from test_formulas import BUILTINS, make, variants
from torch import Tensor

from wsl_toolkit import CandidateSets, Estimator, State


def random_sets(rng: torch.Generator, rows: int, num_classes: int, size: int | None = None) -> Tensor:
    """Sets of one size, or of any size from 1 to K-1."""
    keys = torch.rand(rows, num_classes, generator=rng)
    sizes = torch.randint(1, num_classes, (rows,), generator=rng) if size is None else torch.full((rows,), size)
    return keys >= keys.sort(1, descending=True).values.gather(1, (sizes - 1).unsqueeze(1))


def learned_state(estimator: Estimator, mask: Tensor, logits: Tensor) -> State:
    state = {**estimator.init_shared(CandidateSets.from_mask(mask)), **estimator.init_state(mask)}
    return state | estimator.update(logits, mask, state)


@pytest.mark.parametrize(("name", "base"), variants())
def test_the_gradient_of_the_loss_agrees_with_finite_differences(name: str, base: str):
    rng = torch.Generator().manual_seed(0)
    estimator = make(name, base)
    mask = random_sets(rng, 6, 5, size=1 if name == "supervised" else None)
    state = learned_state(estimator, mask, torch.randn(6, 5, generator=rng, dtype=torch.float64))
    logits = torch.randn(6, 5, generator=rng, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda f: estimator.loss(f, mask, state), (logits,))
    if name != "cl-ga":  # which exchanges its gradient on purpose
        assert torch.autograd.gradcheck(lambda f: estimator.objective(f, mask, state), (logits,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("num_classes", [2, 3, 10, 128, 1000])
@pytest.mark.parametrize(("name", "base"), variants())
def test_losses_and_gradients_are_finite_at_the_extremes(name: str, base: str, num_classes: int, dtype: torch.dtype):
    if (name, base, num_classes) == ("cl-forward", "skewed", 2):
        num_classes = 3  # two classes leave one wrong label: there is nothing to skew
    rng = torch.Generator().manual_seed(num_classes)
    estimator = make(name, base)
    sizes = {1, num_classes - 1} if name != "supervised" else {1}
    rows = 1 if num_classes == 1000 else 4
    mask = torch.cat([random_sets(rng, rows, num_classes, size) for size in sorted(sizes)])
    signs = torch.randint(-1, 2, mask.shape, generator=rng).float()
    one_sided = torch.where(mask, 1.0, -1.0)
    for scale in (1e4,) if num_classes == 1000 else (1.0, 89.0, 104.0, 1e4):
        for shape in (signs, one_sided, -one_sided):
            f = (scale * shape).to(dtype).requires_grad_()
            for state in (
                {**estimator.init_shared(CandidateSets.from_mask(mask)), **estimator.init_state(mask)},
                learned_state(estimator, mask, f.detach()),
            ):
                f.grad = None
                value = estimator.loss(f, mask, state)
                estimator.objective(f, mask, state).backward()
                assert value.shape == (len(mask),)
                assert bool(torch.isfinite(value).all()), f"loss at scale {scale}"
                assert bool(torch.isfinite(f.grad).all()), f"gradient at scale {scale}"


@pytest.mark.parametrize(("name", "base"), variants())
def test_a_full_set_gives_a_finite_loss_and_a_finite_gradient(name: str, base: str):
    """It says nothing and is never trained on, but held-out data may hold one."""
    estimator = make(name, base)
    mask = torch.tensor([[True] * 4, [True, False, False, False]])
    for start in (torch.zeros(2, 4), torch.tensor([[1e4, -1e4, 0, 3.0]] * 2)):
        state = learned_state(estimator, mask, start)
        f = start.clone().requires_grad_()
        value = estimator.loss(f, mask, state)
        estimator.objective(f, mask, state).backward()
        assert bool(torch.isfinite(value).all())
        assert bool(torch.isfinite(f.grad).all())


@pytest.mark.parametrize("name", ["cc", "cl", "cl-forward", "cl-pc", "mcl", "mcl-log", "mcl-exp", "mcl-mae", "scl-nl"])
def test_a_full_set_weighs_nothing(name: str):
    full = torch.ones(1, 4, dtype=torch.bool)
    assert make(name, "uniform" if name == "cl-forward" else "cross-entropy").loss(
        torch.tensor([[1.0, 2.0, -3.0, 0.0]]), full, {}
    ).item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(("name", "base"), variants())
def test_many_models_at_once_give_what_each_gives_alone(name: str, base: str):
    rng = torch.Generator().manual_seed(5)
    estimator = make(name, base)
    masks = torch.stack([random_sets(rng, 6, 4, size=1 if name == "supervised" else None) for _ in range(3)])
    logits = torch.randn(3, 6, 4, generator=rng)
    states = [learned_state(estimator, mask, f) for mask, f in zip(masks, logits, strict=True)]
    stacked = {key: torch.stack([state[key] for state in states]) for key in states[0]}
    for function in (estimator.loss, estimator.objective):
        alone = [function(f, mask, state) for f, mask, state in zip(logits, masks, states, strict=True)]
        together = torch.func.vmap(function)(logits, masks, stacked)
        assert torch.allclose(together, torch.stack(alone), atol=1e-5), function.__name__
    updated = [estimator.update(f + 1, m, s) for f, m, s in zip(logits, masks, states, strict=True)]
    for key, value in torch.func.vmap(estimator.update)(logits + 1, masks, stacked).items():
        assert torch.allclose(value, torch.stack([state[key] for state in updated]), atol=1e-6)
    if name != "cl-forward":  # its shared matrix has two dimensions of its own
        rows = {key: value for key, value in stacked.items() if value.shape[:2] == (3, 6)}
        rows |= {key: value[0] for key, value in stacked.items() if key not in rows}
        broadcast = estimator.loss(logits, masks, rows)
        assert torch.allclose(broadcast, torch.func.vmap(estimator.loss)(logits, masks, stacked), atol=1e-5)


@pytest.mark.parametrize("name", BUILTINS)
def test_no_function_writes_into_its_arguments(name: str):
    rng = torch.Generator().manual_seed(2)
    estimator = make(name, "uniform" if name == "cl-forward" else "cross-entropy")
    mask = random_sets(rng, 5, 4, size=1 if name == "supervised" else None)
    logits = torch.randn(5, 4, generator=rng)
    state = learned_state(estimator, mask, logits)
    before = [logits.clone(), mask.clone(), *(value.clone() for value in state.values())]
    estimator.loss(logits, mask, state)
    estimator.objective(logits, mask, state)
    estimator.update(logits * 2, mask, state)
    for old, new in zip(before, [logits, mask, *state.values()], strict=True):
        assert torch.equal(old, new)
