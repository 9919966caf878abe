"""What a run ran on: versions, device, threads, as tags."""

from __future__ import annotations

import platform
from importlib import metadata

from wsl_toolkit.version import __version__


def versions() -> str:
    """Return what must be the same on every machine that works on one run."""
    return f"wsl-toolkit {__version__}, torch {metadata.version('torch')}"


def tags() -> dict[str, str]:
    """Return the environment as MLflow tags."""
    import torch

    return {
        "wsl.version": __version__,
        "wsl.python": platform.python_version(),
        "wsl.torch": metadata.version("torch"),
        "wsl.platform": f"{platform.system()} {platform.machine()}",
        "wsl.threads": str(torch.get_num_threads()),
    }
