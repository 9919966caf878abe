"""Candidate sets that are transformed before `wsl fit` and `clean` learn from them; held-out ones stay as they are."""

from __future__ import annotations

import attrs
import pytest
import torch

from tests.own_data.conftest import ZOO
from wsl_toolkit.components import Transform
from wsl_toolkit.data.dataset import Data
from wsl_toolkit.errors import PluginError
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.own_data import cleaning, fitting
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.plugins.registry import Owner

REGISTRY = load_plugins().registry
FAST = ("--epochs", 2, "--quiet")


def made(n: int = 60) -> Data:
    stream = torch.Generator().manual_seed(0)
    y = torch.randint(0, 3, (n,), generator=stream)
    x = 3 * torch.eye(3)[y] + torch.randn(n, 3, generator=stream)
    mask = torch.rand(n, 3, generator=stream) < 0.3
    mask[torch.arange(n), y] = True
    return Data(name="made", x=x.double(), candidates=CandidateSets.from_mask(mask), num_classes=3, known_y=y)


@attrs.frozen(kw_only=True)
class First(Transform):
    """Keeps the first candidate of each set, and remembers what it was given."""

    name = "first"
    seen: list[tuple[torch.Tensor, torch.Tensor]] = attrs.field(factory=list)

    def apply(self, x: torch.Tensor, candidates: CandidateSets, rng: torch.Generator) -> CandidateSets:
        mask = candidates.mask()
        self.seen.append((x, mask))
        first = mask.int().argmax(1)
        return CandidateSets.from_mask(torch.eye(mask.shape[1], dtype=torch.bool)[first])


def options(transform: Transform | None = None, **more: object) -> fitting.FitOptions:
    made = fitting.options_for(REGISTRY, estimator=("ppl", {}), epochs=5, **more)
    return attrs.evolve(made, transform=transform)


def weights(fitted: fitting.Fitted) -> torch.Tensor:
    return torch.cat([p.flatten() for p in fitted.network.parameters()])


def test_models_learn_from_what_the_transform_made_and_from_nothing_else():
    data, everything = made(), torch.arange(60)
    one = fitting.fit(data, REGISTRY, options(First(), lr=0.1, weight_decay=0.0, calibrate=False), everything)
    first = CandidateSets.from_mask(torch.eye(3, dtype=torch.bool)[data.candidates.mask().int().argmax(1)])
    other = fitting.fit(
        attrs.evolve(data, candidates=first),
        REGISTRY,
        options(lr=0.1, weight_decay=0.0, calibrate=False),
        everything,
    )
    assert torch.equal(weights(one), weights(other))
    assert one.change is not None
    assert one.change.size_before == pytest.approx(data.candidates.mean_size)
    assert one.change.size_after == 1
    kept = (first.mask().int().argmax(1) == data.known_y).double().mean()
    assert one.change.true_label_kept == pytest.approx(float(kept))
    assert other.change is None


def test_held_out_sets_that_choose_and_calibrate_are_the_users_own():
    """A part is transformed by itself: no row that judges it is among those that the transform is given."""
    data, transform = made(), First()
    fitted = fitting.fit(data, REGISTRY, options(transform), torch.arange(60))
    assert len(fitted.tried) > 1
    assert len(transform.seen) > 1, "each fold's training part, and all of it in the end"
    for x, mask in transform.seen[:-1]:
        assert len(x) == len(mask) < 60
    assert len(transform.seen[-1][0]) == 60


def test_known_labels_are_counted_and_decide_nothing():
    data = made()
    other = attrs.evolve(data, known_y=(data.known_y + 1) % 3)
    found = [
        cleaning.clean(each, REGISTRY, options(First(), lr=0.1, weight_decay=0.0), folds=3) for each in (data, other)
    ]
    assert torch.equal(found[0].label, found[1].label)
    assert torch.equal(found[0].confidence, found[1].confidence)
    kept = [cleaning.summarise(data, each)["true_labels_kept"] for each in found]
    assert kept[0] != kept[1]
    assert cleaning.summarise(data, found[0])["mean_set_size_transformed"] == 1


def test_a_transform_that_returns_nonsense_is_named():
    @attrs.frozen(kw_only=True)
    class Half(First):
        """Loses half of the sets."""

        name = "half"
        seen: list[tuple[torch.Tensor, torch.Tensor]] = attrs.field(factory=list, init=False)

        def apply(self, x: torch.Tensor, candidates: CandidateSets, rng: torch.Generator) -> CandidateSets:
            return candidates.take(torch.arange(len(x) // 2))

    registry = REGISTRY.copy()
    registry.add_all([("transform", Half)], Owner(distribution="wsl-half", version="1.0", plugin="half"))
    with pytest.raises(PluginError, match=r"half must return 60 sets of 3 classes, not 30.*wsl-half"):
        fitting.fit(made(), registry, options(Half(), lr=0.1, weight_decay=0.0, calibrate=False), torch.arange(60))


def test_the_commands_take_a_transform_and_say_what_it_did(wsl, zoo):
    transform = ("--transform", "clsp", "--transform-neighbours", 5)
    report = wsl.json("fit", zoo, *ZOO, *FAST, *transform, "--out", "model", "--no-track", "--json")
    assert report["transform"]["name"] == "clsp"
    assert report["transform"]["neighbours"] == 5
    assert report["sets"]["size_after"] < report["sets"]["size_before"]
    said = wsl("fit", zoo, *ZOO, "--epochs", 2, *transform, "--out", "other", "--no-track").output
    assert "before, after the transform" in said
    options = ("--lr", 0.1, "--weight-decay", 0, "--folds", 2)
    summary = wsl.json("clean", zoo, *ZOO, *FAST, *transform, *options, "--out", "cleaned.csv", "--json")
    assert summary["mean_set_size_transformed"] < summary["mean_set_size"]
    assert "no transform is named 'nowhere'" in wsl.refused(
        "clean", zoo, *ZOO, "--transform", "nowhere", "--out", "x.csv"
    )
    wsl("predict", "model", zoo, "--out", "predicted.csv")
