"""One module per setting or process."""

from __future__ import annotations

from wsl_builtins.generators.annotators import Annotators
from wsl_builtins.generators.cl import Cl
from wsl_builtins.generators.cl_biased import ClBiased
from wsl_builtins.generators.cmm import Partition, Query
from wsl_builtins.generators.flip import Flip, FlipClass, FlipSuperclass
from wsl_builtins.generators.flip_instance import FlipInstance
from wsl_builtins.generators.mcl import Mcl, MclSkewed
from wsl_builtins.generators.noisy import Noisy
from wsl_builtins.generators.pcpl import Pcpl, PcplSymmetric
from wsl_builtins.generators.proper_instance import ProperInstance
from wsl_toolkit import Generator

GENERATORS: list[type[Generator]] = [
    Annotators,
    Cl,
    ClBiased,
    Flip,
    FlipClass,
    FlipInstance,
    FlipSuperclass,
    Mcl,
    MclSkewed,
    Noisy,
    Partition,
    Pcpl,
    PcplSymmetric,
    ProperInstance,
    Query,
]
