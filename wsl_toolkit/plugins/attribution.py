"""Name the plugin at fault when a third party's component fails while it is at work.

A defect of ours should surface as one: only exceptions that concern another distribution's component are rewritten.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wsl_toolkit.errors import DivergedError, PluginError, WslError, one_line
from wsl_toolkit.plugins.registry import OWN_DISTRIBUTION, Owner, Registry


@contextmanager
def attributed(registry: Registry, role: str, name: str) -> Iterator[None]:
    """Run a component's code; what a third party's code raises becomes a PluginError that names its distribution.

    Whose code raised is read off the traceback, so blocks may nest in any order. Where no plugin's code is on it (the
    component returned nonsense, and the core fell over it), the named component is said to have been at work.
    """
    try:
        yield
    except WslError as error:
        raise _with_owner(error, registry.entry(role, name).owner, role, name) from error.__cause__
    except SystemExit as error:
        guilty, where = _culprit(registry, error)
        if guilty is None:
            raise
        raise PluginError(f"{guilty} called sys.exit({error.code!r}) at {where} in {role} {name!r}") from error
    except Exception as error:
        guilty, where = _culprit(registry, error)
        owner = registry.entry(role, name).owner
        if guilty is not None:
            raise PluginError(
                f"plugin {guilty} failed in {role} {name!r}, at {where}: {one_line(error)} "
                "(WSL_TRACEBACK=1 shows the whole way)"
            ) from error
        if owner.distribution != OWN_DISTRIBUTION:
            raise PluginError(
                f"{one_line(error)}, while {role} {name!r} of plugin {owner} was at work "
                "(WSL_TRACEBACK=1 shows where; `wsl plugin check` tests its contract)"
            ) from error
        raise


def _with_owner(error: WslError, owner: Owner, role: str, name: str) -> WslError:
    """Say whose component broke its contract or diverged, if it is a third party's and not said yet."""
    concerns = (isinstance(error, PluginError) and f"{role} {name}" in str(error)) or (
        isinstance(error, DivergedError) and role == "estimator"
    )
    if not concerns or owner.distribution == OWN_DISTRIBUTION or str(owner) in str(error):
        return error
    return type(error)(f"{error} ({role} {name!r} is from plugin {owner})")


def _culprit(registry: Registry, error: BaseException) -> tuple[Owner | None, str]:
    """Return the third party whose code is innermost on the traceback, and the place in it."""
    owners = {entry.cls.__module__.partition(".")[0]: entry.owner for entry in registry.entries()}
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        owner = owners.get(str(frame.f_globals.get("__name__", "")).partition(".")[0])
        if owner is not None and owner.distribution != OWN_DISTRIBUTION:
            return owner, f"{Path(frame.f_code.co_filename).name}:{line}"
    return None, ""
