"""Grown trees as a network of arrays that predicts what they predict.

A grown tree is a few arrays. They are kept as buffers of a torch module, so that a model with trees is a file of
tensors like any other: nothing is pickled, and to load somebody's model runs no code of theirs.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

CELLS = 2**21
"""Of rows times trees, so many are looked at at once."""

ARRAYS = {
    "feature": torch.int32,
    "threshold": torch.float64,
    "left": torch.int32,
    "right": torch.int32,
    "value": torch.float64,
    "root": torch.int32,
    "output": torch.int32,
    "baseline": torch.float64,
    "seen": torch.bool,
}
"""The arrays of all trees, one after the other, with their types: nodes, then trees, then classes."""
OF_NODES = ("feature", "threshold", "left", "right", "value")


class TreeEnsemble(nn.Module):
    """Logits [n, K] of inputs [n, d]: a constant for each class, and the leaves that an input falls into."""

    feature: Tensor
    threshold: Tensor
    left: Tensor
    right: Tensor
    value: Tensor
    root: Tensor
    output: Tensor
    baseline: Tensor
    seen: Tensor

    def __init__(self, arrays: Mapping[str, Tensor]) -> None:
        super().__init__()
        for name in ARRAYS:
            self.register_buffer(name, arrays[name])

    def forward(self, x: Tensor) -> Tensor:
        """Walk down all trees at once, level by level, and add the leaves' values by class."""
        x = x.flatten(1).double()
        step = max(1, CELLS // max(1, len(self.root)))
        return torch.cat([self._logits(part) for part in x.split(step)]) if len(x) else x.new_zeros(0, self.classes)

    @property
    def classes(self) -> int:
        """The number of classes K."""
        return len(self.baseline)

    def _logits(self, x: Tensor) -> Tensor:
        (logits,) = self._stages(x, [len(self.root)])
        return logits

    def stages(self, x: Tensor, ends: Sequence[int]) -> list[Tensor]:
        """Return the logits of the first so many trees, for each of several numbers, which rise."""
        x = x.flatten(1).double()
        step = max(1, CELLS // max(1, len(self.root)))
        parts = [self._stages(part, ends) for part in x.split(step)]
        return [torch.cat(own) for own in zip(*parts, strict=True)]

    def _stages(self, x: Tensor, ends: Sequence[int]) -> list[Tensor]:
        node = self.root.long().expand(len(x), -1)
        feature, left, right = self.feature.long(), self.left.long(), self.right.long()
        while True:
            goes_left = x.gather(1, feature[node]) <= self.threshold[node]
            below = torch.where(goes_left, left[node], right[node])
            if torch.equal(below, node):  # a leaf's children are the leaf itself
                break
            node = below
        logits, output, value = self.baseline.expand(len(x), -1).clone(), self.output.long(), self.value[node]
        found = []
        for begin, end in itertools.pairwise([0, *ends]):
            logits.index_add_(1, output[begin:end], value[:, begin:end])
            # A class that no training set held is as unlikely as the least likely one.
            lowest = logits.masked_fill(~self.seen, torch.inf).amin(1, keepdim=True)
            found.append(torch.where(self.seen, logits, lowest).float())
        return found

    def first(self, trees: int) -> TreeEnsemble:
        """Return the same with its first trees alone."""
        nodes = int(self.root[trees]) if trees < len(self.root) else len(self.feature)
        ends = {**dict.fromkeys(OF_NODES, nodes), "root": trees, "output": trees}
        return TreeEnsemble({name: getattr(self, name)[: ends.get(name)] for name in ARRAYS})

    @property
    def depth(self) -> int:
        """How many steps lead from a root to the farthest leaf."""
        steps, node = 0, self.root.long().unique()
        while bool((inner := node[self.left.long()[node] != node]).numel()):
            node = torch.cat([self.left.long()[inner], self.right.long()[inner]]).unique()
            steps += 1
        return steps

    @classmethod
    def load(cls, arrays: Mapping[str, Tensor], features: int, num_classes: int) -> TreeEnsemble:
        """Make the module of arrays from a file, whoever wrote it; what is no forest is refused."""
        if set(arrays) != set(ARRAYS):
            raise ValueError(f"trees have the arrays {', '.join(ARRAYS)}")
        for name, kind in ARRAYS.items():
            if arrays[name].dtype != kind or arrays[name].ndim != 1:
                raise ValueError(f"{name!r} must be a vector of {kind}")
        nodes, node = len(arrays["feature"]), torch.arange(len(arrays["feature"]))
        if any(len(arrays[name]) != nodes for name in OF_NODES):
            raise ValueError("the trees' arrays differ in length")
        if len(arrays["root"]) != len(arrays["output"]) or len(arrays["baseline"]) != len(arrays["seen"]):
            raise ValueError("the trees' arrays differ in length")
        inside: list[tuple[str, int | Tensor, int]] = [
            ("feature", 0, features),
            ("output", 0, num_classes),
            ("root", 0, nodes),
            ("left", node, nodes),  # never back to a node above: every walk ends
            ("right", node, nodes),
        ]
        for name, low, high in inside:
            if bool(((arrays[name] < low) | (arrays[name] >= high)).any()):
                raise ValueError(f"{name!r} points outside of the trees")
        if len(arrays["baseline"]) != num_classes or not bool(arrays["seen"].any()):
            raise ValueError("the trees are of other classes")
        return cls(arrays)


class UnrolledTrees(nn.Module):
    """The same logits without a loop whose end depends on the data, which no exported graph could hold."""

    places: Tensor

    def __init__(self, trees: TreeEnsemble) -> None:
        super().__init__()
        self.trees = trees
        self.depth = trees.depth
        places = torch.nn.functional.one_hot(trees.output.long(), trees.classes)
        self.register_buffer("places", places.to(trees.value.dtype))

    def forward(self, x: Tensor) -> Tensor:
        """Take as many steps down as the deepest tree has; a leaf's children are the leaf itself."""
        trees = self.trees
        x = x.flatten(1).double()
        logits = trees.baseline.expand(x.shape[0], -1)
        if len(trees.root):
            node = trees.root.long().expand(x.shape[0], -1)
            for _ in range(self.depth):
                goes_left = x.gather(1, trees.feature.long()[node]) <= trees.threshold[node]
                node = torch.where(goes_left, trees.left.long()[node], trees.right.long()[node])
            logits = logits + trees.value[node] @ self.places
        lowest = torch.where(trees.seen, logits, torch.inf).amin(1, keepdim=True)
        return torch.where(trees.seen, logits, lowest).float()
