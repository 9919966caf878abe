"""How long commands take to say anything, and `wsl run` and `wsl fit` to show their results and to end."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import patients
from benchmarks.harness import Row, Section, measure, ratio

BASE = "import click, attrs, pluggy"
RUN = ("run", "--estimator", "ppl", "--generator", "mcl-skewed")
RESULT = "test accuracy"
"""What is on standard output as soon as the table of `wsl run` is."""
SO_FAR, HELD_OUT = "so far linear:", "log loss of the sets"
"""What `wsl fit` says of its first kind of model, and a line of its table."""


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
        _first_fit(wsl, rounds=1 if quick else 3),
    ]


def _first_run(wsl: str, rounds: int) -> Section:
    """Compare `wsl run` on the bundled digits, 100 epochs, with the bare import of torch."""
    with tempfile.TemporaryDirectory() as folder:
        seconds = _against_torch([wsl, *RUN], {"table": RESULT}, folder, rounds)
    rows = (
        Row.of("`wsl run` until its table is shown / import torch", ratio(seconds, "table", "import torch"), at_most=3),
        Row.of("`wsl run` until its end / import torch", ratio(seconds, "end", "import torch"), at_most=4.5),
    )
    note = "100 epochs of `ppl` on the bundled digits, tracked, with figures and the model; the folder has a store."
    return Section(title="A first run", note=note, rows=rows, details=seconds)


def _first_fit(wsl: str, rounds: int) -> Section:
    """Compare `wsl fit` on 2,000 made patients with the bare import of torch."""
    rows, details = [], {}
    with tempfile.TemporaryDirectory() as folder:
        table = patients.write(Path(folder), patients.make(2000))[0]
        for budget, most_table, most_end in (("quick", 3.0, 4.5), ("normal", None, None)):
            command = [wsl, "fit", str(table), "--out", "model", "--force", "--budget", budget]
            seconds = _against_torch(command, {"first": SO_FAR, "table": HELD_OUT}, folder, rounds)
            for name, what, most in (
                ("first", "says how a first model does", 3.0),
                ("table", "shows its table", most_table),
                ("end", "ends", most_end),
            ):
                bar = {} if most is None else {"at_most": most}
                found = ratio(seconds, name, "import torch")
                rows.append(Row.of(f"`wsl fit --budget {budget}` until it {what} / import torch", found, **bar))
            details[budget] = seconds
    note = "2,000 rows, 16 columns, 6 classes (`python -m benchmarks.patients`), tracked; `normal` is the default."
    return Section(title="A first fit", note=note, rows=tuple(rows), details=details)


def _against_torch(command: list[str], marks: dict[str, str], folder: str, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of bare imports of torch, of a command until it prints each mark, and until its end.

    Marks come in this order.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ("import torch", *marks, "end")}
    for turn in range(rounds + 1):
        bare = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import torch"], check=True)
        begun = time.perf_counter()
        found = {"import torch": begun - bare}
        with subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            assert process.stdout is not None
            for name, text in marks.items():
                if not any(text in line for line in process.stdout):
                    raise RuntimeError(f"{' '.join(command)} did not print {text!r}")
                found[name] = time.perf_counter() - begun
            process.stdout.read()
        if process.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
        found["end"] = time.perf_counter() - begun
        if turn:  # the first one makes the database
            for name, value in found.items():
                seconds[name].append(value)
    return seconds


def _run(*command: str) -> Callable[[], object]:
    return lambda: subprocess.run(command, check=True, capture_output=True)
