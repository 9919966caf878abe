"""The contract of an optimiser: it descends, goes on from its state, and has its rate where schedules look."""

from __future__ import annotations

import copy
from typing import ClassVar

import torch
from torch import Tensor, nn

from wsl_toolkit.components import Optimizer
from wsl_toolkit.system.random_streams import seed_torch
from wsl_toolkit.testing.common import ComponentContract, stream


class OptimizerContract(ComponentContract):
    """Give `component`; give `lr` if 0.05 is not a rate at which it descends."""

    lr: ClassVar[float] = 0.05
    steps: ClassVar[int] = 60

    def test_it_descends(self, component: Optimizer) -> None:
        """On a regression with four parameters."""
        model, optimizer = self._made(component)
        before = float(_loss(model).detach())
        for _ in range(self.steps):
            _step(model, optimizer)
        after = float(_loss(model).detach())
        assert after < 0.5 * before, (
            f"{self.steps} steps at lr {self.lr} lead from a loss of {before:.3g} to {after:.3g}"
        )

    def test_the_learning_rate_is_where_schedules_look(self, component: Optimizer) -> None:
        """In `param_groups`, so that a learning rate of zero changes nothing."""
        model, optimizer = self._made(component)
        assert isinstance(optimizer, torch.optim.Optimizer), (
            f"make returned {type(optimizer).__name__}, not a torch.optim.Optimizer"
        )
        assert optimizer.param_groups[0]["lr"] == self.lr, "param_groups does not hold the learning rate"
        for group in optimizer.param_groups:
            group["lr"] = 0.0
        kept = model.weight.detach().clone()
        _step(model, optimizer)
        assert torch.equal(model.weight, kept), "a learning rate of zero moves the parameters"

    def test_it_goes_on_from_its_state_to_the_same_bits(self, component: Optimizer) -> None:
        """As a resumed run does."""
        model, optimizer = self._made(component)
        for _ in range(3):
            _step(model, optimizer)
        again, other = self._made(component)
        again.load_state_dict(model.state_dict())
        other.load_state_dict(copy.deepcopy(optimizer.state_dict()))  # as from a file: torch shares what it loads
        for _ in range(3):
            _step(model, optimizer)
            _step(again, other)
        assert torch.equal(model.weight, again.weight), "it steps otherwise after its state was saved and loaded"

    def _made(self, component: Optimizer) -> tuple[nn.Linear, torch.optim.Optimizer]:
        with torch.random.fork_rng(devices=[]):
            seed_torch(1)
            model = nn.Linear(3, 1)
        return model, component.make(list(model.parameters()), self.lr, 0.0, 0.9)


def _loss(model: nn.Module) -> Tensor:
    x = torch.randn(32, 3, generator=stream(2))
    loss: Tensor = (model(x).squeeze(1) - (x @ torch.tensor([1.0, -2.0, 0.5]) + 1)).square().mean()
    return loss


def _step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for parameter in model.parameters():
        parameter.grad = None
    torch.autograd.backward(_loss(model))
    optimizer.step()
