"""Cleaning is out of fold: no example judges itself."""

from __future__ import annotations

import attrs
import pytest
import torch

from wsl_toolkit.data.dataset import Data
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.own_data import cleaning, fitting
from wsl_toolkit.plugins.loading import load_plugins

REGISTRY = load_plugins().registry


def made(n: int = 60) -> Data:
    stream = torch.Generator().manual_seed(0)
    y = torch.randint(0, 3, (n,), generator=stream)
    x = 3 * torch.eye(3)[y] + torch.randn(n, 3, generator=stream)
    mask = torch.rand(n, 3, generator=stream) < 0.3
    mask[torch.arange(n), y] = True
    return Data(name="made", x=x.double(), candidates=CandidateSets.from_mask(mask), num_classes=3, known_y=y)


def options(**more: object) -> fitting.FitOptions:
    return fitting.options_for(REGISTRY, estimator=("ppl", {}), epochs=5, **more)


def test_the_set_and_the_inputs_of_an_example_have_no_say_in_its_own_models(monkeypatch):
    """Change one example beyond recognition: every model that judges its fold stays the same to the last bit."""
    data = made()
    judges: list[list[torch.Tensor]] = []
    original = fitting.fit

    def recorded(*args: object, **kwargs: object) -> fitting.Fitted:
        fitted = original(*args, **kwargs)
        judges[-1].append(torch.cat([p.flatten() for p in fitted.network.parameters()]))
        return fitted

    monkeypatch.setattr(fitting, "fit", recorded)
    judges.append([])
    before = cleaning.clean(data, REGISTRY, options(), folds=4)
    victim = 20
    mask = data.candidates.mask().clone()
    mask[victim] = ~mask[victim] if not bool(mask[victim].all()) else torch.tensor([True, False, False])
    x = data.x.clone()
    x[victim] += 100
    judges.append([])
    after = cleaning.clean(
        attrs.evolve(data, x=x, candidates=CandidateSets.from_mask(mask)), REGISTRY, options(), folds=4
    )
    own = int(before.fold[victim])
    same = [torch.equal(a, b) for a, b in zip(*judges, strict=True)]
    assert same == [number == own for number in range(4)]
    neighbours = (before.fold == own) & (torch.arange(len(x)) != victim)
    assert torch.equal(before.confidence[neighbours], after.confidence[neighbours])


def test_true_labels_have_no_say_in_cleaning():
    data = made()
    first = cleaning.clean(data, REGISTRY, options(), folds=3)
    second = cleaning.clean(attrs.evolve(data, known_y=data.known_y.roll(1)), REGISTRY, options(), folds=3)
    assert torch.equal(first.label, second.label)
    assert torch.equal(first.confidence, second.confidence)


def test_labels_are_candidates_and_confidences_are_shares_of_them():
    data = made()
    found = cleaning.clean(data, REGISTRY, options(lr=0.1, weight_decay=0.0), folds=3)
    mask = data.candidates.mask()
    assert bool(mask.gather(1, found.label[:, None]).all())
    assert bool((found.confidence >= 1 / data.candidates.sizes - 1e-6).all())
    assert bool((found.confidence[data.candidates.sizes == 1] > 1 - 1e-6).all())
    assert found.rank.sort().values.tolist() == list(range(1, 61))
    wrong = 1 - (1 - found.review.missed) * found.confidence.double()
    assert int(found.rank[wrong.argmax()]) == 1


def test_too_few_examples_for_the_folds_are_refused():
    from wsl_toolkit.errors import DataError

    with pytest.raises(DataError, match="7 examples are too few for 5 folds"):
        cleaning.clean(made(7), REGISTRY, options())
