"""What the engine checks on the first batch of a training, and on the first one after it is resumed.

Later batches have the same shapes and types, so that looking once is enough: what would otherwise train to a number in
a table (a loss [B, 1], a mean, a float64, a draw from a global generator) stops here and names the function at fault.
Each model of a stack is looked at alone, by the estimator's own functions. Nothing is written, no random stream moves,
and the step that follows has the bits that it would have had.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import attrs
import torch
from torch import Tensor

from wsl_toolkit.components import Estimator, State
from wsl_toolkit.errors import PluginError
from wsl_toolkit.plugins.attribution import mark
from wsl_toolkit.plugins.places import defined_at
from wsl_toolkit.system.random_streams import watched


@attrs.frozen(kw_only=True, eq=False)
class Single:
    """One model's part of a batch: logits and masks [B, K], the state of its rows and the network's extras, shared."""

    estimator: Estimator
    logits: Tensor
    mask: Tensor
    state: State
    shared: State
    row_names: tuple[str, ...]


def check_network(logits: Any, shape: tuple[int, ...], *, wrote: bool = False) -> None:
    """Refuse what is not one floating-point logit for each example and class; `shape` is that of the masks."""
    wrong = None
    if wrote:
        wrong = "wrote into its inputs, which are used again"
    elif not isinstance(logits, Tensor):
        wrong = f"returned {type(logits).__name__}, not a tensor of logits"
    elif logits.shape != shape:
        wrong = f"returned logits of shape {tuple(logits.shape)}, not {shape} (examples, classes)"
    elif not logits.is_floating_point():
        wrong = f"returned {logits.dtype} logits"
    elif logits.dtype == torch.float64:
        wrong = "returned float64 logits: its inputs are float32, and so must its parameters and buffers be"
    elif not logits.requires_grad:
        wrong = "returned logits that depend on no parameter, so that nothing can be learned"
    if wrong:
        error = PluginError(f"the network {wrong}")
        mark(error, "backbone")
        raise error


def check_estimator(single: Single) -> None:
    """Call an estimator's functions once more than the step does, on copies, and refuse what breaks its contract."""
    estimator = single.estimator
    if type(estimator).init_state is not Estimator.init_state:
        first = _called(estimator, "init_state", single.mask)
        _check_first_state(single, first)
    losses = _called(estimator, "loss", *_arguments(single))
    _check_losses(single, losses)
    objective, function = losses, "loss"
    if type(estimator).objective is not Estimator.objective:
        function = "objective"
        objective = _called(estimator, "objective", *_arguments(single))
        if not isinstance(objective, Tensor) or objective.shape != ():
            _refuse(estimator, "objective", f"must return a scalar tensor, not {_described(objective)}")
        _check_numbers(estimator, "objective", objective, single.logits)
    if not objective.requires_grad:
        _refuse(estimator, function, "does not depend on the logits, so that nothing can be learned")
    if type(estimator).update is not Estimator.update:
        new = _called(estimator, "update", *_arguments(single, attached=False))
        check_new_state(estimator, "update", new, single.mask, {**single.shared, **single.state}, _owned(single))
        if new and estimator.update_when == "never":
            _refuse(estimator, "update", f"returns {sorted(new)}, but update_when is 'never', so it is never stored")


def check_gradient(single: Single) -> None:
    """Refuse a gradient that an estimator writes out if it is not that of its loss at this batch."""
    losses = single.estimator.loss(*(given := _arguments(single)))
    (wanted,) = torch.autograd.grad(losses.sum(), given[0])
    found = _called(single.estimator, "loss_and_gradient", *_arguments(single, attached=False))
    if not isinstance(found, tuple) or len(found) != 2 or not all(isinstance(each, Tensor) for each in found):
        _refuse(single.estimator, "loss_and_gradient", "must return two tensors: losses, and their gradients")
    for what, each, right in (("losses", found[0], losses.detach()), ("gradients", found[1], wanted)):
        if each.shape != right.shape or each.dtype != right.dtype:
            _refuse(single.estimator, "loss_and_gradient", f"gives {what} {_described(each)}, not {_described(right)}")
        finite = right.isfinite()  # where the loss overflows, it will be told where that came from
        size = float(right[finite].abs().max()) if bool(finite.any()) else 0.0
        if not torch.allclose(each[finite], right[finite], rtol=1e-3, atol=1e-4 * max(1.0, size)):
            _refuse(single.estimator, "loss_and_gradient", f"gives {what} that are not those of the loss")


def check_new_state(
    estimator: Estimator, function: str, new: Any, mask: Tensor, state: State, owned: frozenset[str]
) -> None:
    """Refuse new values of state that was never declared, or of other shapes or types: storing would broadcast them."""
    if not isinstance(new, dict):
        _refuse(estimator, function, f"must return a dictionary of tensors, not {_described(new)}")
    for name, value in new.items():
        if name not in owned:
            _refuse(estimator, function, f"returned {name!r}, which neither init_state nor init_shared declares")
        old = state[name]
        if not isinstance(value, Tensor) or (value.shape, value.dtype) != (old.shape, old.dtype):
            wanted = _described(old)
            _refuse(estimator, function, f"returned {name!r} as {_described(value)}, not {wanted} as it was declared")
        if value.device != old.device:
            _refuse(estimator, function, f"returned {name!r} on {value.device}, not on {old.device}")
        _check_on_candidates(estimator, function, name, value, mask)


