"""A run's own record on disk: its configuration, a line for each epoch, its result. The source of truth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs

from wsl_toolkit.engine import EpochRecord
from wsl_toolkit.errors import ConfigError, one_line
from wsl_toolkit.files import write_atomically


class RunFolder:
    """`<home>/runs/<id>/`: config.toml, records.jsonl, result.json."""

    def __init__(self, home: Path, run_id: str) -> None:
        self.path = home / "runs" / run_id
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{home} cannot be written ({one_line(error)}): run in a directory of your own") from None

    def write_config(self, toml: str) -> None:
        """Keep the resolved configuration."""
        write_atomically(self.path / "config.toml", toml)

    def append(self, record: EpochRecord) -> None:
        """Add an epoch's line; a reader ignores a last line that was cut short."""
        with (self.path / "records.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(attrs.asdict(record)) + "\n")

    def write_result(self, result: dict[str, Any]) -> None:
        """Keep the result; its presence means that the run is complete."""
        write_atomically(self.path / "result.json", json.dumps(result, indent=2))
