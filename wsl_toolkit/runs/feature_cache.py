"""Features on disk: one file for each network and each set of inputs, known by all that decides them."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import torch
from torch import Tensor

from wsl_toolkit.errors import one_line
from wsl_toolkit.system.files import remove_remains, replacing
from wsl_toolkit.system.json_files import parse_json

log = logging.getLogger("wsl_toolkit")

FORMAT = "wsl features 1"
FOLDER = "features"
"""Below the workspace."""
MOST_HEADER = 2**20
LATEST = 2.0**33
"""No file was made later, in seconds since 1970."""


@attrs.frozen(kw_only=True)
class Kept:
    """What a file of features says of itself."""

    key: str
    path: Path
    bytes: int
    data: str
    """What the data is called."""
    network: str
    """What made the features."""
    examples: int
    width: int
    made_at: float
    """Seconds since 1970."""

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {**attrs.asdict(self), "path": str(self.path)}


@attrs.frozen
class FeatureCache:
    """Files of features in one folder."""

    folder: Path
    reads: bool = attrs.field(default=True, kw_only=True)
    writes: bool = attrs.field(default=True, kw_only=True)
    """Whether new ones are kept."""

    def path(self, key: str) -> Path:
        """Return where the features of a key are kept."""
        return self.folder / f"{key[:32]}.safetensors"

    def get(self, key: str, examples: int, tests: int | None) -> tuple[Tensor, Tensor | None] | None:
        """Return features of so many examples and test examples that are there and sound, else None.

        A cache is never worth an error.
        """
        from safetensors import SafetensorError, safe_open

        if not self.reads:
            return None
        try:
            with safe_open(str(self.path(key)), framework="pt") as file:
                said = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError):
            return None
        wanted = {"x": examples} | ({} if tests is None else {"test_x": tests})
        fits = wanted.keys() == tensors.keys() and all(
            each.ndim == 2 and len(each) == wanted[name] and each.dtype == torch.float32
            for name, each in tensors.items()
        )
        if not fits or said.get("key") != key or said.get("sha256") != tensors_digest(tensors):
            log.warning("the features in %s are damaged, and are computed again", self.path(key))
            return None
        return tensors["x"], tensors.get("test_x")

    def put(self, key: str, x: Tensor, test_x: Tensor | None, *, data: str, network: str) -> None:
        """Keep features, atomically; a disk that is full or read-only is said, and stops nothing."""
        from safetensors.torch import save_file

        if not self.writes:
            return
        tensors = {"x": x.contiguous()} | ({} if test_x is None else {"test_x": test_x.contiguous()})
        about = {"data": data, "network": network, "examples": sum(map(len, tensors.values())), "width": x.shape[1]}
        said = {"format": FORMAT, "key": key, "sha256": tensors_digest(tensors)}
        said["about"] = json.dumps({**about, "made_at": time.time()})
        try:
            remove_remains(self.folder)
            with replacing(self.path(key)) as temporary:
                save_file(tensors, temporary, metadata=said)
        except OSError as error:
            log.warning("features are not kept in %s: %s", self.folder, one_line(error))

    def kept(self) -> list[Kept]:
        """Return what is there, newest first; files that are no features are left out."""
        found = [_described(path) for path in sorted(self.folder.glob("*.safetensors"))]
        return sorted(filter(None, found), key=lambda each: -each.made_at)


def _described(path: Path) -> Kept | None:
    """Read the header of a file, and not what it holds."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > MOST_HEADER:
                return None
            said = parse_json(file.read(length).decode())["__metadata__"]
        if said["format"] != FORMAT:
            return None
        kept = Kept(key=said["key"], path=path, bytes=path.stat().st_size, **parse_json(said["about"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return kept if _is_sound(kept) else None


def _is_sound(kept: Kept) -> bool:
    """Return whether what a header says is what it should be, so that it can be shown."""
    texts, counts = (kept.key, kept.data, kept.network), (kept.examples, kept.width)
    return (
        all(isinstance(text, str) for text in texts)
        and all(type(count) is int and count >= 0 for count in counts)
        and type(kept.made_at) in (int, float)
        and 0 <= kept.made_at < LATEST
    )


def tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    """Return a SHA-256 of tensors and their names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.contiguous().numpy().data)
    return digest.hexdigest()
