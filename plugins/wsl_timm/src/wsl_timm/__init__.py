"""Any image classifier of timm as a backbone."""

from __future__ import annotations

from wsl_timm.backbone import Timm
from wsl_toolkit import hookimpl

WSL_API = "1.0"


@hookimpl
def wsl_register_backbones() -> list[type[Timm]]:
    """Return the backbone."""
    return [Timm]
