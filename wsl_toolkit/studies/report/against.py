"""Published numbers beside a study's: a CSV file of test accuracies, matched by data and method."""

from __future__ import annotations

import csv
import io
import math
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from wsl_toolkit.errors import ConfigError, DataError, did_you_mean
from wsl_toolkit.studies.cells import CellState
from wsl_toolkit.studies.description import Study, StudySetting, component_label
from wsl_toolkit.studies.report.statistics import Estimate, estimate
from wsl_toolkit.studies.report.tables import NOTHING, Entry, Table, by_seed, oracle_mark, rows_of, shown_trials

REQUIRED = ("dataset", "method", "test_accuracy_percent")
OPTIONAL = ("standard_deviation", "standard_error", "sets", "protocol", "source")
COLUMNS = (
    *("source", "protocol", "dataset", "sets", "network", "method"),
    *("published", "ours", "difference", "verdict"),
)
MOST_BYTES = 10 * 2**20
WITHIN = 3.0
"""How many points apart two accuracies may be to count as the same, unless told otherwise."""
NOT_RUN = "not run"


@attrs.frozen(kw_only=True)
class Published:
    """One published test accuracy, in percent, and where it comes from."""

    dataset: str
    method: str
    accuracy: float
    spread: str = ""
    """As the source gives it: a standard deviation, a standard error, or nothing."""
    sets: str = ""
    protocol: str = ""
    source: str = ""

    def is_of(self, state: CellState) -> bool:
        """Whether it is about a cell's data, method and, where it says so, way of labelling."""
        cell = state.cell
        return (
            _plain(self.dataset) in {_plain(cell.setting.data_label), _plain(cell.setting.dataset[0])}
            and _plain(self.method) in {_plain(cell.method.label), _plain(cell.method.estimator[0])}
            and (not self.sets or _plain(self.sets) in _set_names(cell.setting))
        )


def _set_names(setting: StudySetting) -> set[str]:
    names = {setting.sets_label}
    if setting.generator is not None:
        names |= {setting.generator[0], component_label(setting.generator)}
    return {_plain(name) for name in names}


def _plain(name: str) -> str:
    """Return a name without what people write differently: case, hyphens, spaces."""
    return "".join(letter for letter in name.casefold() if letter.isalnum() or letter in ".=")


def read_published(path: Path) -> list[Published]:
    """Read a file of published numbers; one that cannot be read, or is too large to be such a file, is named."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise DataError(f"{path} is larger than {MOST_BYTES // 2**20} MB: that is not a table of published numbers")
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    return parse_published(text, str(path))


def parse_published(text: str, where: str) -> list[Published]:
    """Return published numbers: a header, then a row for each; a row that cannot be read is named by its line."""
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        columns = reader.fieldnames or ()
        for name in REQUIRED:
            if name not in columns:
                hint = did_you_mean(name, columns)
                raise DataError(f"{where} has no column {name!r}.{hint} Needed: {', '.join(REQUIRED)}; {_optional()}.")
        return [_published(row, f"{where}, line {reader.line_num}") for row in reader]
    except csv.Error as error:
        raise DataError(f"{where}, line {reader.line_num}: not a CSV file: {error}") from None


def _optional() -> str:
    return f"if known: {', '.join(OPTIONAL)}"


def _published(row: dict[str, str | None], where: str) -> Published:
    cells = {name: _clean(row.get(name) or "") for name in (*REQUIRED, *OPTIONAL)}
    for name in ("dataset", "method"):
        if not cells[name]:
            raise DataError(f"{where}: {name} is empty")
    spreads = {"standard_deviation": "sd", "standard_error": "se"}
    given = {word: _number(cells[name], f"{where}: {name}") for name, word in spreads.items() if cells[name]}
    return Published(
        dataset=cells["dataset"],
        method=cells["method"],
        accuracy=_number(cells["test_accuracy_percent"], f"{where}: test_accuracy_percent", most=100.0),
        spread=", ".join(f"{word} {value:.2f}" for word, value in given.items()),
        sets=cells["sets"],
        protocol=cells["protocol"],
        source=cells["source"],
    )


def _number(text: str, where: str, most: float = math.inf) -> float:
    try:
        value = float(text)
    except ValueError:
        raise DataError(f"{where} must be a number, not {text[:40]!r}") from None
    if not math.isfinite(value) or not 0 <= value <= most:
        bound = f" from 0 to {most:g}" if math.isfinite(most) else ", 0 or more"
        raise DataError(f"{where} must be a number{bound}, not {text[:40]!r}")
    return value


def _clean(text: str) -> str:
    """Return text for a table's cell: on one line, and without what could steer a terminal."""
    shown = "".join(letter if unicodedata.category(letter)[0] != "C" else " " for letter in text)
    return " ".join(shown.split())[:200]


@attrs.frozen(kw_only=True)
class Comparison:
    """A published number beside what this study has for it, in percent; nothing where it was not run."""

    theirs: Published
    state: CellState | None = None
    ours: Estimate | None = None
    trials: int = 0

    @property
    def difference(self) -> float | None:
        """Ours minus theirs, in points."""
        return None if self.ours is None else 100 * self.ours.mean - self.theirs.accuracy

    def met(self, within: float) -> bool:
        """Whether ours is at most so many points away; a rounding error more does not count."""
        return self.difference is not None and abs(self.difference) <= within + 1e-9

    def verdict(self, within: float) -> str:
        """Return in words how far ours is from theirs."""
        if self.difference is None:
            return NOT_RUN
        if self.met(within):
            return f"within {within:g} points"
        return f"more than {within:g} points {'higher' if self.difference > 0 else 'lower'}"


