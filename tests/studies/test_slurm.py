"""Studies through submitit: by its own local processes, and by scripts that stand where sbatch and its like would."""

from __future__ import annotations

import csv
import os
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from wsl_toolkit.cli import main
from wsl_toolkit.errors import ConfigError
from wsl_toolkit.studies.executor import Cluster, make_executor
from wsl_toolkit.studies.flights import Flight
from wsl_toolkit.studies.jobs import make_job
from wsl_toolkit.studies.slurm_executor import DAMAGED, SlurmExecutor, check_cluster, read_messages
from wsl_toolkit.studies.tasks import Task
from wsl_toolkit.system.files import write_atomically
from wsl_toolkit.training.config import RunConfig

STUDY = """
name = "small"
trials = 2
[training]
epochs = 3
batch_size = 64
validation = 0.1
[search]
epochs = 2
[search.space]
lr = [0.01, 0.1]
[[settings]]
dataset = "digits"
generator = "mcl-skewed"
backbone = "linear"
[[methods]]
estimator = "ppl"
"""
WSL = [sys.executable, "-P", "-m", "wsl_toolkit.cli"]


def trials(home: Path) -> list[dict[str, str]]:
    """Return the trials of the report, without what says how long they took."""
    with (home / "wsl-runs" / "studies" / "small" / "report" / "trials.csv").open() as file:
        return [{key: value for key, value in row.items() if "seconds" not in key} for row in csv.DictReader(file)]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    Path("small.toml").write_text(STUDY)
    return tmp_path


@pytest.mark.system
def test_jobs_of_submitit_give_the_table_of_local_workers_and_leave_nothing(home: Path) -> None:
    subprocess.run([*WSL, "study", "run", "small.toml", "--jobs", "1", "--quiet"], check=True, timeout=300)
    wanted = trials(home)
    command = ["study", "run", "small.toml", "--again", "--executor", "slurm", "--address", "local", "--jobs", "2"]
    subprocess.run([*WSL, *command, "--quiet"], check=True, timeout=300)
    assert len(wanted) == 2
    for one, other in zip(wanted, trials(home), strict=True):
        assert float(one["test/accuracy"]) == pytest.approx(float(other["test/accuracy"]), abs=1e-4)
    assert list((home / "wsl-runs" / "slurm").iterdir()) == []


@pytest.mark.system
def test_a_job_that_is_killed_is_begun_again_and_the_study_ends_well(home: Path) -> None:
    command = ["study", "run", "small.toml", "--executor", "slurm", "--address", "local", "--jobs", "1", "--quiet"]
    with subprocess.Popen([*WSL, *command], stderr=subprocess.PIPE, text=True) as driver:
        victims: set[int] = set()
        deadline = time.monotonic() + 240
        while driver.poll() is None and time.monotonic() < deadline and not victims:
            time.sleep(0.5)
            victims = workers_below(driver.pid)
        for process in victims:
            os.kill(process, signal.SIGKILL)
        _, said = driver.communicate(timeout=300)
    assert victims, "no worker was met"
    assert driver.returncode == 0, said
    assert len(trials(home)) == 2
    assert list((home / "wsl-runs" / "slurm").rglob("*.err")), "a job that died leaves its log"


def workers_below(parent: int) -> set[int]:
    """Return the processes below another in which submitit runs a job."""
    shown = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in shown.splitlines()[1:]]
    below, found = {parent}, set()
    for _ in rows:  # as deep as there are processes
        below |= {int(pid) for pid, of, _ in rows if int(of) in below}
    for pid, _, command in rows:
        if int(pid) in below and "submitit.core._submit" in command:
            found.add(int(pid))
    return found


STAND_INS = {
    "sbatch": """
cp "$1" "$SEEN"
echo >> "$SEEN.count"
id=$(wc -l < "$SEEN.count")
cp "$1" "$SEEN.$id"  # as SLURM keeps a copy: submitit renames its own once it knows the job's number
(SLURM_JOB_ID=$id SLURM_JOBID=$id SLURM_JOB_NUM_NODES=1 SLURM_JOB_NODELIST=here SLURM_NTASKS=1 SLURM_PROCID=0 \\
 SLURM_LOCALID=0 SLURM_NODEID=0 bash "$SEEN.$id" > /dev/null 2>&1 &)
echo "Submitted batch job $id"
""",
    "sacct": 'echo "JobID|State|NodeList"; for id in $(seq 1 9); do echo "$id|RUNNING|here"; done\n',
    "scancel": "exit 0\n",
    "srun": "exit 1\n",
}


