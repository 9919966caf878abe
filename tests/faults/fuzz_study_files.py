"""Files around studies and plugins, sound and wrong: cells, rules, messages, published numbers, projects, models."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mutations
import torch
from fuzz_user_files import STUDY
from fuzzing import Target

from wsl_toolkit.own_data import serving
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.plugins.source_tree import SourceTree
from wsl_toolkit.runs.tracking import database
from wsl_toolkit.studies import parsing
from wsl_toolkit.studies.cell_records import CellRecords
from wsl_toolkit.studies.cells import cell_state
from wsl_toolkit.studies.flights import Flight, SameSets
from wsl_toolkit.studies.jobs import JobResult, make_job
from wsl_toolkit.studies.report.against import against_table, read_published
from wsl_toolkit.studies.slurm_executor import read_messages
from wsl_toolkit.studies.store import Results, StudyFolder
from wsl_toolkit.studies.tasks import Task
from wsl_toolkit.system.json_files import unsealed
from wsl_toolkit.system.toml_files import read_toml
from wsl_toolkit.training.config import RunConfig

WHOLE_STUDY = """
name = "whole"
title = "every key"
trials = 2
seed = 3
[training]
epochs = 6
subset = 100
augmentation = "weak"
patience = 2
optimizer = { name = "sgd", nesterov = true }
[search]
strategy = "tpe"
points = 4
epochs = 2
[search.space]
lr = { low = 1e-3, high = 1e-1, log = true }
weight_decay = [1e-4, 1e-2]
[selection]
rule = "covering-rate"
folds = 2
per_trial = true
tolerance = "one-standard-error"
[[settings]]
dataset = ["digits", { name = "csv", path = "a.csv" }]
generator = [{ name = "flip", q = 0.3 }, "mcl-skewed"]
backbone = { name = "mlp", widths = [5], frozen = true, frozen_head = "linear", frozen_weights = "net.pt" }
training = { batch_size = 32 }
trials = 3
[[methods]]
estimator = { name = "ppl" }
transform = "clsp"
label = "PPL"
training = { momentum = 0.5 }
search = { lr = [0.1, 0.2] }
[[methods]]
estimator = "cc"
[quick]
trials = 1
"""
PUBLISHED = """dataset,method,test_accuracy_percent,standard_deviation,sets,source
digits,PPL,91.5,0.4,mcl-skewed,A paper (2020)
digits,CC,90,,,"Another, 2021"
mnist,PPL,98.1,0.1,flip,
"""
PROJECT = """
[project]
name = "wsl-mine"
version = "0.1"
[project.entry-points.wsl_toolkit]
mine = "wsl_mine"
other = "wsl_mine.more:plugin"
"""
MLMODEL = """flavors:
  python_function:
    data: data/model.safetensors
    loader_module: wsl_toolkit.own_data.serving
    python_version: 3.11.2
"""


def targets(folder: Path) -> Iterator[Target]:
    """What a study, its cluster, its report, a plugin's project and a model's folder are read from."""
    yield Target(
        name="study with every key",
        suffix=".toml",
        samples=(WHOLE_STUDY.encode(),),
        parse=_read_study,
        mutate=lambda dice: mutations.as_toml(dice, tomllib.loads(WHOLE_STUDY)),
    )
    yield from _study_folder(folder)
    yield from _messages()
    yield Target(
        name="published numbers",
        suffix=".csv",
        samples=(PUBLISHED.encode(), PUBLISHED.encode("utf-8-sig")),
        parse=lambda path: against_table(_study(), (), read_published(path)),
        mutate=lambda dice: mutations.as_text(dice, PUBLISHED),
    )
    for name, kind, field, text in (
        ("superclasses", "flip-superclass", "groups", "0 1 | 2-4 | 5\n"),
        ("queries", "query", "queries", "0 1\n2-4; 5\n# a remark\n"),
    ):
        yield Target(
            name=name,
            suffix=".txt",
            samples=(text.encode(),),
            parse=lambda path, kind=kind, field=field: (
                load_plugins().registry.create("generator", kind, {field: f"@{path}"}).check_classes(6)
            ),
            mutate=lambda dice, text=text: mutations.as_text(dice, text),
        )
    table = "0.5,0.25,0.25\n0.1,0.8,0.1\n2,-1,0.5\n"
    yield Target(
        name="table of a reference model",
        suffix=".csv",
        samples=(table.encode(),),
        parse=_read_reference,
        mutate=lambda dice: mutations.as_text(dice, table),
    )
    yield from _others(folder)


def _read_reference(path: Path) -> Any:
    """Read what a reference model predicts, and draw sets by it."""
    generator = load_plugins().registry.create("generator", "flip-instance", {"reference": str(path)})
    x, y, stream = torch.eye(3), torch.arange(3), torch.Generator().manual_seed(0)
    return generator.prepare(x, y, 3, stream).draw(x, y, 3, stream)


def _study() -> Any:
    return parsing.from_dict(tomllib.loads(STUDY), "study")


def _read_study(path: Path) -> Any:
    """Read a study as far as `wsl study run` does without data: its cells, its labels, and itself written again."""
    study = parsing.from_dict(read_toml(path), str(path))
    [cell.label for cell in study.cells()]
    return parsing.from_dict(study.to_dict(), "itself")


def _study_folder(folder: Path) -> Iterator[Target]:
    """Files of a study's folder that earlier starts left: where its cells stand, its rule, since when results count."""
    home = folder / "kept study"
    kept = StudyFolder(home, "small")
    kept.create()
    registry, study = load_plugins().registry, _study()
    cell = next(iter(study.cells()))
    digests = {"digits": "0123", "weights net.pt": "4567"}
    results = Results(kept, registry, digests, {})
    state = cell_state(cell, results, registry)
    (kept.path / "data.json").write_text(json.dumps(digests))
    CellRecords(kept).write(state, results)
    (record,) = (kept.path / "cells").glob("*.json")
    rule = {
        "name": "mine",
        "label": "Mine",
        "reads": "candidates",
        "better": "higher",
        "rule": "mine",
        "scale": "share",
    }
    files: dict[str, Any] = {
        f"cells/{record.name}": json.loads(record.read_text()), "rule.json": rule, "again.json": 1_700_000_000_000,
        "data.json": digests,
    }  # fmt: skip
    names = {f"cells/{record.name}": "cells/*.json", "data.json": "data.json with weights"}

    def parse(path: Path, name: str) -> None:
        found = StudyFolder(path.parent, "small")
        found.create()
        try:
            (found.path / "cells").mkdir(exist_ok=True)
            (found.path / "study.toml").write_text(STUDY)
            for each, values in files.items():
                (found.path / each).write_text(json.dumps(values))
            path.replace(found.path / name)
            again = found.read_study()
            records = CellRecords(found)
            for each in again.cells():
                records.code(each)
                records.read(each)
            found.compare_data(digests)
            Results(found, registry)
        finally:
            shutil.rmtree(found.path)

    for name, values in files.items():
        yield Target(
            name=f"a study's {names.get(name, name)}",
            suffix=".json",
            samples=(json.dumps(values).encode(),),
            parse=lambda path, name=name: parse(path, name),
            mutate=lambda dice, values=values: mutations.as_json(
                dice, {"x": values} if type(values) is int else values
            ),
        )


