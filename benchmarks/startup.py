"""How long a command takes before it says anything."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import Row, Section, measure, ratio

BASE = "import click, attrs, pluggy"


def sections(quick: bool) -> list[Section]:
    """Compare commands with the bare import of what they are made of."""
    wsl = shutil.which("wsl", path=str(Path(sys.executable).parent)) or "wsl"
    cases = {
        "import": _run(sys.executable, "-c", BASE),
        "wsl --help": _run(wsl, "--help"),
        "wsl list": _run(wsl, "list"),
        "import torch": _run(sys.executable, "-c", "import torch"),
    }
    seconds = measure(cases, rounds=3 if quick else 9)
    rows = [
        Row.of(f"{name} / {BASE}", ratio(seconds, name, "import"), at_most=4) for name in ("wsl --help", "wsl list")
    ]
    rows.append(Row.of(f"import torch / {BASE}", ratio(seconds, "import torch", "import")))
    note = "Whole processes, from start to end, interpreter included."
    return [Section(title="Start-up", note=note, rows=tuple(rows), details=seconds)]


def _run(*command: str) -> Callable[[], object]:
    return lambda: subprocess.run(command, check=True, capture_output=True)
