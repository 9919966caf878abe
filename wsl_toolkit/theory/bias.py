"""Exact bias and variance of an estimator under a generator: a sum over every candidate set, no sampling.

For an instance x with class probabilities p(y|x) and logits f(x), the estimator's loss is a random variable through
s ~ p(s|x) = Σ_y p(s|x,y) p(y|x). Its bias is E[loss] - Σ_y p(y|x) L(f, y), where L is the loss whose risk is estimated.
Confidences are the true ones unless others are given: state = update(log p(y|x)).
"""

from __future__ import annotations

import attrs
import torch
from torch import Tensor

from wsl_toolkit.components import Estimator, Generator, State
from wsl_toolkit.errors import PluginError, TheoryError
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.losses import cross_entropy
from wsl_toolkit.theory.enumeration import all_sets, law

EXACT = 1e-10
"""A bias of at most this, relative to the size of the terms that cancel, is rounding in float64."""

NORMALISED = 1e-5
"""Probabilities of all sets that miss a sum of 1 by more than this are no distribution."""


@attrs.frozen(kw_only=True, eq=False)
class Moments:
    """The first two moments of a loss at each of n instances, float64 [n]."""

    risk: Tensor
    """Σ_y p(y|x) L(f(x), y): what is to be estimated."""
    expectation: Tensor
    """E_{s|x}[loss]."""
    variance: Tensor
    """Var_{s|x}[loss]."""
    magnitude: Tensor
    """E_{s|x}|loss|: the size of what cancels, which rounding errors scale with."""
    imprecision: Tensor
    """By how much Σ_s p(s|x) misses 1: what the law itself is rounded to, were it computed in float32."""

    @property
    def tolerance(self) -> Tensor:
        """What counts as rounding, [n]."""
        return (EXACT + 10 * self.imprecision.max()) * (1 + self.magnitude)

    @property
    def bias(self) -> Tensor:
        """E[loss] - risk, [n]."""
        return self.expectation - self.risk

    @property
    def largest_bias(self) -> float:
        """The bias of the instance where it is largest in size, with its sign."""
        return float(self.bias[self.bias.abs().argmax()])

    @property
    def mean_variance(self) -> float:
        """The variance averaged over instances."""
        return float(self.variance.mean())

    @property
    def is_unbiased(self) -> bool:
        """Whether the bias is 0 at every instance, up to rounding."""
        return bool((self.bias.abs() <= self.tolerance).all())

    @property
    def is_upper_bound(self) -> bool:
        """Whether the expectation is nowhere below the risk, up to rounding."""
        return bool((self.bias >= -self.tolerance).all())


def exact_moments(
    estimator: Estimator,
    generator: Generator,
    *,
    posterior: Tensor,
    logits: Tensor,
    x: Tensor,
    confidence: Tensor | None = None,
) -> Moments:
    """Return the exact moments of an estimator's loss under a generator that is ready to draw.

    `posterior` [n, K] is p(y|x), `logits` [n, K] the classifier, `x` [n, …] the instances, which matter to generators
    that look at them. `confidence` [n, K] replaces p(y|x) as the source of the estimator's state, to see what learned
    confidences cost.
    """
    return moments_under(
        estimator, law(generator, x, posterior.shape[-1]), posterior=posterior, logits=logits, confidence=confidence
    )


def moments_under(
    estimator: Estimator, table: Tensor, *, posterior: Tensor, logits: Tensor, confidence: Tensor | None = None
) -> Moments:
    """Return the exact moments of an estimator's loss for a law given as a table p(s|x,y), [n, 2^K - 2, K]."""
    posterior, logits = _checked(table, posterior, logits)
    n = len(posterior)
    sets, weights = sets_seen(estimator, table, posterior)
    rows = sets.repeat(n, 1)
    spread = logits.repeat_interleave(len(sets), dim=0)
    source = (posterior if confidence is None else confidence.double()).repeat_interleave(len(sets), dim=0)
    state = state_from(estimator, rows, source.log())
    losses = estimator.loss(spread, rows, state)
    if losses.shape != (len(rows),):
        raise PluginError(f"estimator {estimator.name} must return one loss an example, not {tuple(losses.shape)}")
    return _moments(losses.view(n, len(sets)), weights, (posterior * target_loss(estimator, logits)).sum(-1))


