"""Files that the toolkit writes and reads again, sound and wrong: a failing disk may have changed any of them."""

from __future__ import annotations

import hashlib
import io
import json
import random
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import mutations
import numpy as np
import torch
from fuzz_user_files import CONFIG, STUDY, small_data
from fuzzing import Target

from wsl_builtins.generators.matrices import read_matrix
from wsl_toolkit.data.table_schema import TableSchema
from wsl_toolkit.errors import ConfigError
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.own_data.model_file import Model
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.runs.folder import RunFolder, children_of, damaged_records, dead_folders, find_folder
from wsl_toolkit.runs.runner import interrupted
from wsl_toolkit.runs.tracked_trial import finished_trial
from wsl_toolkit.runs.tracking import run_folders
from wsl_toolkit.studies.jobs import Job, JobResult
from wsl_toolkit.studies.started_tasks import StartedTasks
from wsl_toolkit.studies.store import StudyFolder
from wsl_toolkit.system.json_files import sealed, unsealed
from wsl_toolkit.system.kept_choices import KeptChoices
from wsl_toolkit.training import checkpoints


def targets(folder: Path) -> Iterator[Target]:
    """Everything that a run, a fit and a study leave on disk."""
    yield from _own_formats(folder)
    yield from _own_records(folder)


def _own_formats(folder: Path) -> Iterator[Target]:
    path = folder / "candidates.safetensors"
    small_data(names=True).candidates.save(path)  # type: ignore[union-attr]
    yield Target(
        name="candidate sets",
        suffix=".safetensors",
        samples=(path.read_bytes(),),
        parse=CandidateSets.load,
        mutate=_mutate_safetensors(path),
    )
    kept = checkpoints.Checkpoints(folder / "checkpoints")
    state = {"format": 1, "epoch": 3, "trainer": {"model": {"w": torch.arange(6.0)}}, "records": [{"a": 0.5}]}
    yield Target(
        name="checkpoint",
        suffix=".pt",
        samples=(kept.save(checkpoints.Place(epoch=3), state).read_bytes(),),
        parse=_read_checkpoint,
        mutate=lambda dice: mutations.as_checkpoint(dice, state),
    )
    for suffix, content in ((".csv", b"0.1,0.9\n0.5,0.5\n"), (".npy", _npy())):
        yield Target(
            name=f"matrix {suffix}",
            suffix=suffix,
            samples=(content,),
            parse=lambda path: read_matrix(path, "matrix"),
            mutate=lambda dice, csv=suffix == ".csv", content=content: (
                mutations.as_text(dice, content.decode()) if csv else mutations.as_npy(dice, np.eye(3))
            ),
        )
    registry = load_plugins().registry
    yield Target(
        name="partitions",
        suffix=".txt",
        samples=(b"0 1 | 2-4 | 5\n0 | 1-5\n", b"0 1 2 | 3"),
        parse=lambda path: registry.create("generator", "partition", {"partitions": f"@{path}"}),
        mutate=lambda dice: mutations.as_text(dice, "0 1 | 2-4 | 5\n0 | 1-5\n"),
    )
    line = {"epoch": 1, "metrics": {"train/risk": 0.5}, "seconds": 0.1, "time": 5}
    yield Target(
        name="records",
        suffix=".jsonl",
        samples=((json.dumps(line) + "\n").encode() * 3,),
        parse=_read_records,
        mutate=lambda dice: b"\n".join(mutations.sealed_json(dice, line) for _ in range(3)),
    )
    schema = (
        '{"columns": [{"name": "a", "categories": null}, {"name": "b", "categories": ["x", "y"]}], "missing": ["?"]}'
    )
    yield Target(
        name="schema",
        suffix=".json",
        samples=(schema.encode(),),
        parse=lambda path: TableSchema.from_json(path.read_bytes().decode("utf-8", "replace")),
        mutate=lambda dice: mutations.as_json(dice, json.loads(schema)),
    )


