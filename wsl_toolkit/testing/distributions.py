"""Distributions p(s|x,y) drawn at random from each setting, on which an estimator's promise is tried."""

from __future__ import annotations

import torch
from torch import Tensor

from wsl_toolkit.settings import Setting
from wsl_toolkit.theory.enumeration import all_sets

SKEW = 6
"""Weights are uniform numbers to this power: distributions that treat classes and sets very differently."""

NEXT_WIDER = {
    Setting.CL: Setting.MCL,
    Setting.PCPL: Setting.MCL,
    Setting.MCL: Setting.CMM,
    Setting.CMM: Setting.PPL,
    Setting.PPL: Setting.GENERAL,
    Setting.GENERAL: Setting.ANY,
}


def random_distribution(setting: Setting, instances: int, num_classes: int, rng: torch.Generator) -> Tensor:
    """Return p(s|x,y) of that setting and of no smaller one, float64 [n, 2^K - 2, K]; where x matters, one for each."""
    sets = all_sets(num_classes)
    if setting in (Setting.CL, Setting.PCPL, Setting.MCL):
        constant = _by_size(setting, sets, rng).expand(instances, -1)
    elif setting is Setting.CMM:
        constant = _partitions(sets, rng).expand(instances, -1)
    elif setting is Setting.PPL:
        constant = torch.stack([_partitions(sets, rng) for _ in range(instances)])
    else:
        weights = torch.rand(instances, *sets.shape, generator=rng, dtype=torch.float64) ** SKEW
        if setting is Setting.GENERAL:
            weights = weights * sets
        return weights / weights.sum(1, keepdim=True)
    return constant.unsqueeze(-1) * sets


def _by_size(setting: Setting, sets: Tensor, rng: torch.Generator) -> Tensor:
    """Return C(s) as a function of |s| alone."""
    num_classes = sets.shape[1]
    sizes = sets.sum(1)
    if setting is Setting.MCL:
        weights = torch.rand(num_classes + 1, generator=rng, dtype=torch.float64)[sizes] ** SKEW
    else:
        weights = torch.ones(len(sets), dtype=torch.float64)
    if setting is Setting.CL:
        weights = weights * (sizes == num_classes - 1)
    return weights / (weights * sets[:, 0]).sum()


def _partitions(sets: Tensor, rng: torch.Generator) -> Tensor:
    """Return C(s) of a mixture of partitions: each y is in one block of each, so Σ_{s∋y} C(s) = 1.

    A few random ones make a distribution far from uniform; the one into single classes tells all classes apart,
    without which nobody could learn from it.
    """
    num_classes = sets.shape[1]
    bits = 2 ** torch.arange(num_classes)
    blocks = torch.randint(num_classes - 1, (3, num_classes), generator=rng)
    alone = torch.randint(num_classes, (3, 1), generator=rng)
    blocks.scatter_(1, alone, num_classes - 1)  # one class apart, so that no block is the full set
    blocks = torch.cat([blocks, torch.arange(num_classes).unsqueeze(0)])
    constant = torch.zeros(2**num_classes, dtype=torch.float64)
    for weight, partition in zip((0.45, 0.25, 0.15, 0.15), blocks, strict=True):
        for block in partition.unique():
            constant[int((bits * (partition == block)).sum())] += weight
    return constant[(sets * bits).sum(1)]


def random_posterior(instances: int, num_classes: int, rng: torch.Generator) -> Tensor:
    """Return p(y|x) of every instance, with a narrow favourite, float64 [n, K]."""
    logits = 0.5 * torch.randn(instances, num_classes, generator=rng, dtype=torch.float64)
    lead = torch.full((instances, 1), 0.1, dtype=torch.float64)
    logits.scatter_add_(1, logits.argmax(1, keepdim=True), lead)
    return torch.softmax(logits, dim=-1)
