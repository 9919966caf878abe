"""Is this installation well? Each finding is one line, and each problem says how to fix it."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import attrs

from wsl_toolkit.errors import WslError, did_you_mean, one_line
from wsl_toolkit.plugins.loading import Plugins, names_of, switched_off
from wsl_toolkit.plugins.registry import OWN_DISTRIBUTION
from wsl_toolkit.runs.folder import dead_folders
from wsl_toolkit.runs.tracking import run_folders
from wsl_toolkit.runs.tracking import store as tracking
from wsl_toolkit.system.memory import free_memory
from wsl_toolkit.version import __version__

OK, NOTE, PROBLEM = "ok", "note", "problem"
GIGABYTE = 2**30
LOW_DISK, NO_DISK = 5 * GIGABYTE, GIGABYTE // 2
"""Below the first a large study may fill the disk; below the second hardly anything can be kept."""
LOW_MEMORY = GIGABYTE

EXTRAS = {
    "h5py": ("mat", "reads .mat files of version 7.3"),
    "optuna": ("search", "searches at random and by TPE"),
    "copier": ("plugins", "scaffolds plugins"),
    "pytest": ("plugins", "checks plugins"),
    "onnxruntime": ("onnx", "exports models as ONNX"),
}
"""Packages that are not required: the extra that brings each, and what it is for."""

VARIABLES = (
    "WSL_CACHE_DIR",
    "WSL_DATA_DIR",
    "WSL_DEVICE_MEMORY",
    "WSL_DISABLE_PLUGINS",
    "WSL_MEMORY",
    "WSL_SCREENSHOTS",
    "WSL_STRICT_PLUGINS",
    "WSL_TRACEBACK",
)
"""The environment variables that something reads."""


@attrs.frozen(kw_only=True)
class Finding:
    """One thing that was looked at."""

    status: str
    topic: str
    text: str
    fix: str = ""


def examine(plugins: Plugins, data_dir: Path, tracking_uri: str | None) -> Iterator[Finding]:
    """Look at everything, from the ground up; a check that fails itself is a problem, and stops no other."""
    checks: dict[str, Callable[[], Iterator[Finding]]] = {
        "python": _python,
        "packages": _packages,
        "torch": _torch,
        "plugins": lambda: _plugins(plugins),
        "tracking": lambda: _tracking(tracking_uri),
        "data": lambda: _data(plugins, data_dir),
        "disk": _disk,
        "memory": _memory,
        "environment": _environment,
    }
    for topic, check in checks.items():
        try:
            yield from check()
        except Exception as error:  # whatever is broken, the rest of the report is wanted all the more
            yield Finding(status=PROBLEM, topic=topic, text=tracking.redact(one_line(error)), fix="please report this")


def _python() -> Iterator[Finding]:
    place = "a virtual environment" if sys.prefix != sys.base_prefix else "no virtual environment"
    system = f"{platform.system()} {platform.machine()}"
    text = f"wsl-toolkit {__version__}, Python {platform.python_version()} in {place}, {system}"
    yield Finding(status=OK, topic="python", text=text)
    try:
        installed = metadata.version(OWN_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        yield Finding(
            status=PROBLEM, topic="python", text=f"{OWN_DISTRIBUTION} is not installed", fix="pip install wsl-toolkit"
        )
        return
    if installed != __version__:
        yield Finding(
            status=PROBLEM,
            topic="python",
            text=f"pip knows version {installed}, but the code is {__version__}",
            fix="install it again: pip install --editable . in the checkout, or pip install --upgrade wsl-toolkit",
        )


def _packages() -> Iterator[Finding]:
    """Compare what is installed with what our own metadata requires."""
    from packaging.requirements import Requirement

    wanted = [Requirement(text) for text in metadata.requires(OWN_DISTRIBUTION) or ()]
    found = {}
    for requirement in wanted:
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            yield Finding(
                status=PROBLEM,
                topic="packages",
                text=f"{requirement.name} is missing",
                fix=f"pip install '{requirement.name}{requirement.specifier}'",
            )
            continue
        if requirement.specifier.contains(version, prereleases=True):
            found[requirement.name] = version
        else:
            yield Finding(
                status=PROBLEM,
                topic="packages",
                text=f"{requirement.name} {version} does not satisfy {requirement.specifier}",
                fix=f"pip install '{requirement.name}{requirement.specifier}'",
            )
    listed = ", ".join(f"{name} {version}" for name, version in sorted(found.items()))
    yield Finding(status=OK, topic="packages", text=listed)
    for name, (extra, purpose) in EXTRAS.items():
        try:
            yield Finding(status=OK, topic="packages", text=f"{name} {metadata.version(name)} ({purpose})")
        except metadata.PackageNotFoundError:
            fix = f"pip install 'wsl-toolkit[{extra}]' if you want it"
            yield Finding(status=NOTE, topic="packages", text=f"{name}, which {purpose}, is not installed", fix=fix)


def _torch() -> Iterator[Finding]:
    """Multiply two matrices where training would."""
    import torch

    from wsl_toolkit.training.devices import choose_device

    device = choose_device("auto")
    square = torch.eye(8, device=device)
    assert torch.equal(square @ square, square)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = torch.get_num_threads()
    text = f"torch {torch.__version__} computes on {device.type} ({name}), {threads} threads, {cores} cores"
    if threads > cores:
        fix = f"set OMP_NUM_THREADS={cores}: threads beyond the cores wait for each other"
        yield Finding(status=NOTE, topic="torch", text=text, fix=fix)
    else:
        yield Finding(status=OK, topic="torch", text=text)


def _plugins(plugins: Plugins) -> Iterator[Finding]:
    for record in plugins.records:
        count = sum(map(len, record.components.values()))
        what = f"{record.full_name} {record.version}"
        if record.failure:
            yield Finding(
                status=PROBLEM,
                topic="plugins",
                text=f"{what} failed: {record.failure}",
                fix=f"fix or uninstall {record.distribution}, or set WSL_DISABLE_PLUGINS={record.distribution}",
            )
        elif record.disabled:
            yield Finding(status=NOTE, topic="plugins", text=f"{what} is switched off", fix="unset WSL_DISABLE_PLUGINS")
        else:
            yield Finding(status=OK, topic="plugins", text=f"{what}: {count} components")
        for warning in record.warnings:
            fix = f"tell its authors; `wsl plugin check {record.distribution}` tests it"
            yield Finding(status=NOTE, topic="plugins", text=f"{what}: {warning}", fix=fix)
    for name in sorted(switched_off().difference(*(names_of(record) for record in plugins.records))):
        text = f"WSL_DISABLE_PLUGINS names {name!r}, which is not installed"
        yield Finding(status=NOTE, topic="plugins", text=text, fix="correct or unset it")


def _tracking(tracking_uri: str | None) -> Iterator[Finding]:
    uri = tracking.choose_uri(tracking_uri)
    try:
        yield Finding(status=OK, topic="tracking", text=tracking.describe_store(uri))
    except WslError as error:
        text, _, fix = str(error).partition(": ")
        yield Finding(status=PROBLEM, topic="tracking", text=text, fix=fix)
    if waiting := run_folders.waiting(tracking.HOME):
        text = f"{len(waiting)} runs in {tracking.HOME} hold records that the store lacks"
        yield Finding(status=NOTE, topic="tracking", text=text, fix="wsl sync")
    if dead := sum(1 for _ in dead_folders(tracking.HOME)):
        text = f"{dead} runs in {tracking.HOME} are marked as running, but their process is gone"
        yield Finding(status=NOTE, topic="tracking", text=text, fix="wsl sync marks them; wsl run --resume goes on")


def _data(plugins: Plugins, data_dir: Path) -> Iterator[Finding]:
    """Say which of the datasets that live in a folder of their own are there."""
    source = "WSL_DATA_DIR" if os.environ.get("WSL_DATA_DIR") else "the default"
    if not data_dir.is_dir():
        # Nothing is wrong as long as nobody asks for such data: the bundled set needs none.
        status = PROBLEM if os.environ.get("WSL_DATA_DIR") else NOTE
        text = f"there is no data directory {data_dir} ({source}); bundled data works without"
        fix = "set WSL_DATA_DIR, or use --data-dir or --dataset-download"
        yield Finding(status=status, topic="data", text=text, fix=fix)
        return
    registry = plugins.registry
    folders = {name: getattr(registry.get("dataset", name), "folder", None) for name in registry.names("dataset")}
    there = [name for name, folder in folders.items() if folder and (data_dir / folder).is_dir()]
    others = sorted(path.name for path in data_dir.iterdir() if path.is_dir() and not path.name.startswith("."))
    known = {str(folder).split("/")[0] for name, folder in folders.items() if name in there}
    rest = [name for name in others if name not in known]
    text = f"{data_dir} ({source}) holds {', '.join(there) or 'no benchmark'}"
    more = f"; also {', '.join(rest[:8])}{'…' if len(rest) > 8 else ''}" if rest else ""
    yield Finding(status=OK, topic="data", text=text + more)


def _disk() -> Iterator[Finding]:
    here = Path.cwd()
    try:
        with tempfile.TemporaryFile(dir=here):
            pass
    except OSError as error:
        text = f"{here} cannot be written ({error.strerror})"
        yield Finding(status=PROBLEM, topic="disk", text=text, fix="work in a directory of your own")
    usage = shutil.disk_usage(here)
    text = f"{usage.free / GIGABYTE:.1f} GB free of {usage.total / GIGABYTE:.0f} GB for {here / tracking.HOME}"
    if usage.free < LOW_DISK:
        status = PROBLEM if usage.free < NO_DISK else NOTE
        fix = f"make room, or work on another disk; finished runs below {tracking.HOME}/runs may be deleted"
        yield Finding(status=status, topic="disk", text=text, fix=fix)
    else:
        yield Finding(status=OK, topic="disk", text=text)


def _memory() -> Iterator[Finding]:
    free = free_memory()
    text = f"{free / GIGABYTE:.1f} GB of memory can be had"
    if free < LOW_MEMORY:
        fix = "end other programs, or expect large data to be streamed"
        yield Finding(status=NOTE, topic="memory", text=text, fix=fix)
    else:
        yield Finding(status=OK, topic="memory", text=text)


def _environment() -> Iterator[Finding]:
    for name in sorted(os.environ):
        if name.startswith("WSL_") and name not in VARIABLES and not name.startswith("WSL_TEST_"):
            hint = did_you_mean(name, VARIABLES).strip()
            text = f"{name} is set, and nothing reads it"
            yield Finding(status=NOTE, topic="environment", text=text, fix=hint or f"unset {name}")
