"""What a node does with a task, without a cluster: data that arrives whole, versions that must agree, messages."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import torch
from click.testing import CliRunner

from wsl_toolkit.cli import main
from wsl_toolkit.data.dataset import Data
from wsl_toolkit.errors import ConfigError
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.labels.storage import build
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.studies.executor import Ended, Finished, Inline, check_installed, make_executor
from wsl_toolkit.studies.jobs import make_job
from wsl_toolkit.studies.node_worker import Terms, differences, installed, needed_versions, perform
from wsl_toolkit.studies.parsing import from_dict
from wsl_toolkit.studies.ray_executor import connect
from wsl_toolkit.studies.shipping import pack, packed_bytes, unpack
from wsl_toolkit.studies.tasks import Task

STUDY: dict[str, Any] = {
    "name": "small",
    "training": {"epochs": 3, "batch_size": 128, "validation": 0.1},
    "settings": [{"dataset": "digits", "generator": "mcl-skewed", "backbone": "linear"}],
    "methods": ["ppl"],
}


def a_task(tmp_path: Path, lrs: tuple[float, ...] = (0.1,)) -> Task:
    registry = load_plugins().registry
    cell = next(from_dict(STUDY, "test").cells())
    digest = registry.create("dataset", "digits", {}).load(tmp_path).digest()
    configs = [cell.config({"lr": lr}, seed=0, epochs=3, registry=registry) for lr in lrs]
    return Task(jobs=tuple(make_job(config, "selection", data=digest) for config in configs), data_dir=tmp_path)


def terms_of(task: Task, **changes: Any) -> Terms:
    terms = Terms(digest=task.jobs[0].data, source=(), versions={"torch": installed()["torch"]}, threads=1, share=1)
    return attrs.evolve(terms, **changes)


@pytest.mark.parametrize("kind", ["dense", "packed", "sparse"])
def test_data_arrives_as_it_was_sent_and_is_not_copied(kind: str) -> None:
    rng = torch.Generator().manual_seed(0)
    mask = torch.rand(50, 12, generator=rng) < 0.4
    mask[:, 3] = True
    names = tuple(f"class {k}" for k in range(12))
    sets = CandidateSets(build(mask, kind), 12, names)
    x = torch.randint(256, (50, 1, 4, 4), generator=rng, dtype=torch.uint8)
    known = torch.full((50,), -1)
    data = Data(name="own", x=x, candidates=sets, num_classes=12, class_names=names, known_y=known, normalise="none")
    packed = pack(data)
    there = unpack(packed)
    assert there.digest() == data.digest()
    assert there.candidates == sets
    assert there.candidates is not None
    assert there.candidates.storage == kind
    assert there.x.data_ptr() == data.x.data_ptr()
    assert packed_bytes(packed) >= x.nbytes + sets.nbytes


def test_a_node_gives_the_results_that_this_process_gives(tmp_path: Path) -> None:
    task = a_task(tmp_path, (0.01, 0.1))
    here = Inline()
    here.submit(task)
    expected = [event.result for event in here.events() if isinstance(event, Finished)]
    messages = [message for several in perform(task, terms_of(task)) for message in several]
    found = [value for kind, value in messages if kind == "finished"]
    assert messages[-1] == ("ended", None)
    assert sum(value for kind, value in messages if kind == "advanced") == task.epochs
    assert [result.job.id for result in found] == [result.job.id for result in expected]
    assert [result.history for result in found] == [result.history for result in expected]


def test_other_data_than_the_study_began_with_is_refused_by_the_node(tmp_path: Path) -> None:
    task = a_task(tmp_path)
    # A node in a process of its own has read nothing yet: another share makes a worker of its own here.
    (last,) = [several[-1] for several in perform(task, terms_of(task, digest="0" * 64, share=2))]
    assert last[0] == "ended"
    assert "has other data in" in last[1]
    assert "not 000000000000" in last[1]


def test_a_node_that_joined_later_with_other_versions_does_nothing(tmp_path: Path) -> None:
    task = a_task(tmp_path)
    (last,) = [several[-1] for several in perform(task, terms_of(task, versions={"torch": "0.1", "wsl-far": "2"}))]
    assert last[0] == "ended"
    assert "wsl-far is missing (2 is needed)" in last[1]
    assert f"torch is {installed()['torch']}, not 0.1 as here" in last[1]


def test_versions_are_compared_one_by_one() -> None:
    assert differences({"a": "1", "b": "2"}, {"a": "1", "b": "2", "c": "3"}) == []
    assert differences({"a": "1", "b": "2"}, {"b": "2.1"}) == ["a is missing (1 is needed)", "b is 2.1, not 2 as here"]


def test_without_ray_the_command_that_installs_it_is_named_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "ray" else find(name, *rest))
    with pytest.raises(ConfigError, match=r"pip install 'wsl-toolkit\[ray\]'"):
        make_executor("ray", None)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["study", "run", "paper-table-3", "--quick", "--executor", "ray"])
    assert done.exit_code == 2
    assert "pip install 'wsl-toolkit[ray]'" in done.output
    assert not list(tmp_path.iterdir())
    check_installed("local")


def test_an_address_of_a_ray_client_is_refused_with_the_one_to_use() -> None:
    outside = SimpleNamespace(is_initialized=lambda: False)  # Ray itself is not asked
    with pytest.raises(ConfigError, match="--address auto or HOST:PORT"):
        connect(outside, "ray://10.0.0.1:10001", None)


def test_what_a_study_needs_is_what_its_components_come_from() -> None:
    registry = load_plugins().registry
    needed = needed_versions(from_dict(STUDY, "test"), registry)
    assert needed == {name: installed()[name] for name in ("wsl-toolkit", "torch")}


def test_an_executor_ends_a_task_once(tmp_path: Path) -> None:
    here = Inline()
    here.prepare(from_dict(STUDY, "test"), load_plugins().registry)
    here.submit(a_task(tmp_path))
    assert sum(isinstance(event, Ended) for event in here.events()) == 1
