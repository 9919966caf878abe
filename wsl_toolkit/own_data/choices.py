"""Which models are tried for a user's data: by its kind, by its size, and by how long one is willing to wait.

What is tried follows from the data and the budget alone, never from a clock, so that the same command tries the same.
The seconds here are estimates for one core that has nothing else to do.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import attrs

from wsl_toolkit.components import Backbone
from wsl_toolkit.errors import WslError
from wsl_toolkit.own_data import trees
from wsl_toolkit.own_data.set_laws import LAWS
from wsl_toolkit.own_data.trees import Boosting
from wsl_toolkit.parameters import values_of
from wsl_toolkit.plugins.registry import Registry
from wsl_toolkit.training.config import Training
from wsl_toolkit.training.stacking.grouping import PAYS_BELOW

BUDGETS = {"quick": 5.0, "normal": 90.0, "thorough": 600.0}
"""Seconds."""

LINEAR, MLP, CONVOLUTIONAL = "linear", "mlp", "lenet"
"""Backbones that are tried where they are installed."""

RATES = {"quick": (0.1, 0.01), "normal": (0.1, 0.01), "thorough": (0.1, 0.03, 0.01)}
DECAYS = {"quick": (1e-3, 1e-2), "normal": (1e-4, 1e-3, 1e-2, 1e-1), "thorough": (1e-5, 1e-4, 1e-3, 1e-2, 3e-2, 1e-1)}
MLP_DECAYS = {"quick": (), "normal": (1e-3, 1e-2), "thorough": (1e-4, 1e-3, 1e-2, 3e-2)}
MLP_WIDTHS: dict[str, tuple[tuple[int, ...], ...]] = {
    "quick": (),
    "normal": ((300,),),
    "thorough": ((300,), (300, 300)),
}
RANDOM = Boosting(max_leaf_nodes=31, min_samples_leaf=5, l2_regularization=1.0, max_features=0.5, subsample=0.6)
"""Trees that differ more from each other: better where many columns each say a little."""
FORESTS = {
    "quick": (Boosting(max_iter=50),),
    "normal": (Boosting(), RANDOM, Boosting(max_leaf_nodes=6)),
    "thorough": (
        Boosting(max_iter=200),
        attrs.evolve(RANDOM, max_iter=200),
        Boosting(max_leaf_nodes=6, max_iter=200),
        Boosting(learning_rate=0.05, max_leaf_nodes=31, max_iter=300),
        Boosting(learning_rate=0.05, max_leaf_nodes=6, max_iter=400),
    ),
}
TRIED_LAWS = {"quick": LAWS[:1], "normal": LAWS, "thorough": LAWS}
"""Laws of the sets under which the first trees are grown; the others then take the law that these choose."""
IMAGE_RATES = {"quick": (0.1,), "normal": (0.1, 0.01), "thorough": (0.1, 0.03, 0.01)}
IMAGE_DECAYS = {"quick": (1e-3,), "normal": (1e-3,), "thorough": (1e-4, 1e-3, 1e-2)}
IMAGE_TRAINING: dict[str, Any] = {"augmentation": "weak", "scheduler": "cosine"}
"""At a constant rate the last epoch of so few steps is a matter of luck; along a cosine it is not."""
STACKED = {LINEAR: 6, MLP: 3}
"""Small models of these kinds are trained as one stack, which takes each of them about so much less time."""
IMAGE_PRODUCTS = 600
"""A convolutional network multiplies about so often for each number of an image."""
TREE_CELLS = 25_000_000
"""Trees are grown on all numbers of a table at once; beyond so many that takes too much memory."""


@attrs.frozen(kw_only=True)
class NetworkChoice:
    """A network, and how to train it."""

    backbone: Backbone
    training: Training
    law: str = LAWS[0]
    """How sets are taken to come about: as the estimator takes them to, or as the trees learned."""

    @property
    def name(self) -> str:
        """The backbone's name."""
        return self.backbone.name

    def under(self, law: str) -> NetworkChoice:
        """Return the same under another law."""
        return attrs.evolve(self, law=law)

    def settings(self) -> dict[str, Any]:
        """Return what tells it from other choices of its kind."""
        widths = values_of(self.backbone).get("widths")
        own: dict[str, Any] = {} if widths is None else {"widths": list(widths)}
        own |= {"augmentation": self.training.augmentation} if self.training.augmentation != "none" else {}
        own |= {"law": self.law} if self.law != LAWS[0] else {}
        return {**own, "lr": self.training.lr, "weight_decay": self.training.weight_decay}


@attrs.frozen(kw_only=True)
class TreesChoice:
    """Gradient-boosted trees, and how to grow them."""

    boosting: Boosting
    compared: bool = False
    """Whether laws of the sets are compared with these trees, so that rivals of laws are looked at with them."""

    @property
    def name(self) -> str:
        """scikit-learn's name of it."""
        return trees.NAME

    def settings(self) -> dict[str, Any]:
        """Return what tells it from other choices of its kind."""
        return self.boosting.to_dict()

    @property
    def law(self) -> str:
        """How sets are taken to come about."""
        return self.boosting.law

    def under(self, law: str) -> TreesChoice:
        """Return the same under another law."""
        return attrs.evolve(self, boosting=attrs.evolve(self.boosting, law=law), compared=False)


Choice = NetworkChoice | TreesChoice


@attrs.frozen(kw_only=True)
class Size:
    """What the cost of learning depends on."""

    examples: int
    features: int
    classes: int
    shape: tuple[int, ...] = ()
    """Of an image: channels, height, width."""


