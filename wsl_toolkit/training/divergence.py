"""Where a loss that is not finite came from: the loss at finite logits, its gradient a step before, or the network.

The last few batches are remembered as they were seen (no copies), and every few steps one number is looked at: an
ordinary step costs nothing more. The weights, which are NaN by then, could not tell any more; the batches still can.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal

import attrs
import torch
from torch import Tensor

from wsl_toolkit.components import State
from wsl_toolkit.errors import DivergedError
from wsl_toolkit.plugins.attribution import mark
from wsl_toolkit.training.first_batch import Single

EVERY = 16
"""After how many steps the last loss is looked at."""

KINDS: tuple[Literal["loss", "gradient", "network"], ...] = ("loss", "gradient", "network")


@attrs.frozen(kw_only=True)
class Origin:
    """Which part gave the first number that was not finite, and how large the logits were then."""

    kind: Literal["loss", "gradient", "network"]
    step: int
    """Counted from the beginning of the pass; it orders what several ranks found."""
    largest: float

    def error(self, name: str, message: str) -> DivergedError:
        """Return the error of a model whose loss became NaN or infinite, laid at the right door."""
        large = f"(up to {self.largest:.3g} in size)"
        told = {
            "loss": f"the logits were finite {large}, so the loss of estimator {name} gave it: lower --lr if they are "
            "large, else look at the loss",
            "gradient": f"a step before, the gradient of the loss of estimator {name} was not finite at finite logits "
            f"{large}: look at what the loss does there",
            "network": "the network's logits were not finite, after a finite loss with a finite gradient: lower --lr, "
            "or choose a bounded loss",
        }
        error = DivergedError(f"{message}: {told[self.kind]}")
        mark(error, "backbone" if self.kind == "network" else "estimator")
        return error


class Watch:
    """Remembers the last batches of a loop, and finds out where a model's first loss that is not finite came from."""

    def __init__(self, single: Callable[..., Single]) -> None:
        self._single = single
        self.origins: dict[int, Origin] = {}
        """What was found, by the model's place in a stack."""
        self._recent: deque[tuple[Tensor, Tensor, State, State] | None] = deque(maxlen=EVERY + 1)

    def see(self, logits: Tensor, mask: Tensor, state: State, common: State) -> None:
        """Remember a batch."""
        self._recent.append((logits.detach(), mask, state, common))

    def see_nothing(self) -> None:
        """Remember that this process had no part in a step."""
        self._recent.append(None)

    def look(self, losses: Sequence[Tensor]) -> None:
        """Look at the last of a pass's losses; where it is not finite, find the first that was not."""
        if bool(torch.isfinite(losses[-1]).all()):
            return
        recent = list(self._recent)
        known = min(len(recent), len(losses))
        finite = torch.isfinite(torch.stack(list(losses[-known:]))).view(known, -1)
        for place in (~finite.all(0)).nonzero().flatten().tolist():
            if place in self.origins:
                continue
            first = int((~finite[:, place]).nonzero()[0])
            at = len(recent) - known + first
            origin = self._origin(recent, at, place, len(losses) - known + first)
            if origin is not None:
                self.origins[place] = origin

    def _origin(
        self, recent: list[tuple[Tensor, Tensor, State, State] | None], at: int, place: int, step: int
    ) -> Origin | None:
        seen = recent[at]
        if seen is None:
            return None
        logits = self._single(place, *seen).logits
        if bool(torch.isfinite(logits).all()):
            return Origin(kind="loss", step=step, largest=_largest(logits))
        before = recent[at - 1] if at else None
        if before is not None:
            single = self._single(place, *before)
            if bool(torch.isfinite(single.logits).all()) and not _finite_gradient(single):
                return Origin(kind="gradient", step=step, largest=_largest(single.logits))
        return Origin(kind="network", step=step, largest=float("nan"))


def earliest(origins: Sequence[Origin]) -> Origin | None:
    """Return what was found first; of one step, the loss before its gradient and the network."""
    return min(origins, key=lambda each: (each.step, KINDS.index(each.kind)), default=None)


def _largest(logits: Tensor) -> float:
    return float(logits.abs().max()) if logits.numel() else 0.0


def _finite_gradient(single: Single) -> bool:
    """Return whether the gradient by the logits is finite; state is as it is now, which an update may have changed."""
    leaf = single.logits.detach().clone().requires_grad_()
    with torch.enable_grad():
        objective = single.estimator.objective(leaf, single.mask, {**single.shared, **single.state})
        if not objective.requires_grad:
            return True
        (gradient,) = torch.autograd.grad(objective, leaf, allow_unused=True)
    return gradient is None or bool(torch.isfinite(gradient).all())
