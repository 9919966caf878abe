"""Which code made a result: distribution, version and a hash of the source, for each component and for the toolkit.

The hash is of what the source says, not of how it is written: comments, docstrings, formatting, type hints of functions
and the messages of errors do not count. A component's source is its own module, the modules of its base classes, and
all that those import from their own top-level package, directly or not; a package's `__init__` counts only where
something is imported from it. What lies in other files (data, compiled extensions) or in other distributions that a
plugin imports is not seen: a new version of the plugin says that it changed. The toolkit and its own components have a
hash only where they are used from a checkout; installed from a wheel, they are known by their version. A class that was
typed into a notebook is known by its functions as they were compiled, and its values. Nothing here imports torch.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import sys
import types
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from wsl_toolkit.components import ROLES
from wsl_toolkit.errors import UnknownComponentError
from wsl_toolkit.plugins.registry import OWN_DISTRIBUTION, SESSION, Registry
from wsl_toolkit.version import __version__

Code = Mapping[str, str]
"""What made a result: 'estimator ppl' -> 'wsl-toolkit 0.1.0 (source 0123456789ab)', and the same for 'toolkit'."""

TOOLKIT = "toolkit"
PROVENANCE = "wsl.provenance."
"""What the tags of tracked runs begin with that say who provided a component; the role follows."""
UNKNOWN = "code that was not recorded (release 0.1)"
LENGTH = 12
"""Hexadecimal digits of a hash: enough to tell the versions of a module apart."""

NUMERICS = ("augmentation", "components", "losses", "networks", "labels", "training", "data", "system/random_streams")
"""Modules and rooms of the toolkit that decide numbers …"""
NO_NUMERICS = ("data/formats", "training/config", "training/checkpoints", "training/distributed/checkpoints")
"""… but for these: data is known by its digest, settings are written out in every configuration, and a checkpoint gives
back what was put into it."""


def code_of(registry: Registry, named: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return which code is installed of the named components, given as (role, name), and of the toolkit."""
    found = {f"{role} {name}": _component_code(registry, role, name) for role, name in sorted(set(named))}
    return {**found, TOOLKIT: _said(OWN_DISTRIBUTION, __version__, toolkit_source())}


def named_in(config: Mapping[str, Any], registry: Registry) -> tuple[tuple[str, str], ...]:
    """Return the components that a configuration names, as (role, name); what no plugin provides is left out."""
    found = []
    for role in ROLES:
        for value in (config.get(role), *_listed(config.get(f"{role}s"))):
            name = value.get("name") if isinstance(value, Mapping) else value
            if isinstance(name, str) and registry.has(role, name):
                found.append((role, name))
    backbone = config.get("backbone")
    if isinstance(backbone, Mapping) and backbone.get("frozen"):
        head = str(backbone.get("frozen_head", ""))
        found += [("backbone", head)] if registry.has("backbone", head) else []
    if config.get("patience") or config.get("keep") == "best":  # the monitored metric then decides which model is kept
        names = registry.names("metric")
        found += [("metric", name) for name in names if registry.get("metric", name).key() == config.get("monitor")]
    return tuple(found)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def require(registry: Registry, recorded: Code, what: str) -> None:
    """Refuse to go on where a component is missing that was there; say which distribution and version provided it."""
    for key, provider in recorded.items():
        role, _, name = key.partition(" ")
        if role in ROLES and not registry.has(role, name):
            distribution, version = provider.split(" ")[:2]
            if distribution == SESSION:
                raise UnknownComponentError(
                    f"{what} needs {role} {name!r}, which was defined in Python: go on from there, and give the class, "
                    f"as in wsl_toolkit.resume(…, components=[…])"
                )
            failed = "".join(f" (Plugin {plugin} is not loaded: {why})" for plugin, why in registry.failures.items())
            raise UnknownComponentError(
                f"{what} needs {role} {name!r}, which {distribution} {version} provided and nothing that is installed "
                f'does: pip install "{distribution}=={version}"{failed}'
            )


