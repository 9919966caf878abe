"""The paper's networks, and any of torchvision's."""

from __future__ import annotations

from wsl_builtins.backbones.dense import Linear, Mlp
from wsl_builtins.backbones.densenet import DenseNet22
from wsl_builtins.backbones.lenet import LeNet
from wsl_builtins.backbones.resnet import ResNet32
from wsl_builtins.backbones.torchvision_models import Torchvision
from wsl_toolkit import Backbone

BACKBONES: list[type[Backbone]] = [Linear, Mlp, LeNet, ResNet32, DenseNet22, Torchvision]
