"""The contract of a backbone: the right shape, every parameter trained, nothing random that the seed does not rule."""

from __future__ import annotations

import copy
from typing import ClassVar

import torch
from torch import Tensor, nn

from wsl_toolkit.components import Backbone
from wsl_toolkit.system.random_streams import seed_torch
from wsl_toolkit.testing.common import ComponentContract, not_finite, stream


class BackboneContract(ComponentContract):
    """Give `component`; give `input_shapes` if it does not take small images."""

    input_shapes: ClassVar[tuple[tuple[int, ...], ...]] = ((3, 32, 32),)
    num_classes: ClassVar[int] = 5

    def test_inputs_become_one_logit_a_class(self, component: Backbone) -> None:
        """In training and in evaluation, float32, finite."""
        for shape in self.input_shapes:
            for num_classes in (2, self.num_classes):
                network = _built(component, shape, num_classes)
                for mode in (True, False):
                    logits = network.train(mode)(_inputs(shape))
                    assert logits.shape == (4, num_classes), (
                        f"4 inputs of shape {shape} gave {tuple(logits.shape)}, not (4, {num_classes})"
                    )
                    assert logits.dtype == torch.float32, f"logits are {logits.dtype}"
                    assert not (bad := not_finite(logits)), f"logits are {bad}"

    def test_the_seed_rules_the_initialisation(self, component: Backbone) -> None:
        """The engine seeds it: the same seed gives the same network, another seed another."""
        shape = self.input_shapes[0]
        first, again, other = (_built(component, shape, self.num_classes, seed) for seed in (1, 1, 2))
        assert _same(first, again), "the same seed gave two different networks"
        assert not _same(first, other), "another seed gave the same network: leave torch's seed alone"

    def test_every_parameter_gets_a_gradient(self, component: Backbone) -> None:
        """One that does not is never trained."""
        network = _built(component, self.input_shapes[0], self.num_classes)
        weights = torch.randn(4, self.num_classes, generator=stream(3))
        (network(_inputs(self.input_shapes[0])) * weights).sum().backward()
        for name, parameter in network.named_parameters():
            assert not parameter.requires_grad or parameter.grad is not None, f"parameter {name} gets no gradient"

    def test_an_input_is_judged_alone_in_evaluation(self, component: Backbone) -> None:
        """Its logits depend neither on its neighbours nor on chance."""
        network = _built(component, self.input_shapes[0], self.num_classes).eval()
        inputs = _inputs(self.input_shapes[0])
        with torch.inference_mode():
            together = network(inputs)
            alone = torch.cat([network(each) for each in inputs.split(1)])
        torch.testing.assert_close(together, alone, rtol=1e-3, atol=1e-4, msg=lambda m: f"batches matter: {m}")

    def test_inputs_are_left_alone(self, component: Backbone) -> None:
        """They are used again in the next epoch."""
        network = _built(component, self.input_shapes[0], self.num_classes)
        inputs = _inputs(self.input_shapes[0])
        kept = inputs.clone()
        network(inputs)
        assert torch.equal(inputs, kept), "the network writes into its inputs"

    def test_weights_survive_a_checkpoint_and_a_copy(self, component: Backbone) -> None:
        """A fresh network with loaded weights predicts the same."""
        shape = self.input_shapes[0]
        network = _built(component, shape, self.num_classes, seed=1)
        network(_inputs(shape))  # so that running statistics have moved
        fresh = _built(component, shape, self.num_classes, seed=2)
        fresh.load_state_dict(copy.deepcopy(network).state_dict())
        inputs = _inputs(shape)
        assert torch.equal(network.eval()(inputs), fresh.eval()(inputs)), "loaded weights predict something else"


def _built(component: Backbone, shape: tuple[int, ...], num_classes: int, seed: int = 0) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        seed_torch(seed)
        network = component.build(shape, num_classes)
    assert isinstance(network, nn.Module), f"build returned {type(network).__name__}, not a torch.nn.Module"
    return network


def _inputs(shape: tuple[int, ...]) -> Tensor:
    return torch.randn(4, *shape, generator=stream(4))


def _same(first: nn.Module, second: nn.Module) -> bool:
    pairs = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    return all(torch.equal(one, other) for one, other in pairs)