def check_within(within: float) -> float:
    """Return a bound on differences, in points, or say that it is none."""
    if not 0 <= within <= 100:
        raise ConfigError(f"within must be a number of points from 0 to 100, not {within!r}")
    return within


def compare(study: Study, states: Sequence[CellState], published: Sequence[Published]) -> list[Comparison]:
    """Return every published number with each cell that is its counterpart, or with none; cells in their order."""
    found: list[Comparison] = []
    used: set[int] = set()
    for row in rows_of(study, states):
        for state in row.states:
            values = list(by_seed(state, "test/accuracy").values())
            for number, theirs in enumerate(published):
                if values and theirs.is_of(state):
                    used.add(number)
                    found.append(Comparison(theirs=theirs, state=state, ours=estimate(values), trials=len(values)))
    return found + [Comparison(theirs=each) for number, each in enumerate(published) if number not in used]


def against_table(
    study: Study, states: Sequence[CellState], published: Sequence[Published], within: float = WITHIN
) -> Table:
    """Return published numbers beside ours, with a verdict on each; nothing is tested, since protocols differ.

    What was published of the study's own data and not run here has a row as well; other data is named in the note.
    """
    compared = compare(study, states, published)
    data = {_plain(name) for s in study.settings for name in (s.data_label, s.dataset[0])}
    rows = [_row(each, within) for each in compared if each.ours is not None or _plain(each.theirs.dataset) in data]
    kept = [place for place, name in enumerate(COLUMNS) if name not in OPTIONAL or any(row[place].text for row in rows)]
    return Table(
        key="against",
        title=f"Test accuracy in % beside published numbers{oracle_mark(study)}",
        columns=tuple(COLUMNS[place] for place in kept),
        rows=tuple(tuple(row[place] for place in kept) for row in rows),
        labels=sum(place < COLUMNS.index("published") for place in kept),
        note=_note(compared, data, within),
    )


def _note(compared: Sequence[Comparison], data: set[str], within: float) -> str:
    """Return how to read the table, how many numbers were met, and what was published of data that is not here."""
    note = (
        "Ours: mean ± standard error over trials. Published: as its source has it (sd: standard deviation, se: "
        "standard error). Difference: ours minus published, in points; splits, networks, epochs and selection differ "
        "between protocols, any of them may be its cause, and no test is made of it."
    )
    run = [each for each in compared if each.ours is not None]
    met = [each for each in run if each.met(within)]
    if run:
        methods = tuple(dict.fromkeys(each.theirs.method for each in met))
        note += f" Within {within:g} points: {len(met)} of {len(run)} comparisons"
        note += f", {len(methods)} methods at least once ({', '.join(methods)})." if met else "."
    others = Counter(e.theirs.dataset for e in compared if e.ours is None and _plain(e.theirs.dataset) not in data)
    if others:
        named = ", ".join(f"{name} ({count})" for name, count in others.items())
        note += f" Not run here, with the number of published accuracies: {named}."
    return note


def _row(each: Comparison, within: float) -> tuple[Entry, ...]:
    theirs, ours, difference = each.theirs, each.ours, each.difference
    spread = f" ({theirs.spread})" if theirs.spread else ""
    published = Entry(f"{theirs.accuracy:.2f}{spread}", value=theirs.accuracy)
    measured = (Entry(NOTHING), Entry(NOTHING))
    if each.state is not None and ours is not None and difference is not None:
        stderr = None if ours.stderr is None else 100 * ours.stderr
        text = ours.show(2, 100) + shown_trials(each.state)
        measured = (
            Entry(text, value=100 * ours.mean, stderr=stderr, trials=each.trials),
            Entry(f"{difference:+.2f}", value=difference),
        )
    return (*map(Entry, _names(each)), published, *measured, Entry(each.verdict(within)))


def _names(each: Comparison) -> tuple[str, ...]:
    """Return what a comparison is about: source, protocol, dataset, sets, network, method; ours where it was run."""
    theirs = each.theirs
    about = (theirs.dataset, theirs.sets, "", theirs.method)
    if each.state is not None:
        setting = each.state.cell.setting
        about = (
            setting.data_label,
            setting.sets_label,
            component_label(setting.backbone),
            each.state.cell.method.label,
        )
    return (theirs.source, theirs.protocol, *about)


def against_rows(compared: Sequence[Comparison], within: float = WITHIN) -> list[dict[str, Any]]:
    """Return one row for each comparison, all that were not run included, with numbers unrounded."""
    return [
        {
            **dict(zip(COLUMNS, _names(each), strict=False)),
            "published": each.theirs.accuracy,
            "published_spread": each.theirs.spread,
            "ours": None if each.ours is None else 100 * each.ours.mean,
            "ours_stderr": None if each.ours is None or each.ours.stderr is None else 100 * each.ours.stderr,
            "trials": each.trials,
            "difference": each.difference,
            "verdict": each.verdict(within),
        }
        for each in compared
    ]
