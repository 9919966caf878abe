"""Learning where p(y|x) is known: how fast the excess risk falls, and what learned confidences cost.

Inputs lie on a sphere of radius B and p(y|x) = softmax(W x) with rows of norm Λ, so the truth is in the class of
norm-bounded linear classifiers that Theorem 4 speaks of, and every risk is known exactly. All repetitions are trained
at once, as one stack of models, with full-batch steps that are projected back into the class.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import torch
from torch import Tensor

from wsl_toolkit.components import Estimator, Generator, State
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.system.random_streams import stream
from wsl_toolkit.theory.bias import moments_under
from wsl_toolkit.theory.bound import linear_bound
from wsl_toolkit.theory.enumeration import law

FEATURES = 5
RADIUS = 2.0
NORM = 2.0
STEPS = 160
LEARNING_RATE = 0.1
SIZES = (100, 316, 1000, 3162, 10_000)
REPEATS = 6
BIAS_EXAMPLES = 2000
BIAS_INSTANCES = 200
EVALUATION = 4000
MOMENTS = (0, 1, 2, 4, 7, 12, 20, 35, 60, 100, 160)
"""The steps at which the bias of learned confidences is looked at."""


@attrs.frozen(kw_only=True, eq=False)
class Truth:
    """A distribution with known p(y|x): x uniform on the sphere of radius B, p(y|x) = softmax(W x), ‖w_i‖ = Λ."""

    weight: Tensor

    @classmethod
    def made(cls, num_classes: int, seed: int = 0) -> Truth:
        """Draw W; the same for the same seed."""
        weight = torch.randn(num_classes, FEATURES, generator=stream(seed, "initialisation"), dtype=torch.float64)
        return cls(weight=NORM * torch.nn.functional.normalize(weight, dim=-1))

    def inputs(self, n: int, rng: torch.Generator) -> Tensor:
        """Draw x, float32 [n, d]."""
        x = torch.randn(n, FEATURES, generator=rng)
        return torch.nn.functional.normalize(x, dim=-1) * RADIUS

    def posterior(self, x: Tensor) -> Tensor:
        """Return p(y|x), float64 [..., K]."""
        return torch.softmax(x.double() @ self.weight.T, -1)


@attrs.frozen(kw_only=True, eq=False)
class Sample:
    """What a stack of S models learns from."""

    x: Tensor
    """[S, n, d]."""
    y: Tensor
    """[S, n]; for estimators that may see it."""
    candidates: Tensor
    """[S, n, K]."""


def draw_sample(truth: Truth, generator: Generator, n: int, rng: torch.Generator) -> Sample:
    """Draw REPEATS independent samples of n partially labelled examples."""
    num_classes = len(truth.weight)
    x = truth.inputs(REPEATS * n, rng)
    y = torch.multinomial(truth.posterior(x), 1, generator=rng).squeeze(1)
    mask = generator.sample(x, y, num_classes, rng).mask()
    return Sample(x=x.view(REPEATS, n, -1), y=y.view(REPEATS, n), candidates=mask.view(REPEATS, n, num_classes))


def train(estimator: Estimator, sample: Sample, steps: int = STEPS) -> Iterator[Tensor]:
    """Train a stack of linear models from zero; yield their weights, [S, K, d], at the start and after each step."""
    mask = sample.candidates
    if estimator.reads_true_labels():
        mask = torch.nn.functional.one_hot(sample.y, mask.shape[-1]).bool()
    state = _first_state(estimator, mask)
    objective = _on_each(estimator.objective, estimator.stackable)
    update = _on_each(estimator.update, estimator.stackable)
    weight = torch.zeros(mask.shape[0], mask.shape[-1], sample.x.shape[-1], requires_grad=True)
    optimizer = torch.optim.Adam([weight], lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, total_iters=steps)
    yield weight.detach().clone()
    for _ in range(steps):
        logits = sample.x @ weight.mT
        optimizer.zero_grad()
        objective(logits, mask, state).sum().backward()
        if estimator.update_when == "before":
            state |= update(logits.detach(), mask, state)
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            weight *= (NORM / weight.norm(dim=-1, keepdim=True).clamp(min=1e-12)).clamp(max=1)
            if estimator.update_when == "after":
                state |= update(sample.x @ weight.mT, mask, state)
        yield weight.detach().clone()


def _first_state(estimator: Estimator, mask: Tensor) -> State:
    parts = [{**estimator.init_shared(CandidateSets.from_mask(each)), **estimator.init_state(each)} for each in mask]
    return {name: torch.stack([part[name] for part in parts]) for name in parts[0]}


def _on_each(function: Callable[..., Any], stackable: bool) -> Callable[..., Any]:
    """Return a function of one model as one of a stack of models."""
    if stackable:
        return torch.func.vmap(function)

    def one_by_one(logits: Tensor, mask: Tensor, state: State) -> Any:
        results = [function(logits[s], mask[s], {k: v[s] for k, v in state.items()}) for s in range(len(logits))]
        if isinstance(results[0], dict):
            return {name: torch.stack([result[name] for result in results]) for name in results[0]}
        return torch.stack(results)

    return one_by_one


@attrs.frozen(kw_only=True, eq=False)
class Consistency:
    """Excess risk against n: R(f̂) - R(f*) in cross-entropy, [sizes, repeats] for each estimator, and the bound."""

    sizes: tuple[int, ...]
    excess: Mapping[str, Tensor]
    bound: tuple[float, ...]

    def slope(self, name: str) -> float:
        """Return the slope of log(mean excess) against log n, by least squares: -1/2 is what the bound promises."""
        x = torch.tensor(self.sizes, dtype=torch.float64).log()
        y = self.excess[name].mean(-1).log()
        return float(((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum())


@attrs.frozen(kw_only=True, eq=False)
class LearnedBias:
    """The exact bias of the risk estimate at moments of training, averaged over x, [moments, repeats]."""

    moments: tuple[int, ...]
    learned: Mapping[str, Tensor]
    """With the model's own softmax as p(y|x)."""
    oracle: Mapping[str, Tensor]
    """With the true p(y|x), at the same weights."""


