"""Boosting by confidences is boosting of the sets' likelihood, and arrays predict what scikit-learn's trees do."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier

from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.own_data import trees
from wsl_toolkit.own_data.calibration import set_log_loss
from wsl_toolkit.own_data.tree_ensemble import TreeEnsemble
from wsl_toolkit.training.formulas import candidate_confidence


def test_weights_by_confidence_have_the_gradient_of_the_sets_likelihood():
    """Every set of four classes: Σ_{j∈s} r_j ∇(-log p_j) = ∇(-log Σ_{j∈s} p_j)."""
    sets = [s for size in range(1, 5) for s in itertools.combinations(range(4), size)]
    mask = torch.zeros(len(sets), 4, dtype=torch.bool)
    for row, members in enumerate(sets):
        mask[row, list(members)] = True
    logits = torch.randn(len(sets), 4, dtype=torch.float64, requires_grad=True)
    likelihood = -(logits.softmax(1) * mask).sum(1).log().sum()
    (wanted,) = torch.autograd.grad(likelihood, logits)
    weights = candidate_confidence(logits.detach(), mask)
    (found,) = torch.autograd.grad(-(weights * logits.log_softmax(1)).sum(), logits)
    torch.testing.assert_close(found, wanted)


def quadrants(n: int = 400, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, CandidateSets]:
    """Classes that no linear model tells apart, with one wrong candidate in half of the sets."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, size=(n, 3))
    y = (x[:, 0] * x[:, 1] > 0).astype(int) + 2 * (x[:, 2] > 0.3)
    mask = np.eye(4, dtype=bool)[y]
    mask[np.arange(n), (y + rng.integers(1, 4, n)) % 4] |= rng.random(n) < 0.5
    return torch.from_numpy(x).float(), torch.from_numpy(y), CandidateSets.from_mask(mask)


@pytest.mark.parametrize("classes", [[0, 1, 3], [1, 2, 3, 4]], ids=str)
def test_on_sets_of_one_class_the_trees_are_those_of_scikit_learn(classes):
    rng = np.random.default_rng(1)
    x = torch.from_numpy(rng.normal(size=(300, 4)))
    x[:, 3] = x[:, 3].round()  # a column of few numbers
    y = rng.choice(classes, 300)
    sets = CandidateSets.from_mask(np.eye(5, dtype=bool)[y])
    ours = trees.grow(x, sets, trees.Boosting(max_iter=7, subsample=1.0)).ensembles[-1]
    _, codes = trees.binned(x)
    settings = {"max_bins": trees.BINS, "max_leaf_nodes": 16, "early_stopping": False}
    theirs = HistGradientBoostingClassifier(max_iter=7, **settings).fit(codes.numpy(), y)
    found = ours(x).double()[:, classes].softmax(1)
    np.testing.assert_allclose(found.numpy(), theirs.predict_proba(codes.numpy()), atol=1e-6)
    unknown = [j for j in range(5) if j not in classes]
    lowest = ours(x)[:, classes].amin(1, keepdim=True).expand(-1, len(unknown))
    assert torch.equal(ours(x)[:, unknown], lowest)


def test_two_classes_are_two_trees_a_step_and_the_stages_are_the_first_of_all_trees():
    x, y, _ = quadrants(200)
    sets = CandidateSets.from_mask(torch.eye(2, dtype=torch.bool)[(y % 2)])
    grown = trees.grow(x, sets, trees.Boosting(max_iter=12), watch=x)
    assert [len(each.root) for each in grown.ensembles] == [10, 20, 24]
    for ensemble, watched in zip(grown.ensembles, grown.watched, strict=True):
        assert torch.equal(ensemble(x), watched)
        arrays = {name: value.contiguous() for name, value in ensemble.state_dict().items()}
        assert torch.equal(TreeEnsemble.load(arrays, 3, 2)(x), watched)