def provenance(code: Code) -> dict[str, str]:
    """Return who provided each component as tags of a tracked run, one for each role; several of a role in one."""
    found: dict[str, str] = {}
    for key, provider in code.items():
        tag = f"{PROVENANCE}{key.partition(' ')[0]}"
        found[tag] = f"{found[tag]}; {provider}" if tag in found else provider
    return found


def digest_of(code: Code) -> str:
    """Return a short name for a code, as files are called; none for code that was not recorded."""
    if not code:
        return ""
    return hashlib.sha256(json.dumps(dict(code), sort_keys=True).encode()).hexdigest()[:LENGTH]


def changes(before: Code, now: Code) -> list[str]:
    """Return what differs, a line each: 'estimator x: wsl-x 1.0 → wsl-x 1.1'."""
    if not before:
        return [f"all of it: {UNKNOWN} → {now[TOOLKIT]}"]
    names = dict.fromkeys((*before, *now))
    return [
        f"{name}: {before.get(name, 'not recorded')} → {now.get(name, 'not installed')}"
        for name in names
        if before.get(name) != now.get(name)
    ]


def _component_code(registry: Registry, role: str, name: str) -> str:
    entry = registry.entry(role, name)
    known_by_version = entry.owner.distribution == OWN_DISTRIBUTION and _is_released()
    source = "" if known_by_version else component_source(entry.cls)
    return _said(entry.owner.distribution, entry.owner.version, source)


def _said(distribution: str, version: str, source: str) -> str:
    return f"{distribution} {version}" + (f" (source {source})" if source else "")


@functools.cache
def component_source(cls: type) -> str:
    """Return the hash of a component's source; an empty string where it cannot be read."""
    modules: dict[str, Path] = {}
    typed_in: list[str] = []
    for base in cls.__mro__:
        top = base.__module__.partition(".")[0]
        if top not in ("wsl_toolkit", "builtins", "abc", "typing"):  # the toolkit's own are its numerics
            file = getattr(sys.modules.get(base.__module__), "__file__", None)
            if file is not None and file.endswith(".py"):
                modules |= _imported_too(base.__module__, Path(file))
            elif file is None:
                typed_in.append(_typed_in(base))
            else:
                return ""
    found = _hash(modules) if modules or not typed_in else ""
    return hashlib.sha256("\n".join([found, *typed_in]).encode()).hexdigest()[:LENGTH] if typed_in else found


def _typed_in(cls: type) -> str:
    """Return what a class says that was typed into a notebook or an interpreter: its functions, fields and values."""
    parts = [f"{field.name} = {_value(field.default)}" for field in getattr(cls, "__attrs_attrs__", ())]
    for name, value in sorted(vars(cls).items()):
        function = getattr(value, "__func__", getattr(value, "fget", value))
        if isinstance(function, types.FunctionType) and not function.__code__.co_filename.startswith("<attrs"):
            parts.append(f"def {name} {_compiled(function.__code__)}")
        elif not name.startswith("_"):
            parts.append(f"{name} = {_value(value)}")
    return "\n".join(parts)


def _compiled(code: types.CodeType) -> str:
    """Return a function as it was compiled, without its docstring: there is no file to read it from."""
    first = 1 if code.co_consts and isinstance(code.co_consts[0], str | None) else 0  # the docstring, or None
    kept = code.co_consts[first:]
    constants = [_compiled(each) if isinstance(each, types.CodeType) else _value(each) for each in kept]
    return f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {constants}"


def _value(value: Any) -> str:
    """Return a value as text that is the same in every process; of what is not plain, its type."""
    if isinstance(value, frozenset | set):
        return f"{{{', '.join(sorted(map(_value, value)))}}}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_value, value))})"
    return repr(value) if isinstance(value, str | int | float | bytes | None) else type(value).__name__


@functools.cache
def toolkit_source() -> str:
    """Return the hash of the toolkit's modules that decide numbers; an empty string where its version says it all."""
    if _is_released():
        return ""
    root = Path(__file__).parents[1]
    left_out = [root / name for name in NO_NUMERICS]
    found = {}
    for name in NUMERICS:
        for path in sorted((root / name).rglob("*.py")) or [(root / name).with_suffix(".py")]:
            if not any(path.with_suffix("") == out or out in path.parents for out in left_out):
                found[path.relative_to(root).as_posix()] = path
    return _hash(found)


