"""Learning-rate schedules by name, stepped after each epoch, or each batch, and spread over the whole run.

A schedule is a frozen class of `param()` fields, which become `--scheduler-<field>` and keys of a `[scheduler]` table.
Those below are the toolkit's own; plugins register more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from wsl_toolkit.components import Scheduler
from wsl_toolkit.errors import ConfigError, PluginError, did_you_mean
from wsl_toolkit.parameters import construct, param
from wsl_toolkit.plugins.attribution import attributed
from wsl_toolkit.plugins.loading import load_plugins

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler


@attrs.frozen(kw_only=True)
class Constant(Scheduler):
    """A constant learning rate."""

    name: ClassVar[str] = "none"

    def make(self, optimizer: Optimizer, epochs: int) -> LRScheduler | None:
        """Return torch's schedule for a run of so many epochs; None for a constant learning rate."""
        return None


@attrs.frozen(kw_only=True)
class Cosine(Scheduler):
    """Half a cosine from the learning rate down to a share of it (Loshchilov and Hutter 2017, without restarts)."""

    name: ClassVar[str] = "cosine"
    final: float = param(0.0, help="the last learning rate as a share of the first", ge=0, le=1)

    def make(self, optimizer: Optimizer, epochs: int) -> LRScheduler | None:
        """Return CosineAnnealingLR."""
        from torch.optim.lr_scheduler import CosineAnnealingLR

        return CosineAnnealingLR(optimizer, T_max=epochs, eta_min=self.final * optimizer.param_groups[0]["lr"])


@attrs.frozen(kw_only=True)
class Linear(Scheduler):
    """A straight line from the learning rate down to a share of it."""

    name: ClassVar[str] = "linear"
    final: float = param(0.0, help="the last learning rate as a share of the first", ge=0, le=1)

    def make(self, optimizer: Optimizer, epochs: int) -> LRScheduler | None:
        """Return LinearLR."""
        from torch.optim.lr_scheduler import LinearLR

        return LinearLR(optimizer, start_factor=1.0, end_factor=self.final, total_iters=epochs)


@attrs.frozen(kw_only=True)
class Step(Scheduler):
    """A factor at each milestone: by default a tenth at 1/2 and again at 3/4 of the run (He et al. 2016)."""

    name: ClassVar[str] = "step"
    gamma: float = param(0.1, help="the factor at each milestone", gt=0, le=1)
    milestones: tuple[float, ...] = param((0.5, 0.75), help="where, as shares of the run", gt=0, lt=1)

    def make(self, optimizer: Optimizer, epochs: int) -> LRScheduler | None:
        """Return MultiStepLR."""
        from torch.optim.lr_scheduler import MultiStepLR

        places = [max(number, int(share * epochs)) for number, share in enumerate(sorted(self.milestones), start=1)]
        return MultiStepLR(optimizer, milestones=places, gamma=self.gamma)


@attrs.frozen(kw_only=True)
class Exponential(Scheduler):
    """The same factor every epoch: by default the one that leaves a hundredth at the end."""

    name: ClassVar[str] = "exponential"
    gamma: float | None = param(None, help="the factor of each epoch; by default 0.01^(1/epochs)", gt=0, le=1)

    def make(self, optimizer: Optimizer, epochs: int) -> LRScheduler | None:
        """Return ExponentialLR."""
        from torch.optim.lr_scheduler import ExponentialLR

        return ExponentialLR(optimizer, gamma=0.01 ** (1 / epochs) if self.gamma is None else self.gamma)


