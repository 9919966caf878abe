"""The methods whose loss is a function of logits and state: formulas, identities, extremes."""

from __future__ import annotations

import math
from typing import Any

import pure_literals as literal
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from wsl_toolkit import CandidateSets, Estimator
from wsl_toolkit.errors import ConfigError
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.theory.enumeration import all_sets, law

REGISTRY = load_plugins().registry
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("cavl", {}),
    ("cavl", {"argmax": "all"}),
    ("cl-t", {}),
    ("cl-t", {"matrix": "skewed"}),
    ("cl-tga", {}),
    ("cl-tga", {"split": "label", "matrix": "skewed"}),
    ("cl-tnn", {}),
    ("cl-tnn", {"split": "label"}),
    ("cpe-f", {}),
    ("cpe-i", {}),
    ("clpl", {}),
    ("clpl", {"pooling": "sum", "surrogate": "logistic"}),
    ("l-w", {}),
    ("l-w", {"weighted": False}),
    ("op", {}),
    ("op-w", {}),
    ("op-w", {"weight_gradient": False}),
    ("scarce", {}),
    ("scarce", {"correction": "max", "prior": "estimated"}),
    ("scarce", {"correction": "none"}),
]


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make(name: str, **values: Any) -> Estimator:
    return REGISTRY.create("estimator", name, values)


def as_mask(sets: list[set[int]], num_classes: int) -> Tensor:
    return torch.tensor([[j in s for j in range(num_classes)] for s in sets])


def loss(estimator: Estimator, f: list[float], s: set[int]) -> float:
    mask = as_mask([s], len(f))
    state = {**estimator.init_shared(CandidateSets.from_mask(mask)), **estimator.init_state(mask)}
    return float(estimator.loss(torch.tensor([f], dtype=torch.float64), mask, state))


@st.composite
def batches(draw: st.DrawFn, size: int | None = 1) -> tuple[list[list[float]], list[set[int]]]:
    """Examples of 3 to 6 classes: logits, and sets that are neither empty nor full."""
    num_classes = draw(st.integers(3, 6))
    number = size or draw(st.integers(1, 6))
    logits = st.lists(st.floats(-5, 5), min_size=num_classes, max_size=num_classes)
    sets = st.sets(st.integers(0, num_classes - 1), min_size=1, max_size=num_classes - 1)
    return [draw(logits) for _ in range(number)], [draw(sets) for _ in range(number)]


# ------------------------------------------------------------------------------------------------ formulas


@settings(max_examples=40, deadline=None)
@given(example=batches())
def test_losses_of_one_example_are_their_formulas(example: tuple[list[list[float]], list[set[int]]]) -> None:
    [f], [s] = example
    wanted = {
        ("l-w", ()): literal.discriminative(f, s, weighted=True),
        ("l-w", (("weighted", False),)): literal.discriminative(f, s, weighted=False),
        ("op", ()): literal.order_preserving(f, s),
        ("op-w", ()): literal.order_preserving_weighted(f, s),
        ("op-w", (("weight_gradient", False),)): literal.order_preserving_weighted(f, s),
        ("cpe-i", ()): literal.order_preserving(f, s),
        ("cpe-f", ()): literal.through_matrix(f, s, literal.uniform(len(f))),
        ("cpe-f", (("matrix", "skewed"),)): literal.through_matrix(f, s, literal.skewed(len(f))),
        ("cl-t", ()): literal.transition_risk(f, s, literal.uniform(len(f))),
        ("cl-t", (("matrix", "skewed"),)): literal.transition_risk(f, s, literal.skewed(len(f))),
    }
    for (name, values), value in wanted.items():
        found = loss(make(name, **dict(values)), f, s)
        assert found == pytest.approx(value, rel=1e-6, abs=1e-6), (name, values)


@pytest.mark.parametrize("by", ["class", "label"])
@pytest.mark.parametrize("matrix", ["uniform", "skewed"])
@settings(max_examples=20, deadline=None)
@given(example=batches(size=None))
def test_transition_risks_are_corrected_part_by_part(
    matrix: str, by: str, example: tuple[list[list[float]], list[set[int]]]
) -> None:
    batch, sets = example
    k = len(batch[0])
    parts = literal.parts_of_transition_risk(batch, sets, getattr(literal, matrix)(k), by)
    mask, logits = as_mask(sets, k), torch.tensor(batch, dtype=torch.float64, requires_grad=True)
    found = {}
    for name in ("cl-tnn", "cl-tga"):
        estimator = make(name, matrix=matrix, split=by)
        found[name] = estimator.objective(logits, mask, estimator.init_shared(CandidateSets.from_mask(mask)))
    assert found["cl-tnn"].item() == pytest.approx(sum(max(part, 0) for part in parts), rel=1e-4, abs=1e-4)
    assert found["cl-tga"].item() == pytest.approx(sum(parts), rel=1e-4, abs=1e-4)
    if min(parts) < -1e-3:  # then the step raises the negative parts and leaves the others alone
        (step,) = torch.autograd.grad(found["cl-tga"], logits)
        raised = make("cl-tga", matrix=matrix, split=by)
        moved = (logits - 1e-5 * step).detach()
        after = raised.partial_risks(moved, mask, raised.init_shared(CandidateSets.from_mask(mask)))
        before = sum(min(part, 0) for part in parts)
        assert float(after.clamp(max=0).sum()) > before - 1e-6