@functools.cache
def _is_released() -> bool:
    """Return whether the toolkit that runs is the one that an installer put where it is, and not a checkout."""
    try:
        installed = metadata.distribution(OWN_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return False
    here = Path(__file__)
    place = Path(str(installed.locate_file("/".join(here.parts[-3:]))))
    return installed.read_text("RECORD") is not None and place.exists() and place.samefile(here)


def _hash(modules: Mapping[str, Path]) -> str:
    digest = hashlib.sha256()
    for name in sorted(modules):
        content = _content(modules[name])
        if content is None:
            return ""
        digest.update(f"{name} {content[0]}\n".encode())
    return digest.hexdigest()[:LENGTH]


def _imported_too(module: str, path: Path) -> dict[str, Path]:
    """Return a module and all that it imports from its own top-level package, by name."""
    parts = module.split(".")
    root = path.parents[len(parts) - (path.name != "__init__.py")]
    found: dict[str, Path] = {}
    waiting = [(module, path)]
    while waiting:
        name, file = waiting.pop()
        if name in found:
            continue
        found[name] = file
        content = _content(file)
        for choices in content[1] if content else ():
            resolved = (_absolute(choice, name, file) for choice in choices)
            hits = ((each, _file(root, each)) for each in resolved if each.partition(".")[0] == parts[0])
            waiting += [(each, hit) for each, hit in hits if hit is not None][:1]
    return found


def _absolute(name: str, module: str, file: Path) -> str:
    """Return an imported name without leading dots."""
    dots = len(name) - len(name.lstrip("."))
    if not dots:
        return name
    package = module.split(".")[: len(module.split(".")) - dots + (file.name == "__init__.py")]
    return ".".join([*package, *filter(None, name.lstrip(".").split("."))])


def _file(root: Path, module: str) -> Path | None:
    place = root.joinpath(*module.split("."))
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)


@functools.cache
def _content(path: Path) -> tuple[str, tuple[tuple[str, ...], ...]] | None:
    """Return a file's hash and its imports, each as the names to look for, the first that is a module being meant."""
    try:
        out: list[str] = []
        imports: list[tuple[str, ...]] = []
        _write(ast.parse(path.read_bytes()), out, imports)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    text = "\n".join(out).encode("utf-8", "surrogatepass")
    return hashlib.sha256(text).hexdigest(), tuple(dict.fromkeys(imports))


_SILENT = {"ctx", "kind", "type_comment", "type_ignores", "returns"}
"""Parts of a syntax tree that say nothing of what is computed."""


def _write(node: ast.AST, out: list[str], imports: list[tuple[str, ...]]) -> None:
    """Write a syntax tree as text that is the same in every version of Python, and note what is imported."""
    out.append(type(node).__name__)
    if isinstance(node, ast.Raise):
        return
    if isinstance(node, ast.Import | ast.ImportFrom):
        imports += _imports(node)
    for name in node._fields:
        value = getattr(node, name, None)
        if value is None or value == [] or name in _SILENT or (name == "annotation" and isinstance(node, ast.arg)):
            continue
        out.append(f".{name}")
        for item in value if isinstance(value, list) else (value,):
            if not isinstance(item, ast.AST):
                out.append(repr(item))
            elif not _is_comment(item):
                _write(item, out, imports)
    out.append(")")


def _imports(node: ast.Import | ast.ImportFrom) -> list[tuple[str, ...]]:
    if isinstance(node, ast.Import):
        return [(alias.name,) for alias in node.names]
    base = "." * node.level + (node.module or "")
    return [(f"{base}{'.' if node.module else ''}{alias.name}", base) for alias in node.names]


def _is_comment(node: ast.AST) -> bool:
    """Return whether a statement is for readers alone: a text that stands by itself, or imports for type checkers."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    test = node.test if isinstance(node, ast.If) else None
    return isinstance(test, ast.Name | ast.Attribute) and ast.unparse(test).endswith("TYPE_CHECKING")
