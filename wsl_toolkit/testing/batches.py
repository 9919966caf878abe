"""Batches for an estimator to be tried on: logits, candidates, state, and whatever else it says that it needs."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import torch
from torch import Tensor, nn

from wsl_toolkit import networks
from wsl_toolkit.components import Estimator, State
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.system.random_streams import seed_torch
from wsl_toolkit.testing.common import stream
from wsl_toolkit.training.engine import predict
from wsl_toolkit.training.formulas import accuracy
from wsl_toolkit.training.risk import Risk, class_prior
from wsl_toolkit.training.trainer import Trainer

FEATURES = 6


@attrs.frozen(eq=False)
class Batch:
    """One batch."""

    logits: Tensor
    candidates: Tensor
    state: State

    def loss(self, estimator: Estimator) -> Tensor:
        """Return the losses."""
        return estimator.loss(self.logits, self.candidates, self.state)

    def at(self, logits: Tensor) -> Batch:
        """Return the same batch with these logits, and with the same for every other view, copy and head."""
        others = {name: logits.detach().clone() for name in self.state if name.endswith("_logits")}
        return attrs.evolve(self, logits=logits, state={**self.state, **others})


def random_sets(n: int, num_classes: int, rng: torch.Generator) -> Tensor:
    """Return masks that are neither empty nor full, of every size, the smallest and the largest among them."""
    sizes = torch.arange(n) % (num_classes - 1) + 1
    order = torch.rand(n, num_classes, generator=rng).argsort(1).argsort(1)
    return order < sizes.unsqueeze(1)


def seen_by(estimator: Estimator, candidates: Tensor) -> Tensor:
    """Return the candidates that the engine would hand over: singletons to an estimator that sees true labels."""
    if not estimator.reads_true_labels():
        return candidates
    return torch.nn.functional.one_hot(candidates.long().argmax(1), candidates.shape[1]).bool()


def make_batch(
    estimator: Estimator, *, n: int = 7, num_classes: int = 5, dtype: torch.dtype = torch.float64, seed: int = 0
) -> Batch:
    """Make a batch with a state that has seen one update, and extras from a real network where they are needed."""
    rng = stream(seed)
    candidates = seen_by(estimator, random_sets(n, num_classes, rng))
    logits = 2 * torch.randn(n, num_classes, generator=rng, dtype=dtype)
    extras: State = {}
    if not estimator.logits_suffice:
        with torch.random.fork_rng(devices=[]):
            seed_torch(seed)
            model = extended(estimator, num_classes).to(dtype).train()
            _, extras = networks.run(model, torch.randn(n, FEATURES, generator=rng, dtype=dtype))
        extras = {name: value.detach() for name, value in extras.items()}
    state = first_state(estimator, candidates, extras, dtype)
    state |= cast(estimator.update(logits, candidates, state), dtype)
    return Batch(logits, candidates, state)


def first_state(estimator: Estimator, candidates: Tensor, extras: State, dtype: torch.dtype) -> State:
    """Return what an estimator is handed before its first update."""
    given = {**estimator.init_shared(CandidateSets.from_mask(candidates)), **estimator.init_state(candidates), **extras}
    sets = CandidateSets.from_mask(candidates)
    if "epoch" in estimator.needs:
        given["epoch"] = torch.tensor(1.0)
    if "index" in estimator.needs:
        given["index"] = torch.arange(len(candidates))
    if "weights" in estimator.needs:
        given["weights"] = 1 + torch.arange(len(candidates)).sin()
    if "class_prior" in estimator.needs:
        given["class_prior"] = class_prior(sets)
    if "features" in extras:
        given |= estimator.init_features(sets, extras["features"].shape[1])
    return cast(given, dtype)


def extended(estimator: Estimator, num_classes: int) -> nn.Module:
    """Return a small network with what an estimator puts around it."""
    network = small_network(num_classes)
    if "two_networks" in estimator.needs:
        return estimator.extend_two(lambda: small_network(num_classes))
    return estimator.extend(network)


def cast(state: State, dtype: torch.dtype) -> State:
    """Return floating state in the logits' precision, as confidences learned from them would be."""
    return {name: value.to(dtype) if value.is_floating_point() else value for name, value in state.items()}


def small_network(num_classes: int) -> nn.Module:
    """Return a network small enough for any test, with a hidden layer and batch norm."""
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, num_classes))


@attrs.frozen(eq=False)
class ToyProblem:
    """Overlapping Gaussian classes with complementary labels, and a trainer for them."""

    trainer: Trainer
    x: Tensor
    y: Tensor

    def accuracy(self) -> float:
        """Return the training accuracy."""
        return float(accuracy(predict(self.trainer.model, self.x), self.y))


def toy_problem(estimator: Estimator, *, num_classes: int = 3, n: int = 600, lr: float = 0.1) -> ToyProblem:
    """Set a small learning problem: each example is known not to be of one class, which suits every assumption."""
    rng = stream(11)
    y = torch.arange(n) % num_classes
    centres = 2.5 * torch.eye(num_classes, FEATURES)
    x = centres[y] + torch.randn(n, FEATURES, generator=rng)
    excluded = (y + torch.randint(1, num_classes, (n,), generator=rng)) % num_classes
    mask = ~torch.nn.functional.one_hot(excluded, num_classes).bool()
    sets = CandidateSets.from_labels(y, num_classes) if estimator.reads_true_labels() else CandidateSets.from_mask(mask)
    seed_torch(12)
    model = extended(estimator, num_classes)
    wide = type(estimator).init_features is not Estimator.init_features
    trainer = Trainer(
        model=model,
        risk=Risk(estimator, sets, feature_width=networks.feature_width(model, x[:1]) if wide else None),
        inputs=x,
        optimizer=torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9),
        scheduler=None,
        batch_size=100,
        shuffle=stream(13),
        evaluate=lambda model, risk: {},
    )
    return ToyProblem(trainer, x, y)


EXTREMES: dict[str, Callable[[int, int], Tensor]] = {
    "all logits 0": lambda n, k: torch.zeros(n, k),
    "all logits 1e4": lambda n, k: torch.full((n, k), 1e4),
    "one logit 1e4, the rest -1e4": lambda n, k: 2e4 * torch.eye(k)[torch.arange(n) % k] - 1e4,
    # Softmaxes of about 5e-45, which are not zero, and whose inverse is infinite.
    "one logit 51, the rest -51": lambda n, k: 102 * torch.eye(k)[torch.arange(n) % k] - 51,
    "one logit -1e4, the rest 1e4": lambda n, k: 1e4 - 2e4 * torch.eye(k)[torch.arange(n) % k],
    "logits of ±1e4 in turn": lambda n, k: 1e4 * (1 - 2 * ((torch.arange(n)[:, None] + torch.arange(k)) % 2).float()),
}
"""Logits that a badly scaled network can really give."""
