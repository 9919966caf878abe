"""What the tests and a `wsl run` import on their way, imported once for all processes that are forked from here.

Not `wsl_toolkit.testing`, nor the tests: pytest rewrites what they assert as it imports them.
"""

from __future__ import annotations

import importlib
import pkgutil

MODULES = (
    "alembic.autogenerate",
    "copier",
    "git",
    "h5py",
    "hypothesis.extra.numpy",
    "matplotlib.pyplot",
    "mlflow.data.code_dataset_source",
    "mlflow.data.meta_dataset",
    "mlflow.models",
    "mlflow.pyfunc",
    "mlflow.store.artifact.local_artifact_repo",
    "mlflow.store.tracking.sqlalchemy_store",
    "mlflow.tracking.client",
    "networkx",
    "openpyxl",
    "optuna",
    "pandas",
    "pytest",
    "scipy.stats",
    "sklearn.datasets",
    "sklearn.model_selection",
    "sklearn.utils.estimator_checks",
    "torch._dynamo",
    "torch._inductor",
    "torch.export",
    "torch.export.pt2_archive",
    "torch.onnx",
    "torchvision",
    "wsl_builtins",
    "wsl_methods",
)
PACKAGES = ("api", "cli", "data", "labels", "own_data", "plugins", "runs", "studies", "system", "theory", "training")

for _name in MODULES:
    importlib.import_module(_name)

import wsl_toolkit  # noqa: E402

for _place in wsl_toolkit.__path__:
    for _package in PACKAGES:
        for _found in pkgutil.iter_modules([f"{_place}/{_package}"], f"wsl_toolkit.{_package}."):
            if not _found.ispkg and not _found.name.endswith("__main__"):
                importlib.import_module(_found.name)

import torch  # noqa: E402
from mlflow.utils import requirements_utils  # noqa: E402

from wsl_toolkit.runs.tracking.library import import_mlflow_pytorch  # noqa: E402
from wsl_toolkit.training.optimisers import make_optimizer  # noqa: E402

import_mlflow_pytorch()

# Two slow things that are remembered once done: which package a module is of, and torch's first optimiser.
requirements_utils._init_packages_to_modules_map()
make_optimizer("sgd", [torch.nn.Parameter(torch.zeros(1))], 0.1)
