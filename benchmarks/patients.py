"""A hospital's table in the forms in which it arrives, and one model from each of them.

    python -m benchmarks.patients [--rows 2000] [--budget quick] [--keep FOLDER]

Made patients: 12 numbers and 4 categories with 15 % of the values missing, 6 diagnoses whose names have accents and
commas. The same rows are written as clean CSV; with semicolons, decimal commas and blank rows, once in Windows'
encoding and once in UTF-8 with a byte-order mark; and as a workbook. `wsl fit` learns from each, and what it came to
is compared: weights, preprocessing, temperature and everything that was tried, to the bit.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

DIAGNOSES = (
    "Grippe, saisonnière",
    "Fièvre Q",
    "Angine, bactérienne",
    "Maladie de Lyme",
    "Brûlure d'estomac",
    "Épilepsie, partielle",
)
NUMBERS = (
    "âge",
    "température",
    "tension (systolique)",
    "tension (diastolique)",
    "pouls",
    "créatinine",
    "glycémie",
    "hémoglobine",
    "leucocytes",
    "CRP",
    "poids",
    "taille",
)
CATEGORIES = {
    "sexe": ("femme", "homme"),
    "région": ("Bretagne", "Île-de-France", "Provence, Alpes", "Réunion"),
    "fumeur": ("jamais", "autrefois", "oui"),
    "service": ("urgences", "médecine générale", "pédiatrie", "chirurgie", "réanimation"),
}
MISSING = 0.15
HEADER = (*NUMBERS, *CATEGORIES, "candidates", "label")
FORMS = ("clean.csv", "windows.csv", "marked.csv", "workbook.xlsx")


@attrs.frozen(kw_only=True, eq=False)
class Patients:
    """Made patients: raw values with gaps, the diagnosis of each, and those that were noted down."""

    numbers: np.ndarray
    """Rounded to hundredths, NaN where one is missing, [n, 12]."""
    categories: np.ndarray
    """The place among the levels, -1 where one is missing, [n, 4]."""
    diagnosis: np.ndarray
    noted: np.ndarray
    """Which diagnoses each set holds, [n, 6]."""


def make(rows: int = 2000, seed: int = 0) -> Patients:
    """Draw patients whose diagnosis depends on numbers, on categories and on products of them."""
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(rows, len(NUMBERS)))
    levels = [len(names) for names in CATEGORIES.values()]
    categories = np.stack([rng.integers(0, count, rows) for count in levels], axis=1)
    kinds = len(DIAGNOSES)
    scores = numbers @ rng.normal(0, 0.8, (len(NUMBERS), kinds))
    pairs = np.stack([numbers[:, j] * numbers[:, j + 1] for j in range(0, 8, 2)], axis=1)
    scores += pairs @ rng.normal(0, 1.0, (pairs.shape[1], kinds))
    for place, count in enumerate(levels):
        scores += rng.normal(0, 0.7, (count, kinds))[categories[:, place]]
    diagnosis = (scores + rng.gumbel(0, 0.5, scores.shape)).argmax(1)
    noted = rng.random((rows, kinds)) < 0.25
    noted[np.arange(rows), diagnosis] = True
    full = np.flatnonzero(noted.all(axis=1))
    noted[full, (diagnosis[full] + 1) % kinds] = False
    numbers = np.round(50 + 10 * numbers, 2)
    numbers[rng.random(numbers.shape) < MISSING] = np.nan
    categories[rng.random(categories.shape) < MISSING] = -1
    return Patients(numbers=numbers, categories=categories, diagnosis=diagnosis, noted=noted)


def records(found: Patients) -> Iterator[list[Any]]:
    """Yield the cells of each patient: a number, a text, or None where a value is missing."""
    names = list(CATEGORIES.values())
    for numbers, levels, diagnosis, noted in zip(
        found.numbers, found.categories, found.diagnosis, found.noted, strict=True
    ):
        yield [
            *(None if np.isnan(value) else float(value) for value in numbers),
            *(None if level < 0 else names[place][level] for place, level in enumerate(levels)),
            "|".join(DIAGNOSES[j] for j in np.flatnonzero(noted)),
            DIAGNOSES[diagnosis],
        ]


def text_of(rows: Sequence[Sequence[Any]], *, delimiter: str = ",", decimal: str = ".", blank: bool = False) -> str:
    """Return the table as text; `blank` adds lines with nothing in them, above, between and below."""
    file = io.StringIO()
    writer = csv.writer(file, delimiter=delimiter, lineterminator="\r\n" if blank else "\n")
    if blank:
        file.write("\r\n")
    writer.writerow(HEADER)
    for number, row in enumerate(rows):
        cells = (str(cell).replace(".", decimal) if isinstance(cell, float) else cell for cell in row)
        writer.writerow(["" if cell is None else cell for cell in cells])
        if blank and number % 50 == 7:
            file.write("\r\n" + delimiter * (len(HEADER) - 1) + "\r\n")
    return file.getvalue() + ("\r\n\r\n" if blank else "")


def write(folder: Path, found: Patients) -> list[Path]:
    """Write the patients in every form; return the files."""
    from openpyxl import Workbook

    rows = list(records(found))
    messy = text_of(rows, delimiter=";", decimal=",", blank=True)
    (folder / "clean.csv").write_text(text_of(rows), encoding="utf-8")
    (folder / "windows.csv").write_bytes(messy.encode("cp1252"))
    (folder / "marked.csv").write_bytes(messy.encode("utf-8-sig"))
    book = Workbook(write_only=True)
    sheet = book.create_sheet("patients")
    sheet.append(HEADER)
    for number, row in enumerate(rows):
        sheet.append(row)
        if number % 50 == 7:
            sheet.append([])
    book.save(folder / "workbook.xlsx")
    return [folder / name for name in FORMS]


def fingerprint(model: Path) -> str:
    """Return a SHA-256 of all that a model computes with and of what was tried, but not of the file it came from."""
    from safetensors import safe_open

    from wsl_toolkit.own_data.model_file import checksum
    from wsl_toolkit.own_data.serving import find_weights

    with safe_open(str(find_weights(model)), framework="pt") as file:
        meta = json.loads(file.metadata()["wsl"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    about = {key: value for key, value in meta["about"].items() if key not in ("data", "dialect", "sheet")}
    kept = {key: value for key, value in meta.items() if key != "about"}
    return hashlib.sha256(checksum(json.dumps([kept, about], sort_keys=True), tensors).encode()).hexdigest()


def fit_all(files: Sequence[Path], budget: str) -> dict[str, str]:
    """Fit a model to each file as a user would, beside it; return the models' fingerprints."""
    from wsl_toolkit.cli import main as wsl

    found = {}
    for path in files:
        out = path.with_suffix(".model")
        wsl(
            ["fit", str(path), "--out", str(out), "--budget", budget, "--no-track", "--quiet"],
            standalone_mode=False,
        )
        found[path.name] = fingerprint(out)
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--rows", type=int, default=2000)
    options.add_argument("--budget", default="quick", choices=("quick", "normal", "thorough"))
    options.add_argument("--keep", type=Path, help="a new folder for the files and the models")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = given.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=given.keep is None)
        found = fit_all(write(folder, make(given.rows)), given.budget)
    for form, digest in found.items():
        print(f"{form}: {digest}")
    if len(set(found.values())) > 1:
        raise SystemExit("the models differ")
    print(f"the same model from {len(found)} files of {given.rows:,} patients")


if __name__ == "__main__":
    main()
