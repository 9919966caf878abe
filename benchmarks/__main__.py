"""All benchmarks: `make bench`, or `python -m benchmarks [--quick] [--only loop,stacked]`.

A whole run takes about half an hour on two quiet cores and rewrites the table and the figure in the docs. A quick or a
partial one prints its numbers and writes nothing; with `--write`, a partial one replaces its own sections there.
"""

from __future__ import annotations

from typing import Any

import click

from benchmarks.harness import Row, Section


def generator_sections(quick: bool) -> list[Section]:
    """Put the generators' numbers into rows."""
    from benchmarks import generators

    found: dict[str, Any] = generators.main()
    rows: list[Row] = []
    for name, result in found.items():
        if "median" in result:
            rows.append(Row.of(name, result))
        elif "exponent" in result:
            rows.append(Row(what=name, median=result["exponent"], unit="b"))
        else:
            rows.append(Row(what=f"{name}: peak memory of the process", median=result["peak_mb"], unit="MB"))
            rows.append(Row(what=f"{name}: of it, the sets", median=result["sets_mb"], unit="MB"))
    note = "Drawing `mcl-skewed` sets (α = 0.7) against a loop over examples; one thread."
    return [Section(title="Generators", note=note, rows=tuple(rows), details=found)]


@click.command()
@click.option("--quick", is_flag=True, help="Small sizes and few rounds: to see that everything runs.")
@click.option(
    "--only",
    default="",
    help="Some of: loop, checks, stacked, methods, generators, label_space, tracking, startup, kernels.",
)
@click.option(
    "--write", is_flag=True, help="With --only: replace these sections in the results, the table and the figure."
)
def main(quick: bool, only: str, write: bool) -> None:
    """Measure, print, and (for a whole run) write results, table and figure."""
    from benchmarks import checks, kernels, label_space, loop, methods, report, stacked, startup, tracking

    parts = {
        "startup": startup.sections,
        "loop": loop.sections,
        "kernels": kernels.sections,
        "checks": checks.sections,
        "stacked": stacked.sections,
        "methods": methods.sections,
        "generators": generator_sections,
        "label_space": label_space.sections,
        "tracking": tracking.sections,
    }
    chosen = [name.strip() for name in only.split(",") if name.strip()] or list(parts)
    for name in chosen:
        if name not in parts:
            raise click.BadParameter(f"{name!r} is none of {', '.join(parts)}", param_hint="--only")
    facts = report.machine()
    sections: list[Section] = []
    for name in chosen:
        for section in parts[name](quick):
            click.echo(report.text(section) + "\n")
            sections.append(section)
    if not quick and (write or not only):
        report.write(sections, facts, all_of_them=not only)
        if "methods" in chosen:
            methods.write(sections, facts)
        costs = (methods.RESULTS.name,) if "methods" in chosen else ()
        written = (report.RESULTS.name, *costs, f"the table in {report.PAGE.name}", report.FIGURE.name)
        click.echo(f"Written: {', '.join(written)}.")


if __name__ == "__main__":
    main()
