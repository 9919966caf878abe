"""Weights to start from: read from a file or torch's cache and never fetched, fed as they were trained."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pickle
import re
from pathlib import Path

import attrs
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch import nn
from torchvision import models

import wsl_toolkit
from wsl_builtins.backbones.torchvision_models import Torchvision, _new_name
from wsl_toolkit.cli import main
from wsl_toolkit.data.dataset import Scaler
from wsl_toolkit.errors import ConfigError, DataError, WslError
from wsl_toolkit.networks import Pixels, fill, read_weights

SMALL = "squeezenet1_1"
"""Five megabytes, and a head that is a convolution."""


def trained(model: str = SMALL, classes: int = 1000) -> nn.Module:
    """Return a network as its authors left it; here, one of another initialisation."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return models.get_model(model, weights=None, num_classes=classes).eval()


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "mine.pth"
    torch.save(trained().state_dict(), path)
    return path


def started(backbone: Torchvision, shape=(3, 40, 40), classes: int = 10, transform: nn.Module | None = None):
    """Return the network as training has it before its first step, and what is said of it."""
    network = backbone.build(shape, classes)
    for module in network.modules():
        if isinstance(module, Pixels) and transform is not None:
            module.learn(transform)
    return network.eval(), backbone.start(network)


def test_all_but_a_head_of_another_size_comes_from_the_file_and_that_is_said(weights):
    network, said = started(Torchvision(model=SMALL, weights=str(weights)))
    assert "its head of 1000 classes is replaced by a new one of 10" in said
    assert hashlib.sha256(weights.read_bytes()).hexdigest()[:12] in said
    own, theirs = network[1].state_dict(), trained().state_dict()
    kept = {name for name, value in own.items() if value.shape == theirs[name].shape}
    assert set(own) - kept == {"classifier.1.weight", "classifier.1.bias"}
    assert all(torch.equal(own[name], theirs[name]) for name in kept)
    assert not torch.equal(own["classifier.1.weight"], theirs["classifier.1.weight"][:10])
    same, said = started(Torchvision(model=SMALL, weights=str(weights)), classes=1000)
    assert "replaced" not in said
    assert all(torch.equal(value, theirs[name]) for name, value in same[1].state_dict().items())