@attrs.frozen(kw_only=True)
class Plan:
    """What is tried, and what is not, with the reason."""

    choices: tuple[Choice, ...]
    left_out: tuple[tuple[str, str], ...] = ()


def plan(
    size: Size,
    budget: str,
    registry: Registry,
    trainings: Sequence[Training],
    *,
    fits: int,
    whole: int,
) -> Plan:
    """Return what to try on data of this size.

    `trainings` are networks' settings for the rates and decays of the budget; `fits` is how often each choice is fitted
    to be judged, and `whole` is how many examples the chosen one learns from in the end.
    """
    seconds = BUDGETS[budget]
    spent = 0.0
    chosen: list[Choice] = []
    left_out: dict[str, str] = {}
    tried: set[str] = set()
    for choice in _wanted(size, budget, registry, trainings):
        full = attrs.evolve(size, examples=whole)
        if isinstance(choice, TreesChoice) and whole * size.features > TREE_CELLS:
            left_out.setdefault(choice.name, "the data are too large for it")
            continue
        cost = fits * cost_of(choice, size)
        # Something must be tried: linear models and, of images, the first convolutional network.
        must = choice.name == LINEAR or (choice.name == CONVOLUTIONAL and choice.name not in tried)
        if not must and spent + cost + cost_of(choice, full, alone=True) > seconds:
            left_out.setdefault(choice.name, f"some settings would take longer than --budget {budget} allows")
            continue
        spent += cost
        tried.add(choice.name)
        chosen.append(choice)
    return Plan(choices=tuple(chosen), left_out=tuple(left_out.items()))


def _wanted(size: Size, budget: str, registry: Registry, trainings: Sequence[Training]) -> list[Choice]:
    """Return what one would try with time enough, what must be tried first."""
    installed = set(registry.names("backbone"))
    found: list[Choice] = []
    if LINEAR in installed:
        linear = registry.create("backbone", LINEAR, {})
        found += [NetworkChoice(backbone=linear, training=training) for training in trainings]
    convolutional = _convolutional(size, registry)
    if convolutional is not None:
        rates, decays = IMAGE_RATES[budget], IMAGE_DECAYS[budget]
        return found + [
            NetworkChoice(backbone=convolutional, training=attrs.evolve(training, **IMAGE_TRAINING))
            for training in trainings
            if training.lr in rates and training.weight_decay in decays
        ]
    first, others = forests(budget)
    perceptrons: list[Choice] = []
    if MLP in installed:
        perceptrons = [
            NetworkChoice(backbone=registry.create("backbone", MLP, {"widths": widths}), training=training)
            for widths in MLP_WIDTHS[budget]
            for training in trainings
            if training.weight_decay in MLP_DECAYS[budget]
        ]
    return [*found, *first, *perceptrons, *others]


def law_trees(law: str) -> TreesChoice:
    """Return the trees by which a law is learned where no others were grown."""
    return TreesChoice(boosting=FORESTS["normal"][0]).under(law)


def until_laws(choices: Sequence[Choice]) -> tuple[list[Choice], list[Choice]]:
    """Return the choices up to the last trees that try a law of the sets, and those that take the law that is found."""
    cut = max((place + 1 for place, choice in enumerate(choices) if choice.law != LAWS[0]), default=len(choices))
    return list(choices[:cut]), list(choices[cut:])


def following(law: str, first: Sequence[Choice], others: Sequence[Choice]) -> list[Choice]:
    """Return what is tried once a law is found: networks that did not know it once more, and all others under it."""
    again = [choice for choice in first if isinstance(choice, NetworkChoice)] if law != LAWS[0] else []
    return [choice.under(law) for choice in (*again, *others)]


def forests(budget: str) -> tuple[list[TreesChoice], list[TreesChoice]]:
    """Return the trees that are grown first, under each law that the budget has time for, and all others."""
    first, *others = [TreesChoice(boosting=boosting) for boosting in FORESTS[budget]]
    laws = TRIED_LAWS[budget]
    return [attrs.evolve(first, compared=len(laws) > 1), *(first.under(law) for law in laws[1:])], others


def _convolutional(size: Size, registry: Registry) -> Backbone | None:
    """Return the network for images of a size; None for tables, and for images that are too small for it."""
    if len(size.shape) != 3 or CONVOLUTIONAL not in registry.names("backbone"):
        return None
    backbone: Backbone = registry.create("backbone", CONVOLUTIONAL, {})
    try:
        backbone.build(size.shape, size.classes)
    except WslError:
        return None
    return backbone


def cost_of(choice: Choice, size: Size, *, alone: bool = False) -> float:
    """Return the estimated seconds of one fit, in a stack with others where that pays, or alone."""
    if isinstance(choice, TreesChoice):
        tree = 3e-4 + 6e-6 * size.features + size.examples * (2e-7 + 2e-9 * size.features)
        return choice.boosting.max_iter * size.classes * tree * (2 if choice.compared and not alone else 1)
    steps = choice.training.epochs * math.ceil(size.examples / choice.training.batch_size)
    if choice.name == CONVOLUTIONAL:
        products = IMAGE_PRODUCTS * size.features
    else:
        widths = [size.features, *(values_of(choice.backbone).get("widths") or ()), size.classes]
        products = sum(a * b for a, b in itertools.pairwise(widths))
    seconds = steps * (3e-4 + 6 * products * choice.training.batch_size / 3e10)
    stacks = not alone and 6 * products * choice.training.batch_size <= PAYS_BELOW
    return seconds / STACKED.get(choice.name, 1) if stacks else seconds
