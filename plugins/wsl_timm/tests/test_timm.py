"""timm's models keep the backbones' contract, see the images that they were trained on, and are never downloaded."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import ClassVar

import attrs
import pytest
import timm
import torch
from safetensors.torch import save_file
from timm.data import create_transform, resolve_model_data_config
from torch import nn
from torchvision.transforms.functional import to_pil_image

from wsl_timm import Timm
from wsl_toolkit.errors import ConfigError
from wsl_toolkit.networks import Pixels
from wsl_toolkit.testing import BackboneContract

MODEL = "test_resnet"
"""A network that timm has for tests: half a million weights, images of 160 pixels."""


class TestConvolutions(BackboneContract):
    @pytest.fixture(params=[{}, {"size": 64, "drop_rate": 0.3}], ids=str)
    def component(self, request: pytest.FixtureRequest) -> Timm:
        return Timm(model=MODEL, **request.param)


class TestATransformer(BackboneContract):
    input_shapes: ClassVar[tuple[tuple[int, ...], ...]] = ((3, 32, 32), (1, 28, 28))

    @pytest.fixture
    def component(self) -> Timm:
        return Timm(model="test_vit", size=64)


def trained(num_classes: int = 1000) -> nn.Module:
    """Return a network as its authors left it; here, one of another initialisation."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return timm.create_model(MODEL, num_classes=num_classes).eval()


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "model.safetensors"
    save_file(trained().state_dict(), path)
    return path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty Hugging Face cache, and a network that must not be asked."""
    from huggingface_hub import constants

    def fetch(*args: object, **kwargs: object) -> None:
        raise AssertionError("something was downloaded")

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("timm.models._hub.hf_hub_download", fetch)
    monkeypatch.setattr(torch.hub, "download_url_to_file", fetch)
    return tmp_path / "cache"


def started(backbone: Timm, num_classes: int) -> tuple[nn.Module, str]:
    network = backbone.build((3, 40, 40), num_classes)
    return network.eval(), backbone.start(network)


def test_size_and_normalisation_are_those_of_the_models_own_configuration() -> None:
    wanted = resolve_model_data_config(trained())
    prepare = Timm(model=MODEL).build((3, 40, 40), 5)[0]
    assert isinstance(prepare, Pixels)
    assert prepare.mean.flatten().tolist() == pytest.approx(list(wanted["mean"]))
    assert prepare.std.flatten().tolist() == pytest.approx(list(wanted["std"]))
    assert (prepare.size, prepare.interpolation) == (wanted["input_size"][-1], wanted["interpolation"])


def test_the_network_sees_what_timms_transform_makes_of_an_image(weights: Path) -> None:
    """On an image of the model's own size, where theirs neither resizes nor crops."""
    config = resolve_model_data_config(trained())
    side = config["input_size"][-1]
    image = torch.randint(256, (3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    theirs = create_transform(**{**config, "crop_pct": 1.0})(to_pil_image(image))
    backbone = Timm(model=MODEL, weights=str(weights))
    network = backbone.build((3, side, side), 1000)
    backbone.start(network)
    with torch.no_grad():
        found = network.eval()(image[None] / 255)
        torch.testing.assert_close(found, trained()(theirs[None]), atol=1e-4, rtol=1e-4)


def test_the_head_alone_is_new_where_there_are_other_classes_and_that_is_said(weights: Path) -> None:
    network, said = started(Timm(model=MODEL, weights=str(weights)), 7)
    assert "its head of 1000 classes is replaced by a new one of 7" in said
    own, theirs = network[1].state_dict(), trained().state_dict()
    new = {name for name, value in own.items() if value.shape != theirs[name].shape}
    assert new == {"fc.weight", "fc.bias"}
    assert all(torch.equal(own[name], theirs[name]) for name in own if name not in new)
    network, said = started(Timm(model=MODEL, weights=str(weights)), 1000)
    assert "replaced" not in said
    assert all(torch.equal(value, theirs[name]) for name, value in network[1].state_dict().items())


def test_a_new_head_is_the_one_that_the_seed_drew_and_no_stream_is_moved(weights: Path) -> None:
    backbone = Timm(model=MODEL, weights=str(weights))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        network = backbone.build((3, 40, 40), 7)
        head, state = network[1].fc.weight.detach().clone(), torch.get_rng_state()
        backbone.start(network)
        assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(network[1].fc.weight, head)


def test_a_distilled_network_has_two_new_heads(tmp_path: Path) -> None:
    model = "deit_tiny_distilled_patch16_224"
    save_file(timm.create_model(model).state_dict(), tmp_path / "w.safetensors")
    backbone = Timm(model=model, weights=str(tmp_path / "w.safetensors"))
    network = backbone.build((3, 40, 40), 7)
    before = {name: value.clone() for name, value in network[1].state_dict().items()}
    assert "its head of 1000 classes is replaced by a new one of 7" in backbone.start(network)
    same = {name for name, value in network[1].state_dict().items() if torch.equal(value, before[name])}
    assert {"head.weight", "head_dist.weight"} <= same, "drawn by the seed"
    assert "patch_embed.proj.weight" not in same, "from the file"


def test_weights_that_are_not_in_the_cache_are_not_fetched_and_the_place_is_named(cache: Path) -> None:
    backbone = Timm(model=MODEL, pretrained=True)
    backbone.build((3, 40, 40), 5)  # as a saved model is read back, without them
    with pytest.raises(ConfigError) as refused:
        backbone.check_start()
    assert str(cache) in str(refused.value)
    assert "hf download timm/test_resnet" in str(refused.value)


def test_weights_in_the_cache_are_taken(cache: Path, weights: Path) -> None:
    repository = cache / ("models--" + timm.get_pretrained_cfg(MODEL).hf_hub_id.replace("/", "--"))
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("abc")
    (repository / "snapshots" / "abc").mkdir(parents=True)
    (repository / "snapshots" / "abc" / "model.safetensors").write_bytes(weights.read_bytes())
    backbone = Timm(model=MODEL, pretrained=True)
    backbone.check_start()
    assert "snapshots/abc/model.safetensors" in started(backbone, 5)[1]


def test_images_of_many_channels_are_taken_untrained_and_refused_with_weights(weights: Path) -> None:
    backbone = Timm(model=MODEL, size=32)
    assert tuple(backbone.build((5, 32, 32), 3)(torch.rand(2, 5, 32, 32)).shape) == (2, 3)
    with pytest.raises(ConfigError, match="images of 5 do not fit"):
        attrs.evolve(backbone, weights=str(weights)).build((5, 32, 32), 3)


@pytest.mark.parametrize(
    ("backbone", "why"),
    [
        (Timm(model="resnet81"), "no model 'resnet81'. Did you mean"),
        (Timm(model="resnet18.best"), "there are no weights 'resnet18.best'"),
        (Timm(model="test_vit", size=50), "test_vit cannot take images of 50 pixels"),
    ],
)
def test_what_timm_does_not_have_is_refused(backbone: Timm, why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        backbone.build((3, 32, 32), 3)
    assert why in str(refused.value)


def test_a_file_of_other_weights_is_refused(tmp_path: Path) -> None:
    torch.save({"fc.weight": torch.zeros(3, 2)}, tmp_path / "w.pth")
    with pytest.raises(ConfigError, match="do not fit test_resnet"):
        started(Timm(model=MODEL, weights=str(tmp_path / "w.pth")), 3)
    with pytest.raises(ConfigError, match="there is no file of weights"):
        Timm(model=MODEL, weights="nowhere.pth").check_start()


def test_without_timm_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ConfigError, match=r"pip install 'wsl-toolkit\[timm\]'"):
        Timm().build((3, 32, 32), 3)