@pytest.mark.parametrize(
    ("correction", "applied"), [("abs", abs), ("max", lambda v: max(v, 0.0)), ("none", lambda v: v)]
)
@settings(max_examples=20, deadline=None)
@given(example=batches(size=None))
def test_scarce_is_the_authors_four_means(
    correction: str, applied: Any, example: tuple[list[list[float]], list[set[int]]]
) -> None:
    batch, sets = example
    k = len(batch[0])
    mask = as_mask(sets, k)
    estimator = make("scarce", correction=correction)
    state = estimator.init_shared(CandidateSets.from_mask(mask))
    found = estimator.objective(torch.tensor(batch, dtype=torch.float64), mask, state).item()
    assert found == pytest.approx(literal.scarce(batch, sets, [1 / k] * k, applied), rel=1e-5, abs=1e-5)


@settings(max_examples=40, deadline=None)
@given(example=batches())
def test_cavl_takes_the_candidate_of_largest_activation_value(
    example: tuple[list[list[float]], list[set[int]]],
) -> None:
    [f], [s] = example
    mask, logits = as_mask([s], len(f)), torch.tensor([f], dtype=torch.float64)
    for values, off in (({}, None), ({"argmax": "all"}, 0.0)):
        estimator = make("cavl", **values)
        state = estimator.init_state(mask)
        average = sum(-math.log(literal.softmax(f)[j]) for j in s) / len(s)
        assert estimator.loss(logits, mask, state).item() == pytest.approx(average, rel=1e-6)
        state = estimator.update(logits, mask, state)
        target = literal.activation_target(f, s, off)
        assert state["target"].argmax().item() == target
        assert state["target"].sum().item() == 1
        assert estimator.loss(logits, mask, state).item() == pytest.approx(
            -math.log(literal.softmax(f)[target]), abs=1e-6
        )


def test_the_authors_code_of_cavl_can_leave_the_candidates() -> None:
    mask = torch.tensor([[True, True, False]])
    logits = torch.tensor([[-1.0, -2.0, 3.0]])  # both candidates' values are negative, and what is masked is 0
    chosen = {v: int(make("cavl", argmax=v).update(logits, mask, {})["target"].argmax()) for v in ("candidates", "all")}
    assert chosen == {"candidates": 0, "all": 2}


# ----------------------------------------------------------------------------------------------- identities


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("cl-t", "cl"), ("cl-tnn", "cl-nn"), ("cl-tga", "cl-ga"), ("cpe-f", "cl-forward"), ("cpe-i", "op")],
)
def test_with_the_uniform_matrix_methods_fall_together(ours: str, theirs: str) -> None:
    rng = torch.Generator().manual_seed(1)
    mask = torch.rand(40, 5, generator=rng) < 0.5
    mask[:, 0], mask[:, 1] = True, False
    logits = torch.randn(40, 5, generator=rng, dtype=torch.float64, requires_grad=True)
    values = []
    for name in (ours, theirs):
        estimator = make(name)
        state = estimator.init_shared(CandidateSets.from_mask(mask))
        objective = estimator.objective(logits, mask, state)
        (gradient,) = torch.autograd.grad(objective, logits)
        values.append((estimator.loss(logits, mask, state), objective, gradient))
    for one, other in zip(*values, strict=True):
        torch.testing.assert_close(one, other)


