"""A model's file: damage is noticed, whatever bit it hit; older files still load."""

from __future__ import annotations

import random

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import wsl_toolkit
from tests.own_data.conftest import ZOO
from wsl_toolkit.errors import DataError
from wsl_toolkit.networks import Ensemble
from wsl_toolkit.own_data import fitting
from wsl_toolkit.own_data.model_file import Model, checksum, model_from
from wsl_toolkit.plugins.loading import load_plugins

FIT = ("--epochs", 1, "--lr", 0.1, "--weight-decay", 0, "--quiet", "--no-track")


@pytest.fixture
def weights(wsl, zoo):
    wsl("fit", zoo, *ZOO, "--out", "m", *FIT)
    return wsl.home / "m" / "data" / "model.safetensors"


def parts(path):
    with safe_open(str(path), framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118


def test_a_flipped_bit_anywhere_is_refused(wsl, zoo, weights):
    sound = weights.read_bytes()
    dice = random.Random(0)
    registry = load_plugins().registry
    for _ in range(300):
        content = bytearray(sound)
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
        weights.write_bytes(content)
        with pytest.raises(DataError):
            Model.load(weights, registry)
    content = bytearray(sound)
    content[-3] ^= 1
    weights.write_bytes(content)
    assert "does not match its checksum" in wsl.refused("predict", "m", zoo)


def test_a_model_without_a_checksum_still_loads(weights):
    registry = load_plugins().registry
    before = Model.load(weights, registry)
    tensors, metadata = parts(weights)
    save_file(tensors, weights, metadata={"wsl": metadata["wsl"]})
    again = Model.load(weights, registry)
    x = torch.zeros(3, 3, dtype=torch.float64)
    assert torch.equal(again.probabilities(x), before.probabilities(x))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("kind", ["network.", "transform.shift"])
@pytest.mark.parametrize("sealed", [True, False])
def test_a_weight_that_is_not_a_number_is_refused(wsl, zoo, weights, value, kind, sealed):
    tensors, metadata = parts(weights)
    name = next(name for name in tensors if name.startswith(kind))
    tensors[name].view(-1)[0] = value
    text = metadata["wsl"]
    save_file(tensors, weights, metadata={"wsl": text, **({"sha256": checksum(text, tensors)} if sealed else {})})
    assert "NaN or infinity" in wsl.refused("predict", "m", zoo)


def test_a_header_nested_beyond_reason_is_refused(weights):
    tensors, _ = parts(weights)
    text = "[" * 100_000
    save_file(tensors, weights, metadata={"wsl": text, "sha256": checksum(text, tensors)})
    with pytest.raises(DataError, match="header is damaged"):
        Model.load(weights, load_plugins().registry)


def test_empty_lines_of_a_single_column_are_rows(wsl, tmp_path):
    rows = "".join(f"{i % 2 * 9 + i / 100},{'a' if i % 2 else 'b'}\n" for i in range(60))
    (tmp_path / "t.csv").write_text(f"x,candidates\n{rows}")
    wsl("fit", "t.csv", "--out", "m", *FIT)
    (tmp_path / "new.csv").write_text("x\n1\n\n9\n\n2\n")
    assert len(wsl.json("predict", "m", "new.csv", "--json")) == 5


@pytest.mark.parametrize("method", ["crosel", "htc", "vi-pll"])
def test_networks_and_heads_that_predict_together_are_saved_and_read_back(tmp_path, method):
    y = torch.arange(80) % 4
    x = 3 * torch.eye(4)[y] + torch.randn(80, 4, generator=torch.Generator().manual_seed(0))
    data = wsl_toolkit.make_data(x, wsl_toolkit.CandidateSets.from_labels(y, 4))
    registry = load_plugins().registry
    options = fitting.FitOptions(
        estimator=registry.create("estimator", method, {}),
        backbone=registry.create("backbone", "linear", {}),
        epochs=1,
        lr=0.1,
        weight_decay=0.0,
        calibrate=False,
    )
    fitted, _ = fitting.fit_and_report(data, registry, options)
    made, path = model_from(fitted, data, fitting.describe(options, fitted)), tmp_path / "m.safetensors"
    made.save(path)
    again = Model.load(path, registry)
    assert isinstance(again.network, Ensemble) is (method == "crosel")
    assert torch.equal(again.probabilities(data.x), made.probabilities(data.x))


def test_a_model_that_predicts_with_more_than_its_backbone_is_read_back(wsl, zoo):
    wsl("fit", zoo, *ZOO, "--out", "m", "--estimator", "records-proden", "--backbone", "linear", *FIT)
    path = wsl.home / "m" / "data" / "model.safetensors"
    model = Model.load(path, load_plugins().registry)
    tensors, _ = parts(path)
    weight, bias = (tensors[f"network.network.1.{name}"].double() for name in ("weight", "bias"))
    share = (weight @ tensors["network.mean"].double() + bias).softmax(0)
    x = torch.tensor([[1.0, 2.0, 3.0], [0.0, -1.0, 4.0]], dtype=torch.float64)
    logits = model.transform(x).double() @ weight.T + bias - torch.log(share + 1e-9)
    torch.testing.assert_close(model.probabilities(x).double(), (logits / model.temperature).softmax(1))


def test_a_model_of_an_estimator_that_is_gone_says_which(wsl, zoo):
    wsl("fit", zoo, *ZOO, "--out", "m", "--estimator", "records-proden", "--backbone", "linear", *FIT)
    path = wsl.home / "m" / "data" / "model.safetensors"
    tensors, metadata = parts(path)
    text = metadata["wsl"].replace("records-proden", "records-of-old")
    save_file(tensors, path, metadata={"wsl": text, "sha256": checksum(text, tensors)})
    assert "records-of-old" in wsl.refused("predict", "m", zoo)
