"""`python -m wsl_toolkit.cli`: the same as `wsl`."""

from __future__ import annotations

from wsl_toolkit.cli import main

main(prog_name="wsl")
