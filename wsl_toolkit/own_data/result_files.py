"""What the commands write for people and programs, whole or not at all."""

from __future__ import annotations

import re
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from wsl_toolkit.errors import ConfigError, one_line
from wsl_toolkit.system.files import replacing

if TYPE_CHECKING:
    import pandas as pd

ENDINGS = (".csv", ".parquet", ".json")
FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n")
"""What a cell begins with that a spreadsheet runs."""
NUMBER = r"[-+]?(\d+[.,]?\d*|[.,]\d+)([eE][-+]?\d+)?"


def check_ending(path: Path) -> None:
    """Refuse, before any work, a file whose ending names no format that results are written in."""
    if path.suffix.lower() not in ENDINGS:
        raise ConfigError(f"results are written as {', '.join(ENDINGS)}, not as {path.name!r}")


def write_frame(frame: pd.DataFrame, path: Path, *, raw: bool = False) -> None:
    """Write a data frame in the format that the ending names; `raw` as in `to_csv`."""
    check_ending(path)
    try:
        with replacing(path) as temporary:
            if path.suffix.lower() == ".csv":
                to_csv(frame, temporary, raw=raw)
            elif path.suffix.lower() == ".parquet":
                frame.to_parquet(temporary, index=False)
            else:
                frame.to_json(temporary, orient="records", force_ascii=False, indent=2)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {one_line(error)}") from None


def to_csv(frame: pd.DataFrame, place: Path | IO[str], *, raw: bool = False) -> None:
    """Write a data frame as CSV; unless `raw`, texts that a spreadsheet would run as formulas get a ' in front."""
    if not raw:
        texts = frame.select_dtypes(exclude=["number", "bool"]).columns
        frame = frame.assign(**{name: frame[name].map(guarded) for name in texts}).rename(columns=guarded)
    frame.to_csv(place, index=False, lineterminator="\n")


def guarded(value: Any) -> Any:
    """Return a cell so that a spreadsheet shows it and does not run it; a number in text is no formula."""
    if isinstance(value, str) and value.startswith(FORMULAS) and not re.fullmatch(NUMBER, value):
        return f"'{value}"
    return value
