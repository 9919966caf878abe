"""From sections to a terminal, a JSON file, a Markdown table and a figure."""

from __future__ import annotations

import datetime
import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from benchmarks.harness import Row, Section

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results.json"
PAGE = ROOT / "docs" / "benchmarks.md"
FIGURE = ROOT / "docs" / "figures" / "benchmarks.png"
BEGIN, END = "<!-- benchmarks: begin -->", "<!-- benchmarks: end -->"


def machine() -> dict[str, Any]:
    """Return what matters of the machine, and nothing that names it."""
    import torch

    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "load_average": round(os.getloadavg()[0], 2),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def text(section: Section) -> str:
    """Return a section as lines for a terminal."""
    width = max(len(row.what) for row in section.rows)
    lines = [section.title, *(f"  {row.what:<{width}}  {number(row)}{_verdict(row)}" for row in section.rows)]
    return "\n".join(lines)


def number(row: Row) -> str:
    """Return a row's number with its spread."""
    shown = f"{row.median:.3g}" if row.median < 100 else f"{row.median:,.0f}"
    value = shown if row.unit in ("×", "b") else f"{shown} {row.unit}"
    return value if row.q1 is None else f"{value} ({row.q1:.3g} to {row.q3:.3g})"


def _verdict(row: Row) -> str:
    return "" if row.met is None else f"   target {row.target}: {'met' if row.met else 'MISSED'}"


def markdown(measured: Sequence[Measured]) -> str:
    """Return all sections as tables, each below the machine and the version that it was measured with."""
    lines, said, where = [], "", ""
    for section, facts in ((each.section, each.machine) for each in measured):
        lines += [f"### {section.title}", ""]
        if where != (where := _where(facts)):
            lines += [where, ""]
        if section.note != said:
            lines += [section.note, ""]
            said = section.note
        lines += ["| | median (quartiles) | target | |", "|---|---|---|---|"]
        for row in section.rows:
            met = "" if row.met is None else "met" if row.met else "**missed**"
            lines.append(f"| {row.what} | {number(row)} | {row.target} | {met} |")
        lines.append("")
    return "\n".join(lines)


def _where(facts: Mapping[str, Any]) -> str:
    """Return in a sentence where sections were measured."""
    return (
        f"{facts['processor']}, {facts['cores']} cores, {facts['memory_gb']} GB, {facts['system']}, "
        f"Python {facts['python']}, torch {facts['torch']}; load average at the start {facts['load_average']}, "
        f"{facts.get('date', 'an earlier version of the toolkit')}."
    )


@attrs.frozen(kw_only=True)
class Measured:
    """A section, and the machine that it was measured on."""

    section: Section
    machine: dict[str, Any]


def kept() -> list[Measured]:
    """Return what was measured before."""
    if not RESULTS.exists():
        return []
    found = []
    for values in json.loads(RESULTS.read_text(encoding="utf-8"))["sections"]:
        machine = values.pop("machine")
        rows = tuple(Row(**row) for row in values.pop("rows"))
        found.append(Measured(section=Section(rows=rows, **values), machine=machine))
    return found


def write(sections: Sequence[Section], facts: dict[str, Any], *, all_of_them: bool = True) -> None:
    """Write the results, the table between its marks, and the figure; of some sections, beside those kept."""
    from wsl_toolkit.system.files import write_atomically

    measured = [Measured(section=section, machine=facts) for section in sections]
    if not all_of_them:
        measured = _together(kept(), measured)
    results = {"sections": [{**attrs.asdict(each.section), "machine": each.machine} for each in measured]}
    write_atomically(RESULTS, json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    write_atomically(PAGE, f"{before}{BEGIN}\n\n{markdown(measured)}\n{END}{after}")
    draw([each.section for each in measured])


def _together(before: Sequence[Measured], new: Sequence[Measured]) -> list[Measured]:
    """Return sections in the place of those of the same title; a new one follows the one measured before it."""
    found, fresh = list(before), {each.section.title: each for each in new}
    place = len(found)
    for title, each in fresh.items():
        titles = [old.section.title for old in found]
        if title in titles:
            place = titles.index(title)
            found[place] = each
        else:
            found.insert(place + 1, each)
        place = [old.section.title for old in found].index(title)
    return found


def draw(sections: Sequence[Section], path: Path = FIGURE) -> None:
    """Draw an epoch's time against the bare loop's, and the time of each model as there are more of them."""
    from wsl_toolkit.system.figure_style import PALETTE, figure, save

    by_title = {section.title: section for section in sections}
    networks = [
        title.partition(": ")[2] for title in by_title if title.startswith("The loop: ") and "growth" not in title
    ]
    with figure(figsize=(9.6, 3.8), nrows=1, ncols=2) as (canvas, (left, right)):
        loops = ("limit", "bare", "proden", "ppl", "cc")  # the peer would dwarf them
        for place, loop in enumerate(loops):
            for column, network in enumerate(networks):
                seconds = by_title[f"The loop: {network}"].details["seconds"]
                shares = sorted(a / b for a, b in zip(seconds[loop], seconds["bare"], strict=True))
                middle = shares[len(shares) // 2]
                left.bar(
                    column + 0.16 * (place - 2), middle, 0.15, color=PALETTE[place], label=loop if not column else None
                )
                left.vlines(column + 0.16 * (place - 2), shares[0], shares[-1], color="black", linewidth=0.8)
        left.set_xticks(range(len(networks)), networks)
        left.set_ylabel("epoch time / bare loop's")
        left.legend(ncols=3, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, 1.18))
        per_model = by_title["Stacked: growth"].details["seconds per model"]
        counts = sorted(map(int, per_model))
        right.plot(counts, [1000 * min(per_model[str(count)]) for count in counts], marker="o")
        right.set(xscale="log", yscale="log", xlabel="models in the stack", ylabel="ms for an epoch of each model")
        save(canvas, path)
