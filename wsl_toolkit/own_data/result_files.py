"""Results as tables for people and programs: CSV, Parquet or JSON, written whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from wsl_toolkit.errors import ConfigError, one_line
from wsl_toolkit.system.files import replacing

if TYPE_CHECKING:
    import pandas as pd

ENDINGS = (".csv", ".parquet", ".json")


def check_ending(path: Path) -> None:
    """Refuse, before any work, a file whose ending names no format that results are written in."""
    if path.suffix.lower() not in ENDINGS:
        raise ConfigError(f"results are written as {', '.join(ENDINGS)}, not as {path.name!r}")


def write_frame(frame: pd.DataFrame, path: Path) -> None:
    """Write a data frame in the format that the ending names."""
    check_ending(path)
    try:
        with replacing(path) as temporary:
            if path.suffix.lower() == ".csv":
                frame.to_csv(temporary, index=False)
            elif path.suffix.lower() == ".parquet":
                frame.to_parquet(temporary, index=False)
            else:
                frame.to_json(temporary, orient="records", force_ascii=False, indent=2)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {one_line(error)}") from None
