"""Candidate sets in a table's cells: `cat|dog`, a JSON list or Python's, or one 0/1 column for each class."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import torch
from torch import Tensor

from wsl_toolkit.data.table_columns import Where
from wsl_toolkit.errors import LabelError, did_you_mean
from wsl_toolkit.labels.candidate_sets import CHUNK_CELLS

if TYPE_CHECKING:
    import pyarrow as pa

SEPARATOR = "|"
LITERALS = "[({"
"""What a list, tuple or set begins with."""


@attrs.frozen(eq=False)
class SetColumn:
    """A column of sets: the different texts in it, the classes each of them names, and which text each row has."""

    name: str
    members: list[list[str]]
    row_text: np.ndarray

    def classes(self) -> set[str]:
        """Return every class that is named."""
        return {member for members in self.members for member in members}

    def masks(self, class_names: Sequence[str], where: Where) -> Iterator[Tensor]:
        """Yield boolean masks chunk by chunk; a class that is not known is refused by row and column."""
        place = {name: j for j, name in enumerate(class_names)}
        flat: list[int] = []
        counts = np.zeros(len(self.members), dtype=np.int64)
        for text, members in enumerate(self.members):
            for member in members:
                if member not in place:
                    row = int(np.flatnonzero(self.row_text == text)[0])
                    raise LabelError(
                        f"{where(row)}, column {self.name!r}: unknown class {member!r}.{did_you_mean(member, place)}"
                    )
                flat.append(place[member])
            counts[text] = len(members)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        codes = np.asarray(flat, dtype=np.int64)
        step = max(1, CHUNK_CELLS // len(class_names))
        for start in range(0, len(self.row_text), step):
            texts = self.row_text[start : start + step]
            rows = np.repeat(np.arange(len(texts)), counts[texts])
            first = np.repeat(offsets[texts] - np.concatenate([[0], np.cumsum(counts[texts])[:-1]]), counts[texts])
            mask = np.zeros((len(texts), len(class_names)), dtype=bool)
            mask[rows, codes[first + np.arange(len(rows))]] = True
            yield torch.from_numpy(mask)


def read_column(values: Any, name: str, where: Where, separator: str = SEPARATOR) -> SetColumn:
    """Parse a column; every different text is parsed once."""
    import pyarrow as pa

    if pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
        values = pa.array([None if v is None else json.dumps(v, ensure_ascii=False) for v in values.to_pylist()])
    encoded = pa.chunked_array([values] if isinstance(values, pa.Array) else values.chunks)
    encoded = encoded.cast(pa.string()).fill_null("").combine_chunks().dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    row_text = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    members = []
    for number, text in enumerate(texts):
        try:
            members.append(parse(text, separator))
        except ValueError as error:
            row = int(np.flatnonzero(row_text == number)[0])
            raise LabelError(f"{where(row)}, column {name!r}: {error}") from None
    return SetColumn(name, members, row_text)


def parse(text: str, separator: str = SEPARATOR) -> list[str]:
    """Return the classes that a cell names, each once, in order."""
    text = text.strip()
    if not text:
        return []
    found = _literal(text)
    if found is not None:
        if not all(isinstance(item, str | int) and not isinstance(item, bool) for item in found):
            raise ValueError(f"{text[:60]!r} holds something that is no class name")
        return list(dict.fromkeys(str(item) for item in found))
    parts = [part.strip() for part in text.split(separator)]
    if not all(parts):
        raise ValueError(f"{text[:60]!r} has an empty class name between its separators {separator!r}")
    return list(dict.fromkeys(parts))


def _literal(text: str) -> list[Any] | None:
    """Return the items of a JSON list, or of a list, tuple or set as Python writes it; None for any other text."""
    if text[0] not in LITERALS:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        try:
            found = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            found = None
    if isinstance(found, list | tuple | set):
        return sorted(found, key=str) if isinstance(found, set) else list(found)
    if text[0] == "[":
        raise ValueError(f"{text[:60]!r} looks like a JSON list but is none")
    return None


def write(members: Sequence[str], separator: str = SEPARATOR) -> str:
    """Return a cell that `parse` reads back: joined by the separator where that is safe, else a JSON list."""
    if members and all(m and m == m.strip() and separator not in m and m[0] not in LITERALS for m in members):
        return separator.join(members)
    return json.dumps(list(members), ensure_ascii=False)


def indicator_masks(table: pa.Table, columns: Sequence[str], where: Where) -> Iterator[Tensor]:
    """Yield the masks of 0/1 columns; anything else in one of them is refused by row and column."""
    import pyarrow as pa
    import pyarrow.compute as pc

    parts = []
    for name in columns:
        values = table.column(name)
        if pa.types.is_boolean(values.type):
            values = values.cast(pa.int8())
        good = pc.is_in(values.cast(pa.string()), value_set=pa.array(["0", "1", "0.0", "1.0"]))
        bad = np.flatnonzero(~good.to_numpy().astype(bool))
        if len(bad):
            found = values[int(bad[0])].as_py()
            shown = "missing" if found is None else repr(found)
            raise LabelError(f"{where(int(bad[0]))}, column {name!r}: the value is {shown}; only 0 or 1 may be")
        parts.append(pc.equal(values.cast(pa.float64()), 1.0).to_numpy().astype(bool))
    step = max(1, CHUNK_CELLS // len(columns))
    for start in range(0, table.num_rows, step):
        yield torch.from_numpy(np.stack([part[start : start + step] for part in parts], axis=1))


def in_order(classes: set[str]) -> tuple[str, ...]:
    """Return class names in order: by value if all are whole numbers, else by spelling."""
    numbers = all(name.isascii() and name.isdigit() and str(int(name)) == name for name in classes)
    return tuple(sorted(classes, key=int) if numbers else sorted(classes))
