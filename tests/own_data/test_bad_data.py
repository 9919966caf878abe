"""Bad data is refused by row and column, and nothing is left behind."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.own_data.conftest import ZOO

GOOD = "id,size,candidates\na,1.5,cat|dog\nb,2.5,dog\nc,3.5,cat\n"

BAD = {
    "an empty candidate set": (
        GOOD.replace("b,2.5,dog", "b,2.5,"),
        (),
        "row 2, column 'candidates': the candidate set is empty",
    ),
    "an unknown class": (
        GOOD.replace("c,3.5,cat", "c,3.5,cot"),
        ("--classes", "cat,dog"),
        "row 3, column 'candidates': unknown class 'cot'. Did you mean 'cat'?",
    ),
    "a row that is too short": (GOOD.replace("b,2.5,dog", "b,dog"), (), "row 2 has 2 values instead of 3"),
    "a row that is too long": (GOOD.replace("b,2.5,dog", "b,2.5,dog,1"), (), "row 2 has 4 values instead of 3"),
    "a truncated file": (GOOD[:-8], (), "row 3 has 2 values instead of 3"),
    "a text among numbers": (GOOD.replace("2.5", "2,5x").replace("2,5x", "2.5x"), (), "row 2, column 'size': '2.5x'"),
    "an infinite number": (GOOD.replace("2.5", "1e999"), (), "column 'size'"),
    "a duplicate id": (GOOD.replace("c,3.5", "a,3.5"), (), "row 1 and row 3, column 'id': the same id 'a' twice"),
    "a missing id": (GOOD.replace("c,3.5", ",3.5"), (), "row 3, column 'id': the id is missing"),
    "a broken JSON list": (
        GOOD.replace("b,2.5,dog", 'b,2.5,"[""dog"""'),
        (),
        "row 2, column 'candidates': '[\"dog\"' looks like a JSON list",
    ),
    "an empty name in a set": (GOOD.replace("cat|dog", "cat||dog"), (), "row 1, column 'candidates'"),
    "a single class": (GOOD.replace("cat|dog", "dog").replace("3.5,cat", "3.5,dog"), (), "at least 2 are needed"),
    "no column of sets": (GOOD.replace("candidates", "animals"), (), "--candidates-column"),
    "a misspelt option": (GOOD, ("--candidates-column", "candidate"), "Did you mean 'candidates'?"),
    "a column twice": (GOOD.replace("id,size", "size,size"), (), "two columns are called 'size'"),
    "no rows": ("id,size,candidates\n", (), "no row"),
    "no header": ("", (), "the file is empty"),
    "no features": (GOOD, ("--ignore", "size"), "no column is left for features"),
    "an unknown true label": (
        "size,candidates,label\n1,cat|dog,cat\n2,dog,\n3,cat,cow\n",
        ("--classes", "cat,dog"),
        "row 3, column 'label': unknown class 'cow'",
    ),
    "a missing value in a 0/1 column": (
        "size,class:cat,class:dog\n1,0,1\n2,,1\n",
        (),
        "row 2, column 'class:cat': the value is missing; only 0 or 1 may be",
    ),
    "a 2 in a 0/1 column": (
        "size,class:cat,class:dog\n1,0,1\n2,2,1\n",
        (),
        "row 2, column 'class:cat': the value is 2",
    ),
    "a row of zeros": ("size,class:cat,class:dog\n1,0,1\n2,0,0\n", (), "row 2, the 0/1 columns: the candidate set"),
    "everything excluded": (
        "size,complementary\n1,cat\n2,cat|dog\n",
        (),
        "row 2, column 'complementary' excludes every class",
    ),
}


EVERYWHERE = ("an empty candidate set", "a truncated file", "a duplicate id")
CASES = [("audit", case) for case in BAD] + [(command, case) for command in ("fit", "clean") for case in EVERYWHERE]


