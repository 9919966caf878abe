"""Writes the tables of published numbers on docs/reproduction.md from CSV files beside it.

Run as `python docs/generate_published.py [DIRECTORY]`. With a directory, the `wsl-runs` of the studies named below,
carried out whole or in part, the CSV files are written anew from its results first. The text around the tables stays as
it is.
"""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.studies.driver import study_states
from wsl_toolkit.studies.reading import read_study
from wsl_toolkit.studies.report import numbers
from wsl_toolkit.studies.report.against import NOT_RUN, against_rows, compare, read_published
from wsl_toolkit.studies.store import StudyFolder
from wsl_toolkit.system.files import write_atomically

HERE = Path(__file__).parent
PAGE = HERE / "reproduction.md"
BESIDE = HERE / "reproduction"
STUDIES = {
    "published-conformal": ("published-conformal", "published-conformal.csv"),
    "published-valen-short": (str(BESIDE / "published-valen-short.toml"), "published-valen.csv"),
}
"""The studies, where they are described, and the published numbers that stand beside theirs."""


def main(home: Path | None) -> None:
    """Write everything anew."""
    for name in STUDIES:
        if home is not None:
            write_files(name, home)
    write_atomically(PAGE, page())


def page() -> str:
    """Return the page with the tables that the CSV files give."""
    text = PAGE.read_text(encoding="utf-8")
    for name in STUDIES:
        text = put(text, name, part(name))
    return text


def write_files(name: str, home: Path) -> None:
    """Write a study's trials, and its numbers beside the published ones."""
    source, theirs = STUDIES[name]
    study = read_study(source)
    states = study_states(study, StudyFolder(home, name), load_plugins().registry)
    published = read_published(BESIDE / theirs)
    write_atomically(BESIDE / f"{name}-trials.csv", numbers.trials_csv(states))
    beside = numbers.csv_text(against_rows(compare(study, states, published)))
    write_atomically(BESIDE / f"{name}-against.csv", beside)


def part(name: str) -> str:
    """Return the table of what was run, and what can be counted from it."""
    rows = read(f"{name}-against.csv")
    run = [row for row in rows if row["verdict"] != NOT_RUN]
    met = [row for row in run if row["verdict"].startswith("within")]
    methods = list(dict.fromkeys(row["method"] for row in met))
    others = list(dict.fromkeys(row["dataset"] for row in rows if row["verdict"] == NOT_RUN))
    lines = [
        "| source | protocol | dataset | method | published | ours | difference | verdict |",
        "|---|---|---|---|---:|---:|---:|---|",
        *map(line, run),
    ]
    trials = read(f"{name}-trials.csv")
    tried = len({row["method"] for row in run})
    told = (
        f"{len(met)} of {len(run)} numbers, from {len(trials)} runs, are within 3 points; {len(methods)} of {tried} "
        f"methods are so on at least one set ({', '.join(methods)}). Published and not run, wholly or in part: "
        f"{', '.join(others)}."
    )
    return "\n".join(lines) + "\n\n" + told


def line(row: dict[str, str]) -> str:
    """Return a row of the table; differences are of the unrounded numbers."""
    spread = f" ({row['published_spread']})" if row["published_spread"] else ""
    error = f" ± {float(row['ours_stderr']):.2f}" if row["ours_stderr"] else ""
    ours = f"{float(row['ours']):.2f}{error}"
    trials = "" if row["trials"] == "5" else f" ({row['trials']} trial{'s' if row['trials'] != '1' else ''})"
    source = row["source"].replace("*", "\\*")
    return (
        f"| {source} | {row['protocol']} | {row['dataset']} | {row['method']} | {float(row['published']):.2f}{spread} "
        f"| {ours}{trials} | {float(row['difference']):+.2f} | {row['verdict']} |"
    )


def read(name: str) -> list[dict[str, str]]:
    """Return the rows of a CSV file beside the page."""
    with (BESIDE / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def put(text: str, name: str, part: str) -> str:
    """Return the page with another text between the marks of a part."""
    marks = re.compile(rf"(<!-- begin: {name} -->\n).*?(<!-- end: {name} -->)", re.S)
    found, count = marks.subn(lambda mark: f"{mark[1]}\n{part}\n\n{mark[2]}", text)
    if count != 1:
        raise SystemExit(f"{PAGE}: there is no part {name!r}")
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
