"""Gradient-boosted trees that learn from candidate sets, and a network of arrays that predicts what they predict.

scikit-learn grows the trees. Every example stands in its training data once for each of its candidates, with the
candidate's confidence r_j = p_j / Σ_{k∈s} p_k as its weight. After a few trees the confidences are computed anew, and
boosting goes on. The gradient of that weighted cross-entropy in an example's logits is

    Σ_{j∈s} r_j (p - e_j) = p - r,

which is the gradient of -log Σ_{j∈s} p_j as well: it is gradient boosting of the likelihood of the sets, the loss of
the estimator `cc`, by a library that knows nothing of sets.

A grown tree is a few arrays. They are kept as buffers of a torch module, so that a model with trees is a file of
tensors like any other: nothing is pickled, and to load somebody's model runs no code of theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
import torch
from torch import Tensor, nn

from wsl_toolkit.errors import DataError
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.system.signals import StopRequest
from wsl_toolkit.training.formulas import candidate_confidence

NAME = "sklearn:HistGradientBoostingClassifier"
"""What the trees are called where networks have a backbone's name."""

STAGE = 5
"""After so many trees of each class the confidences are computed anew."""
BINS = 63
QUANTILE_ROWS = 100_000
"""Of a long column, so many rows say where its bins are; torch's quantiles want no more."""
LEAF_EXAMPLES = 20
CELLS = 2**21
"""Of rows times trees, so many are looked at at once."""


@attrs.frozen(kw_only=True)
class Boosting:
    """How trees are grown."""

    learning_rate: float = 0.1
    max_leaf_nodes: int = 16
    max_iter: int = 100

    def to_dict(self) -> dict[str, Any]:
        """Return the settings under scikit-learn's names."""
        return attrs.asdict(self)


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
        node = self.root.long().expand(len(x), -1)
        feature, left, right = self.feature.long(), self.left.long(), self.right.long()
        while True:
            goes_left = x.gather(1, feature[node]) <= self.threshold[node]
            below = torch.where(goes_left, left[node], right[node])
            if torch.equal(below, node):  # a leaf's children are the leaf itself
                break
            node = below
        logits = self.baseline.expand(len(x), -1).clone()
        logits.index_add_(1, self.output.long(), self.value[node])
        # A class that no training set held is as unlikely as the least likely one.
        lowest = logits.masked_fill(~self.seen, torch.inf).amin(1, keepdim=True)
        return torch.where(self.seen, logits, lowest).float()

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
        if any(len(arrays[name]) != nodes for name in ("threshold", "left", "right", "value")):
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


@attrs.frozen(kw_only=True, eq=False)
class Grown:
    """Trees as they grew."""

    ensembles: tuple[TreeEnsemble, ...]
    """The trees after each stage; a later one holds those before it."""
    watched: tuple[Tensor, ...]
    """The logits of the watched inputs after each stage."""


def grow(
    x: Tensor,
    candidates: CandidateSets,
    boosting: Boosting,
    *,
    watch: Tensor | None = None,
    stop: StopRequest | None = None,
    counts: Tensor | None = None,
) -> Grown:
    """Grow trees on inputs [n, d] and their candidate sets, and say what each stage makes of the inputs to watch.

    `counts` [n] say how much each example counts; None: all alike.
    """
    from threadpoolctl import threadpool_limits

    labelled = candidates.labelled()
    inputs, mask = x.flatten(1)[labelled].double(), candidates.mask(labelled).cpu()
    row, label = mask.nonzero(as_tuple=True)
    classes = label.unique()
    watched = x.flatten(1)[:0] if watch is None else watch.flatten(1)
    if len(classes) < 2:
        constant = _constant(classes, mask.shape[1])
        return Grown(ensembles=(constant,), watched=(constant(watched),))
    edges, codes = binned(inputs)
    expanded, answers = codes[row].numpy(), label.numpy()
    counts = torch.ones(len(mask)) if counts is None else counts[labelled.cpu()]
    counts = counts.double()[row]
    weights = counts / mask.sum(1).double()[row]
    classifier = _classifier(boosting, float(candidates.sizes[labelled].double().mean()))
    ensembles: list[TreeEnsemble] = []
    seen: list[Tensor] = []
    # The data are small: a second thread costs more than it brings, and on a busy machine much more.
    with threadpool_limits(1):
        for end in range(STAGE, boosting.max_iter + STAGE, STAGE):
            if stop is not None and stop() and ensembles:
                break
            classifier.set_params(max_iter=min(end, boosting.max_iter))
            classifier.fit(expanded, answers, sample_weight=weights.numpy())
            ensembles.append(exported(classifier, edges, mask.shape[1]))
            weights = counts * candidate_confidence(ensembles[-1](inputs).double(), mask)[row, label]
            seen.append(ensembles[-1](watched))
    _check(ensembles[-1], classifier, inputs[:100], codes[:100])
    return Grown(ensembles=tuple(ensembles), watched=tuple(seen))


