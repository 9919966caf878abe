"""One module per setting."""

from __future__ import annotations

from wsl_builtins.generators.mcl import MclSkewed
from wsl_toolkit import Generator

GENERATORS: list[type[Generator]] = [MclSkewed]
