"""The reader of pickles: plain values and arrays of any protocol, and no program of anybody's."""

from __future__ import annotations

import contextlib
import os
import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wsl_builtins.datasets.pickles import read_pickle
from wsl_toolkit.errors import DataError


@pytest.fixture
def written(tmp_path: Path) -> Any:
    def write(content: bytes) -> Path:
        path = tmp_path / "file.pkl"
        path.write_bytes(content)
        return path

    return write


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values_and_arrays_of_every_protocol_are_read(written, protocol):
    arrays = {
        "images": np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
        "by columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "big-endian": np.arange(3, dtype=">i4"),
        "texts": np.array(["ab", "c"]),
        "nothing": np.zeros((0, 3)),
    }
    plain = {"names": ["a.png", "ü"], 3: [[1], [2, 3]], "several": [1, -(2**70), 2.5, b"\x00\xff", None, True]}
    content = {**arrays, **plain, "pair": (1, [2]), "scalar": np.int64(7), "inside": [np.array([1, 2])]}
    found = read_pickle(written(pickle.dumps(content, protocol=protocol)))
    for key, array in arrays.items():
        assert np.array_equal(found[key], array), key
        assert found[key].dtype == array.dtype
    assert {key: found[key] for key in plain} == plain
    assert found["pair"] == [1, [2]]
    assert found["scalar"] == 7
    assert found["inside"][0].tolist() == [1, 2]


class Harmful:
    """Asks for a program to be run when it is read."""

    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: {"images": [x]}, lambda x: {"a": (1, {"b": x})}])
def test_a_pickle_that_runs_a_program_is_refused_and_nothing_runs(written, tmp_path, protocol, wrap):
    trace = tmp_path / "trace"
    for call in ((os.system, (f"touch {trace}",)), (eval, (f"open({str(trace)!r}, 'w')",)), (open, (str(trace), "w"))):
        path = written(pickle.dumps(wrap(Harmful(*call)), protocol=protocol))
        with pytest.raises(DataError, match=r"is refused: it names .* can run any program"):
            read_pickle(path)
        assert not trace.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"cnumpy\nndarray\n(I1000000000\ntR.", "it calls numpy.ndarray"),
        (b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x03\x00\x00\x00zip\x86R.", "_codecs.encode for 'zip'"),
        (b"\x80\x02c_codecs\nencode\n}X\x01\x00\x00\x00aK\x01sb.", "it changes _codecs.encode"),
        (b"\x80\x02cnumpy\ndtype\nX\x0a\x00\x00\x00V999999999\x85R.", "array of type 'V999999999'"),
        (b"\x80\x02cnumpy\nndarray\n.", "it holds a Token"),
        (b"\x80\x02}cnumpy\nndarray\nK\x01s.", "keys are neither numbers nor texts"),
        (b"cnumpy.testing._private.utils\nrunstring\n.", "it names numpy.testing._private.utils.runstring"),
        (pickle.dumps(np.array([{}], dtype=object)), "array of type 'O8'"),
        (pickle.dumps({1, 2}), "it holds a set"),
        (pickle.dumps(1j), "it names builtins.complex"),
        (b"", "cannot be read as a pickle"),
        (b"\x80\x04K", "cannot be read as a pickle"),
    ],
)
def test_what_is_not_plain_is_refused_by_name(written, content, message):
    with pytest.raises(DataError, match=message.replace(".", r"\.")):
        read_pickle(written(content))


def test_an_array_whose_bytes_are_not_as_many_as_its_shape_says_is_refused(written):
    stream = pickle.dumps(np.arange(4, dtype=np.uint8), protocol=2)
    assert b"K\x04\x85" in stream  # the shape (4,)
    with pytest.raises(DataError, match=r"shape \(200,\) with 4 bytes"):
        read_pickle(written(stream.replace(b"K\x04\x85", b"K\xc8\x85")))


def test_tuples_that_share_their_parts_are_not_gone_through_twice(written):
    knot: Any = ()
    for _ in range(200):
        knot = (knot, knot)  # 2^200 ways down
    assert isinstance(read_pickle(written(pickle.dumps([knot]))), list)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_damaged_pickle_is_read_or_refused_and_never_anything_else(data, tmp_path_factory):
    stream = bytearray(pickle.dumps({"a": [1, (2, b"x")], "b": np.arange(3)}, protocol=data.draw(st.integers(0, 5))))
    for _ in range(data.draw(st.integers(1, 4))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("damaged") / "file.pkl"
    path.write_bytes(stream[: data.draw(st.integers(0, len(stream)))])
    with contextlib.suppress(DataError):
        read_pickle(path)


def test_the_trap_would_have_worked_elsewhere():
    """What the tests above refuse is a real program, which Python's own reader would run."""
    stream = pickle.dumps(Harmful(os.getpid, ()))
    assert any(op.name in ("REDUCE", "STACK_GLOBAL") for op, _, _ in pickletools.genops(stream))
    assert pickle.loads(stream) == os.getpid()


@pytest.mark.parametrize("number", [b"r\xff\xff\xff\x7f", b"p99999999999\n"])
def test_a_pickle_that_asks_for_more_room_than_it_has_bytes_is_refused_before_memory_is_taken(written, number):
    with pytest.raises(DataError, match=r"it asks for room for .* values in"):
        read_pickle(written(b"\x80\x02]" + number + b"."))