@pytest.mark.parametrize("channels", [1, 3])
def test_the_network_sees_what_the_weights_own_transforms_make_of_the_images(weights, channels):
    """Bytes through torchvision's transforms, against bytes through the data's scaling and what undoes it."""
    theirs = models.get_model_weights(SMALL).DEFAULT.transforms(crop_size=224, resize_size=224)
    images = torch.randint(256, (2, channels, 224, 224), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    scaler = Scaler.fit(images, "per-channel")
    network, _ = started(Torchvision(model=SMALL, weights=str(weights)), images.shape[1:], 1000, scaler)
    with torch.no_grad():
        wanted = trained()(theirs(images.expand(-1, 3, -1, -1)))
        torch.testing.assert_close(network(scaler(images)), wanted, atol=1e-4, rtol=1e-4)


def test_images_are_resized_to_the_weights_size_or_to_the_one_that_is_given(weights):
    backbone = Torchvision(model=SMALL, weights=str(weights))
    seen: list[tuple[int, ...]] = []
    for chosen in (backbone, attrs.evolve(backbone, size=64), Torchvision(model=SMALL, size=48)):
        network = chosen.build((3, 40, 30), 10)
        network[1].register_forward_pre_hook(lambda _, inputs: seen.append(tuple(inputs[0].shape)))
        assert tuple(network(torch.rand(2, 3, 40, 30)).shape) == (2, 10)
    assert seen == [(2, 3, 224, 224), (2, 3, 64, 64), (2, 3, 48, 48)]


def test_other_weights_of_a_network_have_other_transforms():
    network = Torchvision(model="vit_b_16", weights="IMAGENET1K_SWAG_E2E_V1")._preparation()
    assert (network["size"], network["interpolation"]) == (384, "bicubic")


def test_a_transformer_is_built_for_the_size_of_its_images():
    assert tuple(Torchvision(model="vit_b_32", size=64).build((1, 28, 28), 3)(torch.rand(1, 1, 28, 28)).shape) == (1, 3)


def test_published_densenets_have_names_of_old():
    with torch.device("meta"):
        names = list(models.get_model("densenet121", weights=None).state_dict())
    old = [re.sub(r"(denselayer\d+\.)(norm|conv)(\d)", r"\1\2.\3", name) for name in names]
    assert "features.denseblock1.denselayer1.norm.1.weight" in old
    assert [_new_name(name) for name in old] == [_new_name(name) for name in names] == names


# -------------------------------------------------------------------- cache


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    (tmp_path / "torch" / "hub" / "checkpoints").mkdir(parents=True)
    return tmp_path / "torch" / "hub" / "checkpoints"


@pytest.mark.parametrize("name", ["DEFAULT", "IMAGENET1K_V1", "SqueezeNet1_1_Weights.IMAGENET1K_V1"])
def test_named_weights_that_are_not_there_are_not_fetched_and_the_place_is_named(cache, monkeypatch, name):
    def fetch(*args: object, **kwargs: object) -> None:
        raise AssertionError("something was downloaded")

    monkeypatch.setattr(torch.hub, "download_url_to_file", fetch)
    backbone = Torchvision(model=SMALL, weights=name)
    with pytest.raises(ConfigError) as refused:
        backbone.check_start()
    assert str(cache / "squeezenet1_1-b8a52dc0.pth") in str(refused.value)
    assert "https://download.pytorch.org/models/squeezenet1_1-b8a52dc0.pth" in str(refused.value)
    with pytest.raises(ConfigError, match="nothing is downloaded"):
        backbone.start(backbone.build((3, 64, 64), 10))


def test_named_weights_are_read_from_the_cache_if_they_are_whole(cache, weights, monkeypatch):
    backbone = Torchvision(model=SMALL, weights="DEFAULT")
    cached = cache / "squeezenet1_1-b8a52dc0.pth"
    cached.write_bytes(weights.read_bytes())
    with pytest.raises(ConfigError, match="is damaged: its SHA-256 begins with"):
        started(backbone)
    # Whoever publishes weights names the file by its content.
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    entry = models.get_model_weights(SMALL).DEFAULT
    monkeypatch.setattr(
        entry, "_value_", dataclasses.replace(entry.value, url=f"https://example.org/own-{digest[:8]}.pth")
    )
    (cache / f"own-{digest[:8]}.pth").write_bytes(weights.read_bytes())
    assert "its head of 1000 classes" in started(backbone)[1]


# ----------------------------------------------------------------- refusals


class Evil:
    def __reduce__(self):
        return (exec, ("open('ran', 'w')",))


def test_a_file_that_would_run_code_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.pth").write_bytes(pickle.dumps({"features.0.weight": Evil()}))
    torch.save({"features.0.weight": Evil()}, tmp_path / "evil2.pth")
    for name in ("evil.pth", "evil2.pth"):
        with pytest.raises(DataError, match="not a file of weights"):
            read_weights(tmp_path / name)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda w: w.pop("features.0.bias"), "lacks 'features.0.bias'"),
        (lambda w: w.update(more=torch.ones(1)), "has 'more', which the network lacks"),
        (
            lambda w: w.update({"features.0.weight": torch.ones(64, 5, 3, 3)}),
            "has the shape (64, 5, 3, 3), not (64, 3, 3, 3)",
        ),
        (lambda w: w.update({"features.0.bias": torch.ones(7)}), "is of another network"),
    ],
)
def test_weights_of_another_network_are_named(change, why):
    found = trained().state_dict()
    change(found)
    with pytest.raises(ConfigError) as refused:
        fill(trained(classes=10), found, "weights.pth")
    assert why in str(refused.value)


def test_a_single_number_of_another_shape_is_of_another_network():
    network = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    found = {**network.state_dict(), "1.num_batches_tracked": torch.zeros(1)}
    with pytest.raises(ConfigError, match=r"'1.num_batches_tracked' has the shape \(1,\), not \(\)"):
        fill(network, found, "weights.pth")


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 1e300])
def test_a_weight_that_is_no_number_is_named(number):
    network = torch.nn.Linear(2, 2)
    found = {"weight": torch.tensor([[1, 2], [3, number]], dtype=torch.float64), "bias": torch.zeros(2)}
    with pytest.raises(DataError, match="'weight' holds a number that is NaN or infinite"):
        fill(network, found, "weights.pth")


