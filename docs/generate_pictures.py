"""Makes the pictures of docs/pictures.md, each by the command that stands above it there.

Run as `python docs/generate_pictures.py [NAME …]`; it takes some minutes, most of them for `wsl verify --monte-carlo`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE / "pictures.md"
_SHOWN = re.compile(r"```sh\n(?P<command>wsl [^\n]+)\n```\n\n(?P<shown>(?:!\[[^\]]*\]\(images/[\w.-]+\)\n+)+)")


def shown() -> list[tuple[str, list[str]]]:
    """Return each command of the page with the pictures that stand below it."""
    found = _SHOWN.finditer(PAGE.read_text(encoding="utf-8"))
    return [(match["command"], re.findall(r"\(images/([\w.-]+)\)", match["shown"])) for match in found]


def make(command: str, names: list[str], folder: Path) -> None:
    """Run a command and collect its pictures: the file it was told to write, or those of its run or its report."""
    print(f"$ {command}", flush=True)
    subprocess.run(
        [sys.executable, "-m", "wsl_toolkit.cli", *shlex.split(command)[1:]],
        cwd=folder,
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(HERE.parent), "COLUMNS": "100"},
    )
    for name in names:
        shutil.copyfile(find(name, folder), HERE / "images" / name)
        print(f"  {name}")


def find(name: str, folder: Path) -> Path:
    """Return the picture of that name: in the folder itself, among a run's figures, or in a report."""
    if (folder / name).is_file():
        return folder / name
    kind, _, stem = name.partition("-")
    if kind == "run":
        return newest(folder, stem.replace("-", "_"))
    return next((folder / "wsl-runs" / "studies").glob(f"*/report/{stem}"))


def newest(folder: Path, name: str) -> Path:
    """Return a figure of the newest run: of the run itself if it has it, else of its first trial."""
    from wsl_toolkit.runs.folder import all_folders, children_of

    runs = sorted(all_folders(folder / "wsl-runs"), key=lambda run: run.fact("started"))
    parent = [run for run in runs if run.fact("parent") is None][-1]
    for run in (parent, *children_of(parent).values()):
        place = folder / "wsl-runs" / "artifacts" / run.run_id / "artifacts" / "figures" / name
        if place.is_file():
            return place
    raise FileNotFoundError(f"no run has a figure {name}")


if __name__ == "__main__":
    wanted = set(sys.argv[1:])
    with tempfile.TemporaryDirectory() as scratch:
        for told, pictures in shown():
            if not wanted or wanted & set(pictures):
                make(told, pictures, Path(scratch))
    print(json.dumps({"pictures": sum(len(names) for _, names in shown())}))
