"""The house rules that a reader cannot see in one file: who may import whom."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CORE = ROOT / "wsl_toolkit"
FIRST_PARTY = ROOT / "plugins"

ROOMS = [
    {"version", "errors", "settings", "parameters", "needs"},
    {"system"},
    {"labels"},
    {"losses", "augmentation", "networks", "components", "hookspecs"},
    {"plugins"},
    {"data"},
    {"training"},
    {"theory", "runs"},
    {"own_data", "studies"},
    {"sklearn", "testing", "files", "formats", "serving"},
    {"api"},
    {"cli"},
]
"""From left to right: a room imports itself, rooms to its left, and, among the front door's files, its own group."""

FRONT_DOOR = {path.stem for path in CORE.glob("*.py")}
MLFLOW = ("runs/tracking/", "own_data/serving.py")


@functools.cache
def imported_anything(path: Path) -> frozenset[str]:
    """Return the modules that a file imports, at its top or inside its functions.

    Imports for type checking alone do not count: they cannot make a cycle.
    """
    found: set[str] = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names} if node.module == "wsl_toolkit" else set()
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return frozenset(found)


def imported_modules(path: Path) -> set[str]:
    """Return the modules of ours that a file imports."""
    return {name for name in imported_anything(path) if name.startswith(("wsl_toolkit", "wsl_builtins", "wsl_methods"))}


def room_of(name: str) -> str | None:
    """Return the room of a dotted name, or the front door's file; None for the package itself."""
    return name.split(".")[1] if name.startswith("wsl_toolkit.") else None


def place_of(room: str) -> int:
    return next(place for place, rooms in enumerate(ROOMS) if room in rooms)


def may_import(room: str, other: str) -> bool:
    if room == other or place_of(other) < place_of(room):
        return True
    return place_of(other) == place_of(room) and {room, other} <= FRONT_DOOR


def test_every_module_has_its_room() -> None:
    rooms = {path.parent.name for path in CORE.glob("*/__init__.py")}
    assert (FRONT_DOOR | rooms) - {"__init__"} == {room for group in ROOMS for room in group}
    assert len(rooms) <= 12
    shims = {path.stem for path in CORE.glob("*.py") if "goes in release" in path.read_text(encoding="utf-8")}
    assert len(FRONT_DOOR - shims) <= 14
    assert len(shims) <= 4


@pytest.mark.parametrize("path", sorted(CORE.rglob("*.py")), ids=lambda p: str(p.relative_to(CORE)))
def test_imports_point_one_way(path: Path) -> None:
    own = room_of(".".join(("wsl_toolkit", *path.relative_to(CORE).with_suffix("").parts)))
    if own is None or own == "__init__":
        return
    known = {room for group in ROOMS for room in group}
    found = {name: room for name in imported_modules(path) if (room := room_of(name)) in known}
    wrong = {name for name, room in found.items() if room is not None and not may_import(own, room)}
    assert not wrong, f"{path.relative_to(ROOT)} imports to its right: {sorted(wrong)}"


@pytest.mark.parametrize("path", sorted(CORE.rglob("*.py")), ids=lambda p: str(p.relative_to(CORE)))
def test_only_tracking_and_serving_import_mlflow(path: Path) -> None:
    if not str(path.relative_to(CORE)).startswith(MLFLOW):
        assert not {name for name in imported_anything(path) if name.partition(".")[0] == "mlflow"}


@pytest.mark.parametrize("path", sorted(CORE.rglob("*.py")), ids=lambda p: str(p.relative_to(CORE)))
def test_the_core_imports_no_first_party_plugin(path: Path) -> None:
    assert not {name for name in imported_modules(path) if name.startswith(("wsl_builtins", "wsl_methods"))}


def test_the_core_names_no_method() -> None:
    """The engine and all below it must treat methods alike; only defaults and built-in studies may name them."""
    from wsl_toolkit.plugins.loading import load_plugins

    registry = load_plugins().registry
    names = {f'"{name}"' for role in ("estimator", "generator") for name in registry.names(role)}
    may_name_them = ("cli/", "studies/report/", "training/config.py", "sklearn.py", "plugins/templates/")
    for path in CORE.rglob("*.py"):
        if not str(path.relative_to(CORE)).startswith(may_name_them):
            strings = {
                f'"{node.value}"'
                for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
            }
            assert not strings & names, f"{path.relative_to(ROOT)} names {strings & names}"


def test_no_line_of_the_core_names_one_of_the_fields_methods() -> None:
    """Neither as a text nor as a name of the code, defaults, commands and reports included."""
    from wsl_methods import wsl_register_estimators, wsl_register_transforms

    names = {component.name for component in (*wsl_register_estimators(), *wsl_register_transforms())}
    assert {"clpl", "htc", "wsc", "cel", "vi-pll", "crosel", "solar", "papi", "gfws", "clsp"} < names
    names |= {name.replace("-", "_") for name in names}
    for path in CORE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            said = {getattr(node, part, None) for part in ("value", "id", "attr", "name", "arg")}
            if isinstance(node, ast.Attribute):
                said -= {"pop"}  # of lists and dictionaries
            found = {name for name in said if isinstance(name, str)} & names
            assert not found, f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)} names {found}"


@pytest.mark.parametrize("path", sorted(FIRST_PARTY.rglob("*.py")), ids=lambda p: str(p.relative_to(FIRST_PARTY)))
def test_first_party_plugins_import_only_public_names(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("wsl_toolkit"):
            private = [alias.name for alias in node.names if alias.name.startswith("_")]
            assert not private, f"{path.name} imports private {private} from {node.module}"


@pytest.mark.parametrize("arguments", [["--help"], ["list"], ["list", "--json"], ["show", "generator", "mcl-skewed"]])
def test_looking_around_imports_neither_torch_nor_mlflow(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom wsl_toolkit.cli import main\n"
        f"main({arguments!r}, standalone_mode=False)\n"
        "heavy = [m for m in ('torch', 'mlflow', 'numpy', 'sklearn', 'pandas', 'matplotlib') if m in sys.modules]\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
