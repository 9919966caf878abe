"""MLflow itself, imported late (it takes seconds), with our settings."""

from __future__ import annotations

import logging
import os
from typing import Any


def import_mlflow() -> Any:
    """Import MLflow with bounded waits, quiet, and without telemetry."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    # A request whose answer was lost may have been done: repeating it blindly would make a run twice. Whoever repeats
    # one here asks the store first what it has.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    # "View run … at http://user:password@…" on standard output, which belongs to our own JSON.
    os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"
    import mlflow

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    # It prints a traceback of every error that it then raises, which we report ourselves.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    return mlflow


def import_mlflow_pytorch() -> Any:
    """Import MLflow's module for torch, and leave logging as it is.

    On its way, that module has the root logger write errors alone, ours and everybody else's.
    """
    import_mlflow()
    handlers, level = list(logging.root.handlers), logging.root.level
    try:
        import mlflow.pytorch
    finally:
        logging.root.handlers[:] = handlers
        logging.root.setLevel(level)
    return mlflow.pytorch
