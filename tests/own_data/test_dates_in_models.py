"""A model carries what dates and texts mean: `wsl predict` and MLflow do to new rows what `wsl fit` did."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pandas as pd

FIT = ("--epochs", 20, "--lr", 0.1, "--weight-decay", 0, "--quiet", "--no-track")


def visits(path: Path, written: str = "%d.%m.%Y", n: int = 160) -> Path:
    """Visits whose illness shows in the month and in one word of a remark, and nowhere else."""
    dice = random.Random(3)
    rows = ["age;seen;remark;candidates"]
    for _ in range(n):
        winter, coughs = dice.random() < 0.5, dice.random() < 0.5
        day = pd.Timestamp(dice.choice([2022, 2023]), dice.choice([1, 2] if winter else [6, 7]), dice.randint(13, 28))
        words = [*dice.sample(["seems", "well", "but", "tired", "and", "pale"], 3), "coughing" if coughs else "resting"]
        dice.shuffle(words)
        truth = ("flu" if coughs else "cold") if winter else ("hay fever" if coughs else "well")
        others = dice.sample(["flu", "cold", "hay fever", "well"], dice.choice([0, 1, 2]))
        sets = "|".join(sorted({truth, *others}))
        rows.append(f"{dice.randint(1, 90)};{day.strftime(written)};{' '.join(words)};{sets}")
    path.write_text("\n".join([*rows, ""]), encoding="utf-8")
    return path


def test_predict_and_the_served_model_read_dates_and_texts_as_fit_did(wsl, tmp_path):
    import mlflow

    table = visits(tmp_path / "v.csv")
    wsl("fit", table, "--hashed", "remark", "--out", "m", *FIT)
    new = "age;seen;remark\n40;{};tired and coughing, pale\n41;{};Resting\n42;;\n"
    (tmp_path / "n.csv").write_text(new.format("14.01.2023", "15.07.2022"))
    (tmp_path / "iso.csv").write_text(new.format("2023-01-14", "2022-07-15 10:30"))
    found = wsl("predict", "m", "n.csv").stdout
    assert wsl("predict", "m", "iso.csv").stdout == found
    labels = [line.split(",")[0] for line in found.splitlines()[1:]]
    assert labels[:2] == ["flu", "well"]
    assert "row 1, column 'seen': '30.2.2023' is not a date" in wsl.refused(
        "predict", "m", write(tmp_path / "bad.csv", new.format("30.2.2023", "1.1.2023"))
    )
    model = mlflow.pyfunc.load_model("m")
    assert [column.name for column in model.metadata.signature.inputs.inputs] == ["age", "seen", "remark"]
    example = json.loads((tmp_path / "m" / "input_example.json").read_text())
    assert example == {"columns": ["age", "seen", "remark"], "data": [[0.0, "01.01.2000", "some words"]]}
    frame = pd.DataFrame(
        {
            "age": [40.0, 41.0, 42.0],
            "seen": ["14.01.2023", "2022-07-15", None],
            "remark": ["tired and coughing, pale", "Resting", None],
        }
    )
    assert model.predict(frame)["label"].tolist() == labels


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_date_or_a_text_is_left_out_by_name(wsl, tmp_path):
    table = visits(tmp_path / "v.csv", n=60)
    found = wsl.json("audit", table, "--ignore", "seen,remark", "--json")
    roles = {column["name"]: column["role"] for column in found["understood"]["columns"]}
    assert roles == {"age": "number", "seen": "ignored", "remark": "ignored", "candidates": "candidate sets"}