@attrs.frozen(kw_only=True)
class OneCycle(Scheduler):
    """Up to the learning rate, then down to almost nothing, along cosines (Smith and Topin 2018).

    Stepped after each batch, with momentum that is cycled, it is torch's OneCycleLR as most codes use it.
    """

    name: ClassVar[str] = "one-cycle"
    rise: float = param(0.3, help="the share of the run in which the learning rate rises", gt=0, lt=1)
    start: float = param(0.04, help="the first learning rate as a share of the highest", gt=0, le=1)
    final: float = param(4e-6, help="the last learning rate as a share of the highest", gt=0, le=1)
    every: str = param("epoch", help="after what it is stepped", choices=("epoch", "step"))
    momentum: str = param(
        "kept",
        help="whether the momentum (Adam's first beta) stays, or goes from 0.95 to 0.85 and back as the rate rises",
        choices=("kept", "cycled"),
    )

    def by_step(self) -> bool:
        """Return whether it is stepped after each batch."""
        return self.every == "step"

    def make(self, optimizer: Optimizer, epochs: int) -> LRScheduler | None:
        """Return OneCycleLR."""
        from torch.optim.lr_scheduler import OneCycleLR

        cycled = self.momentum == "cycled"
        if cycled and not {"momentum", "betas"} & optimizer.defaults.keys():
            name = type(optimizer).__name__.lower()
            raise ConfigError(f"one-cycle: optimiser {name} has no momentum to cycle: leave momentum = cycled out")
        return OneCycleLR(
            optimizer,
            max_lr=[group["lr"] for group in optimizer.param_groups],
            # The last step has the last rate. Of epochs, which are few, the one behind the last has it.
            total_steps=epochs if self.by_step() else epochs + 1,
            pct_start=self.rise,
            div_factor=1 / self.start,
            final_div_factor=self.start / self.final,
            cycle_momentum=cycled,
        )


SCHEDULES: dict[str, type[Scheduler]] = {
    cls.name: cls for cls in (Constant, Cosine, Linear, Step, Exponential, OneCycle)
}
"""The toolkit's own schedules by their names, which plugins cannot take."""


def schedule_class(name: str) -> type[Scheduler]:
    """Return the schedule of a name."""
    if name in SCHEDULES:
        return SCHEDULES[name]
    registry = load_plugins().registry
    others = registry.names("scheduler")
    if name not in others:
        known = [*SCHEDULES, *others]
        hint = did_you_mean(name, known) or f" Known: {', '.join(known)}."
        raise ConfigError(f"no learning-rate schedule is named {name!r}.{hint}")
    cls: type[Scheduler] = registry.get("scheduler", name)
    return cls


def make_scheduler(
    name: str | None,
    optimizer: Optimizer,
    epochs: int,
    options: dict[str, Any] | None = None,
    warmup_epochs: int = 0,
) -> LRScheduler | None:
    """Return a schedule to step after each of `epochs` epochs, or None for a constant learning rate.

    With a warm-up the learning rate first rises in equal steps, from 1/(w + 1) of itself in the first epoch to all of
    it after w epochs; the schedule is then spread over the epochs that are left.
    """
    schedule = construct(schedule_class(name or "none"), options or {}, f"scheduler {name}")
    if warmup_epochs == 0:
        return _made(schedule, optimizer, epochs)
    if warmup_epochs >= epochs:
        raise ConfigError(f"--warmup-epochs {warmup_epochs} leaves none of {epochs} epochs to train")
    from torch.optim.lr_scheduler import ConstantLR, LinearLR, SequentialLR

    first = 1 / (warmup_epochs + 1)
    after = _made(schedule, optimizer, epochs - warmup_epochs) or ConstantLR(optimizer, factor=1.0)
    rise = LinearLR(optimizer, start_factor=first, end_factor=1.0, total_iters=warmup_epochs)
    return SequentialLR(optimizer, [rise, after], milestones=[warmup_epochs])


def _made(schedule: Scheduler, optimizer: Optimizer, epochs: int) -> LRScheduler | None:
    """Return torch's schedule; a plugin that fails, or makes something else, is named."""
    if schedule.name in SCHEDULES:
        return schedule.make(optimizer, epochs)
    from torch.optim.lr_scheduler import LRScheduler

    with attributed(load_plugins().registry, "scheduler", schedule.name):
        made = schedule.make(optimizer, epochs)
        if made is not None and not isinstance(made, LRScheduler):
            raise PluginError(
                f"scheduler {schedule.name}: make must return torch's LRScheduler, not {type(made).__name__}"
            )
        return made
