"""Probabilities that mean something: one temperature, learned from held-out candidate sets.

The likelihood of a set under p_T = softmax(z / T) is Σ_{j∈s} p_T,j. Its expected logarithm is greatest where p_T is the
true p(y|x), if the sets are proper: then p(s|x) = C(s) Σ_{j∈s} p(y=j|x), and C does not depend on T. But finite data
may not say so. Where every most likely class is a candidate the likelihood only grows as T falls, to 1 at T = 0: large
sets contradict no confidence. So T is not the maximiser of the likelihood alone, but of its product with a prior under
which log T is normal with mean 0: data that say little leave T near 1, and no data leave it at 1.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

SPREAD = 0.5
"""The prior's standard deviation of log T."""
COLDEST, HOTTEST = 0.05, 20.0
BINS, IN_A_BIN = 15, 20


def set_log_losses(logits: Tensor, candidates: Tensor, worth: Tensor | None = None) -> Tensor:
    """Return -log Σ_{j∈s} p_j of each example, [n], stable for any logits.

    `worth` [n, K] is what a law of the sets adds to each log p_j (see `set_laws`): -log Σ_{j∈s} p_j exp(worth_j).
    """
    inside = (logits if worth is None else logits + worth).masked_fill(~candidates, -math.inf)
    return torch.logsumexp(logits, 1) - torch.logsumexp(inside, 1)


def set_log_loss(logits: Tensor, candidates: Tensor, worth: Tensor | None = None) -> float:
    """Return the mean of -log Σ_{j∈s} p_j; full sets, which say nothing, do not count; NaN where all are full."""
    informative = ~candidates.all(1)
    of_law = None if worth is None else worth[informative]
    return float(set_log_losses(logits[informative].double(), candidates[informative], of_law).mean())


def temperature(logits: Tensor, candidates: Tensor, worth: Tensor | None = None) -> float:
    """Return T > 0 that makes softmax(logits / T) agree best with held-out candidate sets, near 1 if these say little.

    Minimises n · mean(-log Σ_{j∈s} p_T,j) + (log T)² / (2 SPREAD²) over log T: on a grid, for there may be several
    minima, and then inside of the best cell.
    """
    from scipy.optimize import minimize_scalar

    informative = ~candidates.all(1)
    z, mask = logits[informative].double(), candidates[informative]
    of_law = None if worth is None else worth[informative]
    if len(z) == 0 or not bool(torch.isfinite(z).all()):
        return 1.0

    def cost(log_t: float) -> float:
        prior = log_t**2 / (2 * SPREAD**2)
        return float(set_log_losses(z / math.exp(log_t), mask, of_law).sum()) + prior

    grid = torch.linspace(math.log(COLDEST), math.log(HOTTEST), 41, dtype=torch.float64).tolist()
    best = min(range(len(grid)), key=lambda place: cost(grid[place]))
    bounds = (grid[max(0, best - 1)], grid[min(len(grid) - 1, best + 1)])
    return math.exp(float(minimize_scalar(cost, bounds=bounds, method="bounded", options={"xatol": 1e-4}).x))


def calibration_error(probabilities: Tensor, labels: Tensor) -> float | None:
    """Return the expected calibration error of the most likely class; labels of -1 are not known.

    The mean of |share right - mean confidence| over bins of equally many examples, by confidence: as many bins as have
    20 examples each, at most 15. None below 20 known labels.
    """
    known = labels >= 0
    confidence, predicted = probabilities[known].double().max(1)
    bins = min(BINS, len(confidence) // IN_A_BIN)
    if bins == 0:
        return None
    right = (predicted == labels[known]).double()
    order = torch.argsort(confidence, stable=True)
    gaps = [
        (right[part].mean() - confidence[part].mean()).abs() * len(part) for part in torch.tensor_split(order, bins)
    ]
    return float(torch.stack(gaps).sum() / len(confidence))
