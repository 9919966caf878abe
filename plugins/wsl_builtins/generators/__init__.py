"""One module per setting."""

from __future__ import annotations

from wsl_builtins.generators.cl import Cl
from wsl_builtins.generators.mcl import Mcl, MclSkewed
from wsl_builtins.generators.pcpl import Pcpl, PcplSymmetric
from wsl_toolkit import Generator

GENERATORS: list[type[Generator]] = [Cl, Mcl, MclSkewed, Pcpl, PcplSymmetric]
