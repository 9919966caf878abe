"""Where an estimator leads: the minimiser of its exact expected loss over free logits, instance by instance.

An estimator that is not unbiased may still be right in the end: classifier-consistent means that the logits which
minimise its expected loss have their largest entry where p(y|x) has its. Sets that never tell two classes apart (coarse
labels, say) leave more than one minimiser; then it is enough that one of them ranks rightly.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import torch
from torch import Tensor

from wsl_toolkit.components import Estimator
from wsl_toolkit.errors import TheoryError
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.theory.bias import sets_seen, state_from
from wsl_toolkit.theory.enumeration import all_sets

BATCH_ROWS = 256
"""An estimator that works on whole batches gets a population of at least this many examples an instance."""

MAX_BATCH_CLASSES = 8
"""With more classes such a population, in which every set appears, is too large."""

TIE = 1e-7
"""Two minima that differ by less than this are one: the steps are bounded, so they are not exact."""

_LBFGS_STEPS = 60
_ADAM_STEPS = 120


@attrs.frozen(kw_only=True, eq=False)
class Minimiser:
    """The logits that minimise an expected loss, [n, K], beside the class probabilities that they should reflect."""

    logits: Tensor
    posterior: Tensor

    @property
    def right(self) -> Tensor:
        """Whether the likeliest class is found, [n]."""
        return self.logits.argmax(-1) == self.posterior.argmax(-1)

    @property
    def is_consistent(self) -> bool:
        """Whether the likeliest class is found at every instance."""
        return bool(self.right.all())

    @property
    def posterior_error(self) -> float:
        """The largest difference between softmax(logits) and p(y|x): about 0 for a proper loss."""
        return float((torch.softmax(self.logits, -1) - self.posterior).abs().max())


def minimise(estimator: Estimator, table: Tensor, posterior: Tensor) -> Minimiser:
    """Minimise E_{s|x}[loss] over free logits for a law p(s|x,y) [n, 2^K - 2, K], confidences being the true ones.

    The number of steps is bounded: where the minimum lies at infinity the logits are those reached by then.
    """
    posterior = posterior.double()
    flat = torch.zeros_like(posterior)
    if works_on_batches(estimator):
        found = _descend(_batch_objective(estimator, table, posterior), flat)
    else:
        expected_loss = _expected_loss(estimator, table, posterior)
        found = _quasi_newton(expected_loss, flat)
        right = found.argmax(-1) == posterior.argmax(-1)
        if not bool(right.all()):
            other = _quasi_newton(expected_loss, posterior.log())
            as_low = expected_loss(other) <= expected_loss(found) + TIE
            found = torch.where((~right & as_low).unsqueeze(-1), other, found)
    if bool(found.isnan().any()):
        raise TheoryError(f"the expected loss of {estimator.name} is NaN, or its gradient is")
    if not bool(torch.isfinite(found).all()):
        raise TheoryError(f"the expected loss of {estimator.name} has no minimiser: its logits grow without bound")
    return Minimiser(logits=found, posterior=posterior)


def identifies(table: Tensor) -> bool:
    """Return whether p(s|x) determines p(y|x) at every instance: p(s|x,·) over all s has rank K."""
    return bool((torch.linalg.matrix_rank(table.double()) == table.shape[-1]).all())


def works_on_batches(estimator: Estimator) -> bool:
    """Return whether what is minimised is more than a mean of losses, so that no example has a bias of its own.

    An objective that is written out may still be that mean: it is, if the two agree on batches that have nothing in
    common.
    """
    if type(estimator).objective is Estimator.objective:
        return False
    return not (estimator.logits_suffice and _objective_is_the_mean(estimator))


def _objective_is_the_mean(estimator: Estimator, num_classes: int = 4) -> bool:
    rng = torch.Generator().manual_seed(0)
    for n in (1, 5, 40):
        sets = all_sets(num_classes)
        if estimator.reads_true_labels():
            sets = torch.eye(num_classes, dtype=torch.bool)
        rows = sets[torch.randint(len(sets), (n,), generator=rng)]
        logits, model = 3 * torch.randn(2, n, num_classes, generator=rng, dtype=torch.float64)
        try:
            state = state_from(estimator, rows, model)
            given = estimator.objective(logits, rows, state)
            mean = estimator.loss(logits, rows, state).mean()
        except Exception:  # whatever goes wrong goes wrong again where it is reported
            return False
        if given.shape != () or not torch.allclose(given.double(), mean.double(), rtol=1e-9, atol=1e-12):
            return False
    return True


def _expected_loss(estimator: Estimator, table: Tensor, posterior: Tensor) -> Callable[[Tensor], Tensor]:
    """Return E_{s|x}[loss] of each instance as a function of the logits, [n, K] -> [n]."""
    n = len(posterior)
    sets, weights = sets_seen(estimator, table, posterior)
    rows = sets.repeat(n, 1)
    state = state_from(estimator, rows, posterior.log().repeat_interleave(len(sets), dim=0))

    def expected_loss(logits: Tensor) -> Tensor:
        losses = estimator.loss(logits.repeat_interleave(len(sets), dim=0), rows, state)
        return (weights * losses.view(n, -1)).sum(-1)

    return expected_loss


def _batch_objective(estimator: Estimator, table: Tensor, posterior: Tensor) -> Callable[[Tensor], Tensor]:
    """Stand in for the population by a batch in which each set appears in proportion to its probability."""
    if posterior.shape[-1] > MAX_BATCH_CLASSES:
        raise TheoryError(f"{estimator.name} works on whole batches: looked at up to {MAX_BATCH_CLASSES} classes only")
    sets, weights = sets_seen(estimator, table, posterior)
    examples = max(BATCH_ROWS, 8 * len(sets))
    copies = _apportion(weights, examples)
    instance = torch.arange(len(posterior)).repeat_interleave(examples)
    rows = sets.repeat(len(posterior), 1).repeat_interleave(copies.flatten(), dim=0)
    state = state_from(estimator, rows, posterior.log()[instance])
    state |= estimator.init_shared(CandidateSets.from_mask(rows))

    def objective(logits: Tensor) -> Tensor:
        return estimator.objective(logits[instance], rows, state)

    return objective


def _apportion(weights: Tensor, total: int) -> Tensor:
    """Round each row of probabilities to whole numbers that sum to `total`, by the largest remainders."""
    exact = weights / weights.sum(-1, keepdim=True) * total
    whole = exact.floor().long()
    missing = total - whole.sum(-1, keepdim=True)
    rank = (exact - whole).argsort(-1, descending=True).argsort(-1)
    return whole + (rank < missing)


def _quasi_newton(expected_loss: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
    logits = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [logits], max_iter=_LBFGS_STEPS, history_size=20, line_search_fn="strong_wolfe", tolerance_grad=1e-9
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        total = expected_loss(logits).sum()
        total.backward()
        return total

    optimizer.step(closure)
    return logits.detach()


def _descend(objective: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
    """Take plain steps: batch methods may exchange their gradient, which no line search would understand."""
    logits = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([logits], lr=0.2)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, total_iters=_ADAM_STEPS)
    for _ in range(_ADAM_STEPS):
        optimizer.zero_grad()
        objective(logits).backward()
        optimizer.step()
        schedule.step()
    return logits.detach()
