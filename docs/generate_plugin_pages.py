"""Generate what plugin authors are told from the code: the public surface, and the checks of every contract.

Run as `python docs/generate_plugin_pages.py`; a test runs it too and fails if the pages differ.
"""

from __future__ import annotations

import ast
import enum
import hashlib
import importlib
import inspect
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

from wsl_toolkit import testing
from wsl_toolkit.plugins.api_version import current
from wsl_toolkit.plugins.public_api import PUBLIC_MODULES
from wsl_toolkit.system.files import write_atomically

PAGES = Path(__file__).parent / "plugin-authors"
CATALOGUE = Path(__file__).parents[1] / "tests" / "testing"
START, END = "<!-- generated: checks -->", "<!-- end of generated -->"


def surface() -> str:
    """Return every public name with its signature, a line each."""
    lines = []
    for module_name, names in PUBLIC_MODULES.items():
        module = importlib.import_module(module_name)
        for name in sorted(names or getattr(module, "__all__", None) or _own_names(module)):
            lines += _describe(f"{module_name}.{name}", getattr(module, name))
    return "\n".join(lines) + "\n"


def surface_id(text: str) -> str:
    """Return what a changelog line calls a surface, such as 'plugin API 1.0, surface 3f2a9c01'."""
    return f"plugin API {current()}, surface {hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _own_names(module: Any) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not inspect.ismodule(value)
        and (getattr(value, "__module__", module.__name__) == module.__name__ or name.isupper())
        and not (name.isupper() and not isinstance(value, str | float | int | dict | tuple | frozenset))
        and name not in ("annotations", "T", "Any", "TYPE_CHECKING")
    ]


def _describe(path: str, value: Any) -> list[str]:
    if inspect.isclass(value):
        return _describe_class(path, value)
    if inspect.isfunction(value):
        return [f"{path}{_signature(value)}"]
    if isinstance(value, dict):
        return [f"{path}: {', '.join(sorted(map(str, value)))}"]
    return [path]


def _describe_class(path: str, cls: type) -> list[str]:
    bases = ", ".join(base.__name__ for base in cls.__bases__ if base is not object)
    lines = [f"class {path}({bases})" if bases else f"class {path}"]
    if issubclass(cls, enum.Enum):
        return [*lines, f"    members: {', '.join(member.name for member in cls)}"]
    if issubclass(cls, Exception):
        return lines
    if not inspect.isabstract(cls) and "__init__" in vars(cls):
        lines.append(f"    def __init__{_signature(cls.__init__)}")  # type: ignore[misc]
    members: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("wsl_toolkit"):
            members |= {name: f"    {name}: {_plain(kind)}" for name, kind in _annotations(base).items()}
            members |= {name: f"    attribute {name}" for name in _set_on_instances(base) if name not in members}
            members |= {name: text for name, value in vars(base).items() if (text := _describe_member(name, value))}
    return lines + [members[name] for name in sorted(members) if not name.startswith("_")]


def _annotations(cls: type) -> dict[str, str]:
    fields = set(getattr(cls, "__slots__", ())) | set(vars(cls).get("__annotations__", {}))
    kinds = vars(cls).get("__annotations__", {})
    return {name: kinds[name] for name in sorted(fields) if name in kinds}


def _set_on_instances(cls: type) -> list[str]:
    """Return the public attributes that a class's own functions give `self`, which no annotation of the class names."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError, SyntaxError):
        return []
    targets = (
        target
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for each in (node.targets if isinstance(node, ast.Assign) else [node.target])
        for target in (each.elts if isinstance(each, ast.Tuple) else [each])
    )
    found = {
        target.attr
        for target in targets
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
    }
    return sorted(name for name in found if not name.startswith("_"))


def _describe_member(name: str, value: Any) -> str | None:
    if isinstance(value, classmethod | staticmethod):
        kind = type(value).__name__
        return f"    {kind} {name}{_signature(value.__func__)}"
    if isinstance(value, property):
        return f"    property {name}"
    return f"    def {name}{_signature(value)}" if inspect.isfunction(value) else None


def _signature(function: Any) -> str:
    return _plain(str(inspect.signature(function)))


def _plain(text: Any) -> str:
    """Return annotations without quotes, and values without addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(text).replace("'", "").replace("typing.", ""))


def checks() -> str:
    """Return a table for each contract, with the checks of any role first."""
    from wsl_toolkit.testing.common import ComponentContract

    parts = ["## Every component\n", _table(ComponentContract, set())]
    shared = set(dir(ComponentContract))
    for name in testing.CONTRACTS:
        contract = getattr(testing, name)
        parts += [f"\n## {name}\n", f"{inspect.getdoc(contract)}\n", _table(contract, shared)]
    return "\n".join(parts)


def _table(contract: type, known: set[str]) -> str:
    rows = ["| check | |", "|---|---|"]
    for name, value in vars(contract).items():
        if name.startswith("test_") and name not in known:
            sentence = name.removeprefix("test_").replace("_", " ")
            meaning = " ".join((inspect.getdoc(value) or "").split()).replace("|", "\\|")
            rows.append(f"| {sentence} | {meaning} |")
    return "\n".join(rows)


def caught() -> str:
    """Return a table for each role: the faults of the catalogue, and who finds them out."""
    sys.path.insert(0, str(CATALOGUE))
    try:
        found = importlib.import_module("faulty").catalogue()
    finally:
        sys.path.remove(str(CATALOGUE))
    parts = []
    for role, faults in found.items():
        by_both = sum(not fault.why for fault in faults)
        parts += [f"## {role.capitalize()}s\n", f"{len(faults)} faults, of which check and run catch {by_both}.\n"]
        parts += ["| fault | `wsl plugin check` | loading, or a run | why not |", "|---|---|---|---|"]
        parts += [
            f"| {fault.what} | {fault.caught_by_check} | {fault.caught_by_run} | {fault.why} |" for fault in faults
        ]
        parts.append("")
    return "\n".join(parts).rstrip()


def pages() -> dict[Path, str]:
    """Return every generated page and its text."""
    found = {PAGES / "public-api.txt": surface()}
    for name, text in (("contracts.md", checks()), ("what-is-caught.md", caught())):
        before = (PAGES / name).read_text(encoding="utf-8").partition(START)[0].rstrip()
        found[PAGES / name] = f"{before}\n\n{START}\n\n{text}\n\n{END}\n"
    return found


if __name__ == "__main__":
    for path, text in pages().items():
        write_atomically(path, text)
        print(f"wrote {path.name}")
    print(f"the changelog must mention: {surface_id(surface())}")
