"""Name the plugin at fault when a third party's component fails while it is at work.

A defect of ours should surface as one: only exceptions that concern another distribution's component are rewritten.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wsl_toolkit.errors import DataError, DivergedError, LabelError, PluginError, WslError, one_line
from wsl_toolkit.plugins.places import defined_at
from wsl_toolkit.plugins.registry import OWN_DISTRIBUTION, Entry, Owner, Registry

MAIN_METHOD = {"generator": "draw", "estimator": "loss", "backbone": "build", "dataset": "load"}
"""Where to look first in a component of each role."""


def mark(error: BaseException, role: str) -> None:
    """Note which role was at work when an error arose: a network of torch's parts does not show it."""
    if not hasattr(error, "wsl_role"):
        error.wsl_role = role  # type: ignore[attr-defined]


@contextmanager
def attributed(registry: Registry, role: str, name: str) -> Iterator[None]:
    """Run a component's code; what a third party's code raises becomes a PluginError that names its distribution.

    Whose code raised is read off the traceback, so blocks may nest in any order. Where no plugin's code is on it (the
    component returned nonsense, and the core fell over it), the named component is said to have been at work, unless
    the error was marked as another role's.
    """
    try:
        yield
    except WslError as error:
        raise _with_owner(error, registry, role, name) from error.__cause__
    except SystemExit as error:
        guilty, where = _culprit(registry, error)
        if guilty is None:
            raise
        raise PluginError(f"{guilty} called sys.exit({error.code!r}) at {where} in {role} {name!r}") from error
    except Exception as error:
        guilty, where = _culprit(registry, error)
        entry = registry.entry(role, name)
        marked = getattr(error, "wsl_role", role)
        if guilty is not None:
            at_work = f"{role} {name!r}" if marked == role else f"a {marked}"
            raise PluginError(
                f"plugin {guilty} failed in {at_work}, at {where}: {one_line(error)} "
                "(WSL_TRACEBACK=1 shows the whole way)"
            ) from error
        if entry.owner.distribution != OWN_DISTRIBUTION and marked == role:
            raise PluginError(
                f"{one_line(error)}, while {role} {name!r} of plugin {entry.owner} was at work"
                f"{_place(entry)} (WSL_TRACEBACK=1 shows where; `wsl plugin check` tests its contract)"
            ) from error
        raise


def _with_owner(error: WslError, registry: Registry, role: str, name: str) -> WslError:
    """Say whose component broke its contract or diverged, if it is a third party's and not said yet."""
    entry = registry.entry(role, name)
    if entry.owner.distribution == OWN_DISTRIBUTION or str(entry.owner) in str(error):
        return error
    marked = getattr(error, "wsl_role", None)
    if marked is not None:
        concerns = marked == role
    elif isinstance(error, PluginError):
        concerns = f"{role} {name}" in str(error)
    else:
        concerns = (isinstance(error, DivergedError) and role == "estimator") or (
            isinstance(error, DataError | LabelError) and role == "dataset"
        )
    if not concerns:
        return error
    return type(error)(f"{error} ({role} {name!r} is from plugin {entry.owner}{_place(entry, str(error))})")


def _place(entry: Entry, said: str = "") -> str:
    """Return ', file.py:12', where a component's main method is; nothing if a place was said already."""
    place = defined_at(getattr(entry.cls, MAIN_METHOD.get(entry.cls.role, ""), None))
    return f", {place}" if place and ".py:" not in said else ""


def _culprit(registry: Registry, error: BaseException) -> tuple[Owner | None, str]:
    """Return the third party whose code is innermost on the traceback, and the place in it."""
    owners = {entry.cls.__module__.partition(".")[0]: entry.owner for entry in registry.entries()}
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        owner = owners.get(str(frame.f_globals.get("__name__", "")).partition(".")[0])
        if owner is not None and owner.distribution != OWN_DISTRIBUTION:
            return owner, f"{Path(frame.f_code.co_filename).name}:{line}"
    return None, ""
