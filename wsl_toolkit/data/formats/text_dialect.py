"""How a text file writes its table: delimiter, encoding, decimal sign and quotes, as given or as they look."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from wsl_toolkit.errors import ConfigError, DataError

SAMPLE_BYTES, SAMPLE_ROWS = 2**20, 200
"""What the dialect is told by: so much of a file's beginning."""

WESTERN = "cp1252"
"""What a text that is not Unicode is taken for: Windows' encoding of Western European languages, Latin-1 included."""

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""Byte-order marks, the longer ones first where one begins like another."""

DECIMAL_COMMA, DECIMAL_POINT = re.compile(r"\s*[-+]?\d+,\d+\s*"), re.compile(r"\s*[-+]?\d*\.\d+\s*")


@attrs.frozen(kw_only=True)
class Dialect:
    """How a text file writes its table."""

    delimiter: str = ","
    encoding: str = "utf-8"
    decimal: str = "."
    quote: str = '"'

    def describe(self) -> str:
        """Return the dialect in words."""
        delimiter = DELIMITERS.get(self.delimiter, repr(self.delimiter))
        sign = "decimal comma" if self.decimal == "," else "decimal point"
        quote = "" if self.quote == '"' else f", quotes {self.quote}"
        return f"values between {delimiter}, {sign}, {self.encoding}{quote}"

    def to_dict(self) -> dict[str, str]:
        """Return the dialect for JSON."""
        return attrs.asdict(self)

    @classmethod
    def from_dict(cls, values: Any) -> Dialect | None:
        """Return what `to_dict` wrote, or None where it is something else."""
        names = {field.name for field in attrs.fields(cls)}
        if not isinstance(values, dict) or set(values) != names or not all(isinstance(v, str) for v in values.values()):
            return None
        return cls(**values)


@attrs.frozen(kw_only=True)
class Given:
    """What the user says about a file; None is to be found out."""

    delimiter: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    sheet: str | None = None
    """Which sheet of a workbook; None is the first."""

    def __attrs_post_init__(self) -> None:
        if self.delimiter is not None and len(self.delimiter) != 1:
            raise ConfigError(f"--delimiter is a single character, not {self.delimiter!r}")
        if self.decimal not in (None, ".", ","):
            raise ConfigError(f"--decimal is . or , and not {self.decimal!r}")
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except LookupError:
                raise ConfigError(f"--encoding: there is no text encoding {self.encoding!r}") from None


def usual_delimiter(path: Path) -> str:
    """Return what separates values in a file of that ending."""
    return "\t" if path.suffix.lower() == ".tsv" else ","


def detect(path: Path, given: Given | None = None) -> Dialect:
    """Return a file's dialect: what is given, and for the rest what its beginning looks like."""
    given = given or Given()
    encoding = given.encoding or _encoding(path)
    check_encoding(path, encoding)
    sample = _sample(path, encoding)
    quote = _quote(sample)
    delimiter = given.delimiter or _delimiter(sample, quote, usual_delimiter(path))
    decimal = given.decimal or _decimal(_rows(sample, delimiter, quote), delimiter)
    return Dialect(delimiter=delimiter, encoding=encoding, decimal=decimal, quote=quote)


def check_encoding(path: Path, encoding: str) -> None:
    """Refuse a file that is not text in an encoding, by the line that shows it."""
    decoder = codecs.getincrementaldecoder(encoding)()
    line = 1
    with path.open("rb") as file:
        while True:
            part = file.read(SAMPLE_BYTES)
            try:
                text = decoder.decode(part, final=not part)
            except UnicodeError as error:
                start = getattr(error, "start", 0)
                line += part[:start].count(b"\n")
                raise DataError(f"line {line} is not {encoding} text: name the file's --encoding") from None
            if "\0" in text:
                raise DataError(f"line {line + text[: text.index(chr(0))].count(chr(10))} holds a zero: it is not text")
            if not part:
                return
            line += text.count("\n")


def _encoding(path: Path) -> str:
    """Return an encoding by the file's mark, or UTF-8 if all of it is that, or else Windows' Western European one."""
    with path.open("rb") as file:
        start = file.read(4)
    for mark, name in MARKS.items():
        if start.startswith(mark):
            return name
    if len(start) == 4 and start.count(0) == 2:  # UTF-16 without a mark: every other byte of Western text is 0
        return "utf-16-le" if start[1] == start[3] == 0 else "utf-16-be"
    decoder = codecs.getincrementaldecoder("utf-8")()
    with path.open("rb") as file:
        while part := file.read(SAMPLE_BYTES):
            try:
                decoder.decode(part)
            except UnicodeDecodeError:
                return "utf-8" if _mostly_unicode(part) else WESTERN
    return "utf-8"


def _mostly_unicode(part: bytes) -> bool:
    """Return whether UTF-8 with a mistake in it is likelier than another encoding, which seldom looks like UTF-8."""
    others = [character for character in part.decode(errors="replace") if ord(character) > 127]
    return others.count("\ufffd") < len(others) / 2


def _sample(path: Path, encoding: str) -> str:
    """Return whole lines of a file's beginning."""
    with path.open("rb") as file:
        part = file.read(SAMPLE_BYTES)
        whole = not file.read(1)
    text = codecs.getincrementaldecoder(encoding)().decode(part).removeprefix("\ufeff")
    return text if whole else text[: text.rfind("\n") + 1]


def _quote(sample: str) -> str:
    """Return the quotes of the header: double ones, unless it has single ones around its names and no double one."""
    header = next((line.strip() for line in sample.splitlines() if line.strip()), "")
    single = len(header) > 1 and header[0] == header[-1] == "'" and header.count("'") % 2 == 0
    return "'" if single and '"' not in header else '"'


def _rows(sample: str, delimiter: str, quote: str) -> list[list[str]]:
    found: list[list[str]] = []
    try:
        for row in csv.reader(io.StringIO(sample, newline=""), delimiter=delimiter, quotechar=quote):
            if any(cell.strip() for cell in row):
                found.append(row)
            if len(found) == SAMPLE_ROWS:
                break
    except csv.Error:
        pass  # a value of more than 128 KB; what came before it will do
    return found


def _delimiter(sample: str, quote: str, usual: str) -> str:
    """Return the delimiter that cuts all rows into equally many values, the most of them; else the usual one."""
    best, score = usual, (False, 1)
    for delimiter in (usual, *(other for other in DELIMITERS if other != usual)):
        rows = _rows(sample, delimiter, quote)
        width = len(rows[0]) if rows else 0
        found = (all(len(row) == width for row in rows), width)
        if width > 1 and found > score and (found[0] or score[1] == 1):
            best, score = delimiter, found
    return best


def _decimal(rows: Sequence[Sequence[str]], delimiter: str) -> str:
    """Return a comma where more numbers are written with one than with a point, and commas separate no values."""
    if delimiter == ",":
        return "."
    cells = [cell for row in rows[1:] for cell in row]
    commas = sum(bool(DECIMAL_COMMA.fullmatch(cell)) for cell in cells)
    return "," if commas > sum(bool(DECIMAL_POINT.fullmatch(cell)) for cell in cells) else "."
