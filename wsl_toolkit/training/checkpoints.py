"""Checkpoints that can be trusted: written whole or not at all, checked by their name, read without running code.

A checkpoint is an ordinary `torch.save` file, called `epoch-00000012-step-00000000.<sha256>.pt`. The checksum is in
the name, so that one rename publishes content and checksum together. The last two are kept: should the newest be
damaged on disk, the one before serves.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import attrs

from wsl_toolkit.errors import CheckpointError, ResourceError, one_line

KEPT = 2
SECONDS_APART = 30.0
SHARE_OF_TIME = 0.02
"""Unless asked otherwise, checkpoints are this far apart at least, and take no more than this share of the time."""

_NAME = re.compile(r"epoch-(\d{8})-step-(\d{8})\.([0-9a-f]{64})\.pt")
_LITTER = ".writing-"


@attrs.frozen(kw_only=True)
class Place:
    """How far training had come."""

    epoch: int
    step: int = 0

    def __str__(self) -> str:
        return f"epoch {self.epoch}" + (f", step {self.step}" if self.step else "")


class Checkpoints:
    """The checkpoints of one trial, in a directory of their own."""

    def __init__(self, folder: Path, *, every: int | None = None, note: Callable[[str], None] = print) -> None:
        self.folder = folder
        self.every = every
        self.note = note
        self._saved_at = time.monotonic()
        self._cost = 0.0

    def is_due(self, epoch: int, models: int = 1) -> bool:
        """Return whether a checkpoint is to be written after this epoch, of as many `models` as train together."""
        if self.every is not None:
            return epoch % self.every == 0
        return time.monotonic() - self._saved_at >= max(SECONDS_APART, models * self._cost / SHARE_OF_TIME)

    def save(self, place: Place, state: Mapping[str, Any]) -> Path:
        """Write a checkpoint, then remove all but the last two."""
        start = time.monotonic()
        stem = f"epoch-{place.epoch:08}-step-{place.step:08}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            path = _write(self.folder, stem, dict(state))
        except OSError as error:
            raise ResourceError(
                f"the checkpoint of {place} cannot be written to {self.folder} ({error.strerror or error}): make room, "
                f"then go on with wsl run --resume {self.folder.parent.name}"
            ) from None
        for old in [*self._files()[KEPT:], *self.folder.glob(f"{_LITTER}*")]:
            with contextlib.suppress(OSError):
                old.unlink()
        self._saved_at = time.monotonic()
        self._cost = self._saved_at - start
        return path

    def keep_only(self, path: Path) -> None:
        """Remove all checkpoints but one: a finished run is not resumed from the middle."""
        for old in self._files():
            if old != path:
                with contextlib.suppress(OSError):
                    old.unlink()

    def discard(self) -> None:
        """Remove all checkpoints: what they were for is done."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def places(self) -> set[Place]:
        """Return the places of all checkpoints, whole or not."""
        return {place_of(path) for path in self._files()}

    def newest(self, at: Place | None = None) -> dict[str, Any] | None:
        """Return the newest checkpoint that is whole, or the one `at` a place; say which ones were not whole."""
        files = [path for path in self._files() if at is None or place_of(path) == at]
        for path in files:
            try:
                return read(path)
            except CheckpointError as error:
                self.note(f"{error}; " + ("going back to the one before" if path != files[-1] else "starting afresh"))
        return None

    def _files(self) -> list[Path]:
        """Return the checkpoints, newest first."""
        found = [path for path in self.folder.glob("epoch-*.pt") if _NAME.fullmatch(path.name)]
        # Of two of the same place the later one counts: it was written by a run that resumed from before it.
        return sorted(found, key=lambda path: (path.name.split(".")[0], path.stat().st_mtime_ns), reverse=True)


def place_of(path: Path) -> Place:
    """Return the place that a checkpoint's name tells."""
    match = _NAME.fullmatch(path.name)
    assert match is not None
    return Place(epoch=int(match[1]), step=int(match[2]))


def read(path: Path) -> dict[str, Any]:
    """Read one checkpoint; a file that is not what its name promises is refused before torch looks at it."""
    import torch

    match = _NAME.fullmatch(path.name)
    if match is None:
        raise CheckpointError(f"{path} is not named like a checkpoint")
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != match[3]:
            raise CheckpointError(f"checkpoint {path} is damaged: its content does not match its checksum")
        state = torch.load(path, map_location="cpu", weights_only=True)
    except CheckpointError:
        raise
    # Forged content with a true checksum can make torch's reader fail in every way, but not run code.
    except Exception as error:
        raise CheckpointError(f"checkpoint {path} cannot be read: {one_line(error)[:200]}") from None
    if not isinstance(state, dict):
        raise CheckpointError(f"checkpoint {path} cannot be read: it holds no run")
    return state


class _Hashing:
    """A file that remembers the SHA-256 of what went into it."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.digest = hashlib.sha256()
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        self.digest.update(data)
        try:
            return self.file.write(data)
        except OSError as error:
            self.error = error  # torch would turn it into a RuntimeError about its own insides
            raise

    def flush(self) -> None:
        self.file.flush()


def _write(folder: Path, stem: str, state: dict[str, Any]) -> Path:
    import torch

    handle, name = tempfile.mkstemp(dir=folder, prefix=_LITTER)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            hashing = _Hashing(file)
            try:
                torch.save(state, hashing)  # type: ignore[arg-type]  # all that it needs of a file is write and flush
            except RuntimeError:
                if hashing.error is not None:
                    raise hashing.error from None
                raise
            file.flush()
            os.fsync(file.fileno())
        path = folder / f"{stem}.{hashing.digest.hexdigest()}.pt"
        os.replace(temporary, path)
        _sync_directory(folder)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return path


def _sync_directory(folder: Path) -> None:
    """Make a rename last beyond a power cut, where directories can be synced."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def random_streams() -> dict[str, Any]:
    """Return the global random streams of Python, NumPy and the GPUs as plain values; a trainer keeps torch's."""
    import numpy as np
    import torch

    kind, keys, position, has_gauss, gauss = np.random.get_state()  # noqa: NPY002  # plugins may use it
    return {
        "python": random.getstate(),
        "numpy": (kind, torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, gauss),
        "gpu": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def restore_random_streams(saved: Mapping[str, Any]) -> None:
    """Go back to saved random streams."""
    import numpy as np
    import torch

    version, state, gauss = saved["python"]
    random.setstate((version, tuple(state), gauss))
    kind, keys, *rest = saved["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002
    if saved["gpu"] and len(saved["gpu"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(saved["gpu"])
