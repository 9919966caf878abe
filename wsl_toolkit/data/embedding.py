"""Features of a frozen network in the place of inputs: what they are made of, and what makes them."""

from __future__ import annotations

import hashlib

import attrs
import torch
from torch import Tensor, nn

from wsl_toolkit.data.dataset import Data, hash_rows


class Extractor(nn.Module):
    """Inputs as a dataset has them -> features [n, d]: scaled, then through a network that learns nothing more."""

    def __init__(self, transform: nn.Module, body: nn.Module) -> None:
        super().__init__()
        self.transform = transform
        self.body = body
        self.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> Extractor:
        """Stay in evaluation, whatever the rest of a model does: no dropout, no statistics of batches."""
        return super().train(False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the features."""
        features: Tensor = self.body(self.transform(x))
        return features.flatten(1).float()


@attrs.frozen(kw_only=True, eq=False)
class Embedding:
    """What features were made of."""

    raw: Data
    """The data that the network was given, to which labels and candidate sets belong."""
    extractor: Extractor
    network: str
    """What the network is: its name, its parameters, its weights."""

    def digest(self) -> str:
        """Return a SHA-256 of all that decides the features, and of the labels that go with them."""
        return hashlib.sha256(f"features {self.network} of {self.raw.digest()}".encode()).hexdigest()

    def data(self, x: Tensor, test_x: Tensor | None) -> Data:
        """Return the data with features in the place of its inputs; everything else is as it was."""
        return attrs.evolve(self.raw, x=x, test_x=test_x, normalise="per-feature", understood=None, embedding=self)


def inputs_digest(data: Data) -> str:
    """Return a SHA-256 of the inputs and of what they mean; other labels make no other features."""
    digest = hashlib.sha256(str(data.normalise).encode())
    for tensor in (data.x, data.test_x):
        if tensor is not None:
            hash_rows(digest, tensor)
    return digest.hexdigest()


def fitted_to_all(data: Data) -> nn.Module:
    """Return what scales inputs for a frozen network, learned from all examples outside an official test part.

    It is the same for every split, so that the features are computed once. It reads no label.
    """
    return data.fit_inputs(torch.arange(len(data.x)))
