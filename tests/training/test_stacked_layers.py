"""Perceptrons are stacked layer by layer: the numbers of torch.vmap, and of each model alone."""

from __future__ import annotations

import copy

import pytest
import torch
from small_problems import MakeTrainer
from torch import Tensor, nn

from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.training.engine import frozen_running_statistics, running_norms
from wsl_toolkit.training.stacking import Stack
from wsl_toolkit.training.stacking.layers import plain_layers
from wsl_toolkit.training.stacking.network import StackedNetwork

MEMBERS = 3


def perceptrons(norm: str = "before", widths: tuple[int, ...] = (7, 5)) -> list[nn.Module]:
    mlp = load_plugins().registry.create("backbone", "mlp", {"widths": widths, "norm": norm})
    made = []
    for seed in range(MEMBERS):
        torch.manual_seed(seed)
        network = mlp.build((2, 3), 4)
        for module in network.modules():
            if isinstance(module, nn.BatchNorm1d):
                nn.init.normal_(module.weight)
                nn.init.normal_(module.bias)
        made.append(network.double())
    return made


def weights_and_statistics(network: StackedNetwork) -> list[Tensor]:
    return [*network.stacked_parameters().values(), *network._stacked_buffers.values()]


def gradients(network: StackedNetwork, logits: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(logits.sin().sum(), list(network.stacked_parameters().values()))


@pytest.mark.parametrize("own_inputs", [False, True])
@pytest.mark.parametrize(("norm", "widths"), [("before", (7, 5)), ("after", (6,)), ("before", ())])
@pytest.mark.parametrize("mode", ["training", "frozen", "evaluation"])
def test_layer_by_layer_is_what_vmap_and_each_model_alone_compute(
    norm: str, widths: tuple[int, ...], own_inputs: bool, mode: str
) -> None:
    members = perceptrons(norm, widths)
    alone = copy.deepcopy(members)
    by_layer, mapped = (StackedNetwork(copy.deepcopy(members), own_inputs=own_inputs) for _ in range(2))
    mapped._layers = None
    if widths:
        assert by_layer._layers is not None
    rng = torch.Generator().manual_seed(5)
    for _ in range(2):  # the running statistics of the first pass matter in the second
        shape = (9, MEMBERS, 2, 3) if own_inputs else (9, 2, 3)
        x = torch.randn(shape, generator=rng, dtype=torch.float64)
        found = []
        for network in (by_layer, mapped, *alone):
            network.train(mode != "evaluation")
            with frozen_running_statistics(running_norms(network) if mode == "frozen" else []):
                place = alone.index(network) if network in alone else 0
                found.append(network(x[:, place] if own_inputs and network in alone else x))
        torch.testing.assert_close(found[0], found[1])
        torch.testing.assert_close(found[0], torch.stack(found[2:], dim=1))
        for one, other in zip(gradients(by_layer, found[0]), gradients(mapped, found[1]), strict=True):
            torch.testing.assert_close(one, other)
        for one, other in zip(weights_and_statistics(by_layer), weights_and_statistics(mapped), strict=True):
            torch.testing.assert_close(one, other)
    moved = [buffer for name, buffer in by_layer._stacked_buffers.items() if name.endswith("num_batches_tracked")]
    assert all(bool((count == (2 if mode == "training" else 0)).all()) for count in moved)


def test_what_is_no_plain_perceptron_is_left_to_vmap() -> None:
    usual = nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 4))
    assert plain_layers(usual) is not None
    others = [
        nn.Linear(6, 4),
        nn.Sequential(),
        nn.Sequential(nn.Linear(6, 4)),
        nn.Sequential(nn.Flatten(2), nn.Linear(6, 4)),
        nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.Dropout(0.5), nn.Linear(5, 4)),
        nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.BatchNorm1d(5, momentum=None)),
        nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.BatchNorm1d(5, affine=False)),
        nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(6, 5))),
        nn.Sequential(nn.Flatten(), nn.utils.parametrizations.weight_norm(nn.Linear(6, 5))),
    ]
    assert [plain_layers(each) for each in others] == [None] * len(others)
    usual[1].register_forward_hook(lambda *_: None)
    assert plain_layers(usual) is None


def test_a_stack_of_perceptrons_that_keep_no_statistics_normalises_each_batch() -> None:
    def members() -> list[nn.Module]:
        made = []
        for seed in range(MEMBERS):
            torch.manual_seed(seed)
            norm = nn.BatchNorm1d(5, track_running_stats=False)
            made.append(nn.Sequential(nn.Flatten(), nn.Linear(6, 5), norm, nn.ReLU(), nn.Linear(5, 4)))
        return made

    stacked = StackedNetwork(members(), own_inputs=False).eval()
    assert stacked._layers is not None
    x = torch.randn(8, 6)
    alone = torch.stack([network.eval()(x) for network in members()], dim=1)
    torch.testing.assert_close(stacked(x), alone)


def test_inputs_that_all_share_may_be_normalised_before_the_first_layer() -> None:
    def members() -> list[nn.Module]:
        made = []
        for seed in range(MEMBERS):
            torch.manual_seed(seed)
            made.append(nn.Sequential(nn.Flatten(), nn.BatchNorm1d(6), nn.Linear(6, 4)))
            nn.init.normal_(made[-1][1].weight)
        return made

    stacked, x = StackedNetwork(members(), own_inputs=False), torch.randn(8, 6)
    assert stacked._layers is not None
    torch.testing.assert_close(stacked(x), torch.stack([network(x) for network in members()], dim=1))


def test_perceptrons_in_training_are_stacked_layer_by_layer(make_trainer: MakeTrainer) -> None:
    stack = Stack([make_trainer(kind="mlp", lr=lr) for lr in (0.1, 0.01)])
    assert stack.network._layers is not None
