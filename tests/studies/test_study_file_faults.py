"""Study files that are broken, enormous or odd are one clear line and exit 2, never a defect."""

from __future__ import annotations

import copy
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from click.testing import CliRunner
from small_study import SMALL

from wsl_toolkit.cli import main
from wsl_toolkit.errors import WslError
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.studies.cell_records import CellRecords
from wsl_toolkit.studies.cells import cell_state
from wsl_toolkit.studies.parsing import from_dict
from wsl_toolkit.studies.plan import check_description
from wsl_toolkit.studies.reading import read_study
from wsl_toolkit.studies.store import Results, StudyFolder

TEXT = tomli_w.dumps(SMALL)
HEAD = 'name = "x"\n'
TENTHS = [i / 1000 for i in range(500)]


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (HEAD + "a = " + "[" * 5000 + "]" * 5000, (), "nested too deep"),
        (HEAD + "a" + ".a" * 5000 + " = 1", (), "nested too deep"),
        (HEAD + "trials = " + "9" * 5000, (), "an integer of more than 64 bits"),
        (HEAD + "trials = 0x" + "f" * 5000, (), "an integer of more than 64 bits"),
        ("quick = 1\n" + TEXT, ("--quick",), "[quick] must be a table, not 1"),
        ("quick = 1\n" + TEXT, (), "[quick] must be a table, not 1"),
        ('base = ["x"]\n' + TEXT, (), "base must be a built-in study or a TOML file, not ['x']"),
        (TEXT.replace('label = "CC"', "search = { lr = 0.1 }"), (), "lr must be a list of values, not 0.1"),
        (TEXT.replace('name = "small"', f'name = "{"s" * 300}"'), (), "at most 100 of them"),
        (TEXT.replace('label = "CC"', f'label = "{"s" * 300}"'), (), "is a label of 300 characters; 200 is the most"),
        (TEXT.replace("trials = 2", "trials = 1000000000"), (), "trials must be >= 1, <= 10000, not 1000000000"),
        (TEXT.replace('label = "CC"', r'label = "\u001b[31m"'), (), "a control character"),
        (HEAD + "# " + "x" * 2**20, (), "is larger than 1024 kB"),
        (TEXT.replace("lr = [", f"momentum = {[i / 1e5 for i in range(60_000)]}\nlr = ["), (), "1000 is the most"),
        (TEXT.replace("lr = [", f"momentum = {TENTHS}\nbatch_size = {[*range(1, 501)]}\nlr = ["),
         (), "the grid of PPL has 500000 points; 100000 is the most"),
    ],
)  # fmt: skip
def test_a_broken_study_file_is_one_clear_line(
    text: str, arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(text)
    start = time.monotonic()
    done = CliRunner().invoke(main, ["study", "run", "mine.toml", "--dry-run", *arguments])
    assert done.exit_code == 2, done.output
    said = done.stderr.strip().splitlines()
    assert len(said) == 1
    assert message in said[0]
    assert len(said[0]) < 400
    assert time.monotonic() - start < 20
    assert list(tmp_path.iterdir()) == [tmp_path / "mine.toml"]


@pytest.mark.parametrize("command", [("study", "run"), ("study", "resume"), ("study", "status"), ("report",)])
def test_a_name_longer_than_any_file_is_one_clear_line(command: tuple[str, ...]) -> None:
    done = CliRunner().invoke(main, [*command, "x" * 5000])
    assert done.exit_code == 2, done.output


ODD: tuple[Any, ...] = (
    None, "", "x", "lr", "1", "nan", "é" * 300, "\n", "../up", True, False, 0, 1, -1, 2**63 - 1, 2**64, 0.5, -0.0,
    1e308, float("inf"), float("nan"), [], [[]], [1, "a"], [0.1, 0.1], ["digits"], [{"name": "digits"}] * 3,
    {}, {"name": "cc"}, {"name": 3}, {"lr": [0.1]}, {"a": {"b": {"c": [1]}}}, {"low": 1, "high": 0},
    {"low": 0.1, "high": 1.0, "log": True},
)  # fmt: skip
KEYS = (
    "name",
    "trials",
    "lr",
    "estimator",
    "search",
    "space",
    "quick",
    "base",
    "label",
    "x",
    "estimator.leverage",
    "",
    "ä b",
)


def places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container with each of its keys or indices."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in list(items):
        yield tree, key
        yield from places(value)


def spoil(tree: dict[str, Any], chance: random.Random) -> None:
    """Change one place of a description: another value, another key, one more, one less, or two swapped."""
    found = list(places(tree))
    holder, key = chance.choice(found)
    deed = chance.randrange(5)
    if deed == 0:
        holder[key] = copy.deepcopy(chance.choice(ODD))
    elif deed == 1:
        del holder[key]
    elif deed == 2 and isinstance(holder, dict):
        holder[chance.choice(KEYS)] = holder.pop(key)
    elif deed == 3 and isinstance(holder, dict):
        holder[chance.choice(KEYS)] = copy.deepcopy(chance.choice(ODD))
    else:
        other, place = chance.choice(found)
        holder[key] = copy.deepcopy(other[place])


FUZZ_CASES = 600


@pytest.mark.parametrize("seed", range(3))
def test_a_study_file_spoilt_anywhere_is_read_or_refused_in_a_line(seed: int, tmp_path: Path) -> None:
    chance, registry = random.Random(seed), load_plugins().registry
    file = tmp_path / "mine.toml"
    refused = accepted = 0
    for case in range(FUZZ_CASES // 3):
        values: dict[str, Any] = copy.deepcopy({**SMALL, "selection": {"folds": 1}, "quick": {"trials": 1}})
        if chance.random() < 0.3:
            values["search"]["strategy"] = chance.choice(["random", "tpe"])
        for _ in range(chance.randint(1, 4)):
            spoil(values, chance)
        text = tomli_w.dumps(_writable(values))
        if chance.random() < 0.2:
            cut = chance.randrange(len(text) + 1)
            text = text[:cut] + chance.choice(["", "\x00", "=", "[", '"']) + text[cut + 1 :]
        file.write_text(text, encoding="utf-8")
        try:
            study = read_study(str(file), quick=chance.random() < 0.3)
            check_description(study, registry)
            assert from_dict(study.to_dict(), "again") == study or "nan" in text
        except WslError as error:
            refused += len(str(error).splitlines()) == 1
        except BaseException:
            print(f"case {case} of seed {seed}:\n{text}")
            raise
        else:
            accepted += 1
    assert refused + accepted == FUZZ_CASES // 3
    assert min(refused, accepted) > 10


def _writable(value: Any) -> Any:
    """Return the tree without what TOML has no word for."""
    if isinstance(value, dict):
        return {key: _writable(item) for key, item in value.items() if item is not None}
    return [_writable(item) for item in value if item is not None] if isinstance(value, list) else value


@pytest.mark.parametrize("wrong", [{"trials": [[{}]]}, {"trials": 5}, {"searches": [{}]}, {"since": "x"}, {"code": []}])
def test_a_record_of_a_cell_that_is_damaged_counts_as_none(tmp_path: Path, wrong: dict[str, Any]) -> None:
    folder, registry = StudyFolder(tmp_path, "small"), load_plugins().registry
    folder.create()
    results = Results(folder, registry, {}, {})
    cell = next(iter(from_dict(SMALL, "small").cells()))
    CellRecords(folder).write(cell_state(cell, results, registry), results)
    assert CellRecords(folder).read(cell) is not None
    (path,) = (folder.path / "cells").iterdir()
    path.write_text(json.dumps({**json.loads(path.read_text()), **wrong}))
    found = CellRecords(folder).read(cell)
    assert found is None or "since" in wrong, "since when results count matters only where there are results"