def consistency(
    truth: Truth,
    estimators: Sequence[Estimator],
    generator: Generator,
    on_step: Callable[[], None] = lambda: None,
    sizes: Sequence[int] = SIZES,
    seed: int = 0,
) -> Consistency:
    """Train every estimator on the same samples of growing size, and measure how much worse than the truth it is."""
    held_out = truth.inputs(EVALUATION, stream(seed, "split"))
    posterior = truth.posterior(held_out)
    excess: dict[str, list[Tensor]] = {estimator.name: [] for estimator in estimators}
    for n in sizes:
        sample = draw_sample(truth, generator, n, stream(seed + n, "labels"))
        for estimator in estimators:
            *_, weight = train(estimator, sample)
            excess[estimator.name].append(_excess(weight, held_out, posterior))
            on_step()
    num_classes = len(truth.weight)
    return Consistency(
        sizes=tuple(sizes),
        excess={name: torch.stack(values) for name, values in excess.items()},
        bound=tuple(linear_bound(num_classes=num_classes, n=n, radius=RADIUS, norm=NORM).total for n in sizes),
    )


def _excess(weight: Tensor, x: Tensor, posterior: Tensor) -> Tensor:
    """Return the mean of KL(p(·|x) ‖ softmax(f(x))), which is R(f) - R(f*) for cross-entropy, [S]."""
    log_p = torch.log_softmax(x.double() @ weight.double().mT, -1)
    return (posterior * (posterior.log() - log_p)).sum(-1).mean(-1)


def learned_bias(
    truth: Truth,
    estimators: Sequence[Estimator],
    generator: Generator,
    on_step: Callable[[], None] = lambda: None,
    seed: int = 0,
) -> LearnedBias:
    """Follow the bias of estimators that hold confidences while these are learned."""
    rng = stream(seed, "labels")
    sample = draw_sample(truth, generator, BIAS_EXAMPLES, rng)
    num_classes = len(truth.weight)
    ready = generator.prepare(sample.x.flatten(0, 1), sample.y.flatten(), num_classes, rng)
    x = truth.inputs(BIAS_INSTANCES, stream(seed, "split"))
    posterior, table = truth.posterior(x), law(ready, x, num_classes)
    learned: dict[str, Tensor] = {}
    oracle: dict[str, Tensor] = {}
    for estimator in estimators:
        found: list[list[tuple[float, float]]] = []
        for step, weights in enumerate(train(estimator, sample)):
            if step in MOMENTS:
                found.append([_bias_pair(estimator, table, posterior, x.double() @ w.double().T) for w in weights])
        learned[estimator.name], oracle[estimator.name] = torch.tensor(found, dtype=torch.float64).unbind(-1)
        on_step()
    return LearnedBias(moments=MOMENTS, learned=learned, oracle=oracle)


def _bias_pair(estimator: Estimator, table: Tensor, posterior: Tensor, logits: Tensor) -> tuple[float, float]:
    own = torch.softmax(logits, -1)
    biases = (
        moments_under(estimator, table, posterior=posterior, logits=logits, confidence=confidence).bias.mean()
        for confidence in (own, posterior)
    )
    first, second = biases
    return float(first), float(second)


def standard_error(values: Tensor) -> Tensor:
    """Return the standard error of the mean over the last dimension."""
    return values.std(-1) / math.sqrt(values.shape[-1])
