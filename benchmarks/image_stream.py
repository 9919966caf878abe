"""Images that are streamed from a file against images in memory: memory, and the speed of ResNet-32.

    python -m benchmarks.image_stream [--images 100000] [--steps 100] [--folder FOLDER]

Makes a folder of small JPEG files (kept in FOLDER if one is given and used again; else in a temporary one), then trains
`ppl` with ResNet-32 and batches of 64. *Memory*: a process with WSL_MEMORY=500MB decodes the folder into a file block
by block, maps it, trains and predicts.
*Speed*: another process has the same images both ways and takes turns of some steps.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.image_memory import after, peak_mb

CLASSES = 10
TURNS = 5
BUDGET = "500MB"


def make_folder(folder: Path, images: int) -> None:
    """Write so many JPEG files of 32×32 pixels, in class folders."""
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(0)
    for label in range(CLASSES):
        (folder / f"class-{label}").mkdir(parents=True, exist_ok=True)
        for number in range(label, images, CLASSES):
            coarse = rng.integers(256, size=(8, 8, 3), dtype=np.uint8)
            picture = Image.fromarray(coarse).resize((32, 32))
            picture.save(folder / f"class-{label}" / f"{number:07}.jpg")


def trainer_of(folder: Path) -> Any:
    """Return a trainer on the folder's images."""
    import wsl_toolkit as wsl
    from wsl_toolkit.data.problem import make_problem
    from wsl_toolkit.training.build import make_trainer
    from wsl_toolkit.training.config import Training

    data = wsl.load_data(folder)
    data.digest()  # as a tracked run does
    generator: Any = wsl.component("generator", "mcl-skewed", alpha=0.9)
    problem = make_problem(data, generator, seed=0, validation=0.01, test=0.01)
    estimator: Any = wsl.component("estimator", "ppl")
    backbone: Any = wsl.component("backbone", "resnet32")
    return make_trainer(problem, estimator, backbone, Training(batch_size=64), 0)


def memory(folder: Path, steps: int) -> dict[str, Any]:
    """Train and predict with little memory; return the peak."""
    began = peak_mb()
    trainer = trainer_of(folder)
    read = peak_mb()
    trainer.train_epoch(after(steps))
    trainer.evaluate(trainer.model, trainer.risk)
    return {"in a file": not trainer.inputs.in_memory, "before": began, "after reading": read, "peak": peak_mb()}


def speed(folder: Path, steps: int) -> dict[str, Any]:
    """Let a streamed and a resident trainer take turns; return the ratio of their speeds, turn by turn."""
    os.environ["WSL_MEMORY"] = BUDGET
    streamed = trainer_of(folder)
    del os.environ["WSL_MEMORY"]
    resident = trainer_of(folder)
    assert not streamed.inputs.in_memory
    assert resident.inputs.in_memory
    seconds: dict[str, list[float]] = {"resident": [], "streamed": []}
    work: dict[str, list[float]] = {"resident": [], "streamed": []}
    for turn in range(TURNS + 1):
        for name, trainer in (("resident", resident), ("streamed", streamed)):
            began, worked = time.perf_counter(), time.process_time()
            trainer.train_epoch(after(steps // TURNS))
            if turn:  # the first warms up
                seconds[name].append(time.perf_counter() - began)
                work[name].append(time.process_time() - worked)
    ratios, of_work = (
        [one / other for one, other in zip(found["resident"], found["streamed"], strict=True)]
        for found in (seconds, work)
    )
    same = all(
        one.equal(other)
        for one, other in zip(resident.model.state_dict().values(), streamed.model.state_dict().values(), strict=True)
    )
    return {
        "speed of streamed to resident": statistics.median(ratios),
        "turns": ratios,
        "by the processor's time": statistics.median(of_work),
        "its turns": of_work,
        "same bits": same,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the folder, and measure in processes of their own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--part", choices=("memory", "speed"))
    given = parser.parse_args(arguments)
    if given.part:
        import torch

        torch.set_num_threads(1)
        print(json.dumps({"memory": memory, "speed": speed}[given.part](given.folder, given.steps)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary) / "images"
        if not folder.exists():
            make_folder(folder, given.images)
        environment = {**os.environ, "WSL_CACHE_DIR": str(Path(temporary) / "cache")}
        for part, changes in (("memory", {"WSL_MEMORY": BUDGET}), ("speed", {})):
            command = [sys.executable, "-m", "benchmarks.image_stream", "--part", part, "--folder", str(folder)]
            command += ["--steps", str(given.steps)]
            subprocess.run(command, check=True, env={**environment, **changes})


if __name__ == "__main__":
    main()
