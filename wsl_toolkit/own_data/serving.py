"""A model as an MLflow folder: `mlflow models serve` answers raw rows, `mlflow.pyfunc` loads it, nothing is pickled.

MLflow finds this module by its name in the folder's MLmodel file and calls `_load_pyfunc`.
"""

from __future__ import annotations

import datetime
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import torch
from torch import Tensor

from wsl_toolkit.data.table_columns import WRITTEN, Column, DateColumn, WordColumn
from wsl_toolkit.errors import ConfigError, DataError, TrackingError, one_line
from wsl_toolkit.own_data.model_file import Model
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.system.files import replacing_folder
from wsl_toolkit.system.output_paths import check_place
from wsl_toolkit.version import __version__

if TYPE_CHECKING:
    import pandas as pd

    from wsl_toolkit.own_data.fit_record import FitRecord
    from wsl_toolkit.runs.tracking.store import Tracker

WEIGHTS = "model.safetensors"
LABEL, PROBABILITY = "label", "probability"
LOADER = "wsl_toolkit.own_data.serving"
LOADERS = (LOADER, "wsl_toolkit.serving")
"""What MLflow imports to load a model, in models of this release and of older ones."""

FILES = frozenset(
    {
        "MLmodel",
        "conda.yaml",
        "python_env.yaml",
        "requirements.txt",
        "input_example.json",
        "serving_input_example.json",
        f"data/{WEIGHTS}",
        WEIGHTS,
    }
)
"""All that a model's folder holds; what else lies in one is somebody's, and nothing is written over it."""


def find_weights(folder: Path) -> Path:
    """Return the weight file of a model: the folder that `wsl fit` wrote, or the file itself."""
    if folder.is_file():
        return folder
    for found in (folder / "data" / WEIGHTS, folder / WEIGHTS):
        if found.is_file():
            return found
    what = "has no model in it" if folder.is_dir() else "does not exist"
    raise DataError(f"{folder} {what}: give the folder that `wsl fit --out` wrote")


def check_free(folder: Path, inputs: Iterable[Path] = (), *, force: bool = False) -> None:
    """Refuse, before any work, to write a model over anything but an empty folder or, with `force`, another model."""
    check_place(folder, inputs)
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ConfigError(f"{folder} exists and is not a model: choose another --out")
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
    if not files:
        return
    if not _is_model(folder):
        raise ConfigError(f"{folder} exists and is not a model that `wsl fit` wrote: choose another --out")
    others = sorted(files - FILES)
    if others:
        raise ConfigError(
            f"{folder} holds more than a model, which would be lost: {', '.join(others[:5])}; choose another --out"
        )
    if not force:
        raise ConfigError(f"{folder} holds a model already: --force replaces it, or choose another --out")


def _is_model(folder: Path) -> bool:
    """Return whether a folder holds a model that names this module as what loads it."""
    try:
        lines = (folder / "MLmodel").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return False
    return any(line.strip() == f"loader_module: {name}" for line in lines for name in LOADERS)


def write_folder(model: Model, folder: Path, example: Any, *, force: bool = False) -> None:
    """Write weights, signature, input example and requirements; readers see the old folder or the new one."""
    from wsl_toolkit.runs.tracking.library import import_mlflow

    mlflow = import_mlflow()
    check_free(folder, force=force)
    try:
        with replacing_folder(folder.resolve()) as made, tempfile.TemporaryDirectory() as work:
            weights = Path(work) / WEIGHTS
            model.save(weights)
            mlflow.pyfunc.save_model(path=str(made), **_pyfunc(model, weights, example))
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {one_line(error)}") from None


def requirements() -> list[str]:
    """Return what a server needs: this toolkit brings the rest."""
    return [f"wsl-toolkit=={__version__}", f"torch=={torch.__version__.split('+')[0]}"]


def raw_rows(model: Model, x: Tensor) -> Any:
    """Return raw inputs as a user has them: a data frame of a table's columns, or an array."""
    if model.schema is None:
        return x.numpy()
    import pandas as pd

    columns = model.schema.decode(x)
    # Missing texts as None and missing numbers as NaN, so that each column keeps one type.
    frame = {
        column.name: columns[column.name].to_numpy(zero_copy_only=False)
        if _is_number(column)
        else np.array([None if value is None else str(value) for value in columns[column.name].to_pylist()], object)
        for column in model.schema.columns
    }
    return pd.DataFrame(frame)


def made_up_rows(model: Model) -> Any:
    """Return an example of what the model takes that is nobody's row: of the right types, and nothing else."""
    if model.schema is None:
        return np.zeros((1, *model.input_shape), dtype=model.about.get("input_dtype", "float64"))
    import pandas as pd

    return pd.DataFrame({column.name: [_made_up(column)] for column in reversed(model.schema.columns)}).loc[
        :, model.schema.names
    ]


def _made_up(column: Column) -> Any:
    if isinstance(column, DateColumn):
        return datetime.date(2000, 1, 1).strftime(WRITTEN[column.written])
    if isinstance(column, WordColumn):
        return "some words"
    if _is_number(column):
        return 0.0
    return column.categories[0] if column.categories else ""


def _is_number(column: Column) -> bool:
    return type(column) is Column and column.categories is None


