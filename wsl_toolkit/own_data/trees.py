"""Gradient-boosted trees that learn from candidate sets; what they predict, `tree_ensemble` predicts from arrays.

Boosting goes downhill on -log Σ_{j∈s} p_j, the loss of the estimator `cc`. Its gradient in an example's logits is

    p - r,   r_j = p_j / Σ_{k∈s} p_k for j in s, else 0,

which is that of the cross-entropy of every candidate, weighted by its confidence r_j. For each class a tree is grown on
(p - r)_j, with p_j (1 - p_j) for the second derivative, which is the cross-entropy's: then p and r are computed anew.
The trees are those of scikit-learn's HistGradientBoostingClassifier, by the part of it that grows one tree: the
classifier itself takes labels, so that each example would have to stand in its data once for each candidate, and bins
its columns anew whenever weights change, which took ten times as long. On sets of one class both grow the same trees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import torch
from torch import Tensor

from wsl_toolkit.errors import DataError
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.own_data import set_laws
from wsl_toolkit.own_data.set_laws import LAWS
from wsl_toolkit.own_data.tree_ensemble import ARRAYS, TreeEnsemble
from wsl_toolkit.system.signals import StopRequest
from wsl_toolkit.training.formulas import candidate_confidence

NAME = "sklearn:HistGradientBoostingClassifier"
"""What the trees are called where networks have a backbone's name."""

STAGE = 5
"""After so many trees of each class held-out sets judge them."""
LAW_FROM = 20
"""Before so many trees of each class nothing is known yet from which a law could be learned."""
BINS = 63
TINY = 1e-9
"""No class is less frequent to begin with."""
QUANTILE_ROWS = 100_000
"""Of a long column, so many rows say where its bins are; torch's quantiles want no more."""


@attrs.frozen(kw_only=True)
class Boosting:
    """How trees are grown."""

    learning_rate: float = 0.1
    max_leaf_nodes: int = 16
    max_iter: int = 100
    min_samples_leaf: int = 20
    l2_regularization: float = 0.0
    max_features: float = 1.0
    """The share of the columns that a node may be split by, drawn anew for each."""
    subsample: float = 0.8
    """The share of the examples that the trees of an iteration grow on, drawn anew for each."""
    law: str = "uniform"
    """How sets are taken to come about, see `set_laws`."""

    def to_dict(self) -> dict[str, Any]:
        """Return the settings under scikit-learn's names, and the law where it is not the simplest."""
        return attrs.asdict(self, filter=lambda field, value: field.name != "law" or value != "uniform")


@attrs.frozen(kw_only=True, eq=False)
class Grown:
    """Trees as they grew."""

    ensembles: tuple[TreeEnsemble, ...]
    """The trees after each stage; a later one holds those before it."""
    watched: tuple[Tensor, ...]
    """The logits of the watched inputs after each stage."""
    laws: Mapping[str, Tensor]
    """Q [K, K] of laws of the sets, as these trees see them: of the uniform one and the trees' own, or of all."""


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
    labelled = candidates.labelled()
    inputs, mask = x.flatten(1)[labelled].double(), candidates.mask(labelled).cpu()
    classes = mask.any(0).nonzero().flatten()
    watched = x.flatten(1)[:0] if watch is None else watch.flatten(1)
    if len(classes) < 2:
        constant = _constant(classes, mask.shape[1])
        return Grown(ensembles=(constant,), watched=(constant(watched),), laws={})
    weights = torch.ones(len(mask)) if counts is None else counts[labelled.cpu()]
    edges, codes = binned(inputs)
    grower = _Grower(boosting, codes.numpy())
    sets, weights = mask[:, classes], weights.double().unsqueeze(1)
    start = (weights * sets / sets.sum(1, keepdim=True)).sum(0).clamp(min=TINY).log()
    logits = (start - start.mean()).repeat(len(sets), 1)
    baseline, grown = logits[0].clone(), []
    chances, evidence = None, torch.zeros(())
    for number in range(boosting.max_iter):
        if number % STAGE == 0 and number and stop is not None and stop():
            break
        if boosting.law != "uniform" and number >= LAW_FROM and number % STAGE == 0:
            chances = set_laws.learned(logits, sets, boosting.law, weights, chances)
            evidence = set_laws.log_chance(chances, sets)
        p = torch.softmax(logits, 1)
        slopes = weights * (p - candidate_confidence(logits + evidence, sets))
        grown.append(grower.trees(slopes, weights * p * (1 - p), logits))
    ensemble = exported(grown, classes, baseline, edges, mask.shape[1])
    _check(ensemble, inputs[:100], logits[:100], classes)
    ends = [len(classes) * end for end in [*range(STAGE, len(grown), STAGE), len(grown)]]
    laws = {}
    for law in ("uniform", boosting.law) if boosting.law != "uniform" else LAWS:
        own = chances if law == boosting.law else None
        found = set_laws.learned(logits, sets, law, weights, own)
        laws[law] = set_laws.enlarged(found, classes, mask.shape[1])
    return Grown(
        ensembles=tuple(ensemble.first(end) for end in ends),
        watched=tuple(ensemble.stages(watched, ends)),
        laws=laws,
    )


