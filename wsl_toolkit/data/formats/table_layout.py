"""Which column of a table is what, and a table that was read with its rows' places in the file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs
import numpy as np

from wsl_toolkit.data.formats import set_text
from wsl_toolkit.data.formats.text_dialect import Dialect
from wsl_toolkit.data.table_columns import row_number
from wsl_toolkit.errors import DataError, did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

CLASS_PREFIX = "class:"
CANDIDATES, COMPLEMENTARY, LABEL, ID = "candidates", "complementary", "label", "id"
"""Columns that are known by these names where the user does not say otherwise."""


@attrs.frozen(kw_only=True)
class Layout:
    """Which columns of a table are what."""

    candidates: tuple[str, ...] = ()
    """Columns of candidate sets; several are several annotators."""
    complementary: str | None = None
    indicators: tuple[str, ...] = ()
    """One 0/1 column for each class."""
    label: str | None = None
    id: str | None = None
    weight: str | None = None
    """A column that says how much each row counts."""
    classes: tuple[str, ...] | None = None
    combine: str = "union"
    separator: str = set_text.SEPARATOR
    categorical: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    hashed: tuple[str, ...] = ()
    """Columns of text whose words become features."""
    month_first: bool = False
    """Whether 3/4/2024 is the fourth of March."""
    class_prefix: str = CLASS_PREFIX
    empty: str = "refuse"
    """What becomes of a row whose candidate set is empty: refuse, unlabelled or skip."""

    def completed(self, columns: Sequence[str]) -> Layout:
        """Fill in what the columns' names tell, and refuse names that the table does not have."""
        named = [*self.candidates, *self.indicators, *self.categorical, *self.ignore, *self.hashed]
        for name in [*named, *(c for c in (self.complementary, self.label, self.id, self.weight) if c is not None)]:
            if name not in columns:
                raise DataError(f"there is no column {name!r}.{did_you_mean(name, columns)} Columns: {listed(columns)}")
        found = self
        if not self.has_sets:
            found = self._guessed(columns)
        free = {*found.candidates, *found.indicators, *found.ignore, found.complementary, found.weight}
        if found.label is None and LABEL in columns and LABEL not in free:
            found = attrs.evolve(found, label=LABEL)
        if found.id is None and ID in columns and ID not in free:
            found = attrs.evolve(found, id=ID)
        return found

    def _guessed(self, columns: Sequence[str]) -> Layout:
        if CANDIDATES in columns:
            return attrs.evolve(self, candidates=(CANDIDATES,))
        indicators = tuple(name for name in columns if name.startswith(self.class_prefix))
        if len(indicators) > 1:
            return attrs.evolve(self, indicators=indicators)
        if COMPLEMENTARY in columns:
            return attrs.evolve(self, complementary=COMPLEMENTARY)
        if self.label or LABEL in columns:
            return self  # true labels alone: a generator draws the sets
        raise DataError(
            f"no column is known to hold candidate sets: name one with --candidates-column or --complementary-column, "
            f"or call 0/1 columns {self.class_prefix}<name>. Columns: {listed(columns)}"
        )

    @property
    def has_sets(self) -> bool:
        """Whether a column holds candidate sets, in whatever form."""
        return bool(self.candidates or self.complementary or self.indicators)

    @property
    def texts(self) -> list[str]:
        """The columns that are text, whatever is in them."""
        named = (c for c in (self.complementary, self.label, self.id) if c)
        return [*self.candidates, *self.categorical, *self.hashed, *named]

    def features(self, columns: Sequence[str]) -> list[str]:
        """Return the columns that are inputs."""
        taken = {*self.candidates, *self.indicators, *self.ignore}
        taken |= {name for name in (self.complementary, self.label, self.id, self.weight) if name is not None}
        return [name for name in columns if name not in taken]


@attrs.frozen(kw_only=True, eq=False)
class TableFile:
    """A table as it was read, which column is what, and where its rows are in the file."""

    table: pa.Table
    layout: Layout
    dialect: Dialect | None = None
    """None where the file is no text."""
    header: tuple[str, ...] = ()
    """All columns of the file, ignored ones too."""
    rows: np.ndarray | None = None
    """The row of the file, counting from 0, that each row of the table is; None: the same."""
    empty_rows: int = 0
    """How many rows of the file were left out because nothing is in them."""
    unlabelled_rows: int = 0
    """How many were left out because their candidate set is empty, as the user asked."""

    def where(self, row: int) -> str:
        """Return a row's name for messages, by its place in the file."""
        return row_number(row if self.rows is None else int(self.rows[row]))

    def keep(self, kept: np.ndarray) -> TableFile:
        """Return the rows that a mask chooses."""
        rows = np.arange(self.table.num_rows) if self.rows is None else self.rows
        return attrs.evolve(self, table=self.table.filter(kept), rows=rows[kept])


def listed(names: Sequence[str], most: int = 12) -> str:
    """Return names for a message, the first of very many."""
    shown = ", ".join(repr(name) for name in names[:most])
    return f"{shown}, … ({len(names)} in all)" if len(names) > most else shown