def _check_first_state(single: Single, first: Any) -> None:
    given = single.estimator.needs & {"index", "weights"}  # rows that are the engine's, not the estimator's
    rows = {name: single.state[name] for name in single.row_names if name not in given}
    if not isinstance(first, dict) or set(first) != set(rows):
        said = sorted(first) if isinstance(first, dict) else _described(first)
        _refuse(single.estimator, "init_state", f"returned {said} for a batch, and {sorted(rows)} for all examples")
    check_new_state(single.estimator, "init_state", first, single.mask, rows, frozenset(rows))


def _check_on_candidates(estimator: Estimator, function: str, name: str, value: Tensor, mask: Tensor) -> None:
    # NaN is not judged here: it may be the network's, and the loss will tell.
    if name in estimator.on_candidates and value.shape == mask.shape and bool(value[~mask].nan_to_num(0).any()):
        _refuse(estimator, function, f"gave {name!r} that is not 0 off the candidates, though on_candidates names it")


def _check_losses(single: Single, losses: Any) -> None:
    if not isinstance(losses, Tensor) or losses.shape != single.logits.shape[:1]:
        wanted = f"one loss for each of {len(single.logits)} examples"
        _refuse(single.estimator, "loss", f"must return {wanted}, not {_described(losses)}")
    _check_numbers(single.estimator, "loss", losses, single.logits)


def _check_numbers(estimator: Estimator, function: str, value: Tensor, logits: Tensor) -> None:
    if value.device != logits.device:
        _refuse(estimator, function, f"returned a tensor on {value.device}, but the logits are on {logits.device}")
    if value.dtype != logits.dtype:
        _refuse(
            estimator,
            function,
            f"returned {value.dtype} for {logits.dtype} logits: a constant or a state in it has another precision, "
            "which would be that of all that follows; cast it to logits.dtype",
        )


def _arguments(single: Single, *, attached: bool = True) -> tuple[Tensor, Tensor, State]:
    """Return copies to call a function with, attached to nothing but themselves."""

    def copied(value: Tensor) -> Tensor:
        # As in the step it is no leaf, into which torch itself would forbid to write.
        return value.detach().requires_grad_(attached and value.requires_grad).clone()

    state = {name: copied(value) for name, value in {**single.shared, **single.state}.items()}
    return copied(single.logits), single.mask.clone(), state


def _owned(single: Single) -> frozenset[str]:
    """Return the names of state that is the estimator's own, not the network's or the loop's."""
    given = {"epoch", "seed"} | (single.estimator.needs & {"weights"})
    return frozenset({*single.row_names, *single.shared} - given)


def _called(estimator: Estimator, function: str, *arguments: Any) -> Any:
    """Call a function; refuse it if it writes to its arguments or draws from a global random stream."""
    call: Callable[..., Any] = getattr(estimator, function)
    given = _tensors(arguments)
    kept = {name: value.detach().clone() for name, value in given.items()}
    result, moved = watched(lambda: call(*arguments))
    for name, value in given.items():
        if not _same(value, kept[name]):
            _refuse(estimator, function, f"wrote to {name}: leave arguments alone, and return new values")
    _refuse_draws(estimator, function, moved)
    return result


def look_back(estimator: Estimator, mask: Tensor, state: State, owned: frozenset[str]) -> State:
    """Return what `after_epoch` returns for all examples, checked; of whole tensors there are no copies to compare."""
    given = {"the candidates": mask, **{f"state {name!r}": value for name, value in state.items()}}
    versions = {name: value._version for name, value in given.items()}
    new, moved = watched(lambda: estimator.after_epoch(mask, state))
    for name, value in given.items():
        if value._version != versions[name]:
            _refuse(estimator, "after_epoch", f"wrote to {name}: leave arguments alone, and return new values")
    _refuse_draws(estimator, "after_epoch", moved)
    check_new_state(estimator, "after_epoch", new, mask, state, owned)
    return new


def _refuse_draws(estimator: Estimator, function: str, moved: str) -> None:
    if moved:
        _refuse(estimator, function, f"drew from {moved}'s global random generator: declare that it needs 'seed'")


def _tensors(arguments: tuple[Any, ...]) -> dict[str, Tensor]:
    names = ("candidates",) if len(arguments) == 1 else ("the logits", "the candidates")
    given = dict(zip(names, arguments, strict=False))
    if len(arguments) == 3:
        given |= {f"state {name!r}": value for name, value in arguments[2].items()}
    return given


def _same(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors have the same numbers, NaN among them."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not one.is_floating_point():
        return torch.equal(one, other)
    return bool(((one == other) | (one.isnan() & other.isnan())).all())


def _described(value: Any) -> str:
    return f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def _refuse(estimator: Estimator, function: str, what: str) -> NoReturn:
    place = defined_at(getattr(type(estimator), function))
    at = f" ({type(estimator).__name__}.{function}, {place})" if place else ""
    error = PluginError(f"estimator {estimator.name}: {function} {what}{at}")
    mark(error, "estimator")
    raise error
