"""Train many trainers in the fastest way that gives each its own trajectory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from wsl_toolkit.errors import ConfigError, DivergedError
from wsl_toolkit.training.engine import Trainer
from wsl_toolkit.training.stacking.grouping import Group, by_order, group
from wsl_toolkit.training.stacking.trainer import Outcome, Stack


def train_stacked(
    trainers: Sequence[Trainer],
    until: int,
    *,
    groups: Sequence[Group] | None = None,
    say: Callable[[str], None] = lambda note: None,
) -> Iterator[list[Outcome]]:
    """Train all up to and including epoch `until`; yield for each epoch what it came to for every trainer.

    What can be stacked is, and the rest trains one by one, `say`ing why. A model that diverges gives its error from
    then on, and the others go on. Between epochs every trainer is complete: it can be saved, or its model used.
    """
    if len({trainer.epoch for trainer in trainers}) > 1:
        raise ConfigError("trainers that take turns must have the same number of epochs behind them")
    groups = group(trainers) if groups is None else groups
    for reason in dict.fromkeys(each.alone_because for each in groups if each.alone_because):
        count = sum(each.alone_because == reason for each in groups)
        say(f"{count} of {len(trainers)} models train one by one: {reason}")
    members = [places for each in groups for places in by_order(trainers, each.places)]
    teams = [_Team([trainers[place] for place in places]) for places in members]
    for _ in range(trainers[0].epoch, until):
        outcomes: dict[int, Outcome] = {}
        for places, team in zip(members, teams, strict=True):
            outcomes |= zip(places, team.train_epoch(), strict=True)
        yield [outcomes[place] for place in range(len(trainers))]


class _Team:
    """A stack, or a single trainer, that remembers who has diverged."""

    def __init__(self, trainers: Sequence[Trainer]) -> None:
        self.trainers = trainers
        self._stack = Stack(trainers) if len(trainers) > 1 else None
        self._diverged: dict[int, DivergedError] = {}

    def train_epoch(self) -> list[Outcome]:
        """Train everybody who has not diverged one epoch further."""
        if len(self._diverged) == len(self.trainers):
            return [self._diverged[place] for place in range(len(self.trainers))]
        outcomes = self._stack.train_epoch() if self._stack is not None else [_train_alone(self.trainers[0])]
        for place, outcome in enumerate(outcomes):
            if isinstance(outcome, DivergedError):
                self._diverged.setdefault(place, outcome)
        return [self._diverged.get(place, outcome) for place, outcome in enumerate(outcomes)]


def _train_alone(trainer: Trainer) -> Outcome:
    try:
        return next(trainer.epochs(trainer.epoch + 1))
    except DivergedError as error:
        return error
