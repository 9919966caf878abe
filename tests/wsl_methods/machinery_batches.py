"""Batches that a method is compared with its literal transcription on, and their parts as lists."""

from __future__ import annotations

from typing import Any

import machinery_literals as literal
import torch
from torch import Tensor

from wsl_toolkit import CandidateSets, Estimator
from wsl_toolkit.testing.batches import Batch, cast, make_batch

B, K, WIDTH, QUEUE = 6, 4, 5, 11
EMBEDDED = {"width": WIDTH, "queue": QUEUE}


def made(estimator: Estimator, epoch: float, **state: Any) -> Batch:
    """A batch of a larger collection, after one update: a batch's keys are queued, and prototypes have moved once."""
    batch = make_batch(estimator, n=B, num_classes=K, seed=3)
    collection = CandidateSets.from_mask(batch.candidates.repeat(4, 1))
    batch.state.update(cast(estimator.init_shared(collection), torch.float64))
    batch.state.update(epoch=torch.tensor(1.0, dtype=torch.float64))
    batch.state.update(estimator.update(batch.logits, batch.candidates, batch.state))
    batch.state.update(epoch=torch.tensor(epoch, dtype=torch.float64), **state)
    return batch


def matches(estimator: Estimator, batch: Batch, expected: list[float]) -> None:
    torch.testing.assert_close(batch.loss(estimator), torch.tensor(expected, dtype=torch.float64))


def probabilities(logits: Tensor) -> literal.Rows:
    return [literal.softmax(row) for row in logits.tolist()]


class Embedded:
    """The parts of PiCO's loss as lists: queries, the pool, and the pool's pseudo-labels."""

    def __init__(self, batch: Batch, labels: list[int]) -> None:
        state = batch.state
        self.queries = [literal.unit(v) for v in state["features"].tolist()]
        keys = [literal.unit(v) for v in state["momentum_features"].tolist()]
        self.pool = [*self.queries, *keys, *state["keys"].tolist()]
        self.labels = [*labels, *labels, *(state["key_labels"].tolist() if "key_labels" in state else [])]
        self.prototypes = state["prototypes"].tolist() if "prototypes" in state else []

    def others(self, i: int) -> list[int]:
        return [k for k in range(len(self.pool)) if k != i and self.labels[k] >= 0]

    def supervised(self, i: int, temperature: float) -> float:
        positives = [k for k in self.others(i) if self.labels[k] == self.labels[i]]
        return literal.pull(self.queries[i], literal.alike(positives), self.others(i), self.pool, temperature)

    def own(self, i: int, temperature: float) -> float:
        others = [B + i, *(k for k in self.others(i) if k >= 2 * B)]
        return literal.pull(self.queries[i], {B + i: 1.0}, others, self.pool, temperature)

    def affinity(self, i: int) -> literal.Row:
        return [literal.dot(self.queries[i], mu) for mu in self.prototypes]


def decayed(target: literal.Row, pull: literal.Row, decay: float) -> literal.Row:
    return [decay * t + (1 - decay) * p for t, p in zip(target, pull, strict=True)]


def at(label: int) -> literal.Row:
    return [float(j == label) for j in range(K)]
