"""Each check of the contracts of transforms, metrics, optimisers, schedules and callbacks is shown to fail."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path
from typing import Any, ClassVar, Literal

import attrs
import pytest
import torch
from contract_cases import variant
from torch import Tensor

from wsl_toolkit import Callback, CandidateSets, Metric, Optimizer, Scheduler, Transform
from wsl_toolkit.testing import (
    CallbackContract,
    MetricContract,
    OptimizerContract,
    SchedulerContract,
    TransformContract,
)
from wsl_toolkit.testing.common import ComponentContract


@attrs.frozen(kw_only=True)
class Mass(Metric):
    """Probability of the candidates."""

    name: ClassVar[str] = "mass"
    label: ClassVar[str] = "mass"
    reads: ClassVar[Literal["candidates", "clean labels"]] = "candidates"
    better: ClassVar[Literal["higher", "lower"]] = "higher"

    def compute(self, part: Any) -> Any:
        return (part.known.softmax(1) * part.sets).sum(1).mean()


METRICS: list[Any] = [
    (
        {"scale": "risk", "compute": lambda self, part: part.logits.exp().mean()},
        "test_it_is_a_finite_number",
        "it is inf",
    ),
    ({"compute": lambda self, part: part.logits.abs().mean() + 2}, "test_it_is_a_finite_number", "which is no share"),
    ({"compute": lambda self, part: None}, "test_it_is_a_finite_number", "it has no value"),
    (
        {"compute": lambda self, part: part.logits.softmax(1)[0, 0]},
        "test_the_order_of_examples_does_not_matter",
        "in another order",
    ),
    (
        {"reads": "clean labels"},
        "test_without_clean_labels_it_has_no_value_if_it_reads_them",
        "where no label is known: return None",
    ),
    (
        {"compute": lambda self, part: part.logits.mul_(2).softmax(1).mean()},
        "test_arguments_and_global_randomness_are_left_alone",
        "writes into the logits",
    ),
    (
        {"compute": lambda self, part: torch.rand(())},
        "test_arguments_and_global_randomness_are_left_alone",
        "torch's global random generator",
    ),
]


@attrs.frozen(kw_only=True)
class Same(Transform):
    """The sets as they are."""

    name: ClassVar[str] = "same"

    def apply(self, x: Tensor, candidates: CandidateSets, rng: torch.Generator) -> CandidateSets:
        return candidates


def first_singleton(mask: Tensor) -> Tensor:
    """Write into a mask: the first set is the first class alone."""
    mask[0] = False
    mask[0, 0] = True
    return mask


TRANSFORMS: list[Any] = [
    ({"apply": lambda self, x, s, rng: s.mask()}, "test_every_example_has_a_set_of_the_same_classes", "not CandidateS"),
    (
        {"apply": lambda self, x, s, rng: s.take(torch.arange(3))},
        "test_every_example_has_a_set_of_the_same_classes",
        "became 3 of 5",
    ),
    (
        {"apply": lambda self, x, s, rng: CandidateSets.from_labels(torch.randint(5, (len(s),)), 5)},
        "test_the_stream_rules_what_is_random",
        "torch's global random generator",
    ),
    ({"apply": lambda self, x, s, rng: (x.add_(1), s)[1]}, "test_arguments_are_left_alone", "writes into the inputs"),
]


@attrs.frozen(kw_only=True)
class Steps(Optimizer):
    """Gradient descent."""

    name: ClassVar[str] = "steps"

    def make(self, parameters: Any, lr: float, weight_decay: float, momentum: float) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=lr, momentum=momentum)


class Forgets(torch.optim.SGD):
    """Leaves its momentum out of its state."""

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "state": {}}


OPTIMIZERS: list[Any] = [
    (
        {"make": lambda self, p, lr, wd, m: torch.optim.SGD(p, lr=lr, maximize=True)},
        "test_it_descends",
        "lead from a l",
    ),
    (
        {"make": lambda self, p, lr, wd, m: torch.optim.SGD(p, lr=2 * lr)},
        "test_the_learning_rate_is_where_schedules_look",
        "does not hold the learning rate",
    ),
    (
        {"make": lambda self, p, lr, wd, m: Forgets(p, lr=lr, momentum=m)},
        "test_it_goes_on_from_its_state_to_the_same_bits",
        "otherwise after its state",
    ),
]


@attrs.frozen(kw_only=True)
class Halves(Scheduler):
    """Half the rate, epoch by epoch."""

    name: ClassVar[str] = "halves"

    def make(self, optimizer: torch.optim.Optimizer, epochs: int) -> Any:
        return torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)


class Unsaved(torch.optim.lr_scheduler.ExponentialLR):
    """Loads nothing."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.gamma = 0.9


