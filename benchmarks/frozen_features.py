"""A network trained on the spot, without labels, to freeze; and what an epoch costs with and without it.

    python -m benchmarks.frozen_features FOLDER --out rotations.safetensors [--backbone lenet] [--epochs 5]

The network learns to tell by which of 0, 90, 180 and 270 degrees an image was turned (Gidaris, Singh and Komodakis,
2018). It sees the training images and no label. Its weights are what `--backbone-frozen-weights` takes. Then one epoch
of `ppl` is timed twice, in seconds of one core: the whole network end to end, and a linear head on its features.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import attrs
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import wsl_toolkit as wsl
from wsl_toolkit.data.embedding import fitted_to_all
from wsl_toolkit.system.files import replacing
from wsl_toolkit.system.output_paths import check_file
from wsl_toolkit.system.random_streams import stream

TURNS = 4
BATCH = 128
GENERATOR = {"name": "mcl-skewed", "alpha": 0.7}


def turned(x: Tensor, turns: Tensor) -> Tensor:
    """Return each image turned by its number of right angles."""
    out = torch.empty_like(x)
    for number in range(TURNS):
        out[turns == number] = torch.rot90(x[turns == number], number, (2, 3))
    return out


def learn_rotations(data: wsl.Data, backbone: str, *, epochs: int, lr: float = 0.02, seed: int = 0) -> nn.Module:
    """Return a network that was trained to tell by how many right angles an image was turned; no label is read."""
    transform, rng = fitted_to_all(data), stream(seed, "rotations")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network: nn.Module = wsl.component("backbone", backbone).build(data.input_shape, TURNS)  # type: ignore[attr-defined]
    optimizer = torch.optim.SGD(network.parameters(), lr=lr, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        for index in torch.randperm(len(data.x), generator=rng).split(BATCH):
            turns = torch.randint(TURNS, (len(index),), generator=rng)
            loss = nn.functional.cross_entropy(network(transform(turned(data.x[index], turns))), turns)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
    return network.eval()


def rotation_accuracy(network: nn.Module, data: wsl.Data, x: Tensor, seed: int = 1) -> float:
    """Return how often the network tells how images were turned."""
    transform, turns = fitted_to_all(data), torch.randint(TURNS, (len(x),), generator=stream(seed, "rotations"))
    with torch.no_grad():
        told = torch.cat([network(transform(part)).argmax(1) for part in turned(x, turns).split(BATCH)])
    return float((told == turns).double().mean())


@attrs.define(kw_only=True)
class CoreSeconds(wsl.Callback):
    """Keeps how many seconds of a core each epoch took."""

    name: ClassVar[str] = "core-seconds"

    marks: list[float] = attrs.field(factory=list)

    def on_train_start(self, about: Any) -> None:
        """Begin to count."""
        self.marks.append(time.process_time())

    def on_epoch_end(self, record: Any) -> None:
        """Count an epoch."""
        self.marks.append(time.process_time())


def epoch_seconds(data: wsl.Data, backbone: dict[str, Any], epochs: int = 2) -> float:
    """Return the core seconds of the last epoch of a short training; the first also warms up."""
    counter = CoreSeconds()
    settings: dict[str, Any] = {"generator": GENERATOR, "estimator": "ppl", "batch_size": BATCH, "epochs": epochs}
    wsl.train(data, backbone=backbone, callbacks=[counter], **settings)
    return counter.marks[-1] - counter.marks[-2]


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, save, and time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--backbone", default="lenet")
    parser.add_argument("--epochs", type=int, default=5)
    given = parser.parse_args(arguments)
    check_file(given.out, [given.folder], force=False)
    torch.set_num_threads(1)
    data = wsl.load_data(given.folder)
    began = time.process_time()
    network = learn_rotations(data, given.backbone, epochs=given.epochs)
    learned = time.process_time() - began
    with replacing(given.out) as temporary:
        save_file(network.state_dict(), temporary)
    frozen = {"name": given.backbone, "frozen": True, "frozen_weights": str(given.out)}
    facts = {
        "images": len(data.x),
        "core seconds of the pretext task": learned,
        "accuracy on turned test images": rotation_accuracy(
            network, data, data.x if data.test_x is None else data.test_x
        ),
        "core seconds of an epoch, end to end": epoch_seconds(data, {"name": given.backbone}),
        "core seconds of an epoch, head alone": epoch_seconds(data, frozen),
    }
    print(json.dumps(facts, indent=2))


if __name__ == "__main__":
    main()
