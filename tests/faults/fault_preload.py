"""Everything that a `wsl run` imports on its way, imported once for all processes that are forked from here."""

from __future__ import annotations

import importlib

MODULES = (
    "alembic.autogenerate",
    "git",
    "matplotlib.pyplot",
    "mlflow.data.code_dataset_source",
    "mlflow.data.meta_dataset",
    "mlflow.models",
    "mlflow.pyfunc",
    "mlflow.pytorch",
    "mlflow.store.artifact.local_artifact_repo",
    "mlflow.store.tracking.sqlalchemy_store",
    "mlflow.tracking.client",
    "networkx",
    "sklearn.datasets",
    "torch._dynamo",
    "torch._inductor",
    "torch.export",
    "torch.export.pt2_archive",
    "torch.onnx",
    "wsl_builtins",
    "wsl_toolkit.cli.progress",
    "wsl_toolkit.cli.run",
    "wsl_toolkit.cli.sync",
    "wsl_toolkit.runs.curves",
    "wsl_toolkit.runs.runner",
)

for _name in MODULES:
    importlib.import_module(_name)

import torch  # noqa: E402
from mlflow.utils import requirements_utils  # noqa: E402

from wsl_toolkit.training.optimisers import make_optimizer  # noqa: E402

# Two slow things that are remembered once done: which package a module is of, and torch's first optimiser.
requirements_utils._init_packages_to_modules_map()
make_optimizer("sgd", [torch.nn.Parameter(torch.zeros(1))], 0.1)
