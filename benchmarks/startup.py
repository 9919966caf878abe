"""How long a command takes before it says anything, and `wsl run` until its result is shown and until its end."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import Row, Section, measure, ratio

BASE = "import click, attrs, pluggy"
RUN = ("run", "--estimator", "ppl", "--generator", "mcl-skewed")
RESULT = "test accuracy"
"""What is on standard output as soon as the table of `wsl run` is."""


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
    return [
        Section(title="Start-up", note=note, rows=tuple(rows), details=seconds),
        _first_run(wsl, rounds=1 if quick else 7),
    ]


def _first_run(wsl: str, rounds: int) -> Section:
    """Compare `wsl run` on the bundled digits, 100 epochs, with the bare import of torch."""
    seconds: dict[str, list[float]] = {"import torch": [], "table": [], "end": []}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(rounds + 1):
            bare = time.perf_counter()
            subprocess.run([sys.executable, "-c", "import torch"], check=True)
            begun = time.perf_counter()
            with subprocess.Popen(
                [wsl, *RUN], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            ) as process:
                assert process.stdout is not None
                for line in process.stdout:
                    if RESULT in line:
                        break
                shown = time.perf_counter()
                process.stdout.read()
            if process.returncode:
                raise RuntimeError(f"wsl {' '.join(RUN)} ended with {process.returncode}")
            if turn:  # the first one makes the database
                ended = time.perf_counter()
                seconds["import torch"].append(begun - bare)
                seconds["table"].append(shown - begun)
                seconds["end"].append(ended - begun)
    rows = (
        Row.of("`wsl run` until its table is shown / import torch", ratio(seconds, "table", "import torch"), at_most=3),
        Row.of("`wsl run` until its end / import torch", ratio(seconds, "end", "import torch"), at_most=4.5),
    )
    note = "100 epochs of `ppl` on the bundled digits, tracked, with figures and the model; the folder has a store."
    return Section(title="A first run", note=note, rows=rows, details=seconds)


def _run(*command: str) -> Callable[[], object]:
    return lambda: subprocess.run(command, check=True, capture_output=True)
