"""PiCO in small, a method with state, a second view and a momentum copy of the network."""

from __future__ import annotations

from wsl_pico.estimator import Pico
from wsl_toolkit import hookimpl

WSL_API = "1.0"


@hookimpl
def wsl_register_estimators() -> list[type[Pico]]:
    """Return the estimator."""
    return [Pico]
