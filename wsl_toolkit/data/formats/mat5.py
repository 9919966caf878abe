"""MATLAB's own file format, versions 5 to 7: matrices, sparse matrices, and cell arrays of strings.

scipy reads these files too, but by its own word its reader is not hardened: it takes type codes and sizes from the
file on trust, so that a damaged file can end the interpreter with a segmentation fault. A partial-label file needs a
small part of the format, which is read here with every size checked before it is used, compressed data's included.

A file is a header of 128 bytes and a sequence of elements: a type code and a size, 4 bytes each, then the data,
padded to 8 bytes. An array is an element of elements (flags, dimensions, name, numbers); it may come compressed.
"""

from __future__ import annotations

import itertools
import os
import zlib
from collections.abc import Collection, Iterator
from typing import Any, BinaryIO, Literal

import attrs
import numpy as np

from wsl_toolkit.data.formats.size_bounds import Budget
from wsl_toolkit.errors import DataError

HEADER, TAG = 128, 8
HEAD = 2**16
"""Flags, dimensions and name of a variable lie in so many bytes."""

MATRIX, COMPRESSED = 14, 15
NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
TEXTS = {1: "latin-1", 2: "utf-8", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}
CELL, CHAR, SPARSE, NUMERIC = 1, 4, 5, range(6, 16)
IS_COMPLEX = 0x0800


@attrs.frozen
class Element:
    """A type code, and where in which bytes its data lie."""

    code: int
    content: bytes
    start: int
    end: int

    def damaged(self) -> DataError:
        """Return the error for an element that is not what it must be."""
        return DataError(f"it is damaged at byte {self.start}: an element of type {self.code} cannot be there")