def true_confidence_moments(table: Tensor, *, posterior: Tensor, logits: Tensor) -> Moments:
    """Return the moments of Σ_{j∈s} p(y=j|x,s) ℓ_j with cross-entropy, which Theorem 2 makes unbiased everywhere.

    It needs p(s|x,y), which nobody has in practice: it is a yardstick, not a method.
    """
    posterior, logits = _checked(table, posterior, logits)
    sets = all_sets(posterior.shape[-1])
    losses = cross_entropy(logits)
    estimate = (sets * true_confidence(table, posterior) * losses.unsqueeze(1)).sum(-1)
    return _moments(estimate, set_probability(table, posterior), (posterior * losses).sum(-1))


def set_probability(table: Tensor, posterior: Tensor) -> Tensor:
    """Return p(s|x) = Σ_y p(s|x,y) p(y|x), [n, 2^K - 2]."""
    return (table * posterior.unsqueeze(1)).sum(-1)


def true_confidence(table: Tensor, posterior: Tensor) -> Tensor:
    """Return r_j(x, s) = p(y=j|x,s) by Bayes' rule, [n, 2^K - 2, K]; 0 for sets that never occur (Definition 2)."""
    joint = table * posterior.unsqueeze(1)
    return joint / joint.sum(-1, keepdim=True).clamp(min=torch.finfo(joint.dtype).tiny)


def sets_seen(estimator: Estimator, table: Tensor, posterior: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sets [m, K] that an estimator is given and their probabilities [n, m]: {y} if it sees true labels."""
    num_classes = posterior.shape[-1]
    if estimator.reads_true_labels():
        return torch.eye(num_classes, dtype=torch.bool), posterior
    return all_sets(num_classes), set_probability(table, posterior)


def state_from(estimator: Estimator, candidates: Tensor, log_posterior: Tensor) -> State:
    """Return the state an estimator would have if its model's logits were `log_posterior`."""
    state = {**estimator.init_shared(CandidateSets.from_mask(candidates)), **estimator.init_state(candidates)}
    state.update(estimator.update(log_posterior, candidates, state))
    return state


def target_loss(estimator: Estimator, logits: Tensor) -> Tensor:
    """Return L(f, j) for every class j, [n, K]: what the estimator declares, or its loss given the singleton {j}.

    Ordinary labels are partial labels with |s| = 1, so whoever is unbiased there has loss L(f, j) on {j}.
    """
    declared = estimator.target_loss(logits)
    if declared is not None:
        return declared
    n, num_classes = logits.shape
    singletons = torch.eye(num_classes, dtype=torch.bool).repeat(n, 1)
    spread = logits.repeat_interleave(num_classes, dim=0)
    return estimator.loss(spread, singletons, state_from(estimator, singletons, spread)).view(n, num_classes)


def _moments(losses: Tensor, weights: Tensor, risk: Tensor) -> Moments:
    expectation = (weights * losses).sum(-1)
    return Moments(
        risk=risk,
        expectation=expectation,
        variance=(weights * (losses - expectation.unsqueeze(-1)).square()).sum(-1),
        magnitude=(weights * losses.abs()).sum(-1),
        imprecision=(weights.sum(-1) - 1).abs(),
    )


def _checked(table: Tensor, posterior: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    n, _, num_classes = table.shape
    for name, value in (("posterior", posterior), ("logits", logits)):
        if value.shape != (n, num_classes):
            raise TheoryError(f"{name} must have shape ({n}, {num_classes}) as the law has, not {tuple(value.shape)}")
    if not torch.allclose(posterior.double().sum(-1), torch.ones(n, dtype=torch.float64)):
        raise TheoryError("posterior must hold probabilities: each row sums to 1")
    total = table.sum(1)
    if float((total - 1).abs().max()) > NORMALISED:
        x, y = divmod(int((total - 1).abs().argmax()), num_classes)
        raise TheoryError(
            f"the law is none: the probabilities of all sets sum to {float(total[x, y]):g} at x{x}, y={y}"
        )
    return posterior.double(), logits.double()
