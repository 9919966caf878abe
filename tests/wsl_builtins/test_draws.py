"""What generators draw: valid sets of the right sizes, from one explicit stream, at any number of classes."""

from __future__ import annotations

import pytest
import torch
from generator_cases import CASES, case_id, create
from hypothesis import given, settings
from hypothesis import strategies as st

from wsl_builtins.generators.sampling import draw_column, draw_complement, draw_index, draw_joining, joining_probability
from wsl_toolkit import Setting
from wsl_toolkit.errors import LabelError
from wsl_toolkit.theory.enumeration import all_sets, set_index
from wsl_toolkit.theory.sampling_tests import chi_square_tail


def problem(n, num_classes, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(n, 6, generator=rng), torch.randint(0, num_classes, (n,), generator=rng)


@pytest.mark.parametrize("num_classes", [3, 10, 100])
@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_sets_are_neither_empty_nor_full_and_hold_the_true_label(case, num_classes):
    name, values, _ = case
    generator = create(name, num_classes, **values)
    x, y = problem(2000, num_classes)
    sets = generator.sample(x, y, num_classes, torch.Generator().manual_seed(1))
    assert int(sets.sizes.min()) >= 1
    assert int(sets.sizes.max()) <= num_classes - 1
    if generator.setting is not Setting.ANY:
        assert sets.mask().gather(1, y.unsqueeze(1)).all()


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_the_same_stream_gives_the_same_sets_and_no_other_randomness_is_touched(case):
    name, values, _ = case
    x, y = problem(500, 6)
    before = torch.get_rng_state()
    first, again = (create(name, 6, **values).sample(x, y, 6, torch.Generator().manual_seed(3)) for _ in range(2))
    other = create(name, 6, **values).sample(x, y, 6, torch.Generator().manual_seed(4))
    assert first == again
    fixed = {("flip", 0.0), ("flip-class", 1.0), ("flip-superclass", 1.0)}
    deterministic = (name, values.get("q", values.get("rate"))) in fixed or values.get("partitions") == "0 1|2-{last}"
    assert (first == other) is deterministic
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_labels_of_any_integer_type_are_welcome(dtype):
    x, y = problem(50, 5)
    expected = create("mcl-skewed").sample(x, y, 5, torch.Generator().manual_seed(0))
    assert create("mcl-skewed").sample(x, y.to(dtype), 5, torch.Generator().manual_seed(0)) == expected


def test_labels_out_of_range_and_of_the_wrong_number_are_refused():
    x = torch.zeros(3, 2)
    with pytest.raises(LabelError, match="label 5 of example 2 is out of range 0 to 3"):
        create("cl").sample(x, torch.tensor([0, 1, 5]), 4, torch.Generator())
    with pytest.raises(LabelError, match="label -1 of example 0"):
        create("cl").sample(x, torch.tensor([-1, 1, 2]), 4, torch.Generator())
    with pytest.raises(LabelError, match="2 labels for 3 examples"):
        create("cl").sample(x, torch.tensor([0, 1]), 4, torch.Generator())
    with pytest.raises(LabelError, match="vector of integers"):
        create("cl").sample(x, torch.tensor([0.0, 1.0, 2.0]), 4, torch.Generator())


@given(
    num_classes=st.integers(2, 60),
    seed=st.integers(0, 2**32),
    n=st.integers(1, 40),
)
@settings(max_examples=60, deadline=None)
def test_complements_have_exactly_the_asked_size(num_classes, seed, n):
    rng = torch.Generator().manual_seed(seed)
    y = torch.randint(0, num_classes, (n,), generator=rng)
    sizes = torch.randint(1, num_classes, (n,), generator=rng)
    mask = draw_complement(y, sizes, num_classes, rng)
    assert torch.equal((~mask).sum(1), sizes)
    assert mask.gather(1, y.unsqueeze(1)).all()


def test_sizes_are_exact_with_a_thousand_classes():
    y = torch.arange(1000).repeat(4)
    for size in (1, 500, 999):
        mask = draw_complement(y, torch.full_like(y, size), 1000, torch.Generator().manual_seed(size))
        assert ((~mask).sum(1) == size).all()


def test_complements_of_one_size_are_uniform():
    k, n = 6, 60_000
    y = torch.full((n,), 2)
    for size in (1, 2, 4):
        mask = draw_complement(y, torch.full((n,), size), k, torch.Generator().manual_seed(size))
        counts = torch.bincount(set_index(mask), minlength=2**k - 2).double()
        sets = all_sets(k)
        possible = sets[:, 2] & ((~sets).sum(1) == size)
        assert counts[~possible].sum() == 0
        expected = n / int(possible.sum())
        statistic = float(((counts[possible] - expected) ** 2 / expected).sum())
        assert chi_square_tail(statistic, int(possible.sum()) - 1) > 1e-4


def test_an_index_of_weight_zero_is_never_drawn():
    weights = torch.tensor([0.0, 0.3, 0.0, 0.7, 0.0], dtype=torch.float64)
    counts = torch.bincount(draw_index(weights, 50_000, torch.Generator().manual_seed(0)), minlength=5)
    assert counts[[0, 2, 4]].sum() == 0
    assert abs(int(counts[3]) / 50_000 - 0.7) < 0.01
    columns = draw_column(weights.expand(50_000, 5), torch.Generator().manual_seed(0))
    counts = torch.bincount(columns, minlength=5)
    assert counts[[0, 2, 4]].sum() == 0
    assert abs(int(counts[3]) / 50_000 - 0.7) < 0.01


def test_joining_is_the_free_process_given_that_the_set_is_not_full():
    """Against the slow way: draw freely, throw full sets away."""
    joins = torch.tensor([[0.9, 0.2, 1.0, 0.6]], dtype=torch.float64)
    y = torch.tensor([1])
    rng = torch.Generator().manual_seed(0)
    free = torch.rand(200_000, 4, generator=rng, dtype=torch.float64) < joins
    free[:, 1] = True
    free = free[~free.all(1)]
    frequency = torch.bincount(set_index(free), minlength=14).double() / len(free)
    sets = all_sets(4)
    exact = joining_probability(sets, y.expand(14), joins.expand(14, 4)) * sets[:, 1]
    assert float(exact.sum()) == pytest.approx(1)
    assert torch.allclose(frequency, exact, atol=0.005)
    direct = draw_joining(y.expand(100_000), joins.expand(100_000, 4), rng)
    drawn = torch.bincount(set_index(direct), minlength=14).double() / len(direct)
    assert torch.allclose(drawn, exact, atol=0.006)


@pytest.mark.parametrize("chance", [0.0, 1e-12, 1 - 1e-12, 0.5])
def test_joining_never_draws_the_full_set_even_where_it_is_all_but_certain(chance):
    joins = torch.full((1000, 5), chance, dtype=torch.float64)
    y = torch.arange(5).repeat(200)
    mask = draw_joining(y, joins, torch.Generator().manual_seed(0))
    assert not mask.all(1).any()
    assert mask.gather(1, y.unsqueeze(1)).all()
    sets = all_sets(5)
    p = joining_probability(sets, torch.zeros(30, dtype=torch.long), joins[:30]) * sets[:, 0]
    assert float(p.sum()) == pytest.approx(1, abs=1e-9)
    if chance > 0.9:
        assert ((~mask).sum(1) == 1).all()


def test_many_examples_of_many_classes_are_kept_compactly(monkeypatch):
    monkeypatch.setattr("wsl_toolkit.labels.storage.DENSE_LIMIT", 2**20)
    n, num_classes = 4000, 1000
    _, y = problem(n, num_classes)
    sets = create("mcl-skewed").sample(torch.zeros(n, 1), y, num_classes, torch.Generator().manual_seed(0))
    assert sets.storage == "packed"
    assert sets.nbytes == n * 125
    few = create("flip", q=0.009).sample(torch.zeros(n, 1), y, num_classes, torch.Generator().manual_seed(0))
    assert few.storage == "sparse"
    assert 9.5 < few.mean_size < 10.5
    assert few.nbytes < n * 35
    assert few.mask(slice(0, n)).gather(1, y.unsqueeze(1)).all()


def test_constants_stay_finite_with_a_thousand_classes():
    k = 1000
    sets = torch.ones(k - 1, k, dtype=torch.bool).tril()
    for name in ("cl", "mcl", "mcl-skewed", "pcpl", "pcpl-symmetric", "flip", "proper-instance", "query", "partition"):
        values = create(name).constant(sets, torch.zeros(k - 1, 2), k)
        assert torch.isfinite(values).all(), name
        assert (values >= 0).all(), name
        if name in ("cl", "mcl", "mcl-skewed", "pcpl", "pcpl-symmetric", "flip"):
            assert create(name).complement_sizes(k).sum() == pytest.approx(1), name


@pytest.mark.parametrize(
    ("name", "values", "size"),
    [
        ("mcl-skewed", {"alpha": 1e-300}, 999),
        ("mcl-skewed", {"alpha": 1e300}, 1),
        ("flip", {"q": 0.0}, 1),
        ("flip", {"q": 1 - 1e-12}, 999),
        ("mcl", {"sizes": (0.0, 1.0)}, 998),
    ],
)
def test_extreme_parameters_give_extreme_sizes_and_no_nan(name, values, size):
    generator = create(name, **values)
    law = generator.complement_sizes(1000)
    assert torch.isfinite(law).all()
    assert float(law.sum()) == pytest.approx(1)
    x, y = problem(500, 1000)
    sets = generator.sample(x, y, 1000, torch.Generator().manual_seed(0))
    assert (sets.sizes == size).all()