def _messages() -> Iterator[Target]:
    """What a worker on a cluster leaves for the driver of its study."""
    job = make_job(RunConfig().with_defaults(), "trial")
    result = JobResult(job=job, status="finished", history={"train/risk": [0.5]}, candidates_hash="0")
    messages: list[Any] = [["advanced", 3], ["finished", result.to_json()], ["ended", None], ["ended", "why"]]

    def parse(path: Path) -> None:
        inbox = path.parent / "fuzz" / "messages"
        shutil.rmtree(inbox, ignore_errors=True)
        inbox.mkdir(parents=True)
        path.replace(inbox / "000001.json")
        flight, sets = Flight(Task(jobs=(job,), data_dir=inbox)), SameSets()
        for message in read_messages(inbox):
            event = flight.heard(message)
            if found := getattr(event, "result", None):
                sets.check(found)
            assert event.task is flight.task
        assert list(inbox.glob("*.json")) == [], "a message that cannot be read is read once"

    def forged(dice: Any) -> bytes:
        kind, value = dice.choice(messages)
        if kind == "finished" and dice.random() < 0.7:
            text = mutations.sealed_json(dice, unsealed(json.loads(value))).decode("utf-8", "replace")
            return json.dumps([kind, text]).encode()
        return mutations.as_json(dice, [kind, value])

    yield Target(
        name="message of a SLURM job",
        suffix=".json",
        samples=tuple(json.dumps(message).encode() for message in messages),
        parse=parse,
        mutate=forged,
    )


def _others(folder: Path) -> Iterator[Target]:
    def plugin(path: Path) -> None:
        place = path.parent / "fuzz"
        shutil.rmtree(place, ignore_errors=True)
        (place / "project").mkdir(parents=True)
        path.replace(place / "project" / "pyproject.toml")
        SourceTree.read(place / "project").install_metadata(place / "installed")

    yield Target(
        name="a plugin's pyproject.toml",
        suffix=".toml",
        samples=(PROJECT.encode(),),
        parse=plugin,
        mutate=lambda dice: mutations.as_toml(dice, tomllib.loads(PROJECT)),
    )

    def model(path: Path) -> None:
        place = path.parent / "fuzz"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        path.replace(place / "MLmodel")
        serving.check_free(place, force=True)

    yield Target(
        name="a model's MLmodel",
        suffix=".txt",
        samples=(MLMODEL.encode(),),
        parse=model,
        mutate=lambda dice: mutations.as_text(dice, MLMODEL),
    )
    made = folder / "small.db"
    with sqlite3.connect(made) as connection:
        connection.execute("CREATE TABLE alembic_version (version_num TEXT)")
        connection.execute("CREATE TABLE experiments (name TEXT)")
        connection.execute("INSERT INTO alembic_version VALUES ('1')")
        connection.execute("INSERT INTO experiments VALUES ('Default')")
    connection.close()
    content = made.read_bytes()

    def pages(dice: Any) -> bytes:
        """A database in which one cell, or one number of its header, is another."""
        changed = bytearray(content)
        changed[dice.choice([dice.randrange(100), dice.randrange(len(content))])] = dice.randrange(256)
        return bytes(changed)

    yield Target(name="the store's database", suffix=".db", samples=(content,), parse=database.is_whole, mutate=pages)
