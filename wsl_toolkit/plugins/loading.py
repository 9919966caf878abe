"""Find, load, quarantine: plugins come one by one, and a broken one is named and stops nothing else."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from importlib import metadata
from typing import Any

import attrs
import pluggy

from wsl_toolkit import hookspecs
from wsl_toolkit.components import ROLES
from wsl_toolkit.errors import PluginError, did_you_mean, one_line
from wsl_toolkit.plugins import api_version, class_checks
from wsl_toolkit.plugins.registry import OWN_DISTRIBUTION, Owner, Registry

HOOKS = {role: f"wsl_register_{role}s" for role in ROLES}
SLOW_IMPORT_SECONDS = 1.0
PATIENCE_SECONDS = 5.0
HEAVY_PACKAGES = ("torch", "mlflow", "sklearn", "scipy", "pandas", "matplotlib")


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

    @property
    def full_name(self) -> str:
        """The name that no other plugin has, 'distribution:entry point'."""
        return f"{self.distribution}:{self.name}"

    def __str__(self) -> str:
        return f"plugin {self.name!r} of {self.distribution} {self.version}"


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
    off = switched_off()
    records = []
    for entry_point in sorted(entry_points, key=_order):
        record = _load_one(entry_point, manager, registry, off)
        if record.failure and os.environ.get("WSL_STRICT_PLUGINS", "0") not in ("", "0"):
            raise PluginError(f"{record}: {record.failure} (WSL_STRICT_PLUGINS is set)")
        if record.failure or record.disabled:
            registry.failures[record.full_name] = record.failure or "switched off by WSL_DISABLE_PLUGINS"
        records.append(record)
    return Plugins(tuple(records), registry)


def switched_off() -> frozenset[str]:
    """Return the plugins that WSL_DISABLE_PLUGINS names: entry points, distributions or 'distribution:entry point'."""
    names = os.environ.get("WSL_DISABLE_PLUGINS", "").split(",")
    return frozenset(normal_name(name.strip()) for name in names if name.strip())


def names_of(record: PluginRecord) -> frozenset[str]:
    """Return the names by which a user may mean a plugin, in the form that `switched_off` has."""
    return frozenset(normal_name(name) for name in (record.name, record.distribution, record.full_name))


def normal_name(name: str) -> str:
    """Return a name as package indexes compare it: wsl_Foo is wsl-foo."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _order(entry_point: metadata.EntryPoint) -> tuple[bool, str, str]:
    distribution = _owner(entry_point).distribution
    return distribution != OWN_DISTRIBUTION, distribution, entry_point.name


def _owner(entry_point: metadata.EntryPoint) -> Owner:
    dist = entry_point.dist
    return Owner(dist.name if dist else "unknown", dist.version if dist else "?", entry_point.name)


def _load_one(
    entry_point: metadata.EntryPoint, manager: pluggy.PluginManager, registry: Registry, off: frozenset[str]
) -> PluginRecord:
    owner = _owner(entry_point)
    record = PluginRecord(
        name=owner.plugin, distribution=owner.distribution, version=owner.version, target=entry_point.value
    )
    if off & names_of(record):
        return attrs.evolve(record, disabled=True)
    warnings: list[str] = []
    plugin: Any = None
    try:
        with _watched(record, warnings):
            api_version.check(api_version.stated_in_source(entry_point.module))
            plugin = _imported(entry_point)
            api = api_version.stated(plugin)
            api_version.check(api)
            manager.register(plugin, record.full_name)
            provided = _provided(manager, plugin)
            registry.add_all(provided, owner)
            warnings += [each for _, cls in provided for each in class_checks.suspicions(cls)]
    except (Exception, SystemExit) as error:
        if plugin is not None and manager.is_registered(plugin):
            manager.unregister(plugin)
        return attrs.evolve(record, failure=_explain(error), warnings=tuple(warnings))
    if api is None:
        warnings.append(f'states no API version: write WSL_API = "{api_version.current()}" in {entry_point.module}')
    by_role = {role: tuple(sorted(cls.name for r, cls in provided if r == role)) for role in ROLES}
    return attrs.evolve(
        record, components={r: names for r, names in by_role.items() if names}, warnings=tuple(warnings)
    )


@contextlib.contextmanager
def _watched(record: PluginRecord, warnings: list[str]) -> Iterator[None]:
    """Keep standard output clean while a plugin loads, and note what it printed, imported and cost."""
    printed = io.StringIO()
    terminal = sys.stderr
    heavy = {name for name in HEAVY_PACKAGES if name not in sys.modules}

    def complain() -> None:
        skip = f"WSL_DISABLE_PLUGINS={record.distribution} leaves it out"
        print(f"wsl: still waiting for {record} to load ({skip})", file=terminal, flush=True)

    watchdog = threading.Timer(PATIENCE_SECONDS, complain)
    watchdog.daemon = True
    watchdog.start()
    start = time.perf_counter()
    try:
        with contextlib.redirect_stdout(printed):
            yield
    finally:
        watchdog.cancel()
        if text := printed.getvalue().strip():
            warnings.append(f"printed while loading: {text[:80]!r}")
        if imported := sorted(name for name in heavy if name in sys.modules):
            warnings.append(f"imports {', '.join(imported)} while loading: import it inside the functions that use it")
        if (seconds := time.perf_counter() - start) > SLOW_IMPORT_SECONDS:
            warnings.append(f"took {seconds:.1f} s to load, which every command waits for")


def _imported(entry_point: metadata.EntryPoint) -> Any:
    """Import what an entry point names; say so if there is nothing there."""
    try:
        return entry_point.load()
    except ModuleNotFoundError as error:
        if error.name and f"{entry_point.module}.".startswith(f"{error.name}."):
            raise PluginError(f"its entry point leads nowhere: there is no module {error.name!r}") from error
        raise
    except AttributeError as error:
        if entry_point.attr and error.obj is sys.modules.get(entry_point.module):
            raise PluginError(
                f"its entry point leads nowhere: module {entry_point.module!r} has no {entry_point.attr!r}"
            ) from error
        raise


def _provided(manager: pluggy.PluginManager, plugin: Any) -> list[tuple[str, Any]]:
    """Call this plugin's hooks; return (role, class) pairs."""
    callers = {caller.name: caller for caller in manager.get_hookcallers(plugin) or ()}
    for name in callers:
        if name not in HOOKS.values():
            raise PluginError(f"there is no hook {name!r}.{did_you_mean(name, HOOKS.values())}")
    for name in HOOKS.values():
        if name not in callers and callable(getattr(plugin, name, None)):
            raise PluginError(f"{name} is not marked with @hookimpl, so it is never called")
    if not callers:
        raise PluginError("implements no hook; mark a function such as wsl_register_estimators with @hookimpl")
    provided: list[tuple[str, Any]] = []
    for role, name in HOOKS.items():
        implementations = callers[name].get_hookimpls() if name in callers else []
        for implementation in implementations:
            if implementation.plugin is not plugin:
                continue
            # Called directly: pluggy would drop a None, which is what a forgotten `return` gives.
            result = implementation.function()
            if not isinstance(result, list | tuple):
                what = f"the class {result.__name__}" if isinstance(result, type) else type(result).__name__
                raise PluginError(f"{name} must return a list of classes, not {what}")
            provided.extend((role, cls) for cls in result)
    return provided


def _explain(error: BaseException) -> str:
    if isinstance(error, PluginError):
        return str(error)
    if isinstance(error, SystemExit):
        return f"called sys.exit({error.code!r}) while being loaded"
    return one_line(error)
