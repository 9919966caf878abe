"""Data that was given as a Python object: a run knows it by its content, and nothing can load it by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_toolkit.components import Dataset
from wsl_toolkit.errors import DataError
from wsl_toolkit.parameters import param

if TYPE_CHECKING:
    from wsl_toolkit.data.dataset import Data


@attrs.frozen(kw_only=True)
class Given(Dataset):
    """Data that was given to `wsl_toolkit.train` as an object, and that only Python can give again."""

    name: ClassVar[str] = "given-in-python"

    title: str = param(help="what the data is called")
    digest: str = param(help="SHA-256 of its content")

    def load(self, data_dir: Path) -> Data:
        """Refuse: there is no file to read."""
        raise DataError(
            f"the data {self.title!r} was given as a Python object, which cannot be loaded: give it again, as in "
            "wsl_toolkit.resume(run_id, data=…) or wsl_toolkit.load_run(run_id, data=…)"
        )