def test_weights_may_lie_in_a_checkpoint_or_in_safetensors(tmp_path):
    from safetensors.torch import save_file

    own = {name: value.clone() for name, value in trained().state_dict().items()}
    save_file(own, tmp_path / "w.safetensors")
    torch.save({"epoch": 3, "state_dict": {f"module.{name}": value for name, value in own.items()}}, tmp_path / "c.pth")
    for name in ("w.safetensors", "c.pth"):
        found = read_weights(tmp_path / name)
        assert set(found) == set(own)
        assert all(torch.equal(found[key], own[key]) for key in own)


@pytest.mark.parametrize(
    ("backbone", "why"),
    [
        (
            Torchvision(model=SMALL, weights="IMAGENET1K_V7"),
            "neither a file nor the name of weights of squeezenet1_1: it has",
        ),
        (Torchvision(model="squeezenet", weights="DEFAULT"), "no classifier named 'squeezenet'"),
    ],
)
def test_a_name_that_there_is_not_is_refused(backbone, why):
    with pytest.raises(WslError) as refused:
        backbone.check_start()
    assert why in str(refused.value)


def test_images_that_no_weights_fit_are_refused(weights):
    with pytest.raises(ConfigError, match="images of 2 do not fit"):
        Torchvision(model=SMALL, weights=str(weights)).build((2, 64, 64), 10)
    with pytest.raises(ConfigError, match="from 0 to 1"):
        Pixels(3, size=8).learn(Scaler(torch.full((3, 1, 1), 120.0), torch.ones(3, 1, 1)))
    with pytest.raises(ConfigError, match="scaled by channel"):
        Pixels(3, size=8).learn(Scaler(torch.zeros(3, 8, 8), torch.ones(3, 8, 8)))


# --------------------------------------------------------------------- runs


@pytest.mark.usefixtures("fresh_database")
def test_a_run_starts_from_weights_says_so_and_is_read_back_without_them(weights, tmp_path, monkeypatch):
    """A tracked run, its model and its export need the file no longer."""
    monkeypatch.chdir(tmp_path)
    y = torch.arange(24) % 3
    images = torch.randint(256, (24, 3, 24, 24), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    own = tmp_path / "own.pth"
    own.write_bytes(weights.read_bytes())
    arrays = {"x": images.numpy(), "y": y.numpy(), "candidates": np.eye(3, dtype=bool)[y.numpy()]}
    np.savez(tmp_path / "data.npz", normalise="per-channel", **arrays)
    ask = ["run", "--dataset", "npz", "--dataset-path", "data.npz"]
    ask += ["--backbone", "torchvision", "--backbone-model", SMALL, "--backbone-weights", "own.pth"]
    ask += ["--backbone-size", "32", "--epochs", "1", "--batch-size", "8", "--lr", "0.001", "--json"]
    done = CliRunner().invoke(main, ask)
    assert done.exit_code == 0, done.output
    assert "squeezenet1_1 starts from the weights own.pth" in done.stderr
    assert "its head of 1000 classes is replaced by a new one of 3" in done.stderr
    own.unlink()
    run_id = json.loads(done.stdout)["run_id"]
    result = wsl_toolkit.load_run(run_id)
    scaling = next(module for module in result.network.modules() if isinstance(module, Pixels))
    assert torch.equal(scaling.shift.flatten(), result.transform.shift.flatten())
    exported = CliRunner().invoke(main, ["export", run_id, "--out", "m.safetensors"])
    assert exported.exit_code == 0, exported.output
    refused = CliRunner().invoke(main, ask)
    assert refused.exit_code == 2
    assert "'own.pth' is neither a file nor the name of weights" in " ".join(refused.output.split())
    assert len(list((tmp_path / "wsl-runs" / "runs").iterdir())) == 1, "a mistake records nothing"
