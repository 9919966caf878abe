"""A run's own record on disk: what it is, a line for each epoch, how it ended. The source of truth.

    <home>/runs/<id>/
        run.json              what the run is, what is known of its end, and whether the tracking store has it all
        process.json          which process works on it; there only while one does
        process.lock          locked by that process as long as it lives
        config.toml           the resolved configuration
        records.jsonl         a line for each epoch
        result.json           the result; its presence means that the run is complete
        candidates.safetensors, checkpoints/
        undelivered/          artifacts that the tracking store did not take, laid out as they belong there

The folder is called by the run's id in the tracking store, or `offline-…` as long as the store has not given it one.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from wsl_toolkit.errors import ConfigError, DataError, ResourceError, did_you_mean, one_line
from wsl_toolkit.runs.facts import check_facts
from wsl_toolkit.system.files import write_atomically
from wsl_toolkit.system.json_files import parse_json, read_json, read_text, sealed, unsealed
from wsl_toolkit.system.processes import FolderLock, Process
from wsl_toolkit.training.engine import EpochRecord

OFFLINE = "offline-"
RUNNING, FINISHED, FAILED, KILLED = "RUNNING", "FINISHED", "FAILED", "KILLED"
_SAFE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


@attrs.frozen(kw_only=True)
class TimedRecord:
    """An epoch's record and when it was made (milliseconds), by which a tracking store knows a repetition."""

    record: EpochRecord
    time: int

    @property
    def metrics(self) -> dict[str, float]:
        """What a tracking store gets of it."""
        return {**self.record.metrics, "time/epoch_seconds": self.record.seconds}


