"""Old name of `wsl_toolkit.own_data.serving`, which MLflow models saved by version 0.1 ask for; goes in release 1.0."""

from __future__ import annotations

from wsl_toolkit.own_data.serving import _load_pyfunc

__all__ = ["_load_pyfunc"]
