"""A million rows: audit and fit of 1,000,000 × 50 features × 100 classes, each in a process of its own.

    python -m benchmarks.own_data [--rows 1000000] [--format parquet]

Prints the seconds and the peak memory of each command, as the operating system counts it, and whether it showed a
progress bar: each runs on a terminal of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pty
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

FEATURES, CLASSES = 50, 100
CHUNK = 100_000

COMMAND = """
import json, resource, sys
from wsl_toolkit.cli import main
try:
    main(sys.argv[1:], standalone_mode=False)
finally:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print("PEAK", peak, file=sys.stderr)
"""


def write_table(path: Path, rows: int) -> None:
    """Write Gaussian classes with about five candidates each, piece by piece."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    centres = rng.normal(size=(CLASSES, FEATURES))
    names = np.array([f"class {j}" for j in range(CLASSES)])
    writer = None
    for start in range(0, rows, CHUNK):
        n = min(CHUNK, rows - start)
        y = rng.integers(0, CLASSES, n)
        x = centres[y] + rng.normal(size=(n, FEATURES))
        mask = rng.random((n, CLASSES)) < 0.04
        mask[np.arange(n), y] = True
        sets = ["|".join(names[row]) for row in mask]
        table = pa.table({**{f"f{j}": x[:, j] for j in range(FEATURES)}, "candidates": sets})
        if writer is None:
            parquet = path.suffix == ".parquet"
            writer = pq.ParquetWriter(path, table.schema) if parquet else pyarrow.csv.CSVWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def measure(arguments: list[str], folder: Path) -> dict[str, float | bool]:
    """Run `wsl` on a terminal of its own; return its seconds, its peak memory in GB, and whether it showed a bar."""
    ours, theirs = pty.openpty()
    start = time.perf_counter()
    command = [sys.executable, "-c", COMMAND, *arguments]
    with (folder / "answer.json").open("w") as answer:
        process = subprocess.Popen(
            command, cwd=folder, stdout=answer, stderr=theirs, env={**os.environ, "TERM": "xterm"}
        )
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # the terminal is gone when the process is
        while piece := os.read(ours, 65536):
            shown += piece
    os.close(ours)
    code = process.wait()
    seconds = time.perf_counter() - start
    text = shown.decode(errors="replace")
    if code:
        raise SystemExit(text[-2000:])
    peak = int(re.findall(r"PEAK (\d+)", text)[-1])
    return {"seconds": round(seconds, 1), "peak_gb": round(peak / 2**20, 2), "progress_bar": "━" in text}


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--format", default="parquet", choices=("parquet", "csv"))
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = folder / f"million.{given.format}"
        write_table(data, given.rows)
        found = {
            "audit": measure(["audit", str(data), "--json"], folder),
            "fit": measure(["fit", str(data), "--out", "m", "--no-track", "--json"], folder),
        }
    print(json.dumps({"rows": given.rows, "format": given.format, **found}, indent=2))


if __name__ == "__main__":
    main()