@pytest.mark.system
def test_sbatch_is_told_what_a_task_takes_and_its_job_does_the_work(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no SLURM here: what submitit hands to sbatch is kept, and run as SLURM would run it."""
    programs = home / "programs"
    programs.mkdir()
    for name, text in STAND_INS.items():
        (programs / name).write_text(f"#!/bin/bash\n{text}")
        (programs / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("SEEN", str(home / "seen.sh"))
    command = ["study", "run", "small.toml", "--executor", "slurm", "--jobs", "1", "--quiet", "--task-cpus", "2"]
    command += ["--task-minutes", "30", "--task-memory", "3", "--slurm", "partition=long", "--slurm", "account=lab"]
    subprocess.run([*WSL, *command], check=True, timeout=400)
    asked = set(re.findall(r"^#SBATCH --(\S+)$", (home / "seen.sh").read_text(), re.M))
    assert {"partition=long", "account=lab", "time=30", "cpus-per-task=2", "mem=3GB", "job-name=wsl-small"} <= asked
    assert len(trials(home)) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--executor", "slurm"], "there is no SLURM here|needs submitit"),
        (["--slurm", "partition"], "is not OPTION=VALUE"),
        (["--slurm", "x=1\n#SBATCH --wrap=evil"], "is not OPTION=VALUE"),
    ],
)
def test_what_slurm_cannot_do_is_one_line(
    home: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], message: str
) -> None:
    monkeypatch.setenv("PATH", str(home))
    done = CliRunner().invoke(main, ["study", "run", "small.toml", *options])
    assert done.exit_code == 2
    assert re.search(message, " ".join(done.output.split()))


def test_addresses_and_shares_of_gpus_are_refused() -> None:
    with pytest.raises(ConfigError, match="SLURM gives whole GPUs"):
        check_cluster(Cluster(gpus=0.5), "local")
    with pytest.raises(ConfigError, match="SLURM is found by itself"):
        check_cluster(Cluster(), "10.0.0.1:6379")
    with pytest.raises(ConfigError, match="there are local, ray, slurm and inline"):
        make_executor("cloud", 1)


def test_messages_are_taken_in_their_order_once(tmp_path: Path) -> None:
    for number in (2, 10, 1):
        write_atomically(tmp_path / f"{number:06d}.json", f'["advanced", {number}]')
    assert read_messages(tmp_path) == [("advanced", 1), ("advanced", 2), ("advanced", 10)]
    assert read_messages(tmp_path) == []


def test_a_task_that_dies_is_begun_again_a_few_times_with_growing_pauses(tmp_path: Path) -> None:
    job = make_job(RunConfig(), "trial")
    flight = Flight(Task(jobs=(job,), data_dir=tmp_path))
    pauses = []
    for _ in range(3):
        assert flight.died("gone", "why?") is None
        pauses.append(flight.due - time.monotonic())
    assert pauses == pytest.approx([1, 2, 4], abs=0.2)
    ended = flight.died("gone", "why?")
    assert ended is not None
    assert ended.error == "begun 4 times, and its worker died every time (why?): gone"
    flight = Flight(Task(jobs=(job,), data_dir=tmp_path), finished={job.id})
    ended = flight.died("gone", "why?")
    assert ended is not None
    assert ended.error is None, "all its jobs have their results"


@pytest.mark.parametrize(
    "damaged", ["", "\x00", "[]", '["finished", "{}"]', '["advanced", "x"]', '["sings", 1]', "[" * 5000, '["ended", 1]']
)
def test_a_damaged_message_is_said_to_be_damaged_and_taken_once(tmp_path: Path, damaged: str) -> None:
    write_atomically(tmp_path / "000001.json", '["advanced", 1]')
    write_atomically(tmp_path / "000002.json", damaged)
    first, (kind, why) = read_messages(tmp_path)
    assert first == ("advanced", 1)
    assert kind == DAMAGED
    assert why.startswith("a message of its worker is damaged (")
    assert read_messages(tmp_path) == []


@pytest.mark.system
def test_a_task_whose_message_is_damaged_is_begun_again(tmp_path: Path) -> None:
    executor = SlurmExecutor(Cluster(address="local"), tmp_path, 1)
    try:
        executor.submit(Task(jobs=(make_job(RunConfig().with_defaults(), "trial"),), data_dir=tmp_path))
        ((flight, inbox),) = executor._flights.values()
        write_atomically(inbox / "000001.json", '["finished", 0]')
        assert list(executor.events()) == []
        assert flight.deaths == 1
        assert executor._grounded == [flight]
        assert not inbox.exists()
    finally:
        executor.close()
