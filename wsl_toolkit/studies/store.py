"""A study on disk: `wsl-runs/studies/<name>/` for what is its own, `wsl-runs/jobs/` for results, one file each.

Results are shared by all studies: a job is known by its content, and what one study has computed another never does.
Results of one job by different code lie side by side, `<job>.<code>.json`; release 0.1 called them `<job>.json`.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from wsl_toolkit.errors import ConfigError, DataError, one_line
from wsl_toolkit.plugins.code_identity import code_of, digest_of
from wsl_toolkit.plugins.registry import Registry
from wsl_toolkit.studies.description import Study, check_name
from wsl_toolkit.studies.jobs import Job, JobResult, result_from_json
from wsl_toolkit.studies.parsing import from_dict
from wsl_toolkit.system.files import write_atomically
from wsl_toolkit.system.json_files import read_json, read_text
from wsl_toolkit.system.toml_files import read_toml
from wsl_toolkit.training.metrics import Measure

STUDIES = "studies"
RECORDED = ("name", "label", "reads", "better", "rule", "scale")
"""What is kept of a plugin's metric that selects, so that a report does not need the plugin."""


class StudyFolder:
    """Where one study lives; whoever writes does so atomically, and only the study's driver writes."""

    def __init__(self, home: Path, name: str) -> None:
        check_name(name)
        self.home = home
        self.path = home / STUDIES / name
        self.name = name
        self.jobs = home / "jobs"

    def create(self) -> None:
        """Make the folder."""
        try:
            self.jobs.mkdir(parents=True, exist_ok=True)
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"{self.path} cannot be written ({one_line(error)}): run in a directory of your own"
            ) from None

    @property
    def exists(self) -> bool:
        """Whether the study was ever started here."""
        return (self.path / "study.toml").is_file()

    def write_study(self, study: Study) -> None:
        """Keep the description in the place of an earlier one; finished jobs stay valid."""
        import tomli_w

        if study.selection.plugins_metric:
            known = attrs.asdict(study.selection.measure, filter=lambda field, _: field.name in RECORDED)
            write_atomically(self.path / "rule.json", json.dumps(known))
        write_atomically(self.path / "study.toml", tomli_w.dumps(study.to_dict()))

    def read_study(self) -> Study:
        """Return the description of an earlier start."""
        path = self.path / "study.toml"
        return from_dict(read_toml(path, "study file"), str(path), self._recorded_rule())

    def _recorded_rule(self) -> Measure | None:
        """Return what is known of the metric that selects, where a plugin provided it; a damaged file says nothing."""
        with contextlib.suppress(FileNotFoundError, ValueError, TypeError):
            known = read_json(self.path / "rule.json")
            if set(known) == set(RECORDED) and all(isinstance(value, str) for value in known.values()):
                return Measure(**known)
        return None

    def check_data(self, digests: Mapping[str, str]) -> None:
        """Refuse to go on with other data than the study began with; remember what is new."""
        known = self.compare_data(digests)
        write_atomically(self.path / "data.json", json.dumps(known, indent=2))

    def compare_data(self, digests: Mapping[str, str]) -> dict[str, str]:
        """Return the digests that the study began with and those that are new, unless one has changed."""
        known = self.data_digests()
        for label, digest in digests.items():
            if known.setdefault(label, digest) != digest:
                raise ConfigError(
                    f"the data of {label} has changed since study {self.name} began (its digest was "
                    f"{known[label][:12]}, and is {digest[:12]} now): restore it, or start a study under another name"
                )
        return known

    def data_digests(self) -> dict[str, str]:
        """Return the digests of the data that the study began with, by label."""
        path = self.path / "data.json"
        try:
            found = read_json(path)
            if not isinstance(found, dict) or not all(isinstance(digest, str) for digest in found.values()):
                raise ValueError("it does not hold digests")
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise DataError(
                f"{path} is damaged ({one_line(error)}): if the data is the same as when study {self.name} began, "
                "remove the file; it is made anew"
            ) from None
        return found

    def keep_held_out(self, counts: Mapping[str, int]) -> None:
        """Keep how many held-out examples each setting has."""
        if counts:
            write_atomically(self.path / "held-out.json", json.dumps({**self.held_out(), **counts}, indent=2))

    def held_out(self) -> dict[str, int]:
        """Return how many held-out examples each setting has, by label; what cannot be read is counted again."""
        try:
            found = read_json(self.path / "held-out.json")
        except (FileNotFoundError, ValueError):
            return {}
        if not isinstance(found, dict):
            return {}
        return {label: count for label, count in found.items() if isinstance(count, int)}

    def begin_again(self) -> None:
        """Have results that are older than this moment count no more, for this study."""
        write_atomically(self.path / "again.json", json.dumps(int(time.time() * 1000)))

    def begun_again(self) -> int:
        """Return since when results count, in milliseconds since 1970; 0 if all do."""
        try:
            found = read_json(self.path / "again.json")
        except (FileNotFoundError, ValueError):
            return 0
        return found if isinstance(found, int) else 0

    def result_path(self, job_id: str, made_by: str = "") -> Path:
        """Return where a job's result by some code is, once there is one."""
        return self.jobs / (f"{job_id}.{made_by}.json" if made_by else f"{job_id}.json")

    def write_result(self, result: JobResult) -> None:
        """Keep a result; its presence means that the job is done."""
        write_atomically(self.result_path(result.job.id, result.made_by), result.to_json())

    def read_result(self, job_id: str, made_by: str = "") -> JobResult | None:
        """Return a job's result by some code, or None; a damaged file (a failing disk) is set aside."""
        path = self.result_path(job_id, made_by)
        try:
            found = result_from_json(read_text(path))
            if found.job.id != job_id:
                raise ValueError("it is the result of another job")
            return found
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError):
            path.replace(path.with_suffix(".damaged"))
            return None

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Let one driver at a time work on the study; the system frees the lock when a process dies."""
        from filelock import FileLock, Timeout

        try:
            with FileLock(self.path / ".lock", timeout=0):
                yield
        except Timeout:
            raise ConfigError(f"study {self.name} is being run by another process; wait for it, or stop it") from None

    def is_running(self) -> bool:
        """Whether a driver is at work on the study right now."""
        try:
            with self.lock():
                return False
        except ConfigError:
            return True


class Results:
    """The finished jobs of a study, read once each: what the installed code made, or what is asked for."""

    def __init__(
        self,
        folder: StudyFolder,
        registry: Registry,
        digests: Mapping[str, str] | None = None,
        held_out: Mapping[str, int] | None = None,
        *,
        keep_old: bool = False,
        made_by: str | None = None,
        since: int | None = None,
    ) -> None:
        self.folder = folder
        self.registry = registry
        self.digests = folder.data_digests() if digests is None else digests
        """What the data is, by label: as the study began with it, unless it is given."""
        self.held_out = folder.held_out() if held_out is None else held_out
        """How many held-out examples with a candidate set a setting has, by its label, where that is needed."""
        self.keep_old = keep_old
        """Whether a result by other code does where the installed code has none."""
        self.made_by = made_by
        """The short name of the one code whose results count; None: the installed one."""
        self.since = since if since is not None else 0 if keep_old else folder.begun_again()
        """Older results count as none."""
        self._known: dict[str, JobResult] = {}
        self._codes: dict[tuple[tuple[str, str], ...], tuple[dict[str, str], str]] = {}
        self._by_job: dict[str, list[str]] | None = None

    def code(self, job: Job) -> dict[str, str]:
        """Return the installed code that a job would be computed by."""
        return self._installed(job)[0]

    def expected(self, job: Job) -> str:
        """Return the short name of the code whose result is looked for first."""
        return self._installed(job)[1] if self.made_by is None else self.made_by

    def _installed(self, job: Job) -> tuple[dict[str, str], str]:
        names = job.named(self.registry)
        if names not in self._codes:
            code = code_of(self.registry, names)
            self._codes[names] = (code, digest_of(code))
        return self._codes[names]

    def get(self, job: Job) -> JobResult | None:
        """Return a job's result, or None if it is not done."""
        if job.id not in self._known:
            found = self.folder.read_result(job.id, self.expected(job))
            if found is None and self.keep_old:
                found = self.other(job)
            if found is None or found.ended_at < self.since:
                return None
            self._known[job.id] = found
        return self._known[job.id]

    def known(self, job_id: str) -> JobResult:
        """Return a result that `get` has returned before."""
        return self._known[job_id]

    def other(self, job: Job) -> JobResult | None:
        """Return the newest result of a job that other code made than the one that is looked for first."""
        if self._by_job is None:
            self._by_job = {}
            for path in self.folder.jobs.glob("*.json"):
                job_id, _, made_by = path.stem.partition(".")
                self._by_job.setdefault(job_id, []).append(made_by)
        others = [name for name in self._by_job.get(job.id, ()) if name != self.expected(job)]
        found = [result for name in others if (result := self.folder.read_result(job.id, name)) is not None]
        return max(found, key=lambda result: result.ended_at, default=None)

    def add(self, result: JobResult) -> None:
        """Write a result to disk; from now on it is done."""
        self.folder.write_result(result)
        self._known[result.job.id] = result


def known_studies(home: Path) -> list[str]:
    """Return the names of the studies that were started here."""
    root = home / STUDIES
    return sorted(p.name for p in root.iterdir() if (p / "study.toml").is_file()) if root.is_dir() else []


def describe_point(point: dict[str, Any]) -> str:
    """Return a point of the search space as people read it."""
    return ", ".join(
        f"{k.partition('.')[2] or k}={v:g}" if isinstance(v, float | int) else f"{k}={v}" for k, v in point.items()
    )