class RunFolder:
    """One run's folder."""

    def __init__(self, home: Path, run_id: str, *, make: bool = True) -> None:
        if not _SAFE_ID.fullmatch(run_id):
            raise ConfigError(f"{run_id!r} is not a valid run id: letters, digits, '-' and '_' only")
        self.home = home
        self.path = home / "runs" / run_id
        try:
            if make:
                self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{home} cannot be written ({one_line(error)}): run in a directory of your own") from None
        self._facts = _read_facts(self.path / "run.json")
        self._lock = FolderLock()

    @classmethod
    def new(cls, home: Path) -> RunFolder:
        """Make a folder for a run that the tracking store does not know yet."""
        return cls(home, f"{OFFLINE}{uuid.uuid4().hex}")

    @property
    def run_id(self) -> str:
        """The run's id: the store's, or a local one until the store has given one."""
        return self.path.name

    @property
    def is_offline(self) -> bool:
        """Whether the tracking store has not given an id yet."""
        return self.run_id.startswith(OFFLINE)

    def take_id(self, run_id: str) -> None:
        """Call the folder by the id that the store gave."""
        new = self.path.with_name(run_id)
        os.replace(self.path, new)
        self.path = new

    def discard(self) -> None:
        """Remove the folder of a run that never began."""
        self._lock.release()
        shutil.rmtree(self.path, ignore_errors=True)

    # ---------------------------------------------------------------- facts

    def fact(self, name: str, default: Any = None) -> Any:
        """Return something known of the run."""
        return self._facts.get(name, default)

    def note(self, **facts: Any) -> None:
        """Write down something known of the run."""
        changed = {**self._facts, **facts}
        if changed != self._facts:
            self._facts = changed
            self._write("run.json", sealed(changed, indent=1))

    def write_config(self, toml: str) -> None:
        """Keep the resolved configuration."""
        self._write("config.toml", toml)

    def write_result(self, result: dict[str, Any]) -> None:
        """Keep the result; its presence means that the run is complete."""
        self._write("result.json", sealed(result, indent=2))

    def result(self) -> dict[str, Any] | None:
        """Return the result of a complete run, else None."""
        return _read_if_sound(self.path / "result.json") or None

    def _write(self, name: str, text: str) -> None:
        with _disk(self.path):
            write_atomically(self.path / name, text)

    # -------------------------------------------------------------- process

    def enter(self) -> None:
        """Say that this process works on the run; refuse if another one does."""
        other = self.process()
        if not self._lock.acquire(self.path) or (other is not None and other.is_local() and self._is_alive(other)):
            self._lock.release()
            who = f" (process {other.pid})" if other is not None else ""
            raise ConfigError(f"run {self.run_id} is still at work{who}: stop it first, or wait")
        if other is not None and not other.is_local():
            self._lock.release()
            raise ConfigError(
                f"run {self.run_id} was begun on {other.host} by process {other.pid}, and nothing says that it has "
                f"ended: resume it there, or delete {self.path / 'process.json'} if you know better"
            )
        self._write("process.json", json.dumps(attrs.asdict(Process.current())))

    def leave(self, status: str, message: str = "") -> None:
        """Say how the run ended, and that nobody works on it any more."""
        self.note(status=status, message=message, ended=_now(), delivered=False)
        (self.path / "process.json").unlink(missing_ok=True)
        self._lock.release()

    def leave_for_dead(self) -> bool:
        """Record the end of a run whose process is gone; return False if a process took it up meanwhile."""
        if not self._lock.acquire(self.path, seconds=0):
            return False
        if not (self.path / "process.json").exists():
            self._lock.release()
            return False
        process = self.process()
        if self.result() is not None:
            self.leave(FINISHED)  # everything was done; only the status is missing
        else:
            who = f"process {process.pid}" if process else "its process"
            reason = "exited without recording a status: killed, out of memory, or the machine went down"
            self.leave(KILLED, f"{who} {reason}")
        return True

    def is_dead(self) -> bool:
        """Return whether a process of this machine began to work on the run, and is gone."""
        process = self.process()
        if process is None:
            # Its record cannot be read, or it ended well while this was looked at.
            return (self.path / "process.json").exists() and not FolderLock.is_held(self.path)
        return process.is_local() and not FolderLock.is_held(self.path) and not self._is_alive(process)

    @staticmethod
    def _is_alive(process: Process) -> bool:
        """Return whether a process that holds no lock lives: of those that would, none does."""
        return not process.locks and process.is_alive()

    def process(self) -> Process | None:
        """Return the process that works, or was killed while it worked, on the run."""
        try:
            return Process(**_read_if_sound(self.path / "process.json"))
        except TypeError:
            return None

    # -------------------------------------------------------------- records

    def append(self, record: EpochRecord) -> TimedRecord:
        """Add an epoch's line; a reader ignores a last line that was cut short."""
        timed = TimedRecord(record=record, time=_now())
        with _disk(self.path), (self.path / "records.jsonl").open("a", encoding="utf-8") as file:
            file.write(_line(timed))
        return timed

    def records(self) -> list[TimedRecord]:
        """Return the epochs so far, in order."""
        try:
            lines = read_text(self.path / "records.jsonl", errors="replace").splitlines()
        except FileNotFoundError:
            return []
        except ValueError as error:
            raise DataError(f"{self.path / 'records.jsonl'} is damaged ({error}): remove it, it is made anew") from None
        found: dict[int, TimedRecord] = {}
        for line in lines:
            with contextlib.suppress(ValueError, TypeError, KeyError):  # a line that was cut short or damaged
                timed = _read_line(line)
                found.setdefault(timed.record.epoch, timed)
        return [found[epoch] for epoch in sorted(found)]

    def restore_records(self, known: list[EpochRecord]) -> list[TimedRecord]:
        """Write the records anew without the remains of a line; what a checkpoint knows, it knows better."""
        kept = {timed.record.epoch: timed for timed in self.records()}
        for record in known:
            before = kept.get(record.epoch)
            kept[record.epoch] = TimedRecord(record=record, time=before.time if before else _now())
        last = 0
        while last + 1 in kept:
            last += 1
        timed = [kept[epoch] for epoch in range(1, last + 1)]
        self._write("records.jsonl", "".join(_line(item) for item in timed))
        return timed


def all_folders(home: Path) -> Iterator[RunFolder]:
    """Return the folder of every run whose record can be read, in a steady order."""
    for path in sorted((home / "runs").glob("*/run.json")):
        with contextlib.suppress(ConfigError, DataError):
            folder = RunFolder(home, path.parent.name, make=False)
            if folder.fact("started") is not None:  # else it is being given its id, and is found by that
                yield folder


