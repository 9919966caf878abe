"""Frozen networks: features that are what the last layer sees, computed once, and models that predict from images."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any, ClassVar

import attrs
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

import wsl_toolkit as wsl
from wsl_toolkit.api import train as api_train
from wsl_toolkit.cli import main
from wsl_toolkit.data.problem import make_problem
from wsl_toolkit.errors import ConfigError, DataError, InterruptedRunError, PluginError, WslError
from wsl_toolkit.networks import read_weights
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.runs.feature_cache import FORMAT, FeatureCache, tensors_digest
from wsl_toolkit.runs.features import FeatureMaker
from wsl_toolkit.studies.jobs import make_job
from wsl_toolkit.training.config import RunConfig, Training
from wsl_toolkit.training.features import SEED, load_weights, make_extractor

pytestmark = pytest.mark.usefixtures("small_pictures")

LENET = {"name": "lenet", "frozen": True}
GENERATOR = {"name": "mcl-skewed", "alpha": 0.7}
REGISTRY = load_plugins().registry


@pytest.fixture(scope="module")
def images() -> wsl.Data:
    """Small pictures of four classes, bars of different places, and an official test part."""
    rng = np.random.default_rng(0)
    y = rng.integers(4, size=240)
    x = rng.integers(0, 60, size=(240, 1, 16, 16))
    for place, label in enumerate(y):
        x[place, 0, 4 * label : 4 * label + 3] += 150
    x = torch.from_numpy(x.astype(np.uint8))
    labels = torch.from_numpy(y)
    return wsl.Data(
        name="bars", x=x[:180], y=labels[:180], test_x=x[180:], test_y=labels[180:], num_classes=4,
        normalise="per-channel",
    )  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_database_in: Any) -> Path:
    fresh_database_in(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return tmp_path


def lenet(**values: Any) -> Any:
    return REGISTRY.create("backbone", "lenet", {"frozen": True, **values})


def maker(folder: Path, counts: list[int] | None = None, **more: Any) -> FeatureMaker:
    def tell(done: int, of: int) -> None:
        if counts is not None:
            counts.append(done)

    return FeatureMaker(registry=REGISTRY, data_dir=folder, cache=FeatureCache(folder / "cache", **more), tell=tell)


def network_of(data: wsl.Data) -> nn.Module:
    """The network that is frozen where no file gives its weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        network: nn.Module = lenet().build(data.input_shape, data.num_classes)
    return network.eval()


def slow_features(data: wsl.Data, network: nn.Module, x: Tensor) -> Tensor:
    """One example after the other: scaled by the mean and deviation of all but the test part, layer by layer."""
    pixels = data.x.double() / 255
    mean, deviation = pixels.mean(), pixels.std(correction=0)
    found = []
    for one in x:
        h = ((one.double() / 255 - mean) / deviation).float().unsqueeze(0)
        for layer in list(network.children())[:-1]:
            h = layer(h)
        found.append(h.flatten())
    return torch.stack(found).detach()


# ------------------------------------------------------------------------------------------------------ what they are


def test_features_are_what_the_last_layer_sees_of_each_example(images: wsl.Data, tmp_path: Path) -> None:
    made = maker(tmp_path).embedded(images, lenet())
    network = network_of(images)
    torch.testing.assert_close(made.x, slow_features(images, network, images.x), rtol=1e-4, atol=1e-5)
    assert made.test_x is not None
    torch.testing.assert_close(made.test_x, slow_features(images, network, images.test_x), rtol=1e-4, atol=1e-5)
    assert made.raw is images
    assert made.y is images.y
    assert not made.x.requires_grad


def test_a_frozen_network_stays_in_evaluation_whatever_it_is_part_of(images: wsl.Data) -> None:
    extractor = make_extractor(lenet(), images)
    whole = nn.Sequential(extractor, nn.Linear(84, 4)).train()
    assert not any(module.training for module in extractor.modules())
    assert whole[1].training
    assert all(not parameter.requires_grad for parameter in extractor.parameters())


