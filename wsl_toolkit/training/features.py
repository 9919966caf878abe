"""A frozen network: built once, cut before its last layer, run over all inputs in batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from wsl_toolkit.components import Backbone
from wsl_toolkit.data.dataset import Data
from wsl_toolkit.data.embedding import Extractor, fitted_to_all
from wsl_toolkit.errors import PluginError
from wsl_toolkit.networks import classifier, fill, logits_and_features
from wsl_toolkit.system.random_streams import stream_seed
from wsl_toolkit.training.build import build_network, start_network

Tell = Callable[[int, int], None]
"""Called with how many examples are done, of how many."""

SEED = stream_seed(0, "frozen network")
"""Weights that come from no file are the same for every trial, or each would have features of its own."""
BATCH_CELLS = 2**20
"""A batch has about this many numbers: more do not make a network faster, and its layers need several times as much."""


def make_extractor(backbone: Backbone, data: Data, weights: Mapping[str, Tensor] | None = None) -> Extractor:
    """Return what turns the data's inputs into what a backbone's last linear layer sees."""
    transform = fitted_to_all(data)
    with torch.no_grad():
        example = transform(data.x[:2])
    with torch.random.fork_rng(devices=[]):
        network = build_network(backbone, tuple(example.shape[1:]), data.num_classes, seed=SEED)
        start_network(backbone, network, transform)
    if weights is not None:
        load_weights(network, weights, f"--backbone-frozen-weights {backbone.frozen_weights}")
    return Extractor(transform, without_classifier(network, example, backbone.name))


def without_classifier(network: nn.Module, example: Tensor, name: str) -> nn.Module:
    """Return the network with its last linear layer left out, so that its output is what that layer saw."""
    network.eval()
    last = classifier(network)
    with torch.no_grad():
        _, wanted = logits_and_features(network, example)
        if network is last:
            return nn.Flatten()
        parent, _, attribute = next(key for key, each in network.named_modules() if each is last).rpartition(".")
        setattr(network.get_submodule(parent), attribute, nn.Identity())
        found = network(example)
    if not isinstance(found, Tensor) or not torch.equal(found.flatten(1), wanted):
        raise PluginError(
            f"backbone {name} cannot be frozen: it does more with its logits after its last linear layer, or builds "
            "them in another way, so that its features cannot be taken by leaving that layer out"
        )
    return network


def load_weights(network: nn.Module, weights: Mapping[str, Tensor], where: str) -> None:
    """Give a network the weights of a file; those of its last linear layer may be missing, or of another size."""
    last = classifier(network)
    prefix = next(key for key, each in network.named_modules() if each is last)
    own = network.state_dict()
    head = {f"{prefix}.{name}" if prefix else name for name in ("weight", "bias")} & own.keys()
    fill(network, {**{key: own[key] for key in head}, **weights}, where)


def embed(extractor: Extractor, data: Data, device: torch.device, tell: Tell) -> tuple[Tensor, Tensor | None]:
    """Return the features of all inputs, and of those of the test part, on the CPU."""
    parts = [part for part in (data.x, data.test_x) if part is not None]
    total, done = sum(map(len, parts)), 0
    extractor.to(device)
    step = max(16, BATCH_CELLS // max(1, data.x.shape[1:].numel()))

    def in_batches(x: Tensor) -> Tensor:
        nonlocal done
        found = []
        for batch in x.split(step):
            found.append(extractor(batch.to(device)).cpu())
            done += len(batch)
            tell(done, total)
        return torch.cat(found)

    with torch.no_grad():  # inference mode's tensors could not be trained on
        features = [in_batches(part) for part in parts]
    extractor.cpu()
    return features[0], features[1] if len(features) > 1 else None