@pytest.mark.parametrize(("command", "case"), CASES)
def test_bad_tables_are_refused_by_place_and_leave_nothing_behind(wsl, case, command):
    text, options, message = BAD[case]
    (wsl.home / "bad.csv").write_text(text, encoding="utf-8")
    before = wsl.files()
    out = {"audit": ("--html", "page.html"), "fit": ("--out", "m"), "clean": ("--out", "c.csv")}[command]
    said = wsl.refused(command, "bad.csv", *options, *out)
    assert message in said
    assert "bad.csv" in said
    assert wsl.files() == before


def test_full_sets_are_kept_weightless_and_counted(wsl):
    rows = "".join(f"{i},{'cat|dog|owl' if i % 4 == 0 else 'cat|dog' if i % 2 else 'owl'}\n" for i in range(80))
    (wsl.home / "t.csv").write_text(f"size,candidates\n{rows}", encoding="utf-8")
    found = wsl.json("audit", "t.csv", "--json")
    assert found["counts"]["full_sets"] == 20
    assert found["counts"]["labelled"] == 60
    assert any("20 examples (25.0%) have every class" in note for note in found["notes"])
    cleaned = wsl.json("clean", "t.csv", "--out", "c.csv", "--epochs", 2, "--quiet", "--json")
    assert cleaned["examples"] == 80


@pytest.mark.parametrize("keep", [0, 10, 0.5, -1])
@pytest.mark.parametrize("ending", ["parquet", "npz", "mat"])
def test_truncated_binary_files_are_refused(wsl, ending, keep):
    path = wsl.home / f"t.{ending}"
    mask = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 0]] * 50)
    x = np.random.default_rng(0).normal(size=(150, 4))
    if ending == "parquet":
        sets = [[str(j) for j in np.flatnonzero(row)] for row in mask]
        pq.write_table(pa.table({"a": x[:, 0], "candidates": sets}), path)
    elif ending == "npz":
        np.savez(path, x=x, candidates=mask)
    else:
        from scipy.io import savemat

        savemat(path, {"data": x, "partial_target": mask.T}, do_compression=True)
    wsl("audit", path, "--json")
    whole = path.read_bytes()
    size = int(len(whole) * keep) if isinstance(keep, float) else keep % len(whole) if keep < 0 else keep
    path.write_bytes(whole[:size])
    before = wsl.files()
    said = wsl.refused("fit", path, "--out", "m")
    assert f"t.{ending}" in said
    assert wsl.files() == before


def test_a_damaged_or_foreign_model_is_refused(wsl, zoo):
    wsl("fit", zoo, *ZOO, "--out", "m", "--epochs", 1, "--lr", 0.1, "--weight-decay", 0, "--quiet", "--no-track")
    weights = wsl.home / "m" / "data" / "model.safetensors"
    whole = weights.read_bytes()
    for size in (0, 4, 100, len(whole) // 2, len(whole) - 1):
        weights.write_bytes(whole[:size])
        assert "is not a readable model" in wsl.refused("predict", "m", zoo)
    from safetensors.numpy import save

    weights.write_bytes(save({"a": np.zeros(2)}))
    assert "not a model that `wsl fit` wrote" in wsl.refused("predict", "m", zoo)
    assert "does not exist" in wsl.refused("predict", "nowhere", zoo)


def test_a_failing_fit_leaves_nothing_half_written(wsl, zoo, monkeypatch):
    """A disk that fails while the model is written: no folder, no temporary one, the old model as it was."""
    fit = ("fit", zoo, *ZOO, "--out", "m", "--epochs", 1, "--lr", 0.1, "--weight-decay", 0, "--quiet", "--no-track")
    wsl(*fit)
    before = {name: (wsl.home / name).read_bytes() for name in wsl.files() if (wsl.home / name).is_file()}
    import mlflow.pyfunc

    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(mlflow.pyfunc, "save_model", fail)
    assert "No space left on device" in wsl.refused(*fit, "--force")
    assert {name: (wsl.home / name).read_bytes() for name in wsl.files() if (wsl.home / name).is_file()} == before


def test_unknown_endings_and_results_are_refused_before_any_work(wsl, zoo):
    assert "Known endings: " in wsl.refused("audit", "data.ods")
    assert "results are written as .csv" in wsl.refused("clean", zoo, *ZOO, "--out", "c.txt")
