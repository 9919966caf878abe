"""Networks: parameter counts against the literature, closed forms, and inputs that do not fit."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from wsl_builtins.backbones import BACKBONES
from wsl_builtins.backbones.blocks import BasicBlock, BottleneckLayer, PadShortcut
from wsl_builtins.backbones.dense import Linear, Mlp
from wsl_builtins.backbones.densenet import DenseNet22, densenet_bc
from wsl_builtins.backbones.lenet import LeNet
from wsl_builtins.backbones.resnet import ResNet32, cifar_resnet
from wsl_builtins.backbones.torchvision_models import Torchvision, adapt_first_convolution
from wsl_toolkit.errors import ConfigError

CONVOLUTIONAL = [LeNet(), ResNet32(), ResNet32(shortcut="b"), DenseNet22(), Torchvision(model="resnet18")]
ALL = [
    Linear(),
    Linear(initialisation="xavier"),
    Mlp(),
    Mlp(initialisation="xavier"),
    Mlp(norm="after"),
    *CONVOLUTIONAL,
]


def size(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def seeded(backbone, shape=(3, 32, 32), num_classes=10, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return backbone.build(shape, num_classes)


def test_every_registered_backbone_is_tested_here():
    assert {type(b) for b in ALL} == set(BACKBONES)


# --------------------------------------------------------------- parameters


@pytest.mark.parametrize(
    ("backbone", "shape", "num_classes", "expected"),
    [
        (Linear(), (1, 28, 28), 10, 7_850),
        (Linear(), (108,), 16, 109 * 16),
        (LeNet(), (1, 28, 28), 10, 61_706),
        (ResNet32(), (3, 32, 32), 10, 464_154),
        (ResNet32(shortcut="b"), (3, 32, 32), 10, 466_906),
        (ResNet32(), (3, 32, 32), 100, 470_004),
        (DenseNet22(), (3, 32, 32), 10, 71_686),
        (Torchvision(model="resnet18"), (3, 64, 64), 1000, 11_689_512),
        (Torchvision(model="mobilenet_v3_small"), (3, 64, 64), 1000, 2_542_856),
    ],
)
def test_parameter_counts_are_the_published_ones(backbone, shape, num_classes, expected):
    assert size(backbone.build(shape, num_classes)) == expected


@pytest.mark.parametrize(("depth", "millions"), [(20, 0.27), (32, 0.46), (44, 0.66), (56, 0.85), (110, 1.7)])
def test_residual_networks_of_every_depth_have_the_size_of_table_6(depth, millions):
    # He et al. (2016), Table 6.
    network = cifar_resnet(3, 10, blocks=(depth - 2) // 6, shortcut="a")
    assert size(network) / 1e6 == pytest.approx(millions, abs=0.05 if millions > 1 else 0.005)


@pytest.mark.parametrize(("depth", "growth", "millions"), [(100, 12, 0.8), (250, 24, 15.3), (190, 40, 25.6)])
def test_dense_networks_of_every_depth_have_the_size_of_table_2(depth, growth, millions):
    # Huang et al. (2017), Table 2: the three DenseNet-BC.
    with torch.device("meta"):
        network = densenet_bc(3, 10, layers=(depth - 4) // 6, growth=growth)
    assert size(network) / 1e6 == pytest.approx(millions, abs=0.05)


@pytest.mark.parametrize("widths", [(300, 300, 300, 300), (300, 301, 302, 303), (5,)])
def test_the_perceptron_has_a_weight_for_each_pair_and_two_numbers_of_batch_norm_for_each_unit(widths):
    sides = [784, *widths]
    hidden = sum(a * b for a, b in zip(sides, widths, strict=False)) + 2 * sum(widths)
    assert size(Mlp(widths=widths).build((1, 28, 28), 10)) == hidden + 10 * widths[-1] + 10
    assert size(Mlp(widths=widths, norm="after").build((1, 28, 28), 10)) == hidden + sum(widths) + 10 * widths[-1] + 10


def test_what_leaves_a_hidden_layer_is_not_negative_or_is_normalised_as_the_perceptron_says():
    x = torch.randn(64, 9)
    for norm, last in (("before", "not negative"), ("after", "normalised")):
        *hidden, _ = Mlp(widths=(20,), norm=norm).build((9,), 3)
        out = torch.nn.Sequential(*hidden)(x)
        assert bool((out >= 0).all()) == (last == "not negative")
        assert bool((out.mean(0).abs() < 1e-5).all()) == (last == "normalised")


def layers_of(network: nn.Module, kinds: tuple[type, ...]) -> int:
    return sum(isinstance(module, kinds) for module in network.modules())


def test_depths_are_what_the_names_say():
    weighted = (nn.Conv2d, nn.Linear)
    assert layers_of(ResNet32().build((3, 32, 32), 10), weighted) == 32
    assert layers_of(DenseNet22().build((3, 32, 32), 10), weighted) == 22
    assert layers_of(LeNet().build((1, 28, 28), 10), weighted) == 5
    assert layers_of(Mlp().build((9,), 10), weighted) == 5


# ---------------------------------------------------------------- behaviour


@pytest.mark.parametrize("backbone", ALL, ids=repr)
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (2, 17, 40)])
def test_every_network_gives_k_logits_and_a_gradient_to_every_parameter(backbone, shape):
    network = seeded(backbone, shape, 7)
    inputs = torch.randn(4, *shape, generator=torch.Generator().manual_seed(0))
    logits = network(inputs)
    assert logits.shape == (4, 7)
    logits.square().sum().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert bool(torch.isfinite(parameter.grad).all()), name


@pytest.mark.parametrize("backbone", ALL, ids=repr)
def test_the_seed_decides_the_weights_and_nothing_global_is_left_changed(backbone):
    before = torch.get_rng_state()
    first, again, other = (seeded(backbone, seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.get_default_dtype() is torch.float32


@pytest.mark.parametrize("backbone", ALL, ids=repr)
def test_a_network_is_built_ready_to_train(backbone):
    assert all(module.training for module in seeded(backbone).modules())


@pytest.mark.parametrize("backbone", CONVOLUTIONAL, ids=repr)
def test_the_last_linear_layer_gives_the_logits(backbone):
    # Methods that need features take what this layer sees.
    network = seeded(backbone)
    last = [module for module in network.modules() if isinstance(module, nn.Linear)][-1]
    seen = []
    last.register_forward_hook(lambda _, inputs, output: seen.append(output))
    assert torch.equal(network(torch.zeros(2, 3, 32, 32)), seen[0])


@pytest.mark.parametrize("side", range(16, 70, 3))
def test_lenet_fits_every_size_from_16(side):
    assert LeNet().build((1, side, side + 1), 4)(torch.zeros(1, 1, side, side + 1)).shape == (1, 4)


@pytest.mark.parametrize(("backbone", "side"), [(ResNet32(), 4), (ResNet32(shortcut="b"), 5), (DenseNet22(), 4)])
def test_the_smallest_images_admitted_do_work(backbone, side):
    assert backbone.build((1, side, side), 3)(torch.zeros(2, 1, side, side)).shape == (2, 3)


def test_xavier_weights_have_the_spread_of_their_formula():
    network = seeded(Linear(initialisation="xavier"), (784,), 10)
    bound = math.sqrt(6 / 794)
    assert network[1].weight.abs().max() <= bound
    assert float(network[1].weight.detach().std()) == pytest.approx(bound / math.sqrt(3), rel=0.05)


def test_he_initialisation_keeps_the_variance_of_activations():
    network = seeded(ResNet32())
    first = network[0]
    assert float(first.weight.detach().std()) == pytest.approx(math.sqrt(2 / (3 * 9)), rel=0.1)


# ------------------------------------------------------------------- blocks


def test_option_a_subsamples_and_pads_with_zeros():
    x = torch.arange(2 * 3 * 4 * 4, dtype=torch.float32).view(2, 3, 4, 4) + 1
    out = PadShortcut(4, 2)(x)
    assert out.shape == (2, 7, 2, 2)
    assert torch.equal(out[:, 2:5], x[:, :, ::2, ::2])
    assert not out[:, :2].any()
    assert not out[:, 5:].any()


def test_a_basic_block_whose_body_is_silent_passes_its_input_on():
    block = BasicBlock(4, 4, 1, "a")
    nn.init.zeros_(block.body[-1].weight)
    x = torch.rand(2, 4, 6, 6)
    assert torch.equal(block(x), x)


def test_a_dense_layer_keeps_what_it_was_given():
    x = torch.rand(2, 5, 6, 6)
    out = BottleneckLayer(5, 3)(x)
    assert out.shape == (2, 8, 6, 6)
    assert torch.equal(out[:, :5], x)


# --------------------------------------------------------------- torchvision


def test_a_grey_image_changes_the_first_convolution_and_nothing_else():
    grey = seeded(Torchvision(model="resnet18"), (1, 32, 32)).state_dict()
    colour = seeded(Torchvision(model="resnet18"), (3, 32, 32)).state_dict()
    assert torch.equal(grey["conv1.weight"], colour["conv1.weight"][:, :1])
    assert all(torch.equal(grey[name], colour[name]) for name in colour if name != "conv1.weight")


def test_five_channels_take_the_three_in_turn():
    network = nn.Sequential(nn.Conv2d(3, 2, 3, stride=2, padding=1))
    before = network[0]
    adapt_first_convolution(network, 5)
    assert torch.equal(network[0].weight, before.weight[:, [0, 1, 2, 0, 1]])
    assert torch.equal(network[0].bias, before.bias)
    assert network[0].stride == (2, 2)
    assert network(torch.zeros(1, 5, 8, 8)).shape == (1, 2, 4, 4)


@pytest.mark.parametrize("model", ["googlenet", "mobilenet_v3_small", "shufflenet_v2_x0_5", "squeezenet1_1", "vgg11"])
def test_networks_of_different_families_train_on_grey_images_of_their_size(model):
    network = Torchvision(model=model).build((1, 40, 40), 3)
    output = network(torch.zeros(2, 1, 40, 40))
    assert output.shape == (2, 3)
    assert output.requires_grad


def test_an_unknown_model_gets_suggestions():
    with pytest.raises(ConfigError, match=r"no classifier named 'resnet81'\. Did you mean 'resnet18'"):
        Torchvision(model="resnet81").build((3, 32, 32), 10)
    with pytest.raises(ConfigError, match=r"It has alexnet, .* and \d+ more"):
        Torchvision(model="zzz").build((3, 32, 32), 10)


def test_a_detector_is_no_classifier():
    with pytest.raises(ConfigError, match="no classifier named 'fasterrcnn_resnet50_fpn'"):
        Torchvision(model="fasterrcnn_resnet50_fpn").build((3, 32, 32), 10)


@pytest.mark.parametrize("model", ["alexnet", "vit_b_32"])
def test_images_too_small_for_a_network_are_refused_with_its_reason(model):
    with pytest.raises(ConfigError, match=f"{model} cannot take images of 28×28 pixels") as caught:
        Torchvision(model=model).build((1, 28, 28), 10)
    assert "resnet32" in str(caught.value)
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize("backbone", CONVOLUTIONAL, ids=repr)
def test_flat_features_are_refused_with_what_to_use_instead(backbone):
    with pytest.raises(ConfigError, match="108 features: use --backbone mlp or --backbone linear"):
        backbone.build((108,), 16)


@pytest.mark.parametrize("backbone", [LeNet(), ResNet32(), DenseNet22()], ids=repr)
def test_tiny_images_are_refused_with_the_smallest_that_fits(backbone):
    with pytest.raises(ConfigError, match=r"needs images of at least \d+×\d+ pixels, not 3×40"):
        backbone.build((1, 3, 40), 10)


@pytest.mark.parametrize("name", ["resnet32", "densenet22"])
@pytest.mark.parametrize("initialisation", ["fan-in", "fan-out"])
def test_convolutions_begin_normal_with_the_variance_of_the_fan_that_was_asked_for(name, initialisation):
    from wsl_toolkit.plugins.loading import load_plugins

    torch.manual_seed(0)
    backbone = load_plugins().registry.create("backbone", name, {"initialisation": initialisation})
    convolutions = [m for m in backbone.build((3, 32, 32), 10).modules() if isinstance(m, torch.nn.Conv2d)]
    for module in convolutions:
        channels = module.in_channels if initialisation == "fan-in" else module.out_channels
        fan = channels * module.kernel_size[0] * module.kernel_size[1]
        n = module.weight.numel()
        assert abs(module.weight.var().item() * fan / 2 - 1) < 6 * (2 / n) ** 0.5
    assert any(m.in_channels != m.out_channels for m in convolutions)