@pytest.mark.parametrize("settings", [{"max_features": 0.5}, {"subsample": 0.5}, {"min_samples_leaf": 60}], ids=str)
def test_what_is_left_out_by_chance_or_by_a_rule_changes_the_trees_but_not_from_time_to_time(settings):
    x, _, sets = quadrants(200)
    one, again, other = (
        trees.grow(x, sets, trees.Boosting(max_iter=5, **own)).ensembles[-1](x) for own in (settings, settings, {})
    )
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_boosting_makes_the_sets_likelier_at_every_stage():
    x, _, sets = quadrants(300)
    grown = trees.grow(x, sets, trees.Boosting(max_iter=30), watch=x)
    losses = [set_log_loss(logits, sets.mask()) for logits in grown.watched]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] / 2


def test_trees_learn_from_sets_what_a_linear_model_cannot():
    x, y, sets = quadrants()
    grown = trees.grow(x[:300], sets.take(torch.arange(300)), trees.Boosting(max_iter=20), watch=x[300:])
    accuracies = [float((logits.argmax(1) == y[300:]).float().mean()) for logits in grown.watched]
    assert len(accuracies) == 4
    assert accuracies[-1] > 0.85
    assert torch.equal(grown.ensembles[-1](x[300:]), grown.watched[-1])


def test_the_same_data_grow_the_same_trees_and_full_sets_weigh_nothing():
    x, _, sets = quadrants(120)
    full = torch.cat([sets.mask(), torch.ones(30, 4, dtype=torch.bool)])
    more = torch.cat([x, torch.randn(30, 3)])
    boosting = trees.Boosting(max_iter=6)
    one, other = trees.grow(x, sets, boosting), trees.grow(more, CandidateSets.from_mask(full), boosting)
    assert len(one.ensembles) == 2, "five iterations, and the sixth"
    for name, value in one.ensembles[-1].state_dict().items():
        assert torch.equal(value, other.ensembles[-1].state_dict()[name]), name


def test_one_class_that_is_all_there_is_needs_no_tree():
    mask = torch.zeros(10, 3, dtype=torch.bool)
    mask[:, 1] = True
    (ensemble,) = trees.grow(torch.randn(10, 2), CandidateSets.from_mask(mask), trees.Boosting()).ensembles
    assert ensemble(torch.randn(5, 2)).argmax(1).tolist() == [1] * 5


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("left", -1, "outside"),
        ("left", 10**6, "outside"),
        ("right", 0, "outside"),  # back to the root: a walk that never ends
        ("feature", 3, "outside"),
        ("output", 4, "outside"),
        ("root", -5, "outside"),
    ],
)
def test_arrays_that_are_no_forest_are_refused(name, value, why):
    x, _, sets = quadrants(120)
    arrays = dict(trees.grow(x, sets, trees.Boosting(max_iter=5)).ensembles[-1].state_dict())
    assert torch.equal(TreeEnsemble.load(arrays, 3, 4)(x), TreeEnsemble(arrays)(x))
    arrays[name] = arrays[name].clone()
    arrays[name][-1] = value
    with pytest.raises(ValueError, match=why):
        TreeEnsemble.load(arrays, 3, 4)
    del arrays[name]
    with pytest.raises(ValueError, match="trees have the arrays"):
        TreeEnsemble.load(arrays, 3, 4)


def test_weights_of_examples_move_what_trees_believe_and_equal_ones_change_nothing():
    x, y, sets = quadrants(200)
    boosting = trees.Boosting(max_iter=10)
    plain, alike = (trees.grow(x, sets, boosting, counts=c).ensembles[-1] for c in (None, torch.ones(200)))
    assert torch.equal(plain(x), alike(x))
    heavy = trees.grow(x, sets, boosting, counts=1 + 50.0 * (y == 0)).ensembles[-1]
    assert float(heavy(x).softmax(1)[:, 0].mean()) > float(plain(x).softmax(1)[:, 0].mean()) + 0.05
