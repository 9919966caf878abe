"""The settings as claims about the table p(s | x, y): which cells must be zero, and which must be equal.

Every region of the map says just that. In PPL, the cells of one instance and one set are equal wherever y is in s;
in CMM, the cells of one set; in MCL, the cells of all sets of one size; in PCPL, all cells. CL is PCPL's claim on the
sets of K-1 classes, and zero elsewhere. One description serves the exact proof and the statistical test.
"""

from __future__ import annotations

import torch
from torch import Tensor

from wsl_toolkit.settings import Setting
from wsl_toolkit.theory.enumeration import all_sets

CLAIMS = (Setting.GENERAL, Setting.PPL, Setting.CMM, Setting.MCL, Setting.PCPL, Setting.CL)
"""From the widest region to the narrowest."""

FORBIDDEN = -1


def cell_groups(setting: Setting, num_instances: int, num_classes: int) -> Tensor:
    """Return each cell's group, int64 [n, 2^K - 2, K]: cells of a group are equal, FORBIDDEN ones zero."""
    sets = all_sets(num_classes)
    shape = (num_instances, *sets.shape)
    instance = torch.arange(num_instances).view(-1, 1, 1)
    which = torch.arange(len(sets)).view(1, -1, 1)
    sizes = sets.sum(1).view(1, -1, 1)
    if setting is Setting.GENERAL:
        groups = torch.arange(instance.numel() * sets.numel()).view(shape)  # no two cells need be equal
    elif setting is Setting.PPL:
        groups = instance * len(sets) + which
    elif setting is Setting.CMM:
        groups = which
    elif setting is Setting.MCL:
        groups = sizes
    elif setting is Setting.PCPL:
        groups = torch.zeros_like(sizes)
    elif setting is Setting.CL:
        groups = torch.where(sizes == num_classes - 1, 0, FORBIDDEN)
    else:
        raise ValueError(f"{setting} makes no claim")
    return torch.where(sets, groups.expand(shape), FORBIDDEN)


def regions_of(holding: frozenset[Setting]) -> frozenset[Setting]:
    """Return the regions of the map, given which claims hold; every law is in the widest."""
    return holding | {Setting.ANY}


def smallest(regions: frozenset[Setting]) -> Setting:
    """Return the smallest region among those that a law lies in."""
    return next(setting for setting in (*reversed(CLAIMS), Setting.ANY) if setting in regions)
