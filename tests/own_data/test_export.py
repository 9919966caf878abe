"""What `wsl export` writes predicts what the model predicts, anywhere, and says what it takes and gives."""

from __future__ import annotations

import io
import json
import shutil
import sys
import zipfile
from pathlib import Path

import attrs
import numpy as np
import pyarrow.csv
import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn

import wsl_toolkit
from tests.own_data.conftest import CLASSES, ZOO, Wsl, write_csv, zoo_rows
from wsl_toolkit.data.dataset import Scaler
from wsl_toolkit.errors import ConfigError, WslError
from wsl_toolkit.own_data import export
from wsl_toolkit.own_data.model_file import Model
from wsl_toolkit.own_data.tree_ensemble import UnrolledTrees
from wsl_toolkit.own_data.trees import Boosting, grow
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.runs import loading
from wsl_toolkit.runs.folder import find_folder

pytestmark = pytest.mark.usefixtures("small_pictures")

LINEAR = ("--estimator", "cc", "--backbone", "linear", "--epochs", 2, "--lr", 0.1, "--weight-decay", 0)
QUIET = ("--quiet", "--no-track")
FORMATS = [pytest.param("m.onnx", marks=pytest.mark.system), "m.pt2"]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory) -> Path:
    """A model of animals, made once."""
    home = tmp_path_factory.mktemp("fit")
    table = write_csv(home / "zoo.csv", zoo_rows())
    Wsl(home)("fit", table, *ZOO, "--out", home / "model", *LINEAR, *QUIET)
    return home / "model"


@pytest.fixture
def zoo_model(wsl, fitted) -> Model:
    shutil.copytree(fitted, wsl.home / "model")
    return Model.load(wsl.home / "model" / "data" / "model.safetensors", load_plugins().registry)