def _classifier(boosting: Boosting, mean_size: float) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(
        learning_rate=boosting.learning_rate,
        max_leaf_nodes=boosting.max_leaf_nodes,
        max_bins=BINS,
        min_samples_leaf=round(LEAF_EXAMPLES * mean_size),  # an example stands there once for each candidate
        warm_start=True,
        early_stopping=False,
        random_state=0,  # nothing is drawn: no example is held out, no feature left out
    )


def binned(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return each column's edges [d, BINS - 1], infinite where there are fewer, and how many of them each x is above.

    scikit-learn would cut the columns into bins anew at every stage, by weighted quantiles, which takes it longer than
    to grow the trees. It takes a column of few different numbers as it is.
    """
    edges = torch.full((x.shape[1], BINS - 1), torch.inf, dtype=torch.float64)
    codes = torch.empty_like(x)
    share = torch.linspace(0, 1, BINS + 1, dtype=torch.float64)[1:-1]
    for place, column in enumerate(x.T.contiguous()):
        values = column.unique()
        if len(values) > BINS:
            values = torch.quantile(column[:QUANTILE_ROWS], share, interpolation="lower").unique()
            own = values
        else:
            own = (values[:-1] + values[1:]) / 2
        edges[place, : len(own)] = own
        codes[:, place] = torch.searchsorted(edges[place], column).double()
    return edges, codes


def exported(classifier: Any, edges: Tensor, num_classes: int) -> TreeEnsemble:
    """Return what scikit-learn has grown on bins as arrays: code <= k + 1/2 is x <= edge k."""
    parts: list[np.ndarray] = []
    roots, outputs, total = [], [], 0
    places = classifier.classes_ if len(classifier.classes_) > 2 else classifier.classes_[1:]
    for iteration in classifier._predictors:
        for place, tree in zip(places, iteration, strict=True):
            roots.append(total)
            outputs.append(int(place))
            parts.append(tree.nodes)
            total += len(tree.nodes)
    nodes = np.concatenate(parts)
    shift = np.repeat(roots, [len(part) for part in parts])
    own, leaf = np.arange(total), nodes["is_leaf"].astype(bool)
    feature = np.where(leaf, 0, nodes["feature_idx"])
    edge = np.where(leaf, 0, np.clip(np.floor(nodes["num_threshold"]), 0, BINS - 2)).astype(int)
    baseline, seen = np.zeros(num_classes), np.zeros(num_classes, dtype=bool)
    baseline[places], seen[classifier.classes_] = np.ravel(classifier._baseline_prediction), True
    found = {
        "feature": feature,
        "threshold": np.where(leaf, 0.0, edges.numpy()[feature, edge]),
        "left": np.where(leaf, own, nodes["left"] + shift),
        "right": np.where(leaf, own, nodes["right"] + shift),
        "value": np.where(leaf, nodes["value"], 0.0),
        "root": np.array(roots),
        "output": np.array(outputs),
        "baseline": baseline,
        "seen": seen,
    }
    return TreeEnsemble({name: torch.from_numpy(np.ascontiguousarray(found[name])).to(ARRAYS[name]) for name in ARRAYS})


def _constant(classes: Tensor, num_classes: int) -> TreeEnsemble:
    """Return the trees of data in which one class is all there is: none."""
    arrays = {name: torch.zeros(0, dtype=kind) for name, kind in ARRAYS.items()}
    seen = torch.zeros(num_classes, dtype=torch.bool)
    seen[classes] = True
    # The class that is there is likelier than one that never was a candidate.
    return TreeEnsemble({**arrays, "baseline": seen.double(), "seen": torch.ones_like(seen)})


def _check(ensemble: TreeEnsemble, classifier: Any, x: Tensor, codes: Tensor) -> None:
    """Compare the arrays with scikit-learn's own answer: another version of it may keep its trees otherwise."""
    theirs = torch.from_numpy(classifier.predict_proba(codes.numpy()))
    ours = torch.softmax(ensemble(x).double().masked_fill(~ensemble.seen, -torch.inf), 1)[:, ensemble.seen]
    if not torch.allclose(ours, theirs, atol=1e-4):
        raise DataError(
            "this version of scikit-learn keeps its trees in a form that is not known here: choose --backbone"
        )