def _mutate_safetensors(path: Path) -> Callable[[random.Random], bytes]:
    from safetensors import safe_open

    from wsl_toolkit.own_data import model_file

    with safe_open(str(path), framework="pt") as file:
        # The library gives its header in another order each time.
        meta = dict(sorted(file.metadata().items()))
        tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}

    def seal(header: dict[str, str], values: dict[str, torch.Tensor]) -> dict[str, str]:
        if model_file.TEXT not in header:
            return header
        return {**header, model_file.CHECKSUM: model_file.checksum(header[model_file.TEXT], values)}

    return lambda dice: mutations.as_safetensors(dice, tensors, meta, seal)


def _own_records(folder: Path) -> Iterator[Target]:
    """What the toolkit wrote itself, and reads again after a failing disk."""
    registry = load_plugins().registry
    for name, made in (("model", _linear()), ("model that is an average", _average())):
        model = folder / f"{name}.safetensors"
        made.save(model)
        yield Target(
            name=name,
            suffix=".safetensors",
            samples=(model.read_bytes(),),
            parse=lambda path: Model.load(path, registry).probabilities(torch.zeros(2, 4)),
            mutate=_mutate_safetensors(model),
        )
    facts = {
        "name": "one", "params": {"seed": 0}, "tags": {"a": "b"}, "status": "KILLED", "started": 5, "message": "gone",
        "inputs": [{"name": "digits", "digest": "0", "context": "training"}], "parent": "two",
        "experiment": "wsl-digits", "delivered": False, "local_id": "offline-1",
        "codes": [{"wsl-toolkit": "0.1.0"}],
        "summary": {"time": 5, "step": 3, "values": {"test/accuracy": 0.5}},
    }  # fmt: skip
    process = {"host": "here", "boot": "1", "pid": 5, "began": "7", "locks": True}
    result = {"seed": 0, "epochs": 0, "seconds": 1.5, "candidates": {"hash": "0", "mean_size": 2.5}}
    for name, values in (("run.json", facts), ("process.json", process), ("result.json", result)):
        yield Target(
            name=name,
            suffix=".json",
            samples=(json.dumps(values, indent=1).encode(), sealed(values, indent=1).encode()),
            parse=lambda path, name=name: _read_run_folder(path, name, facts),
            mutate=lambda dice, values=values: mutations.sealed_json(dice, values),
        )
    kept = {"choices": {"0" * 32: {"threads": 2, "prefetch": False, "chunk": 0, "about": "PPL, 1 model(s)"}}}
    yield Target(
        name="plans.json",
        suffix=".json",
        samples=(sealed(kept, indent=1).encode(),),
        parse=_read_plans,
        mutate=lambda dice: mutations.sealed_json(dice, kept),
    )
    yield Target(
        name="a run's config.toml",
        suffix=".toml",
        samples=(CONFIG.encode(),),
        parse=lambda path: _read_run_folder(path, "config.toml", facts),
        mutate=lambda dice: mutations.as_toml(dice, tomllib.loads(CONFIG)),
    )
    yield from _study_files()


def _read_plans(path: Path) -> None:
    """Read what was kept; a damaged file is said, and what it held is kept anew."""
    said: list[str] = []
    with tempfile.TemporaryDirectory() as folder:  # the file of a lock stays beside it
        copied = Path(shutil.copy(path, folder))
        if KeptChoices(copied, said.append).find("0" * 32) is None:
            KeptChoices(copied).keep("0" * 32, {"threads": 1, "prefetch": True, "chunk": 0})
            assert KeptChoices(copied).find("0" * 32) is not None
    if said:
        raise ConfigError(said[0])


def _study_files() -> Iterator[Target]:
    job = Job(purpose="trial", config={"seed": 0, "dataset": {"name": "digits"}})
    result = JobResult(job=job, status="finished", history={"train/risk": [0.5, 0.25]}, best_epoch=1).to_json()
    yield Target(
        name="study result",
        suffix=".json",
        samples=(result.encode(),),
        parse=lambda path: _read_result(path, job),
        mutate=lambda dice: mutations.sealed_json(dice, unsealed(json.loads(result))),
    )
    for name, values in (
        ("data.json", {"digits": "0123"}),
        ("held-out.json", {"digits": 5}),
        ("tasks/one.json", [job.to_dict(), job.to_dict()]),
    ):
        yield Target(
            name=f"a study's {name}",
            suffix=".json",
            samples=(json.dumps(values).encode(),),
            parse=lambda path, name=name: _read_study_folder(path, name),
            mutate=lambda dice, values=values: mutations.as_json(dice, values),
        )
    yield Target(
        name="a study's study.toml",
        suffix=".toml",
        samples=(STUDY.encode(),),
        parse=lambda path: _read_study_folder(path, "study.toml"),
        mutate=lambda dice: mutations.as_toml(dice, tomllib.loads(STUDY)),
    )