def answers(path: Path, inputs: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return logits and probabilities as a program computes them that has the file alone."""
    if path.suffix == ".pt2":
        with torch.no_grad():
            logits, probabilities = torch.export.load(path).module()(inputs)
        return logits.numpy(), probabilities.numpy()
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    logits, probabilities = session.run(["logits", "probabilities"], {"inputs": inputs.numpy()})
    return logits, probabilities


def said_by(path: Path) -> dict:
    """Return what the file says of itself."""
    if path.suffix == ".pt2":
        extra = {"wsl.json": ""}
        torch.export.load(path, extra_files=extra)
        return json.loads(extra["wsl.json"])
    import onnx

    return json.loads({entry.key: entry.value for entry in onnx.load(path).metadata_props}["wsl"])


@pytest.mark.parametrize("name", FORMATS)
def test_a_graph_of_a_table_predicts_what_the_model_predicts_for_any_number_of_rows(wsl, zoo, zoo_model, name):
    said = wsl("export", "model", "--out", name).stderr
    assert f"inputs float64[batch, {len(zoo_model.schema.columns)}], columns poids (kg), taille, pelage" in said
    assert "classes: " + ", ".join(sorted(CLASSES)) in said
    rows = zoo_model.schema.encode(pyarrow.csv.read_csv(zoo))
    assert bool(rows.isnan().any()), "missing values are part of what is exported"
    for count in (1, 2, len(rows)):
        wanted = zoo_model.probabilities(rows[:count]).numpy()
        logits, probabilities = answers(wsl.home / name, rows[:count])
        np.testing.assert_allclose(probabilities, wanted, atol=1e-6)
        np.testing.assert_allclose(np.exp(logits) / np.exp(logits).sum(1, keepdims=True), wanted, atol=1e-6)
    facts = said_by(wsl.home / name)
    assert facts["classes"] == sorted(CLASSES)
    assert facts["columns"][2] == {"name": "pelage", "categories": list(zoo_model.schema.columns[2].categories)}
    assert facts["estimator"]["name"] == "cc"


@pytest.mark.parametrize("name", FORMATS)
def test_a_graph_knows_neither_device_nor_path(wsl, zoo_model, name):
    wsl("export", "model", "--out", name)
    content = (wsl.home / name).read_bytes()
    if name == "m.pt2":
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            content = b"".join(archive.read(entry) for entry in archive.namelist())
    for root in {Path(wsl_toolkit.__file__).parents[1], Path(torch.__file__).parents[1], wsl.home}:
        assert str(root).encode() not in content
    assert b"_assert_tensor_metadata" not in content


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("linear", "float64"),
        ("mlp", "float32"),
        ("lenet", "uint8"),
        ("densenet22", "uint8"),
        pytest.param("resnet32", "uint8", marks=pytest.mark.system),
        pytest.param("torchvision", "uint8", marks=pytest.mark.system),
    ],
)
def test_a_graph_runs_where_its_tensors_are(name, dtype):
    """On the device `meta`, which no tensor of the CPU can meet: what named a device would fail."""
    model = made_model(name, dtype)
    moved = export.graph_of(model).module().to("meta")
    logits, probabilities = moved(export.made_up(model, 5).to("meta"))
    assert logits.device.type == probabilities.device.type == "meta"
    assert tuple(probabilities.shape) == (5, 3)


def made_model(name: str, dtype: str, **changes) -> Model:
    """Return an untrained model of images."""
    backbone = load_plugins().registry.create("backbone", name, {})
    model = Model(
        network=backbone.build((3, 16, 16), 3).eval(),
        transform=Scaler(torch.full((3, 1, 1), 0.4), torch.full((3, 1, 1), 0.2)),
        class_names=("a", "b", "c"),
        schema=None,
        input_shape=(3, 16, 16),
        about={
            "backbone": {"name": name},
            "estimator": {"name": "cc"},
            "input_dtype": dtype,
            "network_input": [3, 16, 16],
        },
    )
    return attrs.evolve(model, **changes)


@pytest.mark.system
@pytest.mark.parametrize("name", ["linear", "mlp", "lenet", "resnet32", "densenet22", "torchvision"])
def test_onnxruntime_agrees_for_every_network(name, tmp_path):
    model = made_model(name, "uint8")
    made = export.export(model, "onnx", tmp_path / "m.onnx", load_plugins().registry)
    assert made.largest_difference < 1e-5
    x = export.made_up(model, 4)
    np.testing.assert_allclose(answers(tmp_path / "m.onnx", x)[1], model.probabilities(x).numpy(), atol=1e-5)


def boosted() -> tuple[Model, Tensor]:
    rng = torch.Generator().manual_seed(0)
    x = torch.rand(200, 3, generator=rng) * 2 - 1
    y = (x[:, 0] * x[:, 1] > 0).long() + 2 * (x[:, 2] > 0.3).long()
    sets = wsl_toolkit.CandidateSets.from_labels(y, 5)
    trees = grow(x, sets, Boosting(max_iter=6)).ensembles[-1]
    flat = {"input_shape": (3,), "class_names": tuple("abcde"), "transform": Scaler(torch.zeros(3), torch.ones(3))}
    return made_model("linear", "float32", network=trees, **flat), x


def test_unrolled_trees_take_as_many_steps_as_the_deepest_has():
    model, x = boosted()
    unrolled = UnrolledTrees(model.network)
    torch.testing.assert_close(unrolled(x), model.network(x))
    assert unrolled.depth > 2
    unrolled.depth -= 1
    assert not torch.allclose(unrolled(x), model.network(x)), "the last step leads to leaves"


@pytest.mark.parametrize("name", FORMATS)
def test_trees_are_exported_too(tmp_path, name):
    model, x = boosted()
    export.export(model, export.choose_format(None, Path(name)), tmp_path / name, load_plugins().registry)
    np.testing.assert_allclose(answers(tmp_path / name, x)[1], model.probabilities(x).numpy(), atol=1e-6)


# --------------------------------------------------------------------- runs


@pytest.fixture(scope="module")
def made_run(tmp_path_factory) -> tuple[Path, str]:
    """A run of two trials, made once, and where it is."""
    home = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        run = Wsl(home).json("run", "--trials", 2, "--epochs", 1, "--backbone", "linear", "--json")
    return home, run["run_id"]


@pytest.fixture
def two_trials(wsl, made_run) -> str:
    home, run_id = made_run
    shutil.copytree(home / "wsl-runs", wsl.home / "wsl-runs")
    return run_id


@pytest.fixture
def digits_run(wsl, two_trials) -> str:
    """The first of the trials."""
    return loading.trial_folders(find_folder(wsl.home / "wsl-runs", two_trials))[0].run_id


def of_the_run(run_id: str, x: Tensor) -> np.ndarray:
    """Return the probabilities that the run's own model gives raw inputs, in Python."""
    with torch.no_grad():
        return wsl_toolkit.load_run(run_id).model(x).softmax(1).numpy()


@pytest.mark.parametrize("name", FORMATS)
def test_a_runs_graph_takes_the_datasets_own_inputs(wsl, digits_run, name):
    wsl("export", digits_run, "--out", name)
    x = wsl_toolkit.load_data("digits").x[:50]
    np.testing.assert_allclose(answers(wsl.home / name, x)[1], of_the_run(digits_run, x), atol=1e-6)


def test_a_runs_weights_are_a_model_that_wsl_predict_reads(wsl, digits_run, tmp_path):
    facts = wsl.json("export", f"wsl-runs/runs/{digits_run}", "--out", "m.safetensors", "--json")
    assert facts["inputs"] == {"name": "inputs", "dtype": "float32", "shape": ["batch", 1, 8, 8]}
    assert facts["largest_difference"] == 0
    x = wsl_toolkit.load_data("digits").x[:20]
    np.savez(tmp_path / "new.npz", x=x.numpy())
    answered = wsl.json("predict", "m.safetensors", "new.npz", "--json")
    np.testing.assert_allclose([row["p(3)"] for row in answered], of_the_run(digits_run, x)[:, 3], atol=1e-6)


def test_a_model_of_numbers_alone_is_exported_as_it_is_read_from_its_folder(wsl):
    rows = [f"{i % 7 / 7},{i % 5 / 5},{('x|y', 'y|z', 'x|z', 'x')[i % 4]}" for i in range(40)]
    (wsl.home / "numbers.csv").write_text("\n".join(["a,b,candidates", *rows, ""]))
    wsl("fit", "numbers.csv", "--out", "model", *LINEAR, "--no-track", "--quiet")
    assert wsl.json("export", "model", "--out", "m.pt2", "--json")["largest_difference"] < 1e-6


@pytest.mark.usefixtures("fresh_database")
def test_a_run_on_frozen_features_is_exported_with_the_network_that_makes_them(wsl):
    run = wsl.json("run", "--backbone", "mlp", "--backbone-frozen", "--epochs", 2, "--json", "--quiet")["run_id"]
    wsl("export", run, "--out", "m.pt2")
    x = wsl_toolkit.load_data("digits").x[:50]
    np.testing.assert_allclose(answers(wsl.home / "m.pt2", x)[1], of_the_run(run, x), atol=1e-6)
    assert "cannot be saved without a pickle" in wsl.refused("export", run, "--out", "m.safetensors")


def test_a_run_of_several_trials_says_which_there_are(wsl, two_trials, digits_run):
    said = wsl.refused("export", two_trials, "--out", "m.pt2")
    assert f"run {two_trials} has 2 trials: give one of them: {digits_run} (seed 0)" in said


def test_a_run_that_was_interrupted_says_so_and_one_without_a_checkpoint_has_no_model(wsl, digits_run):
    (wsl.home / "wsl-runs" / "runs" / digits_run / "result.json").unlink()
    assert "is not finished" in wsl("export", digits_run, "--out", "m.safetensors").stderr
    for path in (wsl.home / "wsl-runs" / "runs" / digits_run / "checkpoints").iterdir():
        path.unlink()
    assert "has no checkpoint" in wsl.refused("export", digits_run, "--out", "n.safetensors")


@pytest.mark.usefixtures("fresh_database")
def test_a_fits_run_leads_to_its_model(wsl, zoo):
    wsl("fit", zoo, *ZOO, "--out", "model", *LINEAR, "--quiet")
    (folder,) = (wsl.home / "wsl-runs" / "runs").iterdir()
    assert "give the folder that `wsl fit --out` wrote" in wsl.refused("export", folder.name, "--out", "m.pt2")


# ----------------------------------------------------------------- refusals


def test_nothing_is_overwritten_without_force(wsl, zoo_model):
    (wsl.home / "m.safetensors").write_text("mine")
    assert "exists already: --force replaces it" in wsl.refused("export", "model", "--out", "m.safetensors")
    assert (wsl.home / "m.safetensors").read_text() == "mine"
    wsl("export", "model", "--out", "m.safetensors", "--force")
    wsl("export", "m.safetensors", "--out", "again.safetensors")
    with (
        safe_open(str(wsl.home / "m.safetensors"), "pt") as one,
        safe_open(str(wsl.home / "again.safetensors"), "pt") as other,
    ):
        assert one.metadata() == other.metadata(), "with a checksum of all that the file holds"
    own = "model/data/model.safetensors"
    assert "would write over the input" in wsl.refused("export", "model", "--out", own, "--force")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("model", "--out", "m.bin"), "m.bin does not say what to write: give --format"),
        (("model", "--out", "m.onnx", "--format", "torch-export"), "of the format onnx, not torch-export"),
        (("modle", "--out", "m.pt2"), "there is no run 'modle'"),
        (("zoo.csv", "--out", "m.pt2"), "not a readable model"),
    ],
)
def test_a_mistake_is_named_and_nothing_is_written(wsl, zoo, arguments, why):
    before = wsl.files()
    assert why in wsl.refused("export", *arguments)
    assert wsl.files() == before