def grow_inclusions(
    x: Tensor,
    candidates: CandidateSets,
    boosting: Boosting,
    *,
    watch: Tensor,
    stop: StopRequest | None = None,
    counts: Tensor | None = None,
) -> list[Tensor]:
    """Return logits of p(k ∈ s | x) [m, K] of inputs to watch after each stage: each class on its own, and no truth.

    What explains sets better than any law of the class must be seen in the inputs, see `set_laws`.
    """
    labelled = candidates.labelled()
    inputs, mask = x.flatten(1)[labelled].double(), candidates.mask(labelled).cpu()
    classes = mask.any(0).nonzero().flatten()
    weights = (torch.ones(len(mask)) if counts is None else counts[labelled.cpu()]).double().unsqueeze(1)
    edges, codes = binned(inputs)
    grower, sets = _Grower(boosting, codes.numpy()), mask[:, classes].double()
    share = ((weights * sets).sum(0) + 1) / (weights.sum() + 2)
    logits = share.logit().repeat(len(sets), 1)
    baseline, grown = logits[0].clone(), []
    for number in range(boosting.max_iter):
        if number % STAGE == 0 and number and stop is not None and stop():
            break
        p = torch.sigmoid(logits)
        grown.append(grower.trees(weights * (p - sets), weights * p * (1 - p), logits))
    ensemble = exported(grown, classes, baseline, edges, mask.shape[1])
    ends = [len(classes) * end for end in [*range(STAGE, len(grown), STAGE), len(grown)]]
    unseen = ~mask.any(0)
    return [each.masked_fill(unseen, -torch.inf) for each in ensemble.stages(watch.flatten(1), ends)]


class _Grower:
    """Grows trees by the part of scikit-learn that grows one of them."""

    def __init__(self, boosting: Boosting, codes: np.ndarray) -> None:
        try:
            from sklearn.ensemble._hist_gradient_boosting.grower import TreeGrower
        except ImportError:
            raise DataError(UNKNOWN) from None
        self.grower: Any = TreeGrower
        self.codes = np.ascontiguousarray(codes.astype(np.uint8))
        self.by_column = np.asfortranarray(self.codes)
        self.part = round(boosting.subsample * len(codes))
        self.rng = np.random.default_rng(0)  # the same data grow the same trees
        self.settings = {
            "max_leaf_nodes": boosting.max_leaf_nodes,
            "min_samples_leaf": boosting.min_samples_leaf,
            "l2_regularization": boosting.l2_regularization,
            "feature_fraction_per_split": boosting.max_features,
            "shrinkage": boosting.learning_rate,
            "n_bins": BINS + 1,  # the last one is for missing values, of which there are none
            "n_bins_non_missing": BINS,
            "rng": self.rng,
            "n_threads": 1,  # the data are small: a second thread costs more than it brings
        }
        self.thresholds = [np.arange(BINS, dtype=float)] * codes.shape[1]

    def trees(self, slopes: Tensor, curvatures: Tensor, logits: Tensor) -> list[np.ndarray]:
        """Return the nodes of a tree for each column of gradients [n, K], and add what it says to the logits."""
        n = len(self.codes)
        part = np.sort(self.rng.permutation(n)[: self.part]) if self.part < n else slice(None)
        codes = self.by_column if self.part == n else np.asfortranarray(self.codes[part])
        first, second = (np.asfortranarray(each.float().numpy()[part]) for each in (slopes, curvatures))
        values, found = logits.numpy(), []
        try:
            for place in range(first.shape[1]):
                tree = self.grower(codes, first[:, place], second[:, place], **self.settings)
                tree.grow()
                made = tree.make_predictor(binning_thresholds=self.thresholds)
                values[:, place] += made.predict_binned(self.codes, BINS, 1)
                found.append(made.nodes)
        except (TypeError, AttributeError):
            raise DataError(UNKNOWN) from None
        return found


UNKNOWN = "this version of scikit-learn grows its trees in a way that is not known here: choose --backbone"


def binned(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return each column's edges [d, BINS - 1], infinite where there are fewer, and how many of them each x is above.

    A column of few different numbers has a bin for each.
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


def exported(
    grown: Sequence[Sequence[np.ndarray]], classes: Tensor, start: Tensor, edges: Tensor, num_classes: int
) -> TreeEnsemble:
    """Return trees [iterations][classes], grown on bins, as arrays: code <= k is x <= edge k."""
    parts = [nodes for iteration in grown for nodes in iteration]
    sizes = [len(nodes) for nodes in parts]
    nodes, roots = np.concatenate(parts), np.cumsum([0, *sizes[:-1]])
    shift = np.repeat(roots, sizes)
    own, leaf = np.arange(len(nodes)), nodes["is_leaf"].astype(bool)
    feature, edge = (np.where(leaf, 0, nodes[name]).astype(int) for name in ("feature_idx", "bin_threshold"))
    baseline, seen = np.zeros(num_classes), np.zeros(num_classes, dtype=bool)
    baseline[classes], seen[classes] = start, True
    found = {
        "feature": feature,
        "threshold": np.where(leaf, 0.0, edges.numpy()[feature, np.minimum(edge, BINS - 2)]),
        "left": np.where(leaf, own, nodes["left"] + shift),
        "right": np.where(leaf, own, nodes["right"] + shift),
        "value": np.where(leaf, nodes["value"], 0.0),
        "root": roots,
        "output": np.tile(classes.numpy(), len(grown)),
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


def _check(ensemble: TreeEnsemble, x: Tensor, logits: Tensor, classes: Tensor) -> None:
    """Compare the arrays with what the trees said while they grew: another version may keep them otherwise."""
    if not torch.allclose(ensemble(x).double()[:, classes], logits, rtol=1e-4, atol=1e-4):
        raise DataError(UNKNOWN)
