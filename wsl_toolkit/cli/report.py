"""`wsl report`: a study's tables and figures."""

from __future__ import annotations

from pathlib import Path

import click

from wsl_toolkit.cli.common import force_option, json_option
from wsl_toolkit.cli.complete import started_studies
from wsl_toolkit.cli.console import print_json
from wsl_toolkit.errors import ConfigError, one_line
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.system import output_paths

ENDINGS = {"markdown": (".md", ".markdown"), "latex": (".tex",), "csv": (".csv",), "html": (".html", ".htm")}
PICTURES = (".pdf", ".png", ".svg")
FORMATS = ("terminal", "markdown", "latex", "csv", "html")


@click.command("report")
@click.argument("study", metavar="NAME", shell_complete=started_studies)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="One format; CSV has a row for each trial, or, with --against, for each published number.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="A file for one format, which its ending says; a folder for all of them with figures.",
)
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    metavar="FILE.csv",
    help="Published accuracies to put beside the study's: columns dataset, method, test_accuracy_percent.",
)
@click.option(
    "--within",
    type=float,
    metavar="POINTS",
    help="With --against: how many points apart two accuracies may be to be called the same; 3 if not given.",
)
@force_option
@json_option
def report(
    study: str,
    form: str | None,
    out: Path | None,
    against: Path | None,
    within: float | None,
    force: bool,
    as_json: bool,
) -> None:
    """Show a study's accuracy, risk, rank and selection tables, as far as it has come."""
    from wsl_toolkit.cli.report_tables import print_report
    from wsl_toolkit.studies.codes import other_code
    from wsl_toolkit.studies.driver import study_states
    from wsl_toolkit.studies.report.against import WITHIN, check_within, read_published
    from wsl_toolkit.studies.report.build import as_plain, as_text, build_report, write_report
    from wsl_toolkit.studies.status import started_study
    from wsl_toolkit.system.files import write_atomically

    if as_json and (form is not None or out is not None):
        raise click.UsageError("--json prints the tables: leave --format and --out away")
    if within is not None and against is None:
        raise click.UsageError("--within goes with --against FILE.csv: there is nothing to compare with")
    bound = check_within(WITHIN if within is None else within)
    form = form_of(form, out)
    if out is not None:
        check = output_paths.check_folder if form is None else output_paths.check_file
        check(out, () if against is None else (against,), force=force)
    folder, description = started_study(study)
    published = read_published(against) if against is not None else []
    registry = load_plugins().registry
    states = study_states(description, folder, registry)
    other = other_code(states, folder, registry)
    built = build_report(description, states, published, other, bound)
    if published and not any(row["trials"] for row in built.against):
        click.echo(
            f"note: none of the {len(published)} numbers of {against} is of this study's data and methods", err=True
        )
    if as_json:
        print_json(as_plain(built))
        return
    try:
        if out is not None and form is None:
            for path in write_report(built, out):
                click.echo(str(path))
        elif form is None:
            print_report(built)
        elif out is not None:
            write_atomically(out, as_text(built, form))
            click.echo(str(out))
        else:
            click.echo(as_text(built, form), nl=False)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise ConfigError(f"the report cannot be written ({one_line(error)}): choose another --out") from None


def form_of(form: str | None, out: Path | None) -> str | None:
    """Return the format of a file, None for the terminal or a folder of all; a contrary ending is refused."""
    ending = out.suffix.lower() if out is not None else ""
    if form in (None, "terminal"):
        if ending in PICTURES:
            raise ConfigError(
                f"a report is no {ending} file: --out FOLDER writes all of it, figures as PNG, SVG and PDF"
            )
        return next((name for name, endings in ENDINGS.items() if ending in endings), None)
    if ending and ending not in ENDINGS[form] and (ending in PICTURES or any(ending in e for e in ENDINGS.values())):
        raise ConfigError(f"--format {form} writes a {ENDINGS[form][0]} file, not {out.name if out else ending!r}")
    return form
