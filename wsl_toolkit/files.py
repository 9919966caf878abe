"""Old name of `wsl_toolkit.system.files`, which plugins written for version 0.1 import; goes in release 1.0."""

from __future__ import annotations

from wsl_toolkit.system.files import replacing, write_atomically

__all__ = ["replacing", "write_atomically"]
