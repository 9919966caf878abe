"""Old name of `wsl_toolkit.data.formats`, which plugins written for version 0.1 import; goes in release 1.0."""

from __future__ import annotations

import sys

from wsl_toolkit.data.formats import mat_files, paths, readers

__path__: list[str] = []  # so that `wsl_toolkit.formats.paths` can be imported; the modules themselves are the new ones
for _module in (mat_files, paths, readers):
    sys.modules[f"{__name__}.{_module.__name__.rpartition('.')[2]}"] = _module
