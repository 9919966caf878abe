"""The memory of images in training: bytes that are scaled as they are used, against numbers that were scaled before.

    python -m benchmarks.image_memory [--steps 10] [--images 50000]

Each way is a process of its own: images of CIFAR-10's size (made; their content does not matter), `mcl-skewed` sets,
ResNet-32 with `ppl` and batches of 64 for some steps, then the logits of 2,000 test images. `float32` gives generators
and the network what they were given before bytes could stay: every part as one tensor of numbers.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

TEST_SHARE = 5
"""There are so many times as many training images as test images, as in CIFAR-10."""


def peak_mb() -> float:
    """Return the largest memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def after(steps: int) -> Callable[[], bool]:
    """Return a function that says yes when it is asked for the last of so many steps, and after."""
    asked = iter(range(1, steps))
    return lambda: next(asked, None) is None


def measure(way: str, images: int, steps: int) -> dict[str, Any]:
    """Train a few steps one way; return the memory at the beginning and at most, and a hash of the weights."""
    import attrs
    import torch

    import wsl_toolkit as wsl
    from wsl_toolkit.data.dataset import transform_inputs
    from wsl_toolkit.data.problem import make_problem
    from wsl_toolkit.training.build import make_trainer
    from wsl_toolkit.training.config import Training
    from wsl_toolkit.training.engine import predict

    torch.set_num_threads(1)
    rng = torch.Generator().manual_seed(0)
    began = peak_mb()
    parts = [
        torch.randint(256, (count, 3, 32, 32), dtype=torch.uint8, generator=rng)
        for count in (images, images // TEST_SHARE)
    ]
    labels = [torch.arange(len(part)) % 10 for part in parts]
    data = wsl.Data(
        name="made", x=parts[0], y=labels[0], test_x=parts[1], test_y=labels[1], num_classes=10, normalise="per-channel"
    )
    generator: Any = wsl.component("generator", "mcl-skewed", alpha=0.9)
    problem = make_problem(data, generator, seed=0, validation=0.1, test=0.2)
    if way == "float32":
        whole: dict[str, Any] = {name: getattr(problem, name).whole() for name in ("train_x", "validation_x", "test_x")}
        problem = attrs.evolve(problem, **whole)
        transform_inputs(problem.transform, data.x)  # what generators were given, for the time of a draw
    estimator: Any = wsl.component("estimator", "ppl")
    backbone: Any = wsl.component("backbone", "resnet32")
    trainer = make_trainer(problem, estimator, backbone, Training(batch_size=64), 0)
    trainer.train_epoch(after(steps))
    test = (
        problem.test_x[:2000] if isinstance(problem.test_x, torch.Tensor) else problem.test_x.take(torch.arange(2000))
    )
    logits = predict(trainer.model, test)
    digest = hashlib.sha256(logits.numpy().tobytes())
    for value in trainer.model.state_dict().values():
        digest.update(value.numpy().tobytes())
    return {"way": way, "before": began, "peak": peak_mb(), "bits": digest.hexdigest()[:16], "steps": trainer.step}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure both ways, each in a process of its own, and print them and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--way", choices=("bytes", "float32"))
    given = parser.parse_args(arguments)
    if given.way:
        print(json.dumps(measure(given.way, given.images, given.steps)))
        return
    found = {}
    for way in ("bytes", "float32"):
        command = [sys.executable, "-m", "benchmarks.image_memory", "--way", way]
        command += ["--images", str(given.images), "--steps", str(given.steps)]
        found[way] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(json.dumps(found[way]))
    before, now = found["float32"], found["bytes"]
    print(f"peak memory: {before['peak']:.0f} MB -> {now['peak']:.0f} MB, {before['peak'] / now['peak']:.2f} times")
    beyond = [each["peak"] - each["before"] for each in (before, now)]
    print(f"beyond Python and torch: {beyond[0]:.0f} MB -> {beyond[1]:.0f} MB, {beyond[0] / beyond[1]:.2f} times")
    print(f"the same bits: {before['bits'] == now['bits']}")


if __name__ == "__main__":
    main()
