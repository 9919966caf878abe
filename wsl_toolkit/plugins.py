"""Find, load, quarantine: plugins come one by one, and a broken one is named and stops nothing else."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import time
from collections.abc import Iterable
from importlib import metadata
from typing import Any

import attrs
import pluggy

from wsl_toolkit import hookspecs
from wsl_toolkit.components import ROLES
from wsl_toolkit.errors import PluginError, one_line
from wsl_toolkit.registry import OWN_DISTRIBUTION, Owner, Registry

SLOW_IMPORT_SECONDS = 1.0


@attrs.frozen(kw_only=True)
class PluginRecord:
    """What became of one entry point."""

    name: str
    distribution: str
    version: str
    target: str
    components: dict[str, tuple[str, ...]] = attrs.field(factory=dict)
    failure: str | None = None
    disabled: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        """One word: ok, disabled or failed."""
        return "disabled" if self.disabled else "failed" if self.failure else "ok"


@attrs.frozen
class Plugins:
    """All plugins found, and the registry of what the sound ones provide."""

    records: tuple[PluginRecord, ...]
    registry: Registry


@functools.cache
def load_plugins() -> Plugins:
    """Load every installed plugin, once in a process."""
    return load(metadata.entry_points(group=hookspecs.PROJECT))


def load(entry_points: Iterable[metadata.EntryPoint]) -> Plugins:
    """Load entry points one by one, our own first so that no other can take a built-in's name."""
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    registry = Registry()
    off = {name.strip() for name in os.environ.get("WSL_DISABLE_PLUGINS", "").split(",") if name.strip()}
    records = []
    for entry_point in sorted(entry_points, key=_order):
        record = _load_one(entry_point, manager, registry, off)
        if record.failure:
            message = f"plugin {record.name!r} of {record.distribution} {record.version}: {record.failure}"
            if os.environ.get("WSL_STRICT_PLUGINS") == "1":
                raise PluginError(message)
            registry.failures[f"{record.distribution}:{record.name}"] = record.failure
        records.append(record)
    return Plugins(tuple(records), registry)


def _order(entry_point: metadata.EntryPoint) -> tuple[bool, str, str]:
    distribution = _owner(entry_point).distribution
    return distribution != OWN_DISTRIBUTION, distribution, entry_point.name


def _owner(entry_point: metadata.EntryPoint) -> Owner:
    dist = entry_point.dist
    return Owner(dist.name if dist else "unknown", dist.version if dist else "?", entry_point.name)


def _load_one(
    entry_point: metadata.EntryPoint, manager: pluggy.PluginManager, registry: Registry, off: set[str]
) -> PluginRecord:
    owner = _owner(entry_point)
    record = PluginRecord(
        name=owner.plugin, distribution=owner.distribution, version=owner.version, target=entry_point.value
    )
    full_name = f"{owner.distribution}:{owner.plugin}"
    if off & {owner.plugin, owner.distribution, full_name}:
        return attrs.evolve(record, disabled=True)
    printed = io.StringIO()
    start = time.perf_counter()
    plugin: Any = None
    try:
        with contextlib.redirect_stdout(printed):
            plugin = entry_point.load()
            manager.register(plugin, full_name)
            manager.check_pending()
            provided = _provided(manager, plugin)
            registry.add_all(provided, owner)
    except (Exception, SystemExit) as error:
        if plugin is not None and manager.is_registered(plugin):
            manager.unregister(plugin)
        return attrs.evolve(record, failure=_explain(error))
    warnings = []
    if printed.getvalue():
        warnings.append(f"printed while loading: {printed.getvalue().strip()[:80]!r}")
    if (seconds := time.perf_counter() - start) > SLOW_IMPORT_SECONDS:
        warnings.append(f"took {seconds:.1f} s to load: heavy imports belong inside functions")
    by_role = {role: tuple(sorted(cls.name for r, cls in provided if r == role)) for role in ROLES}
    return attrs.evolve(
        record, components={r: names for r, names in by_role.items() if names}, warnings=tuple(warnings)
    )


def _provided(manager: pluggy.PluginManager, plugin: Any) -> list[tuple[str, Any]]:
    """Call this plugin's hooks alone; return (role, class) pairs."""
    others = [other for other in manager.get_plugins() if other is not plugin]
    provided: list[tuple[str, Any]] = []
    for role in ROLES:
        hook_name = f"wsl_register_{role}s"
        for result in manager.subset_hook_caller(hook_name, others)():
            if not isinstance(result, list | tuple):
                raise PluginError(f"{hook_name} must return a list of classes, not {type(result).__name__}")
            provided.extend((role, cls) for cls in result)
    if not manager.get_hookcallers(plugin):
        raise PluginError("implements no hook; mark a function such as wsl_register_estimators with @hookimpl")
    return provided


def _explain(error: BaseException) -> str:
    if isinstance(error, PluginError):
        return str(error)
    if isinstance(error, SystemExit):
        return f"called sys.exit({error.code!r}) while being imported"
    if isinstance(error, pluggy.PluginValidationError):
        return f"hook not known: {one_line(error).removeprefix('PluginValidationError: ')}"
    return one_line(error)
