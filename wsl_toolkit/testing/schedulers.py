"""The contract of a learning-rate schedule: sound rates for a run of any length, and the same ones after a resume."""

from __future__ import annotations

import math
import warnings

import torch
from torch.optim.lr_scheduler import LRScheduler

from wsl_toolkit.components import Scheduler
from wsl_toolkit.testing.common import ComponentContract, not_applicable


class SchedulerContract(ComponentContract):
    """Give `component`."""

    def test_rates_are_finite_and_not_negative(self, component: Scheduler) -> None:
        """In runs of 1, 2, 10 and 100 epochs."""
        for epochs in (1, 2, 10, 100):
            for epoch, rate in enumerate(_rates(component, epochs)):
                assert math.isfinite(rate), f"the rate is {rate} in epoch {epoch + 1} of {epochs}"
                assert rate >= 0, f"the rate is {rate:g} in epoch {epoch + 1} of {epochs}"

    def test_it_goes_on_from_its_state_to_the_same_rates(self, component: Scheduler) -> None:
        """As a resumed run does."""
        whole = _rates(component, 10)
        optimizer, schedule = _made(component, 10)
        if schedule is None:
            not_applicable("it is constant")
        _steps(optimizer, schedule, 4)
        other, again = _made(component, 10)
        assert again is not None
        other.load_state_dict(optimizer.state_dict())
        again.load_state_dict(schedule.state_dict())
        assert _steps(other, again, 6) == whole[4:], "after its state was saved and loaded the rates are others"


def _made(component: Scheduler, epochs: int) -> tuple[torch.optim.Optimizer, LRScheduler | None]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    schedule = component.make(optimizer, epochs)
    assert schedule is None or isinstance(schedule, LRScheduler), (
        f"make returned {type(schedule).__name__}, not torch's LRScheduler"
    )
    return optimizer, schedule


def _rates(component: Scheduler, epochs: int) -> list[float]:
    return _steps(*_made(component, epochs), epochs)


def _steps(optimizer: torch.optim.Optimizer, schedule: LRScheduler | None, epochs: int) -> list[float]:
    rates = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(epochs):
            rates.append(float(optimizer.param_groups[0]["lr"]))
            optimizer.step()
            if schedule is not None:
                schedule.step()
    return rates
