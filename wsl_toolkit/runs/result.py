"""What a run comes to."""

from __future__ import annotations

from typing import Any

import attrs

from wsl_toolkit.training.config import RunConfig


@attrs.frozen(kw_only=True)
class RunResult:
    """A run's outcome: the last epoch of each trial, and their mean and standard error."""

    name: str
    config: RunConfig
    run_id: str
    experiment: str
    experiment_id: str
    trials: tuple[dict[str, Any], ...]
    mean: dict[str, float]
    stderr: dict[str, float]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the result for JSON."""
        return {**attrs.asdict(self, recurse=False), "config": self.config.to_dict()}
