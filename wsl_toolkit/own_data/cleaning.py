"""The most likely true label of every example, judged by models that did not learn from it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import attrs
import torch
from torch import Tensor

from wsl_toolkit.data.dataset import Data
from wsl_toolkit.data.problem import Change
from wsl_toolkit.errors import DataError
from wsl_toolkit.labels.candidate_sets import CHUNK_CELLS, CandidateSets
from wsl_toolkit.own_data import fitting
from wsl_toolkit.own_data.learning import known_labels
from wsl_toolkit.own_data.model_file import class_names_of
from wsl_toolkit.own_data.review import Review, log_odds_of_a_miss, remarks, review, sharpened
from wsl_toolkit.plugins.registry import Registry
from wsl_toolkit.system.random_streams import stream
from wsl_toolkit.system.signals import StopRequest

if TYPE_CHECKING:
    import pandas as pd


TINY = 1e-38
"""The least that float32 makes of a set's probability."""


@attrs.frozen(kw_only=True, eq=False)
class Cleaned:
    """A verdict for every example, in the data's order."""

    label: Tensor
    """The most likely candidate, [n]."""
    confidence: Tensor
    """r_y(x, s): its share of the candidates' probability (Theorem 1 of Wu, Lv and Sugiyama), [n].

    Where sets were found to depend on the class, of their probability times that of the set (`set_laws`)."""
    covered: Tensor
    """Σ_{j∈s} p_j: how much of the model's probability the candidates hold; little is a sign of a wrong set, [n]."""
    predicted: Tensor
    """The model's most likely class, candidate or not, [n]."""
    fold: Tensor
    """Which part each example was in: it was judged by the model that was fitted without that part, [n]."""
    kept: Tensor
    """Whether the label is the true one that the user gave, and asked to use, [n]."""
    review: Review
    """How each label may be wrong, and the examples' places in the lists for review."""
    changes: tuple[Change, ...] = ()
    """What a transform made of the sets that each fold's model learned from, where there was one."""

    @property
    def rank(self) -> Tensor:
        """The place in the list for review, 1 for the example whose label is most likely wrong, [n]."""
        return self.review.ambiguous


def clean(
    data: Data,
    registry: Registry,
    options: fitting.FitOptions,
    *,
    folds: int = 5,
    listener: fitting.Listener | None = None,
    stop: StopRequest | None = None,
) -> Cleaned:
    """Judge every example out of fold: preprocessing, selection and training see the other folds only."""
    candidates = fitting.own_candidates(data)
    n = len(data.x)
    if n < 2 * folds:
        raise DataError(f"{data.name}: {n} examples are too few for {folds} folds")
    fold = torch.randperm(n, generator=stream(options.seed, "folds")) % folds
    confidence, covered = torch.empty(n), torch.empty(n)
    log_odds, sure = torch.empty(n, dtype=torch.float64), torch.empty(n, dtype=torch.float64)
    label, predicted = torch.empty(n, dtype=torch.int64), torch.empty(n, dtype=torch.int64)
    changes = []
    for number in range(folds):
        others, held_out = (fold != number).nonzero().flatten(), (fold == number).nonzero().flatten()
        fitted = fitting.fit(data, registry, options, others, listener, stop)
        if fitted.change is not None:
            changes.append(fitted.change)
        logits = fitted.logits(data.x, held_out)
        mask = candidates.mask(held_out).cpu()
        share = fitted.shares(logits, mask)
        confidence[held_out], label[held_out] = share.max(1)
        covered[held_out] = (torch.softmax(logits, 1) * mask).sum(1)
        sharp = sharpened(logits, mask)
        log_odds[held_out] = log_odds_of_a_miss(sharp, mask)
        sure[held_out] = fitted.shares(sharp, mask).amax(1)
        predicted[held_out] = logits.argmax(1)
    kept = torch.zeros(n, dtype=torch.bool)
    labels = known_labels(data) if options.use_known_labels else None
    if labels is not None:
        kept = labels >= 0
        label = torch.where(kept, labels, label)
        confidence, sure = confidence.masked_fill(kept, 1.0), sure.masked_fill(kept, 1.0)
        log_odds = log_odds.masked_fill(kept, -math.inf)  # there is nothing to look for
    return Cleaned(
        label=label,
        confidence=confidence,
        covered=covered,
        predicted=predicted,
        fold=fold,
        kept=kept,
        review=review(log_odds, sure),
        changes=tuple(changes),
    )


