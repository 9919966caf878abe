"""The checklist of a machine with a GPU: everything that the toolkit promises of devices, tried once.

    python -m benchmarks.gpu_smoke [--device cuda]

Prints a line for each check and ends with status 1 if one fails, with 2 if there is no such device. What the checks say
of this machine belongs into docs/reliability.md. `--device cpu` tries the checklist itself.
"""

from __future__ import annotations

import argparse
import copy
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import wsl_toolkit as wsl
from benchmarks.image_memory import after
from wsl_toolkit.data.inputs import StreamedInputs
from wsl_toolkit.data.problem import Problem, make_problem
from wsl_toolkit.errors import ConfigError
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.training.build import make_trainer
from wsl_toolkit.training.config import Training
from wsl_toolkit.training.devices import DEVICE_BUDGET, Facts, choose_device, gpus_for_workers
from wsl_toolkit.training.residency import how_kept
from wsl_toolkit.training.trainer import Trainer

EXAMPLES, CLASSES = 600, 5


def problem() -> Problem:
    """Return images that can be told apart: each class has a brightness of its own."""
    rng = torch.Generator().manual_seed(0)
    y = torch.arange(EXAMPLES) % CLASSES
    noise = torch.randint(100, (EXAMPLES, 3, 16, 16), generator=rng)
    x = (noise + 30 * y[:, None, None, None]).to(torch.uint8)
    data = wsl.Data(name="made", x=x, y=y, num_classes=CLASSES, normalise="per-channel")
    generator: Any = wsl.component("generator", "mcl-skewed", alpha=0.9)
    return make_problem(data, generator, seed=0, validation=0.1, test=0.2)


def trainer(device: str, estimator: str = "ppl", **settings: Any) -> Trainer:
    """Return a trainer of a small convolutional network."""
    method: Any = wsl.component("estimator", estimator)
    backbone: Any = wsl.component("backbone", "lenet")
    return make_trainer(problem(), method, backbone, Training(batch_size=32, device=device, **settings), 0)


def trained(device: str, epochs: int = 8, **settings: Any) -> Trainer:
    """Return a trainer after some epochs."""
    made = trainer(device, **settings)
    list(made.epochs(epochs))
    return made


def weights(made: Trainer) -> Tensor:
    """Return all weights in one vector on the CPU."""
    return torch.cat([parameter.detach().flatten().cpu() for parameter in made.model.parameters()])


def accuracy(made: Trainer) -> float:
    """Return the accuracy on the test part."""
    return float(made.evaluate(made.model, made.risk)["test/accuracy"])


def learns(**settings: Any) -> Callable[[str], str]:
    """Return a check that a training with these settings learns what is easy to learn."""

    def check(device: str) -> str:
        reached = accuracy(trained(device, **settings))
        assert reached > 0.5, f"test accuracy {reached:.2f}"
        return f"test accuracy {reached:.2f}"

    return check


def same_bits_twice(device: str) -> str:
    """Two deterministic runs have the same bits."""
    one, other = (trained(device, 2, deterministic=True, augmentation="weak") for _ in range(2))
    assert torch.equal(weights(one), weights(other)), "they differ"
    return ""


def same_bits_resumed(device: str) -> str:
    """A run that is broken off in an epoch and resumed, in float16 with augmentation, has the same bits."""
    settings = {"deterministic": True, "augmentation": "weak", "precision": "float16"}
    through, first, second = (trainer(device, **settings) for _ in range(3))
    list(through.epochs(2))
    first.train_epoch(after(5))
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    list(second.epochs(2))
    assert torch.equal(weights(through), weights(second)), "they differ"
    return ""


def near_the_processor(device: str) -> str:
    """One epoch's risk is that of the CPU up to rounding."""
    here, there = (next(trainer(name).epochs(1)).metrics["train/risk"] for name in ("cpu", device))
    assert abs(here - there) < 1e-3 * abs(here), f"{here} on the CPU, {there} there"
    return f"{here:.6f} and {there:.6f}"


@contextmanager
def budget(text: str) -> Any:
    """Allow so much of the device's memory inside."""
    os.environ[DEVICE_BUDGET] = text
    try:
        yield
    finally:
        del os.environ[DEVICE_BUDGET]


def batches_of_what_does_not_fit(device: str) -> str:
    """Images that do not fit go to the device in batches, to the bits of images that lie there."""
    whole = trained(device, 2, deterministic=True)
    with budget("1KB"):
        parted = trained(device, 2, deterministic=True)
    assert isinstance(parted.inputs, StreamedInputs)
    assert torch.device(device).type == "cpu" or "in batches" in how_kept(parted.inputs)
    assert torch.equal(weights(whole), weights(parted)), "they differ"
    return how_kept(parted.inputs)


def every_method_takes_a_step(device: str) -> str:
    """Each estimator that is installed takes some steps there."""
    wrong, count = [], 0
    for name in load_plugins().registry.names("estimator"):
        try:
            trainer(device, estimator=name).train_epoch(after(3))
        except ConfigError:  # it does not fit this data, whatever the device
            continue
        except Exception as error:
            wrong.append(f"{name}: {error}")
        count += 1
    assert not wrong, "; ".join(wrong)
    return f"{count} methods"


def workers_have_a_gpu_each(device: str) -> str:
    """Local workers of a study share out the GPUs."""
    found = gpus_for_workers("auto", Facts.here())
    assert len(found) == Facts.here().gpus
    return f"{len(found)} GPUs: {', '.join(found) or 'none'}"


def a_tracked_run(device: str) -> str:
    """`wsl.train` with a folder for its record, from start to end."""
    with tempfile.TemporaryDirectory() as folder:
        before = Path.cwd()
        os.chdir(folder)
        try:
            result = wsl.train("digits", estimator="ppl", epochs=2, device=device, track=True)
        finally:
            os.chdir(before)
    return f"test accuracy {result.metrics['test/accuracy']:.2f}"


CHECKS: dict[str, Callable[[str], str]] = {
    "float32 learns": learns(),
    "bfloat16 learns": learns(precision="bfloat16"),
    "float16 with a gradient scaler learns": learns(precision="float16"),
    "augmentation on the device learns": learns(augmentation="weak", epochs=12),
    "a compiled network learns": learns(compile=True),
    "numbers are those of the CPU": near_the_processor,
    "deterministic: the same bits twice": same_bits_twice,
    "deterministic: the same bits when resumed": same_bits_resumed,
    "what does not fit goes there in batches": batches_of_what_does_not_fit,
    "every method takes a step": every_method_takes_a_step,
    "workers of a study have a GPU each": workers_have_a_gpu_each,
    "a tracked run": a_tracked_run,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Try everything; return the status to end with."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    device = parser.parse_args(arguments).device
    try:
        choose_device(device)
    except ConfigError as error:
        print(f"There is no GPU to try: {error}. Nothing was checked.")
        return 2
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else device
    print(f"{name}, torch {torch.__version__}")
    failed = 0
    for what, check in CHECKS.items():
        try:
            print(f"ok      {what}: {check(device)}".rstrip(": "), flush=True)
        except Exception as error:  # the rest of the list is to be tried all the same
            failed += 1
            print(f"FAILED  {what}: {type(error).__name__}: {error}", flush=True)
            traceback.print_exc(limit=-3)
    print(f"{len(CHECKS) - failed} of {len(CHECKS)} checks passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