def signature(model: Model) -> Any:
    """Return MLflow's signature: raw columns (or an array) in; label, its probability, one column a class out.

    Every column must be there, and of any type: MLflow would refuse whole numbers where others were learned from, and
    numbers where categories are written as such. What a column cannot hold is refused with its row by the schema.
    """
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema, TensorSpec
    from mlflow.types.schema import AnyType

    outputs = Schema(
        [ColSpec("string", LABEL), ColSpec("double", PROBABILITY)]
        + [ColSpec("double", name) for name in class_columns(model)]
    )
    if model.schema is None:
        kind = np.dtype(model.about.get("input_dtype", "float64"))
        return ModelSignature(Schema([TensorSpec(kind, (-1, *model.input_shape))]), outputs)
    return ModelSignature(Schema([ColSpec(AnyType(), name) for name in model.schema.names]), outputs)


def class_columns(model: Model) -> list[str]:
    """Return the names of the probability columns, 'p(<class>)'."""
    return [f"p({name})" for name in model.class_names]


def predictions(model: Model, probabilities: Tensor) -> pd.DataFrame:
    """Return label, its probability, and the probability of every class, as a data frame."""
    import pandas as pd

    best, place = probabilities.max(1)
    frame = {LABEL: np.array(model.class_names, dtype=object)[place.numpy()], PROBABILITY: best.double().numpy()}
    columns = dict(zip(class_columns(model), probabilities.double().numpy().T, strict=True))
    return pd.DataFrame({**frame, **columns})


@attrs.frozen
class ServedModel:
    """What MLflow calls: `predict` on a data frame of raw rows or an array of raw inputs."""

    model: Model

    def predict(self, data: Any, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Return the predictions of raw rows."""
        return predictions(self.model, self.model.probabilities(self._inputs(data)))

    def _inputs(self, data: Any) -> Tensor:
        if self.model.schema is None:
            values = data.to_numpy() if hasattr(data, "to_numpy") else np.asarray(data)
            return torch.from_numpy(np.ascontiguousarray(values)).reshape(len(values), *self.model.input_shape)
        import pyarrow as pa

        return self.model.schema.encode(pa.Table.from_pandas(data, preserve_index=False))


def _load_pyfunc(path: str) -> ServedModel:
    """Load the model for MLflow; `path` is the weight file, or the folder that holds it."""
    return ServedModel(Model.load(find_weights(Path(path)), load_plugins().registry))


def record_fit(tracker: Tracker, record: FitRecord, example: Any, data_name: str, digest: str) -> str:
    """Leave a fit's record in a run folder, the model that serves with it, and deliver it to MLflow from there."""
    from wsl_toolkit.plugins.code_identity import provenance
    from wsl_toolkit.runs.folder import FINISHED, RunFolder
    from wsl_toolkit.runs.tracking.library import import_mlflow
    from wsl_toolkit.runs.tracking.outbox import MODEL
    from wsl_toolkit.runs.tracking.run_folders import UNDELIVERED
    from wsl_toolkit.runs.tracking.runs_table import table_numbers, table_tags
    from wsl_toolkit.runs.tracking.tracked_run import TrackedRun
    from wsl_toolkit.system import environment

    model = record.model
    about, held_out = model.about, model.about["held_out"]
    params = {f"{role}.{key}": value for role in ("estimator", "backbone") for key, value in about[role].items()}
    names = ("covering_rate", "approximated_accuracy", "set_log_loss", "calibration_error", "calibration_error_before")
    found = {f"held_out/{name}": held_out[name] for name in names if held_out.get(name) is not None}
    found |= {"temperature": model.temperature, "seconds": record.seconds}
    if held_out["accuracy"] is not None:
        found["test/accuracy"] = held_out["accuracy"]
    found |= table_numbers([{**found, "validation/covering_rate": held_out["covering_rate"]}])
    used = {"dataset": data_name, **{role: about[role]["name"] for role in ("estimator", "backbone")}}
    name = f"{about['estimator']['name']} | {data_name} | {about['backbone']['name']}"
    folder = RunFolder.new(tracker.home)
    folder.enter()
    now = int(time.time() * 1000)
    folder.note(
        name=name,
        params={key: str(value) for key, value in {**params, **about["training"]}.items()},
        tags={
            **environment.tags(),
            **provenance(about.get("code", {})),
            "wsl.data_digest": digest,
            **table_tags({role: (name, {}) for role, name in used.items()}),
        },
        description=record.description,
        inputs=[{"name": data_name, "digest": digest, "context": "training"}],
        summary={"time": now, "step": 0, "values": found},
        started=now,
        experiment=tracker.experiment,
        store=tracker.label,
    )
    waiting = folder.path / UNDELIVERED
    waiting.mkdir()
    with tempfile.TemporaryDirectory(dir=folder.path) as name:
        work = Path(name)
        model.save(work / WEIGHTS)
        import_mlflow().pyfunc.save_model(path=str(work / MODEL), **_pyfunc(model, work / WEIGHTS, example))
        (work / MODEL).rename(waiting / MODEL)
    record.write(waiting)
    folder.write_result({"held_out": held_out})
    tracked = TrackedRun(tracker, folder)
    tracked.finish(FINISHED)
    if tracked.warning:
        raise TrackingError(f"the model is written, but {tracked.warning}")
    return tracked.run_id


def _pyfunc(model: Model, weights: Path, example: Any) -> dict[str, Any]:
    """Return what MLflow needs to know of a model, wherever it is written."""
    return {
        "loader_module": LOADER,
        "data_path": str(weights),
        "signature": signature(model),
        "input_example": example,
        "pip_requirements": requirements(),
    }
