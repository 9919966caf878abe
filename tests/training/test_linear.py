"""Linear models of few classes compute their logits class by class: the same numbers, in another order."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from wsl_toolkit.training.linear import FEW_CLASSES, WIDE, is_linear_model, turned_forward
from wsl_toolkit.training.plan import ExecutionPlan


def linear(width: int = 784, classes: int = 10, bias: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(width, classes, bias=bias))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(256, 784), (1, 784), (0, 784), (30, 1, 28, 28)])
def test_a_turned_pass_gives_the_logits_and_gradients_of_the_network(shape: tuple[int, ...], bias: bool) -> None:
    network = linear(bias=bias).double()
    inputs = torch.rand(shape, dtype=torch.float64)
    forward = turned_forward(network)
    assert forward is not None
    found = []
    for each in (network, forward):
        logits = each(inputs)
        gradients = torch.autograd.grad(torch.log_softmax(logits, 1)[:, 0].sum(), list(network.parameters()))
        found.append((logits, *gradients))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_logits_lie_class_by_class_so_that_softmaxes_need_no_copy() -> None:
    logits = ExecutionPlan().prepare(linear())(torch.rand(256, 784))
    assert logits.shape == (256, 10)
    assert logits.t().is_contiguous()


def test_weights_that_are_changed_in_place_or_replaced_are_the_ones_that_count() -> None:
    network = linear()
    forward = turned_forward(network)
    assert forward is not None
    with torch.no_grad():
        network[1].weight.zero_()
    network[1].bias.data = torch.arange(10.0)
    assert torch.equal(forward(torch.rand(4, 784)), torch.arange(10.0).expand(4, -1))


def test_hooks_that_come_later_see_what_passes() -> None:
    network, seen = linear(), []
    forward = turned_forward(network)
    assert forward is not None

    def see(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        seen.append(output)

    handle = network[1].register_forward_hook(see)
    forward(torch.rand(4, 784))
    handle.remove()
    forward(torch.rand(4, 784))
    assert len(seen) == 1


def test_only_wide_linear_models_of_few_classes_are_turned() -> None:
    assert turned_forward(linear(WIDE - 1)) is None
    assert turned_forward(linear(classes=FEW_CLASSES)) is None
    assert turned_forward(nn.Sequential(nn.Linear(784, 300), nn.Linear(300, 10))) is None
    assert not is_linear_model(nn.Linear(784, 10))
