"""The pytest plugin: the fixture that contracts ask for, and what `wsl plugin check` needs to tell what happened.

pytest loads it wherever wsl-toolkit is installed, so nothing heavy is imported here.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

NOT_APPLICABLE = "not applicable"
"""The outcome of a check that has nothing to check for a component; the reason of its skip begins so."""


@pytest.fixture
def component(request: pytest.FixtureRequest) -> Any:
    """The component under contract: the class attribute `component`, or a fixture of that name in its place."""
    found = getattr(request.cls, "component", None)
    if found is None:
        pytest.fail(
            f"{request.cls.__name__ if request.cls else request.node.name} names no component: write "
            "`component = MyComponent()` in the class, or define a fixture of that name",
            pytrace=False,
        )
    if isinstance(found, type):
        pytest.fail(f"`component` must be an instance, not the class {found.__name__}: add ()", pytrace=False)
    return found


@pytest.fixture
def contract_data_dir(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Where a dataset under contract finds its files: the class attribute `data_dir`, or what the option says."""
    found = getattr(request.cls, "data_dir", None) or request.config.getoption("--wsl-data-dir")
    return Path(found) if found is not None else tmp_path


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that `wsl plugin check` uses."""
    group = parser.getgroup("wsl-toolkit")
    group.addoption("--wsl-distribution", help="the distribution whose components are put under contract")
    group.addoption("--wsl-plugin", help="of that distribution, only what this entry point registers")
    group.addoption("--wsl-covered", action="append", help="a component to leave out: 'estimator mine'")
    group.addoption("--wsl-data-dir", help="where datasets under contract find their files (default: nowhere)")
    group.addoption("--wsl-report", help="write every check's outcome to this file, a JSON document a line")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Write down a check's outcome and, in a sentence, why it failed or was not applicable."""
    report: Any = yield
    path = item.config.getoption("--wsl-report")
    why, outcome = "", report.outcome
    if call.excinfo is not None:
        why = str(call.excinfo.value).partition("\nassert ")[0].strip() or call.excinfo.typename
    if outcome == "skipped" and why.startswith(f"{NOT_APPLICABLE}: "):
        outcome, why = NOT_APPLICABLE, why.removeprefix(f"{NOT_APPLICABLE}: ")
    # A contract for whose role the plugin has no component is skipped before it begins, and is no check of it.
    if path and (report.when == "call" or outcome in ("failed", NOT_APPLICABLE)):
        with open(path, "a", encoding="utf-8") as file:
            facts = {
                "id": item.nodeid,
                "name": item.name,
                "outcome": outcome,
                "why": why,
                "component": _under_contract(item),
            }
            file.write(json.dumps(facts) + "\n")
    return report


def _under_contract(item: Any) -> str:
    """Return 'estimator mine' if an item is a contract's check of that component, else nothing."""
    component = getattr(item, "funcargs", {}).get("component")
    if component is None or not getattr(getattr(item, "cls", None), "is_wsl_contract", False):
        return ""
    return f"{getattr(component, 'role', '')} {getattr(component, 'name', '')}"