@pytest.mark.parametrize("generator", [GENERATOR, {"name": "flip-instance"}], ids=lambda each: each["name"])
def test_candidate_sets_are_the_same_with_and_without_a_frozen_network(
    images: wsl.Data, tmp_path: Path, generator: dict[str, Any]
) -> None:
    name, values = generator["name"], {key: value for key, value in generator.items() if key != "name"}
    made = REGISTRY.create("generator", name, values)
    embedded = maker(tmp_path).embedded(images, lenet())
    plain, frozen = (make_problem(data, made, seed=3, validation=0.2, test=0.2) for data in (images, embedded))
    assert plain.train_candidates.content_hash == frozen.train_candidates.content_hash
    assert torch.equal(plain.clean.test, frozen.clean.test)  # type: ignore[arg-type]
    assert frozen.input_shape == (84,)


def test_the_scale_of_features_is_learned_from_the_training_part_alone(images: wsl.Data, tmp_path: Path) -> None:
    data = maker(tmp_path).embedded(images, lenet())
    problem = make_problem(data, REGISTRY.create("generator", "mcl", {}), seed=0, validation=0.3, test=0.2)
    assert isinstance(problem.train_x, Tensor)
    spread = problem.train_x.std(0, correction=0)
    assert torch.allclose(problem.train_x.mean(0), torch.zeros(84), atol=1e-5)
    assert torch.allclose(spread[spread > 0], torch.ones(()), atol=1e-4)
    assert isinstance(problem.validation_x, Tensor)
    assert problem.validation_x.mean(0).abs().max() > 1e-3


# ---------------------------------------------------------------------------------------------------------- the cache


def test_features_are_computed_once_and_kept_by_content(images: wsl.Data, tmp_path: Path) -> None:
    counts: list[int] = []
    first = maker(tmp_path, counts).embedded(images, lenet())
    assert counts[-1] == 240
    del counts[:]
    again = maker(tmp_path, counts).embedded(images, lenet(frozen_head="mlp"))
    assert counts == []
    assert torch.equal(first.x, again.x)
    assert first.digest() == again.digest() != images.digest()
    other_labels = attrs.evolve(images, y=images.y.flip(0))  # type: ignore[union-attr]
    relabelled = maker(tmp_path, counts).embedded(other_labels, lenet())
    assert counts == []
    assert relabelled.digest() != first.digest()
    assert torch.equal(relabelled.y, other_labels.y)  # type: ignore[arg-type]
    other_inputs = attrs.evolve(images, x=images.x.flip(0))
    assert maker(tmp_path, counts).embedded(other_inputs, lenet()).digest() != first.digest()
    assert counts[-1] == 240
    assert len(list((tmp_path / "cache").glob("*.safetensors"))) == 2


@pytest.mark.parametrize("damage", ["truncated", "altered", "empty", "of another key"])
def test_damaged_features_are_computed_again(images: wsl.Data, tmp_path: Path, damage: str) -> None:
    sound = maker(tmp_path).embedded(images, lenet())
    (path,) = (tmp_path / "cache").glob("*.safetensors")
    content = path.read_bytes()
    if damage == "of another key":
        FeatureCache(tmp_path / "cache").put("f" * 64, sound.x, sound.test_x, data="x", network="y")
        (tmp_path / "cache" / f"{'f' * 32}.safetensors").replace(path)
    else:
        end = {"truncated": content[:-100], "altered": content[:-1] + bytes([content[-1] ^ 1]), "empty": b""}
        path.write_bytes(end[damage])
    counts: list[int] = []
    again = maker(tmp_path, counts).embedded(images, lenet())
    assert counts[-1] == 240
    assert torch.equal(again.x, sound.x)
    assert path.read_bytes()[-1:] == content[-1:]
    maker(tmp_path, counts := []).embedded(images, lenet())
    assert counts == []


@pytest.mark.parametrize("wrong", [torch.zeros(7, 84), torch.zeros(180), torch.zeros(180, 84, dtype=torch.int64)])
def test_features_of_other_examples_under_a_true_checksum_are_computed_again(
    images: wsl.Data, tmp_path: Path, wrong: torch.Tensor
) -> None:
    sound = maker(tmp_path).embedded(images, lenet())
    (path,) = (tmp_path / "cache").glob("*.safetensors")
    with safe_open(str(path), framework="pt") as file:
        said = file.metadata()
    tensors = {"x": wrong, "test_x": sound.test_x}
    save_file(tensors, path, metadata={**said, "sha256": tensors_digest(tensors)})  # type: ignore[arg-type]
    maker(tmp_path, counts := []).embedded(images, lenet())
    assert counts[-1] == 240


