"""Every estimator against a slow, literal transcription of its formula."""

from __future__ import annotations

import pytest
import torch
from estimator_literals import LITERALS, class_wise_risks, softmax
from hypothesis import given, settings
from hypothesis import strategies as st

from wsl_toolkit import CandidateSets
from wsl_toolkit.losses import MULTICLASS_LOSSES
from wsl_toolkit.plugins.loading import load_plugins

REGISTRY = load_plugins().registry
BUILTINS = [
    name
    for name in REGISTRY.names("estimator")
    if REGISTRY.entry("estimator", name).cls.__module__.startswith("wsl_builtins")
]
BASES = {"lw": ("cross-entropy", "sigmoid"), "cl-forward": ("uniform", "skewed")}
FREE = {"average", "cl", "cl-ga", "cl-nn", "mcl", "pcpl", "ppl", "proden", "rc", "supervised"}


def variants() -> list[tuple[str, str]]:
    """Every estimator with each of its losses (or matrices)."""
    return [
        (name, base)
        for name in BUILTINS
        for base in BASES.get(name, tuple(MULTICLASS_LOSSES) if name in FREE else ("cross-entropy",))
    ]


def make(name: str, base: str = "cross-entropy"):
    key = {"cl-forward": "matrix"}.get(name, "base_loss")
    return REGISTRY.create("estimator", name, {key: base} if name in FREE | set(BASES) else {})


@st.composite
def examples(draw: st.DrawFn, singleton: bool = False) -> tuple[list[float], set[int], list[float]]:
    """K logits, a set that is neither empty nor full, and other logits for the confidences."""
    num_classes = draw(st.integers(3, 7))
    numbers = st.lists(st.floats(-6, 6), min_size=num_classes, max_size=num_classes)
    sizes = st.just(1) if singleton else st.integers(1, num_classes - 1)
    chosen = draw(st.permutations(range(num_classes)))[: draw(sizes)]
    return draw(numbers), set(chosen), draw(numbers)


def as_mask(sets: list[set[int]], num_classes: int) -> torch.Tensor:
    return torch.tensor([[j in s for j in range(num_classes)] for s in sets])


def test_there_is_a_transcription_of_every_builtin():
    assert set(BUILTINS) == set(LITERALS)


