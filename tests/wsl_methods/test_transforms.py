"""Transforms of candidate sets are what their formulas say, and help where their assumption holds."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from wsl_methods.clsp import NeighbourPruning, against, nearest, pruned
from wsl_methods.conformal import ConformalCleaning, parts
from wsl_toolkit import CandidateSets, Transform
from wsl_toolkit.data.problem import make_problem
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.testing.batches import random_sets

TRANSFORMS = [NeighbourPruning(), ConformalCleaning(epochs=15)]


def literal_pruning(x: list[list[float]], sets: list[list[bool]], k: int, share: float) -> list[list[bool]]:
    """Votes and pruning as the paper says them, example by example."""

    def cosine(u: list[float], v: list[float]) -> float:
        return sum(a * b for a, b in zip(u, v, strict=True)) / math.hypot(*u) / math.hypot(*v)

    found = []
    for i, own in enumerate(sets):
        others = sorted((j for j in range(len(x)) if j != i), key=lambda j: -cosine(x[i], x[j]))[:k]
        votes = [sum(not sets[j][c] for j in others) if inside else 0 for c, inside in enumerate(own)]
        most = math.ceil(share * (sum(own) - 1))
        bar = sorted(votes, reverse=True)[most]
        found.append([inside and votes[c] <= bar for c, inside in enumerate(own)])
    return found


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), k=st.integers(1, 8), share=st.sampled_from([0.0, 0.2, 0.5, 0.75, 1.0]))
def test_clsp_is_its_formula_and_empties_no_set(seed: int, k: int, share: float) -> None:
    rng = torch.Generator().manual_seed(seed)
    x, sets = torch.randn(20, 3, generator=rng, dtype=torch.float64), random_sets(20, 5, rng)
    found = NeighbourPruning(neighbours=k, share=share).apply(x, CandidateSets.from_mask(sets), rng).mask()
    assert found.tolist() == literal_pruning(x.tolist(), sets.tolist(), k, share)
    assert bool(found.any(1).all())


def test_of_candidates_with_as_many_votes_none_leaves() -> None:
    mask = torch.tensor([[True, True, True, False]])
    assert pruned(mask, torch.tensor([[3, 3, 1, 0]]), 0.5).tolist() == [[False] * 4], "one may leave, two would"
    assert pruned(mask, torch.tensor([[3, 2, 1, 0]]), 0.5).tolist() == [[True, False, False, False]]


def test_neighbours_are_found_piece_by_piece_as_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    whole = nearest(x, 5)
    monkeypatch.setattr("wsl_methods.clsp.PIECE", 170)
    assert torch.equal(nearest(x, 5), whole)
    assert not bool((whole == torch.arange(50).unsqueeze(1)).any()), "nobody is its own neighbour"
    assert nearest(x[:3], 5).shape == (3, 2)
    mask = random_sets(50, 4, torch.Generator().manual_seed(1))
    wanted = [[sum(not mask[j, c] for j in whole[i]) * int(mask[i, c]) for c in range(4)] for i in range(50)]
    assert against(mask, whole).tolist() == wanted


def test_conformal_cleaning_keeps_what_its_p_values_allow() -> None:
    cleaning = ConformalCleaning(level=0.2)
    p = torch.tensor([[0.7, 0.2, 0.06, 0.04], [0.3, 0.3, 0.3, 0.1]], dtype=torch.float64)
    sets = torch.tensor([[True, True, True, False], [False, False, False, True]])
    scores = torch.tensor([0.1, 0.3, 0.5, 0.85], dtype=torch.float64)
    assert cleaning.cleaned(p.log(), sets, scores, 9).equal(sets), "too early"
    shrink, missed = 1 - 0.5**3, (0.04 + 0.9) / 2  # in epoch 12
    wanted = []
    for row, own in zip(p.tolist(), sets.tolist(), strict=True):
        higher = [sum(score >= 1 - shrink * q for score in scores.tolist()) for q in row]
        kept = [inside and (1 + count) / 5 > 0.2 + missed for inside, count in zip(own, higher, strict=True)]
        wanted.append(kept if any(kept) else own)
    assert cleaning.cleaned(p.log(), sets, scores, 12).tolist() == wanted


@pytest.mark.parametrize("singles", [10, 200])
def test_examples_of_one_candidate_calibrate_if_there_are_enough(singles: int) -> None:
    sets = torch.ones(400, 3, dtype=torch.bool)
    sets[:, 2] = False
    sets[:singles, 1] = False
    train, calibration = parts(sets, torch.Generator().manual_seed(0))
    assert sorted(train.tolist()) == list(range(400)), "there are few examples a class: all are trained on"
    assert (calibration.tolist() == list(range(200))) == (singles == 200)
    assert len(calibration) == (200 if singles == 200 else 100)


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda each: each.name)
def test_full_sets_stay_full(transform: Transform) -> None:
    rng = torch.Generator().manual_seed(0)
    mask = random_sets(60, 4, rng)
    mask[::7] = True
    found = transform.apply(torch.randn(60, 3, generator=rng), CandidateSets.from_mask(mask), rng).mask()
    assert bool(found[::7].all())
    assert bool((found <= mask).all()), "nothing is added"


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda each: each.name)
def test_on_digits_it_drops_false_candidates_and_hardly_a_true_one(transform: Transform, tmp_path: object) -> None:
    registry = load_plugins().registry
    data = registry.get("dataset", "digits")().load(tmp_path)
    flip = registry.create("generator", "flip", {"q": 0.4})
    problem = make_problem(data, flip, seed=0, validation=0.1, test=0.2, transform=transform)
    change = problem.change
    assert change is not None
    assert change.true_label_kept is not None
    assert change.true_label_kept > 0.97
    assert problem.train_candidates.mean_size < change.size_before - 0.4
