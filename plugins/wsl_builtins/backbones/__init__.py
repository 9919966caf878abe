"""The paper's networks."""

from __future__ import annotations

from wsl_builtins.backbones.dense import Linear, Mlp
from wsl_toolkit import Backbone

BACKBONES: list[type[Backbone]] = [Linear, Mlp]
