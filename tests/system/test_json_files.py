"""JSON of ours comes back as it was, and damage of any kind is a ValueError of a few words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wsl_toolkit.system import json_files
from wsl_toolkit.system.json_files import parse_json, read_json, sealed, unsealed

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
TREES = st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10)


@given(st.dictionaries(st.text().filter(lambda key: key != "checksum"), TREES))
def test_what_was_sealed_comes_back_as_it_was(values: dict[str, object]) -> None:
    assert unsealed(parse_json(sealed(values))) == values


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_a_number_that_was_exchanged_for_another_is_noticed(before: float, after: float) -> None:
    kept = json.loads(sealed({"accuracy": [before]}))
    if repr(before) == repr(after):
        assert unsealed(kept) == {"accuracy": [before]}
        return
    with pytest.raises(ValueError, match="does not match its checksum"):
        unsealed({**kept, "accuracy": [after]})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 100_000 + "]" * 100_000, "nested too deep"),
        ("[" * 40 + "]" * 40, "nested too deep"),
        ('{"a": ' * 40 + "1" + "}" * 40, "nested too deep"),
        ("9" * 5000, "digits"),
        ('{"a": 1, "a": 2}', "twice"),
        ("{", "line 1"),
        ("", "line 1"),
    ],
)
def test_what_is_wrong_with_a_text_is_a_value_error_of_a_few_words(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_json(text)


def test_thirty_levels_and_many_brackets_are_read() -> None:
    assert parse_json("[" * 30 + "]" * 30) is not None
    assert len(parse_json(json.dumps([[{"a": []}]] * 500))) == 500


def test_a_file_larger_than_any_of_ours_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(json_files.MOST_BYTES + 1)  # takes no room on the disk
    monkeypatch.setattr(Path, "read_text", lambda *_args, **_options: pytest.fail("it was read"))
    with pytest.raises(ValueError, match="256 MB, which no file of its kind has"):
        read_json(path)


def test_files_of_the_first_releases_have_no_checksum_and_are_read() -> None:
    assert unsealed({"a": 1}) == {"a": 1}
    with pytest.raises(ValueError, match="not a table"):
        unsealed([1])
