"""The pretext task of benchmarks/frozen_features.py: images are turned as said, and no label is read."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
import torch

import wsl_toolkit as wsl
from benchmarks.frozen_features import learn_rotations, rotation_accuracy, turned
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.studies.parsing import from_dict
from wsl_toolkit.studies.plan import check_description
from wsl_toolkit.studies.reading import find_values


@pytest.fixture(scope="module")
def slopes() -> wsl.Data:
    """Images that are bright at the top, so that it can be seen how they are turned."""
    rng = torch.Generator().manual_seed(0)
    slope = torch.linspace(200, 0, 16).view(1, 1, 16, 1)
    x = (slope + 55 * torch.rand(512, 1, 16, 16, generator=rng)).to(torch.uint8)
    return wsl.Data(name="slopes", x=x, y=torch.arange(512) % 3, num_classes=3, normalise="per-channel")


def test_each_image_is_turned_by_its_own_number_of_right_angles(slopes: wsl.Data) -> None:
    turns = torch.arange(8) % 4
    found = turned(slopes.x[:8], turns)
    for image, out, number in zip(slopes.x[:8], found, turns.tolist(), strict=True):
        for _ in range(number):
            image = torch.stack([row.flip(0) for row in image[0]]).T.unsqueeze(0)  # a quarter turn, by hand
        assert torch.equal(out, image)


def test_the_task_is_learned_without_labels(slopes: wsl.Data) -> None:
    network = learn_rotations(slopes, "lenet", epochs=6, lr=0.05)
    assert rotation_accuracy(network, slopes, slopes.x) > 0.95
    relabelled = attrs.evolve(slopes, y=slopes.y.flip(0))  # type: ignore[union-attr]
    again = learn_rotations(relabelled, "lenet", epochs=6, lr=0.05)
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), again.parameters(), strict=True))


def test_the_study_on_its_features_can_be_run() -> None:
    file = Path(__file__).parents[2] / "benchmarks" / "frozen-features.toml"
    study = from_dict(*find_values(str(file)))
    check_description(study, load_plugins().registry)
    assert (len(study.methods), len(study.settings)) == (10, 1)