SCHEDULERS: list[Any] = [
    (
        {"make": lambda self, o, epochs: torch.optim.lr_scheduler.LambdaLR(o, lambda e: 1 - e / 2)},
        "test_rates_are_finite_and_not_negative",
        "the rate is -0.05 in epoch 4 of 10",
    ),
    (
        {"make": lambda self, o, epochs: Unsaved(o, gamma=0.5)},
        "test_it_goes_on_from_its_state_to_the_same_rates",
        "the rates are others",
    ),
]


@attrs.define(kw_only=True, eq=False, slots=False)
class Listens(Callback):
    """Counts epochs."""

    name: ClassVar[str] = "listens"
    _seen: int = attrs.field(default=0, init=False)

    def on_epoch_end(self, record: Any) -> None:
        self._seen += 1
        record.log("listens/seen", self._seen)

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self._seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._seen = state["seen"]


def disturb(self: Any, about: Any) -> None:
    """Move the model that is trained."""
    with torch.no_grad():
        for parameter in about.model.parameters():
            parameter.add_(1)


COUNT = itertools.count()

CALLBACKS: list[Any] = [
    ({"on_train_start": disturb}, "test_training_is_not_disturbed", "it may look at the model, and no more"),
    (
        {"on_epoch_end": lambda self, record: record.log("n", next(COUNT))},
        "test_it_logs_the_same_every_time",
        "different records",
    ),
    ({"load_state_dict": lambda self, state: None}, "test_a_resumed_training_has_the_same_record", "after a resume"),
]


CONTRACTS: list[tuple[type, type, list[Any]]] = [
    (TransformContract, Same, TRANSFORMS),
    (MetricContract, Mass, METRICS),
    (OptimizerContract, Steps, OPTIMIZERS),
    (SchedulerContract, Halves, SCHEDULERS),
    (CallbackContract, Listens, CALLBACKS),
]


def checks(contract: type) -> list[str]:
    return [name for name in dir(contract) if name.startswith("test_")]


def run(contract: type, component: Any, name: str, tmp_path: Path) -> None:
    check = getattr(contract(), name)
    wanted = check.__code__.co_varnames[2 : check.__code__.co_argcount]
    check(component, **dict.fromkeys(wanted, tmp_path))


@pytest.mark.parametrize(
    ("contract", "sound", "attributes", "check", "reason"),
    [(contract, sound, *case) for contract, sound, cases in CONTRACTS for case in cases],
)
def test_a_component_that_breaks_its_contract_is_caught(
    contract: type, sound: type, attributes: dict[str, Any], check: str, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(AssertionError) as caught:
        run(contract, variant(sound, **attributes), check, tmp_path)
    assert reason in str(caught.value)


@pytest.mark.parametrize(("contract", "sound"), [each[:2] for each in CONTRACTS])
def test_sound_components_pass_every_check(contract: type, sound: type, tmp_path: Path) -> None:
    for number, name in enumerate(checks(contract)):
        with contextlib.suppress(pytest.skip.Exception):  # it does not apply to this one
            run(contract, sound(), name, tmp_path / str(number))


@pytest.mark.parametrize(("contract", "cases"), [(contract, cases) for contract, _, cases in CONTRACTS])
def test_every_check_is_shown_to_fail(contract: type, cases: list[Any]) -> None:
    assert not set(checks(contract)) - {check for _, check, _ in cases} - set(checks(ComponentContract))