def to_frame(data: Data, found: Cleaned) -> pd.DataFrame:
    """Return one row for each example, by class names: label, confidence, candidates, place in the review."""
    import json

    import numpy as np
    import pandas as pd

    names = np.array(class_names_of(data), dtype=object)
    sets = fitting.own_candidates(data).to_sets()
    return pd.DataFrame(
        {
            "id": list(data.ids) if data.ids is not None else np.arange(len(data.x)),
            "label": names[found.label.numpy()],
            "confidence": found.confidence.double().numpy(),
            "candidates": [json.dumps([names[j] for j in members], ensure_ascii=False) for members in sets],
            "predicted": names[found.predicted.numpy()],
            "candidates_probability": found.covered.double().numpy(),
            "kept": found.kept.numpy(),
            "missed_probability": found.review.missed.numpy(),
            "fold": found.fold.numpy(),
            "review": found.review.ambiguous.numpy(),
            "ambiguous": found.review.ambiguous.numpy(),
            "suspicious": found.review.suspicious.numpy(),
        }
    )


def summarise(data: Data, found: Cleaned) -> dict[str, Any]:
    """Return how sure the labels are and, where true labels are known, how many are right; and what to beware of."""
    candidates = fitting.own_candidates(data)
    labels = known_labels(data)
    known = None if labels is None else ((labels >= 0) & ~found.kept).nonzero().flatten()
    summary: dict[str, Any] = {
        "examples": len(data.x),
        "mean_confidence": float(found.confidence.double().mean()),
        "predicted_outside_candidates": int((found.label != found.predicted).sum()),
        "sets_thought_to_miss": found.review.miss_rate,
        "known_labels": 0 if known is None else len(known),
        "kept_labels": int(found.kept.sum()),
        "accuracy": None,
        "accuracy_of_most_frequent_candidate": None,
    }
    if labels is not None and known is not None and len(known):
        baseline = most_frequent_candidate(candidates)
        summary["accuracy"] = float((found.label[known] == labels[known]).double().mean())
        summary["accuracy_of_most_frequent_candidate"] = float((baseline[known] == labels[known]).double().mean())
    if found.changes:
        summary |= _changed(found.changes)
    right = torch.full((len(data.x),), math.nan)
    if labels is not None and known is not None:
        right[known] = (found.label[known] == labels[known]).float()
    losses = -found.covered.double().clamp(min=TINY).log()
    summary["remarks"] = remarks(losses, candidates.mask().cpu(), found.confidence, right)
    return summary


def _changed(changes: tuple[Change, ...]) -> dict[str, float | None]:
    """Return what a transform made of the sets, on average over the folds."""
    kept = [change.true_label_kept for change in changes if change.true_label_kept is not None]
    return {
        "mean_set_size": sum(change.size_before for change in changes) / len(changes),
        "mean_set_size_transformed": sum(change.size_after for change in changes) / len(changes),
        "true_labels_kept": sum(kept) / len(kept) if kept else None,
    }


def most_frequent_candidate(candidates: CandidateSets) -> Tensor:
    """Return for every example the candidate that most sets hold: what one can do without looking at x, [n]."""
    counts = candidates.class_counts().cpu().double()
    step = max(1, CHUNK_CELLS // candidates.num_classes)
    masks = (candidates.mask(slice(i, i + step)).cpu() for i in range(0, len(candidates), step))
    return torch.cat([torch.where(mask, counts, -1.0).argmax(1) for mask in masks])