def test_a_disk_that_takes_nothing_stops_nothing(
    images: wsl.Data, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    assert maker(tmp_path).embedded(images, lenet()).x.shape == (180, 84)
    assert "features are not kept" in caplog.text


def test_the_list_names_what_is_there_and_leaves_out_what_is_strange(images: wsl.Data, tmp_path: Path) -> None:
    maker(tmp_path).embedded(images, lenet())
    cache = FeatureCache(tmp_path / "cache")
    (tmp_path / "cache" / "strange.safetensors").write_bytes(b"\xff" * 40)
    save_file({"x": torch.zeros(1)}, tmp_path / "cache" / "other.safetensors")
    for number, about in enumerate(({"made_at": "now"}, {"made_at": 1e300}, {"network": 5}, {"examples": "x"})):
        known = {"data": "x", "network": "y", "examples": 1, "width": 1, "made_at": 5.0}
        said = {"format": FORMAT, "key": "k", "about": json.dumps({**known, **about})}
        save_file({"x": torch.zeros(1)}, tmp_path / "cache" / f"{number}.safetensors", metadata=said)
    (kept,) = cache.kept()
    assert (kept.data, kept.examples, kept.width) == ("bars", 240, 84)
    assert kept.network.startswith("lenet, weights ")
    assert kept.bytes == kept.path.stat().st_size
    assert FeatureCache(tmp_path / "nowhere").kept() == []


# -------------------------------------------------------------------------------------------------------- the weights


def test_weights_come_from_a_file_whose_last_layer_may_be_another(images: wsl.Data, tmp_path: Path) -> None:
    torch.manual_seed(7)
    trained = lenet().build((1, 16, 16), 11)
    state = trained.state_dict()
    save_file(state, tmp_path / "net.safetensors")
    torch.save({key: value for key, value in state.items() if not key.startswith("11.")}, tmp_path / "net.pt")
    by_name = lenet(frozen_weights="net.safetensors")  # below the data directory
    found = maker(tmp_path).embedded(images, by_name)
    torch.testing.assert_close(found.x, slow_features(images, trained.eval(), images.x), rtol=1e-4, atol=1e-5)
    without_head = maker(tmp_path).embedded(images, lenet(frozen_weights=str(tmp_path / "net.pt")))
    assert without_head.digest() == found.digest() != maker(tmp_path).embedded(images, lenet()).digest()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("3.weight"), r"another network: it lacks '3\.weight'"),
        (
            lambda state: state.update({"0.bias": torch.zeros(5)}),
            r"'0\.bias' has the shape \(5,\), not \(6,\)",
        ),
        (
            lambda state: state.update({"extra": torch.zeros(1)}),
            "it has 'extra', which the network lacks",
        ),
    ],
)
def test_weights_of_another_network_are_refused(images: wsl.Data, change: Any, message: str) -> None:
    network = network_of(images)
    state = dict(network.state_dict())
    change(state)
    with pytest.raises(ConfigError, match=message):
        load_weights(network, state, "weights.pt")


def test_a_frozen_torchvision_network_has_the_weights_it_was_told_to_start_from(
    images: wsl.Data, tmp_path: Path
) -> None:
    from torchvision import models

    for seed in (1, 2):
        torch.manual_seed(seed)
        torch.save(models.resnet18(weights=None).state_dict(), tmp_path / f"{seed}.pth")
    told = {"model": "resnet18", "size": 32, "frozen": True}
    one, other = (
        REGISTRY.create("backbone", "torchvision", {**told, "weights": str(tmp_path / f"{seed}.pth")})
        for seed in (1, 2)
    )
    extractor = make_extractor(one, images)
    ours, theirs = extractor.body.state_dict(), torch.load(tmp_path / "1.pth", weights_only=True)
    assert torch.equal(ours["1.conv1.weight"], theirs["conv1.weight"])
    found = [maker(tmp_path).embedded(images, each).digest() for each in (one, other, one)]
    assert found[0] == found[2] != found[1]


