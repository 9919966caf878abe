"""Six shapes in small images: what the default of `wsl fit` makes of them, and what a linear model makes.

    python -m benchmarks.shapes [--images 600] [--size 32] [--keep FOLDER]

Grey images of discs, squares, triangles, crosses, rings and stars, bright on dark, of several sizes, off the middle,
turned a little, with noise; each wrong shape is a candidate with probability 0.3. They are written as a folder of PNG
files with a table of candidate sets, as people have them, and `wsl fit` learns from that.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

SHAPES = ("cross", "disc", "ring", "square", "star", "triangle")
WRONG = 0.3


def draw(shape: str, size: int, rng: np.random.Generator) -> np.ndarray:
    """Return one image of a shape, bytes [size, size]."""
    radius = rng.uniform(0.22, 0.36) * size
    centre = size / 2 + rng.uniform(-0.12, 0.12, 2) * size
    turn = rng.uniform(-0.5, 0.5)
    rows, columns = np.mgrid[0:size, 0:size]
    u, v = (columns - centre[0]) / radius, (rows - centre[1]) / radius
    x, y = np.cos(turn) * u + np.sin(turn) * v, np.cos(turn) * v - np.sin(turn) * u
    distance, angle = np.hypot(x, y), np.arctan2(y, x)
    inside = {
        "disc": distance < 0.9,
        "ring": (distance < 1) & (distance > 0.55),
        "square": np.maximum(abs(x), abs(y)) < 0.75,
        "triangle": distance * np.cos((angle + np.pi / 3) % (2 * np.pi / 3) - np.pi / 3) < 0.5,
        "cross": (np.minimum(abs(x), abs(y)) < 0.28) & (np.maximum(abs(x), abs(y)) < 1),
        "star": distance < 0.45 + 0.5 * np.abs(((angle / (2 * np.pi) * 5) % 1) * 2 - 1),
    }[shape]
    low, high = rng.uniform(0, 80), rng.uniform(150, 255)
    image = np.where(inside, high, low) + rng.normal(0, 30, (size, size))
    return np.clip(np.round(image), 0, 255).astype(np.uint8)


def make(images: int, size: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return images [n, size, size], their shapes [n], and which shapes are candidates [n, 6]."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, len(SHAPES), images)
    x = np.stack([draw(SHAPES[label], size, rng) for label in y])
    mask = rng.random((images, len(SHAPES))) < WRONG
    mask[np.arange(images), y] = True
    full = np.flatnonzero(mask.all(axis=1))
    mask[full, (y[full] + 1) % len(SHAPES)] = False
    return x, y, mask


def write(folder: Path, images: int, size: int) -> None:
    """Write the images as PNG files, with a table of their candidate sets and true shapes."""
    from PIL import Image

    folder.mkdir(parents=True)
    x, y, mask = make(images, size)
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["file", "candidates", "label"])
        for number, image in enumerate(x):
            Image.fromarray(image).save(folder / f"{number:04}.png")
            sets = "|".join(SHAPES[j] for j in np.flatnonzero(mask[number]))
            table.writerow([f"{number:04}.png", sets, SHAPES[y[number]]])


def fit(folder: Path, out: Path, *options: str) -> dict[str, Any]:
    """Fit as a user does, in a process of its own; return what was chosen, its held-out accuracy and the seconds."""
    began = time.monotonic()
    command = [sys.executable, "-m", "wsl_toolkit.cli", "fit", str(folder), "--grey", "--out", str(out), "--no-track"]
    done = subprocess.run([*command, "--json", *options], stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout)
    report = {key: found["held_out"][key] for key in ("accuracy", "examples")}
    return {"backbone": found["backbone"]["name"], **report, "seconds": round(time.monotonic() - began, 1)}


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--images", type=int, default=600)
    options.add_argument("--size", type=int, default=32)
    options.add_argument("--budget", default="normal", choices=("quick", "normal", "thorough"))
    options.add_argument("--keep", type=Path, help="a new folder for the images and the models")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        home = given.keep or Path(name)
        write(home / "shapes", given.images, given.size)
        found = {
            "default": fit(home / "shapes", home / "default", "--budget", given.budget),
            "linear": fit(home / "shapes", home / "linear", "--budget", given.budget, "--backbone", "linear"),
        }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
