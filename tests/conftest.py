"""Fixtures that all tests share, and where tests of real data find it."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from tests import warm_python as warm_python_server
from tests.changing_plugin import ChangingPlugin
from wsl_toolkit.runs.tracking import database as tracking_database

MLFLOW_FILLS = tracking_database._fill
SMALL_PICTURES = {
    "axes.grid": False,
    "figure.constrained_layout.use": False,
    "figure.dpi": 60,
    "xtick.bottom": False,
    "xtick.labelbottom": False,
    "ytick.labelleft": False,
    "ytick.left": False,
}
DATA_DIR = pytest.StashKey[Path | None]()
LONGEST_FIRST = (
    "faults/test_stores.py",
    "studies/test_quick_study.py",
    "studies/test_study_kills.py",
    "faults/test_interruptions.py",
    "testing/test_builtin_contracts.py",
    "runs/test_run.py",
    "cli/test_streams.py",
    "training/test_ranks.py",
    "wsl_methods/test_machinery_training.py",
    "faults/test_study_faults.py",
    "faults/test_damage.py",
    "own_data/test_audit.py",
    "api/test_experiments.py",
    "training/test_train.py",
    "own_data/test_wall.py",
    "studies/test_job_checkpoints.py",
)
"""Files that take longest or wait for processes: begun last, one of them would keep everybody waiting at the end."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require-data", action="store_true", help="fail tests of real data that is missing, not skip them"
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One process more than there are cores: some tests spend their time waiting for servers and processes."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores + 1


def pytest_configure(config: pytest.Config) -> None:
    # Torch, MLflow and ten thousand tests are a million objects that live to the end: looking through them again and
    # again for garbage took up to a tenth of the time.
    gc.set_threshold(50_000, 20, 100)
    # A shell that starts the tests in the background has them ignore Ctrl-C, and so would all that they start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    named = os.environ.get("WSL_DATA_DIR")
    config.stash[DATA_DIR] = Path(named).expanduser().resolve() if named else None
    if getattr(config.option, "tx", None) and not config.option.collectonly:
        _fork_the_processes_that_test(config)


def _fork_the_processes_that_test(config: pytest.Config) -> None:
    """Have all processes share one server of warm Pythons, and be forked from it where forks are sound.

    Otherwise each of them imports torch, MLflow and what else ten thousand tests use: 20 s of a core, for each process.
    """
    python = warm_python_server.folder() / "python"
    if sys.platform == "linux":
        config.option.tx = [f"popen//python={python}" if given == "popen" else given for given in config.option.tx]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "data_dir" in getattr(item, "fixturenames", ()) and not item.get_closest_marker("data"):
            raise pytest.UsageError(f'{item.nodeid} uses data_dir: mark it, e.g. with @pytest.mark.data("MNIST")')
    here = Path(__file__).parent
    places = {here / name: place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: nobody need look through it for garbage."""
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test marked `data` where its files are missing, and say how to run it."""
    needed = [str(name) for marker in item.iter_markers("data") for name in marker.args]
    root = item.config.stash[DATA_DIR]
    missing = [name for name in needed if root is None or not (root / name).exists()]
    if missing:
        where = f"is not below WSL_DATA_DIR={root}" if root else "is real data"
        reason = f"{missing[0]} {where}: run WSL_DATA_DIR=<the folder that holds {missing[0]}> make test"
        if item.config.getoption("--require-data"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Small tensors are faster on one thread, and parallel test processes do not fight over cores."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _no_data_but_by_fixture() -> Iterator[None]:
    """Whoever runs the tests may have set WSL_DATA_DIR: only tests that ask for `data_dir` see what it names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("WSL_DATA_DIR", raising=False)
        yield


@pytest.fixture(scope="session")
def data_dir(request: pytest.FixtureRequest) -> Path:
    """Where the real data lies, for tests marked `data` with the names of what they need there."""
    root = request.config.stash[DATA_DIR]
    assert root is not None, "a test that is marked `data` is skipped where WSL_DATA_DIR is not set"
    return root


@pytest.fixture(scope="session")
def shared_by_workers(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], object]], Path]:
    """Make a folder once for all processes of this session: `shared_by_workers("wheels", build)` returns its path."""
    own = tmp_path_factory.getbasetemp()
    root = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own

    def once(name: str, make: Callable[[Path], object]) -> Path:
        folder, done = root / name, root / f"{name}.done"
        with FileLock(root / f"{name}.lock"):
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)  # somebody may have failed in the middle
                folder.mkdir()
                make(folder)
                done.touch()
        return folder

    return once


@pytest.fixture(scope="session")
def warm_python() -> Path:
    """A `python` that has imported torch and MLflow already, for tests of what another process does.

    Beside it is `bin/wsl`. Which modules a program imports, and its first seconds, only `sys.executable` shows.
    """
    return warm_python_server.folder() / "python"


@pytest.fixture(scope="session")
def fresh_database_in(shared_by_workers: Callable[..., Path]) -> Callable[[Path], None]:
    """Put MLflow's empty database into a working directory's wsl-runs, for programs that a test starts."""

    def copy_into(cwd: Path) -> None:
        home = cwd / "wsl-runs"
        home.mkdir(exist_ok=True)
        _empty_database(home / "mlflow.db", shared_by_workers)
        with contextlib.closing(sqlite3.connect(home / "mlflow.db")) as database, database:
            database.execute("update experiments set artifact_location = ?", ((home / "artifacts").as_uri(),))

    return copy_into


def _empty_database(path: Path, shared_by_workers: Callable[..., Path]) -> None:
    """Copy the empty database that MLflow made once for all: migrating one takes seconds, copying none."""
    shutil.copyfile(shared_by_workers("migrated", lambda made: MLFLOW_FILLS(made / "mlflow.db")) / "mlflow.db", path)


@pytest.fixture(scope="session", autouse=True)
def _databases_are_copies(shared_by_workers: Callable[..., Path]) -> Iterator[None]:
    """Have this process copy empty databases, which tests ask for hundreds of times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracking_database, "_fill", lambda path: _empty_database(path, shared_by_workers))
        yield


@pytest.fixture
def databases_made_by_mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of how a database comes to be."""
    monkeypatch.setattr(tracking_database, "_fill", MLFLOW_FILLS)


@pytest.fixture
def fresh_database(tmp_path: Path, fresh_database_in: Callable[[Path], None]) -> None:
    """An empty database in this test's own directory."""
    fresh_database_in(tmp_path)


@pytest.fixture(scope="module")
def small_pictures() -> Iterator[None]:
    """Draw pictures small, without arranging them and without ticks, in tests that do not look at them.

    They would be most of a short run.
    """
    from wsl_toolkit.system.figure_style import STYLE

    with pytest.MonkeyPatch.context() as patch:
        for name, value in SMALL_PICTURES.items():
            patch.setitem(STYLE, name, value)
        yield


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ChangingPlugin]:
    """A plugin that is installed, and that a test may change, upgrade and uninstall."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    changing = ChangingPlugin(site)
    changing.install()
    yield changing
    changing.uninstall()