def test_files_that_are_no_weights_are_refused_and_never_executed(tmp_path: Path) -> None:
    class Harmful:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "executed"),)

    torch.save({"x": Harmful()}, tmp_path / "harmful.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    (tmp_path / "text.safetensors").write_text("no weights")
    for name in ("harmful.pt", "text.safetensors"):
        with pytest.raises(DataError, match="is not a file of weights, or is damaged"):
            read_weights(tmp_path / name)
    assert not (tmp_path / "executed").exists()
    with pytest.raises(DataError, match="save a network's state_dict"):
        read_weights(tmp_path / "list.pt")


@attrs.frozen(kw_only=True)
class Doubling(wsl.Backbone):
    """A network that does more with its logits."""

    name: ClassVar[str] = "doubling"

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        class Doubled(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.last = nn.Linear(256, num_classes)

            def forward(self, x: Tensor) -> Tensor:
                return 2 * self.last(x.flatten(1))

        return Doubled()


def test_a_network_whose_features_are_out_of_reach_says_so(images: wsl.Data) -> None:
    with pytest.raises(PluginError, match="backbone doubling cannot be frozen"):
        make_extractor(Doubling(frozen=True), images)


# --------------------------------------------------------------------------------------------------------------- runs


def test_a_model_trained_on_features_predicts_from_images_and_nothing_is_written(images: wsl.Data, here: Path) -> None:
    result = wsl.train(images, backbone=LENET, generator=GENERATOR, epochs=20, lr=0.1, validation=0.1)
    assert not (here / "wsl-runs" / "features").exists()
    assert result.metrics["test/accuracy"] > 0.9
    assert images.test_x is not None
    logits = result.model(images.test_x)
    assert float((logits.argmax(1) == images.test_y).double().mean()) == pytest.approx(result.metrics["test/accuracy"])
    torch.testing.assert_close(result.network(result.transform(images.test_x)), logits)
    assert [type(layer) for layer in result.network.modules()][1:] == [nn.Flatten, nn.Linear]
    assert "lenet(frozen=True)" in result.name
    assert not result.model[0].training


def test_a_tracked_run_is_resumed_to_the_same_bits_and_its_stored_model_takes_images(
    images: wsl.Data, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"backbone": {**LENET, "frozen_head": "mlp"}, "generator": GENERATOR, "epochs": 4}
    whole = wsl.train(images, **settings)

    def heard(self: Any, record: Any, trial: int = 1) -> None:
        if record.epoch == 2:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(api_train._Listener, "epoch", heard)
        with pytest.raises(InterruptedRunError, match="at epoch 2"):
            wsl.train(images, track=True, **settings)
    (begun,) = wsl.runs()["run_id"]
    assert len(list((here / "wsl-runs" / "features").iterdir())) == 1
    resumed = wsl.resume(begun, data=images)
    own, other = (result.model.state_dict() for result in (whole, resumed))
    assert own.keys() == other.keys()
    assert all(torch.equal(own[key], other[key]) for key in own)

    from wsl_toolkit.runs.tracking.store import default_uri, speaking_to

    with speaking_to(default_uri()) as mlflow:
        stored = mlflow.pytorch.load_model(f"runs:/{begun}/model")
    torch.testing.assert_close(stored(images.x[:5]), whole.model(images.x[:5]))


def test_trials_share_the_features_and_are_one_stack(images: wsl.Data, here: Path) -> None:
    seen: list[int] = []
    original = api_train._Listener.features

    def heard(self: Any, done: int, of: int) -> None:
        seen.append(done)
        original(self, done, of)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api_train._Listener, "features", heard)
        result = wsl.train(images, backbone=LENET, generator=GENERATOR, epochs=2, trials=3)
    assert seen == [180, 240]
    assert {trial.outcome.stacked for trial in result.trials} == {3}  # type: ignore[attr-defined]
    digests = {trial.problem.train_candidates.content_hash for trial in result.trials}
    assert len(digests) == 3


def test_what_does_not_go_together_is_refused_before_anything_is_done(images: wsl.Data, here: Path) -> None:
    for backbone, more, message in (
        ({"name": "lenet", "frozen_head": "mlp"}, {}, "--backbone-frozen-head goes with --backbone-frozen"),
        ({"name": "lenet", "frozen_weights": "x.pt"}, {}, "--backbone-frozen-weights goes with --backbone-frozen"),
        (LENET, {"augmentation": "weak"}, "--augmentation weak does not go with --backbone-frozen"),
        ({**LENET, "frozen_weights": "x.pt"}, {}, "there is no file x.pt, neither here nor below the data directory"),
        ({**LENET, "frozen_head": "linnear"}, {}, "linear"),
    ):
        with pytest.raises(WslError, match=message):
            wsl.train(images, backbone=backbone, generator=GENERATOR, epochs=1, track=True, **more)
    assert not list((here / "wsl-runs").glob("runs/*"))


def test_whoever_trains_whole_networks_refuses_a_frozen_one() -> None:
    from wsl_toolkit.sklearn import PartialLabelClassifier

    model = PartialLabelClassifier(backbone="mlp", backbone_params={"frozen": True}, epochs=1)
    with pytest.raises(ValueError, match="whole networks are trained here"):
        model.fit(np.random.default_rng(0).normal(size=(30, 4)), np.eye(3, dtype=bool)[np.arange(30) % 3])


# ---------------------------------------------------------------------------------------------------- identity, studies


def resolved(**backbone: Any) -> RunConfig:
    components = {"dataset": ("digits", {}), "estimator": ("ppl", {}), "backbone": ("lenet", backbone)}
    return RunConfig(training=Training(), components=components).resolved(REGISTRY)


def test_a_backbone_that_is_not_frozen_is_described_as_before_there_were_frozen_ones() -> None:
    config = resolved()
    assert config.to_dict()["backbone"] == {"name": "lenet"}
    assert {key for key in config.flat() if key.startswith("backbone.")} == {"backbone.name"}
    assert make_job(config, "trial", data="d").config["backbone"] == {"name": "lenet"}
    frozen = resolved(frozen=True).to_dict()["backbone"]
    assert frozen == {"name": "lenet", "frozen": True, "frozen_head": "linear"}


def test_jobs_know_weights_by_their_content_and_not_by_their_place() -> None:
    one, moved = (resolved(frozen=True, frozen_weights=path) for path in ("a.pt", "b/a.pt"))
    ids = [make_job(config, "trial", data="d", weights="1234").id for config in (one, moved)]
    assert ids[0] == ids[1] != make_job(one, "trial", data="d", weights="5678").id
    assert make_job(one, "trial", data="d").run_config().components["backbone"][1]["frozen_weights"] == "a.pt"


def test_the_head_belongs_to_the_code_of_a_run() -> None:
    from wsl_toolkit.plugins.code_identity import named_in

    assert ("backbone", "linear") in named_in(resolved(frozen=True).to_dict(), REGISTRY)
    assert ("backbone", "linear") not in named_in(resolved().to_dict(), REGISTRY)


def test_a_study_computes_features_once_for_all_methods_and_refuses_other_weights(images: wsl.Data, here: Path) -> None:
    arrays = {"x": images.x, "y": images.y, "test_x": images.test_x, "test_y": images.test_y}
    np.savez("bars.npz", **{key: value.numpy() for key, value in arrays.items() if value is not None})
    save_file(network_of(images).state_dict(), "net.safetensors")
    (here / "heads.toml").write_text(
        """
name = "heads"
trials = 2
methods = ["ppl", "cc"]
[training]
epochs = 3
batch_size = 64
[search.space]
lr = [0.05, 0.1]
[[settings]]
dataset = {name = "npz", path = "bars.npz"}
generator = {name = "mcl-skewed", alpha = 0.5}
backbone = [
  {name = "lenet", frozen = true, frozen_weights = "net.safetensors"},
  {name = "lenet", frozen = true, frozen_weights = "net.safetensors", frozen_head = "mlp"},
]
"""
    )
    done = CliRunner().invoke(
        main, ["study", "run", "heads.toml", "--executor", "inline", "--json"], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    assert done.stderr.count("a frozen network runs over the 240 examples of bars, once") == 1
    told = json.loads(done.stdout)
    assert told["complete"]
    accuracy = {cell["method"]: cell["metrics"]["test/accuracy"]["mean"] for cell in told["cells"]}
    assert min(accuracy.values()) > 0.4
    assert len(list((here / "wsl-runs" / "features").glob("*.safetensors"))) == 1

    state = network_of(images).state_dict()
    save_file({**state, "0.bias": state["0.bias"] + 1}, "net.safetensors")
    again = CliRunner().invoke(main, ["study", "run", "heads.toml", "--executor", "inline"])
    assert again.exit_code == 2
    assert "the data of weights net.safetensors has changed since study heads began" in again.output