def test_without_its_packages_onnx_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)  # as if it were not installed
    with pytest.raises(ConfigError, match=r"pip install 'wsl-toolkit\[onnx\]'"):
        export.export(made_model("linear", "uint8"), "onnx", tmp_path / "m.onnx", load_plugins().registry)


class Rolling(nn.Module):
    """A network that throws dice."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.randn_like(x.flatten(1)[:, :3])


class Counting(nn.Module):
    """A network that counts its examples as Python does: one of torch's two ways takes that for a constant."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, :3] + torch.zeros(3).expand(len(x), -1)


class Branching(nn.Module):
    """A network whose path depends on its inputs."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, :3] if float(x.sum()) > 0 else x.flatten(1)[:, 3:6]


def test_a_graph_that_would_predict_something_else_is_not_written(tmp_path):
    model = made_model("linear", "uint8", network=Rolling())
    with pytest.raises(WslError, match="does not predict what the model predicts"):
        export.export(model, "torch-export", tmp_path / "m.pt2", load_plugins().registry)
    assert not list(tmp_path.iterdir())


def test_a_network_that_counts_its_examples_is_exported_for_any_number(tmp_path):
    model = made_model("linear", "uint8", network=Counting())
    export.export(model, "torch-export", tmp_path / "m.pt2", load_plugins().registry)
    assert answers(tmp_path / "m.pt2", export.made_up(model, 4))[1].shape == (4, 3)


def test_a_network_that_no_graph_can_hold_is_named(tmp_path):
    model = made_model("linear", "uint8", network=Branching())
    with pytest.raises(ConfigError, match="the network linear cannot be written as a graph"):
        export.export(model, "torch-export", tmp_path / "m.pt2", load_plugins().registry)
    assert not list(tmp_path.iterdir())
