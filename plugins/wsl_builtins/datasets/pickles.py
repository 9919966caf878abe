"""Pickled files of plain values: dicts, lists, tuples, numbers, texts, bytes and numpy arrays, and nothing else.

A pickle is a program, and one from elsewhere may be anybody's. This reader gives that program no function to call but
the few by which numpy's arrays are written, in versions of its own: they note what an array is made of, and arrays are
made from such notes only when the program has ended and what it left is checked.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from wsl_toolkit.errors import DataError, one_line

TYPE_CODE = re.compile(r"[<>|=]?([biuf][1248]|[SU]\d{1,5})")
"""Whole numbers, truth values, floating-point numbers and texts; no structures and no objects."""

PLAIN = (bool, int, float, str, bytes, bytearray, type(None))


def read_pickle(path: Path) -> Any:
    """Return what a file holds if it is made of plain values and arrays alone; refuse it otherwise."""
    try:
        content = path.read_bytes()
        _check_memory(content)
        return _without_notes(_PlainUnpickler(io.BytesIO(content), encoding="latin1").load())
    except _Refused as error:
        raise DataError(
            f"{path} is refused: {error}. Only dicts, lists, tuples, numbers, texts, bytes and numpy arrays are read, "
            "because a pickle can run any program; do not open it otherwise unless you trust where it is from"
        ) from None
    # A damaged stream fails in as many ways as it has bytes.
    except Exception as error:
        raise DataError(f"{path} cannot be read as a pickle of plain values: {one_line(error)}") from None


def _check_memory(content: bytes) -> None:
    """Refuse a program that numbers what it remembers far beyond its length: Python makes room for all in between."""
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and not 0 <= int(argument or 0) <= len(content):
            raise _Refused(f"it asks for room for {argument} values in {len(content)} bytes")


class _Refused(Exception):
    """What a file asked for and does not get."""


class _Token:
    """Something that a pickle may name: it can be called as it says, and neither be changed nor be looked into."""

    __slots__ = ("_call", "_name")

    def __init__(self, name: str, call: Callable[..., Any] | None) -> None:
        self._name = name
        self._call = call

    def __call__(self, *arguments: Any) -> Any:
        if self._call is None:
            raise _Refused(f"it calls {self._name}")
        return self._call(*arguments)

    def __setstate__(self, state: Any) -> NoReturn:
        raise _Refused(f"it changes {self._name}")


class _TypeNote:
    """A numpy type as a pickle writes it: a code, and an order of bytes that comes later."""

    __slots__ = ("code",)

    def __init__(self, code: Any, *rest: Any) -> None:
        if not isinstance(code, str) or not TYPE_CODE.fullmatch(code):
            raise _Refused(f"it holds an array of type {code!r:.40}")
        self.code = code

    def __setstate__(self, state: Any) -> None:
        order = state[1] if isinstance(state, tuple) and len(state) > 1 else None
        if order in ("<", ">", "|", "="):
            self.code = order + self.code.lstrip("<>|=")


class _ArrayNote:
    """A numpy array as a pickle writes it: shape, type and bytes."""

    __slots__ = ("fortran", "kind", "raw", "shape")

    def __init__(self, shape: Any = (), kind: Any = None, raw: Any = b"", *, fortran: bool = False) -> None:
        self.shape, self.kind, self.raw, self.fortran = shape, kind, raw, fortran

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise _Refused("it holds an array of an unknown form")
        _, self.shape, self.kind, fortran, self.raw = state
        self.fortran = bool(fortran)

    def array(self) -> Any:
        """Return the array, if its bytes are as many as its shape says."""
        import numpy as np

        raw = self.raw.encode("latin1") if isinstance(self.raw, str) else self.raw
        whole = isinstance(self.shape, tuple) and all(isinstance(side, int) and side >= 0 for side in self.shape)
        if not whole or not isinstance(self.kind, _TypeNote) or not isinstance(raw, bytes | bytearray):
            raise _Refused("it holds an array of an unknown form")
        kind = np.dtype(self.kind.code)
        if len(raw) != math.prod(self.shape) * kind.itemsize:
            raise _Refused(f"it holds an array of shape {self.shape} with {len(raw)} bytes")
        return np.frombuffer(raw, kind).reshape(self.shape, order="F" if self.fortran else "C")


def _scalar(kind: Any, raw: Any) -> Any:
    return _ArrayNote((), kind, raw).array().item()


def _from_buffer(raw: Any, kind: Any, shape: Any, order: Any) -> _ArrayNote:
    return _ArrayNote(shape, kind, raw, fortran=order == "F")


def _latin1(text: Any, encoding: Any) -> bytes:
    """Return bytes as Python 3 writes them for Python 2: as a text of the same numbers."""
    if not isinstance(text, str) or encoding != "latin1":
        raise _Refused(f"it calls _codecs.encode for {encoding!r:.40}")
    return text.encode("latin1")


def _no_bytes(*arguments: Any) -> bytes:
    """Return b"", which old pickles ask `bytes` for."""
    if arguments:
        raise _Refused("it calls bytes")
    return b""


ADMITTED: dict[tuple[str, str], Callable[..., Any] | None] = {
    ("numpy", "ndarray"): None,
    ("numpy", "dtype"): _TypeNote,
    ("_codecs", "encode"): _latin1,
    ("__builtin__", "bytes"): _no_bytes,
}
for _core in ("numpy.core", "numpy._core"):
    ADMITTED[f"{_core}.multiarray", "_reconstruct"] = lambda *_: _ArrayNote()
    ADMITTED[f"{_core}.multiarray", "scalar"] = _scalar
    ADMITTED[f"{_core}.numeric", "_frombuffer"] = _from_buffer


class _PlainUnpickler(pickle.Unpickler):
    """Python's reader of pickles, of which nothing can be named but what numpy's arrays need."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ADMITTED:
            raise _Refused(f"it names {module}.{name}"[:120])
        return _Token(f"{module}.{name}", ADMITTED[module, name])


def _without_notes(root: Any) -> Any:
    """Return the same values with arrays in place of notes and lists in place of tuples.

    What was shared stays shared, so that a small file cannot ask for a walk without end.
    """
    box = [root]
    pending: list[Any] = [box]
    seen = {id(box)}
    lists: dict[int, tuple[Any, list[Any]]] = {}  # by the tuple's id; the tuple is kept, so that the id stays its own
    inner: Any
    while pending:
        holder = pending.pop()
        if isinstance(holder, dict) and not all(isinstance(key, PLAIN) for key in holder):
            raise _Refused("it holds a dict whose keys are neither numbers nor texts")
        for key, value in list(holder.items() if isinstance(holder, dict) else enumerate(holder)):
            if isinstance(value, _ArrayNote):
                holder[key] = value.array()
            elif isinstance(value, tuple):
                holder[key] = inner = lists.setdefault(id(value), (value, list(value)))[1]
            elif isinstance(value, dict | list):
                inner = value
            elif not isinstance(value, PLAIN):
                raise _Refused(f"it holds a {type(value).__name__.strip('_')}")
            if isinstance(value, tuple | dict | list) and id(inner) not in seen:
                seen.add(id(inner))
                pending.append(inner)
    return box[0]
