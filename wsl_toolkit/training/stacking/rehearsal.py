"""Try a stack out on a handful of examples: does it compute what its members compute alone?"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from wsl_toolkit.components import Estimator, State
from wsl_toolkit.errors import one_line
from wsl_toolkit.networks import split_output
from wsl_toolkit.training.risk import Risk, loop_state
from wsl_toolkit.training.stacking.network import StackedNetwork
from wsl_toolkit.training.stacking.risk import StackedEstimator
from wsl_toolkit.training.stacking.stack import share_order
from wsl_toolkit.training.trainer import Trainer

EXAMPLES = 24


def why_network_cannot(trainers: Sequence[Trainer]) -> str | None:
    """Return why two of these networks cannot compute as one, or None; the networks are left as they were."""
    pair = [trainers[0], trainers[-1]]
    models = [copy.deepcopy(trainer.model).train() for trainer in pair]
    inputs = [trainer.inputs.gather(trainer.visited[:EXAMPLES]) for trainer in pair]
    shared = share_order(pair)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        try:
            stacked = StackedNetwork([copy.deepcopy(model) for model in models], own_inputs=not shared).train()
            together = _outputs(stacked, inputs[0] if shared else torch.stack(inputs, dim=1))
        except Exception as error:  # whatever a third party's network does under vmap
            return f"its network cannot be vectorised over models ({one_line(error)})"
        each = [_outputs(model, x) for model, x in zip(models, inputs, strict=True)]
    for name, found in together.items():
        alone = torch.stack([own[name] for own in each], dim=1)
        if found.shape != alone.shape or not torch.allclose(found, alone, rtol=1e-3, atol=1e-4):
            return f"its network, vectorised over models, gives other {name}"
    return None


def _outputs(network: nn.Module, inputs: Tensor) -> State:
    """Return a network's logits and extras by name."""
    logits, extras = split_output(network(inputs))
    return {"logits": logits, **extras}


def why_estimators_cannot(estimators: Sequence[Estimator], risk: Risk) -> str | None:
    """Return why these estimators break the contract of pure functions that can be vectorised, or None."""
    pair = [estimators[0], estimators[-1]]
    name = estimators[0].name
    examples = torch.arange(min(EXAMPLES, len(risk.candidates)), device=risk.candidates.sizes.device)
    sets = risk.candidates.take(examples)
    mask = sets.mask()
    with torch.random.fork_rng(devices=[]):
        try:
            alone = [_Rehearsed(estimator, sets, logits) for estimator, logits in zip(pair, _logits(mask), strict=True)]
            broken = next((each.broken for each in alone if each.broken), None)
            if broken:
                return f"estimator {name} {broken}"
            differing = _compare(pair, alone, mask)
        except Exception as error:  # whatever a third party's functions do on stacks
            return f"estimator {name} cannot be vectorised over models ({one_line(error)})"
    return f"estimator {name}, vectorised over models, gives another {differing}" if differing else None


class _Rehearsed:
    """One estimator's loss, gradient and update on its own, and whether its functions are pure."""

    def __init__(self, estimator: Estimator, sets: object, logits: Tensor) -> None:
        risk = Risk(estimator, sets)  # type: ignore[arg-type]
        mask, rows = risk.gather(torch.arange(len(logits), device=logits.device))
        first: State = {**risk.shared(), **rows, **loop_state(estimator, 1, logits.device)}
        if "two_networks" in estimator.needs:
            first["second_logits"] = logits.flip(-1) / 2
        # The first state is often the same for all examples, which would hide mistakes; go one update further.
        changed = estimator.update(logits.flip(0), mask, first) if estimator.update_when != "never" else {}
        self.state: State = {**first, **{name: value.clone() for name, value in changed.items()}}
        self.shared_names = frozenset(risk.shared())
        self.logits = logits
        before = {name: value.clone() for name, value in self.state.items()}
        self.objective, self.gradient = _objective_and_gradient(estimator, logits, mask, self.state)
        self.new = estimator.update(logits, mask, self.state)
        again, _ = _objective_and_gradient(estimator, logits, mask, self.state)
        self.broken = ""
        if any(not torch.equal(value, before[name]) for name, value in self.state.items()):
            self.broken = "writes into its arguments"
        elif not torch.equal(again, self.objective):
            self.broken = "gives another loss when asked again"


def _compare(pair: Sequence[Estimator], alone: Sequence[_Rehearsed], mask: Tensor) -> str:
    """Return what differs between the stacked and the single calls, or an empty string."""
    shared = alone[0].shared_names
    stacked = StackedEstimator(pair, shared)
    logits = torch.stack([each.logits for each in alone], dim=1)
    masks = torch.stack([mask, mask], dim=1)
    state = {
        name: value
        if value.ndim == 0
        else torch.stack([each.state[name] for each in alone], 0 if name in shared else 1)
        for name, value in alone[0].state.items()
    }
    objective, gradient = _objective_and_gradient(stacked, logits, masks, state)
    if not _close(objective, torch.stack([each.objective for each in alone])):
        return "loss"
    if not _close(gradient, torch.stack([each.gradient for each in alone], dim=1)):
        return "gradient"
    new = stacked.update(logits, masks, state)
    for name, value in new.items():
        if not _close(value, torch.stack([each.new[name] for each in alone], 0 if name in shared else 1)):
            return f"update of {name!r}"
    return "" if new.keys() == alone[0].new.keys() else "update"


def _objective_and_gradient(
    estimator: Estimator | StackedEstimator, logits: Tensor, mask: Tensor, state: State
) -> tuple[Tensor, Tensor]:
    leaf = logits.clone().requires_grad_()
    objective = estimator.objective(leaf, mask, state)
    (gradient,) = torch.autograd.grad(objective.sum(), leaf)
    return objective.detach(), gradient


def _logits(mask: Tensor) -> Tensor:
    rng = torch.Generator().manual_seed(0)
    return 3 * torch.randn(2, *mask.shape, generator=rng).to(mask.device)


def _close(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, rtol=1e-4, atol=1e-5, equal_nan=True)