def read_version_5(file: BinaryIO, wanted: Collection[str], budget: Budget) -> dict[str, Any]:
    """Return the wanted variables: arrays, scipy's sparse matrices, or object arrays for cells.

    Of other variables only the name is read, and unpacked if it is compressed.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    start = file.read(HEADER)
    if len(start) < HEADER or start[126:] not in (b"IM", b"MI"):
        raise DataError(
            "it is not a .mat file of version 5 or later, or it is cut short; MATLAB's `save -v7` writes one"
        )
    reader = Reader("little" if start[126:] == b"IM" else "big")
    found: dict[str, Any] = {}
    position = HEADER
    while position < size:
        file.seek(position)
        code, length = reader.tag(file.read(TAG), position)
        if position + TAG + length > size:
            raise DataError(f"it is cut short or damaged at byte {position}")
        read = _inflated if code == COMPRESSED else _plain
        found |= read(reader, file, (code, length), wanted, budget)
        position += TAG + length + (0 if code == COMPRESSED else -length % 8)
    return found


def _plain(
    reader: Reader, file: BinaryIO, tag: tuple[int, int], wanted: Collection[str], budget: Budget
) -> dict[str, Any]:
    """Return the variable that lies where the file is at, if it is wanted."""
    code, length = tag
    place = file.tell()
    if code != MATRIX:
        raise Element(code, b"", place, place + length).damaged()
    name = reader.name(file.read(min(length, HEAD)))
    if name not in wanted:
        return {}
    budget.take(length, f"variable {name!r}")
    file.seek(place)
    return {name: reader.array(Element(MATRIX, file.read(length), 0, length))[1]}


def _inflated(
    reader: Reader, file: BinaryIO, tag: tuple[int, int], wanted: Collection[str], budget: Budget
) -> dict[str, Any]:
    """Return the compressed variable that lies where the file is at, if it is wanted: first, its name is unpacked."""
    packed = file.read(tag[1])
    head = zlib.decompressobj().decompress(packed, TAG + HEAD)
    code, length = reader.tag(head[:TAG], 0)
    if code != MATRIX:
        raise Element(code, b"", 0, 0).damaged()
    name = reader.name(head[TAG : TAG + length])
    if name not in wanted:
        return {}
    budget.take(length, f"variable {name!r}")
    stream = zlib.decompressobj()
    content = stream.decompress(packed, TAG + length)
    if len(content) < TAG + length or stream.decompress(stream.unconsumed_tail, 1) or not stream.eof:
        raise DataError(f"it is damaged: variable {name!r} unpacks to another size than it says")
    return {name: reader.array(Element(MATRIX, content, TAG, TAG + length))[1]}


@attrs.frozen
class Reader:
    """Reads elements of one byte order."""

    order: Literal["little", "big"]

    def elements(self, content: bytes, start: int, end: int) -> Iterator[Element]:
        """Yield the elements between two places; one that does not end there is refused."""
        position = start
        while position < end:
            word = int.from_bytes(content[position : position + 4], self.order)
            if word >> 16:  # a small element: size, code and up to 4 bytes of data share 8 bytes
                element = Element(word & 0xFFFF, content, position + 4, position + 4 + (word >> 16))
                following = position + 8
                inside = element.end <= following
            else:
                size = int.from_bytes(content[position + 4 : position + 8], self.order)
                element = Element(word, content, position + 8, position + 8 + size)
                following = element.end + (0 if word == COMPRESSED else -size % 8)
                inside = True
            if not inside or element.end > end:
                raise DataError(f"it is cut short or damaged at byte {position}")
            yield element
            position = following

    def tag(self, content: bytes, place: int) -> tuple[int, int]:
        """Return type code and size of a whole element; a variable is never a small one."""
        code, length = (int.from_bytes(content[i : i + 4], self.order) for i in (0, 4))
        if len(content) < TAG or code >> 16:
            raise DataError(f"it is cut short or damaged at byte {place}")
        return code, length

    def name(self, content: bytes) -> str:
        """Return an array's name from the beginning of its content: flags and dimensions come before it."""
        parts = list(itertools.islice(self.elements(content, 0, len(content)), 3))
        return self.text(parts[2]) if len(parts) == 3 else ""  # MATLAB's empty array has no name

    def array(self, element: Element) -> tuple[str, Any]:
        """Return an array's name and its value."""
        if element.code != MATRIX:
            raise element.damaged()
        parts = list(self.elements(element.content, element.start, element.end))
        if len(parts) < 3:
            return "", None  # MATLAB's empty array
        flags, shape = (self.numbers(part).tolist() for part in parts[:2])
        name = self.text(parts[2])
        if not flags or len(shape) < 2 or min(shape) < 0:
            raise element.damaged()
        return name, self.value(name, flags[0], shape, parts[3:])

    def value(self, name: str, flags: int, shape: list[int], parts: list[Element]) -> Any:
        """Return the matrix, text or cells of an array."""
        kind = flags & 0xFF
        if kind == CELL:
            cells = np.empty(len(parts), dtype=object)
            cells[:] = [self.array(part)[1] for part in parts]
            return cells
        if kind == CHAR and len(parts) == 1:
            return self.text(parts[0])
        if flags & IS_COMPLEX or not (kind == SPARSE or kind in NUMERIC) or len(parts) != (3 if kind == SPARSE else 1):
            raise DataError(f"variable {name!r} is not a matrix of real numbers")
        numbers = [self.numbers(part) for part in parts]
        if kind == SPARSE:
            return sparse(name, (shape[0], shape[1]), *numbers)
        cells_expected = 1
        for side in shape:
            cells_expected *= side
        if numbers[0].size != cells_expected:
            raise DataError(
                f"variable {name!r} has {numbers[0].size} numbers for a shape of {'×'.join(map(str, shape))}"
            )
        return numbers[0].reshape(shape, order="F")

    def numbers(self, element: Element) -> np.ndarray:
        """Return an element's numbers."""
        if element.code not in NUMBERS:
            raise element.damaged()
        kind = np.dtype(NUMBERS[element.code]).newbyteorder("<" if self.order == "little" else ">")
        count, rest = divmod(element.end - element.start, kind.itemsize)
        if rest:
            raise element.damaged()
        return np.frombuffer(element.content, dtype=kind, count=count, offset=element.start)

    def text(self, element: Element) -> str:
        """Return an element's text."""
        if element.code not in TEXTS:
            raise element.damaged()
        encoding = TEXTS[element.code]
        if encoding in ("utf-16", "utf-32"):
            encoding += "-le" if self.order == "little" else "-be"
        return element.content[element.start : element.end].decode(encoding)


def sparse(name: str, shape: tuple[int, int], rows: np.ndarray, ends: np.ndarray, values: np.ndarray) -> Any:
    """Return a sparse matrix from row numbers, the end of each column and values, all of them checked."""
    from scipy.sparse import csc_matrix

    rows, ends = rows.astype(np.int64), ends.astype(np.int64)
    sound = len(ends) == shape[1] + 1 and ends[0] == 0 and bool((np.diff(ends) >= 0).all())
    count = int(ends[-1]) if sound else 0
    if not sound or count > min(len(rows), len(values)):
        raise DataError(
            f"variable {name!r} is a damaged sparse matrix: its columns do not fit its {len(values)} values"
        )
    if count and not 0 <= int(rows[:count].min()) <= int(rows[:count].max()) < shape[0]:
        raise DataError(f"variable {name!r} is a damaged sparse matrix: it has values outside its {shape[0]} rows")
    return csc_matrix((values[:count], rows[:count], ends), shape=shape)
