"""What weak augmentation adds to a training step of ResNet-32 on images of CIFAR-10's size.

    python -m benchmarks.augmentation_cost [--augmentation weak] [--turns 8]

Two trainers that differ in `--augmentation` alone take turns of a few steps of 64 images, on one thread; time is the
processor's. Prints the median of the turns' ratios, which a busy machine disturbs, and the time of the augmentation by
itself as a share of a step without it, which it disturbs less.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch

import wsl_toolkit as wsl
from benchmarks.image_memory import after
from wsl_toolkit.augmentation import AUGMENTATIONS
from wsl_toolkit.data.problem import make_problem
from wsl_toolkit.training.build import make_trainer
from wsl_toolkit.training.config import Training
from wsl_toolkit.training.trainer import Trainer

STEPS = 4


def made(augmentation: str) -> Trainer:
    """Return a trainer on made images."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randint(256, (5000, 3, 32, 32), dtype=torch.uint8, generator=rng)
    data = wsl.Data(name="made", x=x, y=torch.arange(5000) % 10, num_classes=10, normalise="per-channel")
    generator: Any = wsl.component("generator", "mcl-skewed", alpha=0.9)
    problem = make_problem(data, generator, seed=0, validation=0.0, test=0.1)
    parts: list[Any] = [wsl.component("estimator", "ppl"), wsl.component("backbone", "resnet32")]
    return make_trainer(problem, *parts, Training(batch_size=64, augmentation=augmentation), 0)


def main(arguments: Sequence[str] | None = None) -> None:
    """Let both take turns, and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--augmentation", default="weak")
    parser.add_argument("--turns", type=int, default=8)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    trainers = {name: made(name) for name in ("none", given.augmentation)}
    seconds: dict[str, list[float]] = {name: [] for name in trainers}
    for turn in range(given.turns + 1):
        for name, trainer in trainers.items():
            began = time.process_time()
            trainer.train_epoch(after(STEPS))
            if turn:  # the first warms up
                seconds[name].append(time.process_time() - began)
    images = trainers["none"].inputs.gather(torch.arange(64))
    alone = []
    for _ in range(10 * given.turns):
        began = time.process_time()
        AUGMENTATIONS[given.augmentation](images)
        alone.append(time.process_time() - began)
    share = statistics.median(alone) / (statistics.median(seconds["none"]) / STEPS)
    ratios = [more / less for more, less in zip(seconds[given.augmentation], seconds["none"], strict=True)]
    print(f"a step with {given.augmentation} takes {statistics.median(ratios):.3f} times as long as one without")
    print(f"the augmentation alone takes {100 * share:.2f} % of a step's time")
    print("turns:", ", ".join(f"{ratio:.3f}" for ratio in ratios))


if __name__ == "__main__":
    main()
