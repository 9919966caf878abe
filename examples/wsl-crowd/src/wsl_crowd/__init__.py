"""Candidate sets from a crowd of annotators."""

from __future__ import annotations

from wsl_crowd.generator import Crowd
from wsl_toolkit import hookimpl

WSL_API = "1.0"


@hookimpl
def wsl_register_generators() -> list[type[Crowd]]:
    """Return the generator."""
    return [Crowd]
