"""What a run's record, `run.json`, may hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

STATUSES = ("RUNNING", "FINISHED", "FAILED", "KILLED")
_KINDS: dict[str, type] = {
    "name": str, "params": dict, "tags": dict, "description": str, "parent": str, "status": str, "message": str,
    "started": int, "ended": int, "experiment": str, "store": str, "data_dir": str, "inputs": list, "summary": dict,
    "resumed": int, "delivered": bool, "refused": bool, "local_id": str, "codes": list,
}  # fmt: skip
"""What the facts of a run are, where they are known."""
_INPUT = {"name", "digest", "context"}


def check_facts(facts: Mapping[str, Any]) -> None:
    """Raise a ValueError for a fact that is not what it should be."""
    for name, value in facts.items():
        if name in _KINDS and type(value) is not _KINDS[name]:
            raise ValueError(f"{name!r} is not {_KINDS[name].__name__}")
    if facts.get("status", STATUSES[0]) not in STATUSES:
        raise ValueError("'status' is none of a run's")
    if not all(map(_is_text, facts.get("tags", {}).values())):
        raise ValueError("'tags' holds more than text")
    for item in facts.get("inputs", ()):
        if not isinstance(item, dict) or not item.keys() >= _INPUT or not all(map(_is_text, item.values())):
            raise ValueError("'inputs' does not name data")
    for code in facts.get("codes", ()):
        if not isinstance(code, dict) or not all(map(_is_text, code.values())):
            raise ValueError("'codes' does not say what made the run")
    if "summary" in facts:
        _check_summary(facts["summary"])


def _check_summary(summary: Mapping[str, Any]) -> None:
    values = summary.get("values")
    if type(summary.get("time")) is not int or type(summary.get("step")) is not int or not isinstance(values, dict):
        raise ValueError("'summary' has no time, no step or no values")
    if not all(type(value) in (int, float) for value in values.values()):
        raise ValueError("a value of 'summary' is not a number")


def _is_text(value: object) -> bool:
    return isinstance(value, str)