def _linear() -> Model:
    from wsl_toolkit.own_data import fitting, model_file

    options, fitted = _fitted(epochs=1, lr=0.1, weight_decay=0.0)
    return model_file.model_from(fitted, small_data(names=True), fitting.describe(options, fitted))


def _average() -> Model:
    """A linear model and trees, as `wsl fit` puts them together."""
    from wsl_toolkit.own_data import fitting, model_file, trees
    from wsl_toolkit.own_data.averaging import AverageChoice, Part

    options, line = _fitted(epochs=1, lr=0.1, weight_decay=0.0)
    _, forest = _fitted(backbone=(trees.NAME, {}), budget="quick")
    parts = [Part(choice=each.choice, weight=share, temperature=1.5) for each, share in ((line, 0.75), (forest, 0.25))]
    choice = AverageChoice(parts=tuple(parts))
    whole = attrs.evolve(line, choice=choice, network=choice.network([[line.network], [forest.network]]))
    return model_file.model_from(whole, small_data(names=True), fitting.describe(options, whole))


def _fitted(**chosen: Any) -> tuple[Any, Any]:
    """Options and what they came to on the small data."""
    from wsl_toolkit.own_data import fitting

    registry = load_plugins().registry
    options = fitting.options_for(registry, estimator=("cc", {}), **chosen)
    return options, fitting.fit(small_data(names=True), registry, options, torch.arange(9))


def _read_run_folder(path: Path, name: str, facts: dict[str, Any]) -> Any:
    """Read a run's folder, one of whose files is damaged, as `wsl run --resume`, `sync`, `ui` and `doctor` do."""
    home = path.parent / "fuzz"
    shutil.rmtree(home, ignore_errors=True)
    place = home / "runs" / "one"
    place.mkdir(parents=True)
    (place / "run.json").write_text(sealed(facts))
    path.rename(place / name)
    list(damaged_records(home))
    list(dead_folders(home))
    for waiting in run_folders.waiting(home):
        run_folders.entry_of(waiting)
    folder = find_folder(home, "one")
    children_of(RunFolder(home, "two"))
    run_folders.entry_of(folder)
    finished_trial(folder, 0)
    folder.is_dead()
    if name == "config.toml":
        return interrupted(folder, load_plugins().registry)
    return folder


def _read_result(path: Path, job: Job) -> Any:
    """A damaged result counts as none, and is set aside."""
    folder = StudyFolder(path.parent, "fuzz")
    folder.create()
    path.rename(folder.result_path(job.id))
    found = folder.read_result(job.id)
    return None if found is None else (found.final, found.to_json())


def _read_study_folder(path: Path, name: str) -> Any:
    """Read a study's folder, one of whose files is damaged, as `wsl study resume` and `status` do."""
    folder = StudyFolder(path.parent, "small")
    folder.create()
    (folder.path / "tasks").mkdir(exist_ok=True)
    (folder.path / "study.toml").write_text(STUDY)
    path.rename(folder.path / name)
    try:
        folder.read_study()
        folder.data_digests()
        folder.held_out()
        for jobs in StartedTasks(folder.path / "tasks", folder.jobs / "checkpoints").all():
            [job.id for job in jobs]
    finally:
        shutil.rmtree(folder.path)


def _npy() -> bytes:
    file = io.BytesIO()
    np.save(file, np.eye(3))
    return file.getvalue()


def _read_checkpoint(path: Path) -> Any:
    """Read damaged content under a name with its true checksum, so that the damage reaches torch's own reader."""
    named = path.with_name(f"epoch-00000003-step-00000000.{hashlib.sha256(path.read_bytes()).hexdigest()}.pt")
    path.rename(named)
    try:
        return checkpoints.read(named)
    finally:
        named.unlink()


def _read_records(path: Path) -> Any:
    folder = RunFolder(path.parent, "fuzz")
    path.rename(folder.path / "records.jsonl")
    return folder.records()
