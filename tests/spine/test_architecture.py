"""The house rules that a reader cannot see in one file: who may import whom."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = ROOT / "wsl_toolkit"
FIRST_PARTY = ROOT / "plugins"

LAYERS = [
    {"errors", "version", "files", "processes", "signals", "memory"},
    {"settings", "parameters", "storage", "streams", "losses", "inputs", "execution", "augmentation"},
    {"labels", "label_input"},
    {"components", "networks", "data", "tables", "hookspecs"},
    {"registry", "metrics", "risk", "assumptions", "optimisers", "compatibility", "checkpoints"},
    {"plugins", "blame", "engine", "config", "theory", "problem", "records", "environment"},
    {"tracking", "trial_memory", "trial", "distributed", "result", "options", "plots", "stacking"},
    {"delivery", "formats", "audit", "testing", "scaffold", "checkout"},
    {"tracked_run", "fitting", "doctor", "diagnostics"},
    {"session", "models", "sklearn"},
    {"summary", "cleaning", "serving"},
    {"runner"},
    {"study"},
    {"report"},
    {"cli"},
]
"""From the ground up: a module may import its own layer and those below it."""


def imported_modules(path: Path) -> set[str]:
    """Return the modules of ours that a file imports, at its top or inside its functions.

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
    return {name for name in found if name.startswith(("wsl_toolkit", "wsl_builtins", "wsl_methods"))}


def layer_of(name: str) -> int | None:
    parts = name.split(".")
    if len(parts) < 2:
        return None
    return next((level for level, modules in enumerate(LAYERS) if parts[1] in modules), None)


def test_every_module_has_its_layer() -> None:
    modules = {path.stem for path in CORE.glob("*.py")} | {path.parent.name for path in CORE.glob("*/__init__.py")}
    placed = {module for layer in LAYERS for module in layer}
    assert modules - {"__init__"} == placed | ({"studies", "templates"} & modules)


@pytest.mark.parametrize("path", sorted(CORE.rglob("*.py")), ids=lambda p: str(p.relative_to(CORE)))
def test_imports_point_one_way(path: Path) -> None:
    own = layer_of(".".join(("wsl_toolkit", *path.relative_to(CORE).with_suffix("").parts)))
    if own is None:
        return
    above = {name for name in imported_modules(path) if (level := layer_of(name)) is not None and level > own}
    assert not above, f"{path.relative_to(ROOT)} imports from above: {sorted(above)}"


@pytest.mark.parametrize("path", sorted(CORE.rglob("*.py")), ids=lambda p: str(p.relative_to(CORE)))
def test_the_core_imports_no_first_party_plugin(path: Path) -> None:
    assert not {name for name in imported_modules(path) if name.startswith(("wsl_builtins", "wsl_methods"))}


def test_the_core_names_no_method() -> None:
    """The engine and all below it must treat methods alike; only defaults and built-in studies may name them."""
    from wsl_toolkit.plugins import load_plugins

    registry = load_plugins().registry
    names = {f'"{name}"' for role in ("estimator", "generator") for name in registry.names(role)}
    for level in LAYERS[:-2]:
        for module in level - {"config", "sklearn"}:
            for path in [CORE / f"{module}.py", *(CORE / module).glob("*.py")]:
                if path.exists():
                    strings = {
                        f'"{node.value}"'
                        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                        if isinstance(node, ast.Constant) and isinstance(node.value, str)
                    }
                    assert not strings & names, f"{path.relative_to(ROOT)} names {strings & names}"


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
