"""Published numbers beside a study's: a CSV file of test accuracies, matched by data and method."""

from __future__ import annotations

import csv
import io
import math
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import attrs

from wsl_toolkit.errors import DataError, did_you_mean
from wsl_toolkit.studies.cells import CellState
from wsl_toolkit.studies.description import Study, StudySetting, component_label
from wsl_toolkit.studies.report.statistics import estimate
from wsl_toolkit.studies.report.tables import Entry, Table, by_seed, oracle_mark, rows_of, shown_trials

REQUIRED = ("dataset", "method", "test_accuracy_percent")
OPTIONAL = ("standard_deviation", "standard_error", "sets", "protocol", "source")
MOST_BYTES = 10 * 2**20


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
    """Read published numbers: a header, then a row for each; a row that cannot be read is named by its line."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise DataError(f"{path} is larger than {MOST_BYTES // 2**20} MB: that is not a table of published numbers")
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        columns = reader.fieldnames or ()
        for name in REQUIRED:
            if name not in columns:
                hint = did_you_mean(name, columns)
                raise DataError(f"{path} has no column {name!r}.{hint} Needed: {', '.join(REQUIRED)}; {_optional()}.")
        return [_published(row, f"{path}, line {reader.line_num}") for row in reader]
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: not a CSV file: {error}") from None


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


def against_table(study: Study, states: Sequence[CellState], published: Sequence[Published]) -> Table:
    """Return each cell that has published counterparts beside them; nothing is tested, since protocols differ."""
    found = []
    used: set[int] = set()
    for row in rows_of(study, states):
        for state in row.states:
            values = by_seed(state, "test/accuracy")
            for number, theirs in enumerate(published):
                if values and theirs.is_of(state):
                    used.add(number)
                    found.append((state, values, theirs))
    rows = tuple(_row(state, values, theirs) for state, values, theirs in found)
    left = len(published) - len(used)
    note = (
        "Ours: mean ± standard error over trials. Theirs: as published (sd: standard deviation, se: standard error). "
        "Splits, networks, epochs and selection differ between protocols: a difference may come from any of them, and "
        "no test is made of it."
    )
    if left:
        note += f" {left} of {len(published)} published numbers have no counterpart in this study."
    return Table(
        key="against",
        title=f"Test accuracy in % beside published numbers{oracle_mark(study)}",
        columns=("dataset", "sets", "network", "method", "protocol", "source", "ours", "published", "difference"),
        rows=rows,
        labels=6,
        note=note,
    )


def _row(state: CellState, values: dict[int, float], theirs: Published) -> tuple[Entry, ...]:
    setting, own = state.cell.setting, estimate(list(values.values()))
    names = (setting.data_label, setting.sets_label, component_label(setting.backbone), state.cell.method.label)
    stderr = None if own.stderr is None else 100 * own.stderr
    spread = f" ({theirs.spread})" if theirs.spread else ""
    difference = 100 * own.mean - theirs.accuracy
    return (
        *map(Entry, names),
        Entry(theirs.protocol),
        Entry(theirs.source),
        Entry(own.show(2, 100) + shown_trials(state), value=100 * own.mean, stderr=stderr, trials=len(values)),
        Entry(f"{theirs.accuracy:.2f}{spread}", value=theirs.accuracy),
        Entry(f"{difference:+.2f}", value=difference),
    )