def damaged_records(home: Path) -> Iterator[str]:
    """Say of each run whose record cannot be read what is wrong with it."""
    for path in sorted((home / "runs").glob("*/run.json")):
        try:
            _read_facts(path)
        except DataError as error:
            yield str(error)


def children_of(folder: RunFolder) -> dict[int, RunFolder]:
    """Return the folders of a run's trials by seed."""
    found = {}
    for other in all_folders(folder.home):
        if other.fact("parent") == folder.run_id:
            # A trial that lost its seed, or has one that is no number, is none of ours.
            with contextlib.suppress(KeyError, TypeError, ValueError, OverflowError):
                found[int(other.fact("params", {})["seed"])] = other
    return found


def dead_folders(home: Path) -> Iterator[RunFolder]:
    """Return the runs whose process of this machine is gone, though they never said that they ended."""
    for path in sorted((home / "runs").glob("*/process.json")):
        try:
            folder = RunFolder(home, path.parent.name, make=False)
        except (ConfigError, DataError):
            continue  # nobody can tell what became of it: its checkpoints are left alone
        if folder.is_dead():
            yield folder


def find_folder(home: Path, given: str) -> RunFolder:
    """Return the folder of a run, by its id or by the folder's own path."""
    path = Path(given.replace("\0", "?"))
    if (path / "run.json").is_file() and path.resolve().parent.name == "runs":
        path = path.resolve()
        return RunFolder(path.parents[1], path.name)
    if _SAFE_ID.fullmatch(given) and (home / "runs" / given / "run.json").is_file():
        return RunFolder(home, given)
    known = [path.parent.name for path in (home / "runs").glob("*/run.json")]
    raise ConfigError(
        f"there is no run {given!r} in {home / 'runs'}.{did_you_mean(given, known)} "
        "Give a run id, or the path of a run's folder"
    )


@contextlib.contextmanager
def _disk(path: Path) -> Iterator[None]:
    """Say it plainly if the disk is full or may not be written."""
    try:
        yield
    except OSError as error:
        raise ResourceError(
            f"{path} cannot be written ({error.strerror or error}): make room or give rights, then go on with "
            f"wsl run --resume {path.name}"
        ) from None


def _line(timed: TimedRecord) -> str:
    return sealed({**attrs.asdict(timed.record), "time": timed.time}) + "\n"


def _read_line(line: str) -> TimedRecord:
    """Read a line back, or raise a ValueError, TypeError or KeyError; lines of release 0.1 have no checksum."""
    values = unsealed(parse_json(line))
    epoch, metrics = values["epoch"], dict(values["metrics"])
    numbers = [values["seconds"], *metrics.values()]
    if type(epoch) is not int or epoch < 1 or type(values["time"]) is not int:
        raise ValueError("the line has no epoch or no time")
    if not all(type(number) in (int, float) for number in numbers):
        raise ValueError("a metric is not a number")
    return TimedRecord(record=EpochRecord(epoch=epoch, metrics=metrics, seconds=values["seconds"]), time=values["time"])


def _read_facts(path: Path) -> dict[str, Any]:
    """Return what is known of a run; a record that is there and cannot be read must not pass for none."""
    try:
        facts = {name: value for name, value in unsealed(read_json(path)).items() if value is not None}
        check_facts(facts)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path} is damaged ({one_line(error)}): restore it from a backup, or remove {path.parent} and start the "
            "run anew"
        ) from None
    return facts


def _read_if_sound(path: Path) -> dict[str, Any]:
    """Return a JSON object, or an empty one if there is none that can be read."""
    try:
        return unsealed(read_json(path))
    except (OSError, ValueError):
        return {}


def _now() -> int:
    return int(time.time() * 1000)


def same_metrics(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """Return whether two records agree to the last bit; NaN agrees with NaN."""
    return {k: repr(float(v)) for k, v in one.items()} == {k: repr(float(v)) for k, v in other.items()}