@pytest.mark.parametrize(("name", "base"), variants())
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_the_loss_is_its_formula(name: str, base: str, data: st.DataObject):
    f, s, source = data.draw(examples(singleton=name == "supervised"))
    estimator, mask = make(name, base), as_mask([s], len(f))
    state = {**estimator.init_shared(CandidateSets.from_mask(mask)), **estimator.init_state(mask)}
    state |= estimator.update(torch.tensor([source], dtype=torch.float64), mask, state)
    found = estimator.loss(torch.tensor([f], dtype=torch.float64), mask, state).item()
    assert found == pytest.approx(LITERALS[name](f, s, softmax(source), base), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("base", MULTICLASS_LOSSES)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_the_corrections_are_made_class_by_class(base: str, data: st.DataObject):
    num_classes = data.draw(st.integers(3, 5))
    numbers = st.lists(st.floats(-6, 6), min_size=num_classes, max_size=num_classes)
    sets = data.draw(
        st.lists(st.sets(st.integers(0, num_classes - 1), min_size=1, max_size=num_classes - 1), min_size=1, max_size=6)
    )
    batch = [data.draw(numbers) for _ in sets]
    mask, logits = as_mask(sets, num_classes), torch.tensor(batch, dtype=torch.float64)
    prior = [sum(1 / (num_classes - len(s)) for s in sets if k not in s) / len(sets) for k in range(num_classes)]
    expected = class_wise_risks(batch, sets, prior, base)
    shared = make("cl-nn", base).init_shared(CandidateSets.from_mask(mask))
    assert shared["prior"].tolist() == pytest.approx(prior, abs=1e-6)
    found = make("cl-nn", base).partial_risks(logits, mask, shared)
    assert found.tolist() == pytest.approx(expected, rel=1e-5, abs=1e-5)
    non_negative = make("cl-nn", base).objective(logits, mask, shared).item()
    assert non_negative == pytest.approx(sum(max(v, 0) for v in expected), rel=1e-5, abs=1e-5)
    reported = make("cl-ga", base).objective(logits, mask, shared).item()
    assert reported == pytest.approx(sum(expected), rel=1e-5, abs=1e-5)


def test_the_class_wise_risks_sum_to_the_mean_of_the_unbiased_losses_where_the_batch_is_the_training_set():
    rng = torch.Generator().manual_seed(0)
    mask = torch.ones(50, 5, dtype=torch.bool).scatter_(1, torch.randint(5, (50, 1), generator=rng), False)
    logits = torch.randn(50, 5, generator=rng, dtype=torch.float64)
    estimator = make("cl-nn")
    risks = estimator.partial_risks(logits, mask, estimator.init_shared(CandidateSets.from_mask(mask)))
    assert risks.sum().item() == pytest.approx(make("cl").objective(logits, mask, {}).item(), rel=1e-6)


def test_leverage_and_candidate_weight_scale_their_own_term():
    rng = torch.Generator().manual_seed(1)
    logits, mask = torch.randn(4, 5, generator=rng), as_mask([{0}, {1, 2}, {0, 3, 4}, {2, 4}], 5)
    parts = {}
    for w0, w in ((1, 0), (0, 1), (2, 3)):
        estimator = REGISTRY.create("estimator", "lw", {"candidate_weight": w0, "leverage": w})
        parts[w0, w] = estimator.loss(logits, mask, estimator.update(logits, mask, {}))
    assert torch.allclose(parts[2, 3], 2 * parts[1, 0] + 3 * parts[0, 1])
    assert bool((parts[1, 0] > 0).all())
    assert bool((parts[0, 1] > 0).all())


def test_gradient_ascent_as_released_weighs_each_negative_risk_by_the_count_of_its_label():
    rng = torch.Generator().manual_seed(3)
    excluded = torch.tensor([0, 0, 0, 1, 2, 2])
    mask = torch.ones(6, 4, dtype=torch.bool).scatter_(1, excluded.unsqueeze(1), False)
    logits = 8 * torch.randn(6, 4, generator=rng, dtype=torch.float64)
    logits[torch.arange(6), excluded] -= 15
    logits.requires_grad_()
    released = REGISTRY.create("estimator", "cl-ga", {"weights": "count"})
    shared = released.init_shared(CandidateSets.from_mask(mask))
    risks = released.partial_risks(logits, mask, shared)
    negative = (risks < 0).nonzero().flatten().tolist()
    assert len(negative) > 1
    counts = [3, 1, 2, 0]
    (expected,) = torch.autograd.grad(-sum(counts[j] * risks[j] for j in negative), logits, retain_graph=True)
    objective = released.objective(logits, mask, shared)
    (found,) = torch.autograd.grad(objective, logits)
    assert torch.allclose(found, expected)
    assert objective.item() == pytest.approx(risks.sum().item())
    (printed,) = torch.autograd.grad(make("cl-ga").objective(logits, mask, shared), logits)
    assert not torch.allclose(found, printed)


def test_gradient_ascent_as_released_descends_where_only_a_label_that_the_batch_lacks_is_negative():
    mask = torch.tensor([[True, False, True], [True, True, False]])
    logits = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    released = REGISTRY.create("estimator", "cl-ga", {"weights": "count"})
    state = {"prior": torch.tensor([0.0, 0.5, 0.5])}
    risks = torch.tensor([-1.0, 0.5, 2.0], dtype=torch.float64)
    from wsl_builtins.estimators.cl import ascended

    leaf = risks.clone().requires_grad_()
    (step,) = torch.autograd.grad(ascended(leaf, torch.tensor([0.0, 1.0, 1.0])), leaf)
    assert step.tolist() == [1, 1, 1]
    assert torch.isfinite(released.objective(logits, mask, state))