def test_average_losses_and_bounded_losses_of_the_benchmarks_are_the_built_in_ones() -> None:
    """ABS-MAE is twice, ABS-GCE is exactly, our average; MCL-GCE and MCL-MSE are our mcl."""
    f, s = [0.3, -1.0, 2.0, 0.5], {0, 3}
    p = literal.softmax(f)
    l1 = [sum(abs(p[k] - (k == j)) for k in range(4)) for j in range(4)]
    gce = [(1 - v**0.7) / 0.7 for v in p]
    mse = [sum((p[k] - (k == j)) ** 2 for k in range(4)) for j in range(4)]
    assert 2 * loss(make("average", base_loss="mae"), f, s) == pytest.approx(sum(l1[j] for j in s) / 2, rel=1e-6)
    assert loss(make("average", base_loss="gce"), f, s) == pytest.approx(sum(gce[j] for j in s) / 2, rel=1e-6)
    for name, ell in (("gce", gce), ("mse", mse)):  # (K - 1 - |s̄|)/|s̄| = 1/2
        wanted = ell[0] + ell[3] - (ell[1] + ell[2]) / 2
        assert loss(make("mcl", base_loss=name), f, s) == pytest.approx(wanted, rel=1e-6)


# ------------------------------------------------------------------------------------------------- extremes


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("num_classes", [3, 10, 1000])
@pytest.mark.parametrize(
    ("name", "values"), VARIANTS, ids=lambda v: v if isinstance(v, str) else ",".join(map(str, v.values()))
)
def test_losses_and_gradients_are_finite_at_the_extremes(
    name: str, values: dict[str, Any], num_classes: int, dtype: torch.dtype
) -> None:
    rng = torch.Generator().manual_seed(num_classes)
    if num_classes == 1000 and values.get("matrix") == "skewed":
        values = {**values, "ratio": 0.99}
    estimator = make(name, **values)
    order = torch.rand(4, num_classes, generator=rng).argsort(1)
    mask = torch.cat([order < 1, order < num_classes - 1])  # one candidate, all but one
    signs = torch.randint(-1, 2, mask.shape, generator=rng).float()
    one_sided = torch.where(mask, 1.0, -1.0)
    first = {**estimator.init_shared(CandidateSets.from_mask(mask)), **estimator.init_state(mask)}
    for scale in (1.0, 41.0, 89.0, 104.0, 1e4):
        for shape in (signs, one_sided, -one_sided):
            f = (scale * shape).to(dtype).requires_grad_()
            for state in (first, {**first, **estimator.update(f.detach(), mask, first)}):
                losses = estimator.loss(f, mask, state)
                (gradient,) = torch.autograd.grad(estimator.objective(f, mask, state), f)
                assert losses.shape == (8,)
                assert bool(torch.isfinite(losses).all())
                assert bool(torch.isfinite(gradient).all())


@pytest.mark.parametrize("name", ["cl-t", "cl-tga", "cl-tnn", "cpe-f", "cpe-i", "l-w", "op", "op-w", "scarce"])
def test_a_full_set_weighs_nothing(name: str) -> None:
    rng = torch.Generator().manual_seed(7)
    estimator = make(name)
    mask = torch.tensor([[True, False, False], [True, True, False], [False, True, True]])
    logits = torch.randn(4, 3, generator=rng, dtype=torch.float64)
    with_full = torch.cat([mask, torch.ones(1, 3, dtype=torch.bool)])
    state = estimator.init_shared(CandidateSets.from_mask(mask))
    same = estimator.init_shared(CandidateSets.from_mask(with_full))
    for key, value in state.items():
        torch.testing.assert_close(same[key], value)
    assert float(estimator.loss(logits, with_full, state)[3]) == 0
    if type(estimator).objective is not Estimator.objective:
        alone = estimator.objective(logits[:3], mask, state)
        torch.testing.assert_close(estimator.objective(logits, with_full, state), alone)


# ----------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("name", ["cl-t", "cl-tnn", "cl-tga", "cpe-i", "cpe-f", "cpe-t"])
def test_a_matrix_that_cannot_be_read_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"{name}.*skewd.*Did you mean"):
        make(name, matrix="skewd")


def test_a_matrix_without_inverse_is_refused() -> None:
    sets = CandidateSets.from_mask(~torch.eye(4, dtype=torch.bool))
    with pytest.raises(ConfigError, match="cl-t: matrix neighbours of 4 classes has no inverse"):
        make("cl-t", matrix="neighbours").init_shared(sets)


def test_a_process_with_exact_probabilities_agrees_with_the_literal_matrix() -> None:
    generator = REGISTRY.create("generator", "cl-biased", {"matrix": "skewed"})
    table = law(generator, torch.zeros(1, 1), 4)[0]
    one_out = [(i, int((~s).nonzero())) for i, s in enumerate(all_sets(4)) if int(s.sum()) == 3]
    for row, y_bar in one_out:
        wanted = torch.tensor([literal.skewed(4)[y][y_bar] for y in range(4)], dtype=torch.float64)
        torch.testing.assert_close(table[row], wanted)
