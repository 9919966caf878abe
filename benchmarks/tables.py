"""What `wsl fit` makes of a table, beside classifiers of scikit-learn: on true labels, and on labels that were guessed.

    python -m benchmarks.tables [--data-dir FOLDER] [--only iris,lost] [--splits 1] [--budget normal] [--fit-only]
                                [--write]

Eleven tables: bundled ones and made ones, whose candidate sets are drawn here, and lost, MSRCv2 and BirdSong (below the
data directory as pll/*.mat), whose sets are people's or made by others. For each split `wsl fit` holds out a fifth, and
every other classifier learns from the same rest and is asked about the same fifth; `--fit-only` measures `wsl fit` anew
and keeps what the others came to before, who have not changed. `--write` puts the numbers into
results (benchmarks/tables.json) and the table into docs/accuracy.md.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import patients
from wsl_toolkit.data.dataset import Data, transform_inputs
from wsl_toolkit.data.table_schema import Column, TableSchema
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.own_data import description, fitting
from wsl_toolkit.own_data.audit import report
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.system.random_streams import stream

HERE = Path(__file__).parent
RESULTS, PAGE = HERE / "tables.json", HERE.parent / "docs" / "accuracy.md"
BEGIN, END = "<!-- generated: accuracy -->", "<!-- end of generated -->"
TARGET_SIZE, TARGET_GAP = 3.0, 0.02
"""Where sets hold at most so many classes on average, boosting on true labels should be at most so far ahead."""


# ------------------------------------------------------------------- tables


def with_drawn_sets(name: str, x: np.ndarray, y: np.ndarray, wrong: float, seed: int = 0) -> Data:
    """Return data in which each wrong class is a candidate with this probability; no set is full."""
    rng = np.random.default_rng(seed)
    labels = torch.from_numpy(np.asarray(y, dtype=np.int64))
    classes = int(labels.max()) + 1
    mask = rng.random((len(y), classes)) < wrong
    mask[np.arange(len(y)), y] = True
    full = np.flatnonzero(mask.all(axis=1))
    mask[full, (np.asarray(y)[full] + 1) % classes] = False
    return Data(
        name=name,
        x=torch.from_numpy(np.ascontiguousarray(x, dtype=np.float64)),
        y=labels,
        candidates=CandidateSets.from_mask(mask),
        num_classes=classes,
    )


def bundled(name: str, wrong: float) -> Callable[[Path], Data]:
    """Return a reader of a table that scikit-learn brings."""

    def read(data_dir: Path) -> Data:
        from sklearn import datasets

        found: Any = getattr(datasets, f"load_{name}")()
        return with_drawn_sets(name, found.data, found.target, wrong)

    return read


def shells(data_dir: Path) -> Data:
    """Five classes, each a shell around the centre of ten dimensions: no linear model can tell them apart."""
    from sklearn.datasets import make_gaussian_quantiles

    x, y = make_gaussian_quantiles(n_samples=3000, n_features=10, n_classes=5, random_state=0)
    return with_drawn_sets("shells", x, y, 0.25)


def products(data_dir: Path) -> Data:
    """Eight classes by the signs of three products of two numbers each, among twelve numbers; a tenth is relabelled."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(3000, 12))
    y = sum((x[:, 2 * j] * x[:, 2 * j + 1] > 0).astype(np.int64) << j for j in range(3))
    y = np.where(rng.random(len(x)) < 0.1, rng.integers(0, 8, len(x)), y)
    return with_drawn_sets("products", x, y, 0.2)


def clusters(data_dir: Path) -> Data:
    """Six classes of three clusters each in fifteen dimensions, five of which say nothing."""
    from sklearn.datasets import make_classification

    x, y = make_classification(
        n_samples=3000,
        n_features=15,
        n_informative=10,
        n_redundant=0,
        n_classes=6,
        n_clusters_per_class=3,
        random_state=0,
    )
    return with_drawn_sets("clusters", x, y, 0.25)


def hospital(data_dir: Path) -> Data:
    """The made patients of `benchmarks.patients`: numbers and categories with gaps."""
    found = patients.make(2000)
    columns = [Column(name) for name in patients.NUMBERS]
    columns += [Column(name, levels) for name, levels in patients.CATEGORIES.items()]
    codes = np.where(found.categories < 0, np.nan, found.categories)
    return Data(
        name="patients",
        x=torch.from_numpy(np.concatenate([found.numbers, codes], axis=1)),
        y=torch.from_numpy(found.diagnosis.astype(np.int64)),
        candidates=CandidateSets.from_mask(found.noted),
        num_classes=len(patients.DIAGNOSES),
        normalise=TableSchema(tuple(columns)),
    )


def community(name: str) -> Callable[[Path], Data]:
    """Return a reader of one of the community's .mat files."""

    def read(data_dir: Path) -> Data:
        from wsl_toolkit.data.formats import sources

        return sources.load(Path("pll") / f"{name}.mat", {}, load_plugins().registry, data_dir)

    return read


TABLES: dict[str, Callable[[Path], Data]] = {
    "iris": bundled("iris", 0.3),
    "wine": bundled("wine", 0.3),
    "digits": bundled("digits", 0.15),
    "digits (large sets)": bundled("digits", 0.5),
    "patients": hospital,
    "shells": shells,
    "products": products,
    "clusters": clusters,
    "lost": community("lost"),
    "MSRCv2": community("MSRCv2"),
    "BirdSong": community("BirdSong"),
}


# -------------------------------------------------------------- measurement


def guesses(mask: Tensor, labels: Tensor, seed: int) -> dict[str, Tensor]:
    """Return the labels that the references learn from: true ones, each set's first class, one of it at random."""
    drawn = torch.rand(mask.shape, generator=stream(seed, "a candidate"))
    return {
        "true labels": labels,
        "first candidate": mask.int().argmax(1),
        "random candidate": drawn.masked_fill(~mask, -1).argmax(1),
    }


def references(data: Data, train: Tensor, test: Tensor, seed: int) -> dict[str, float]:
    """Return the accuracy of logistic regression and of boosting on each kind of labels, on the test part."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    assert data.y is not None
    assert data.candidates is not None
    transform = data.fit_inputs(train)
    x, held = (transform_inputs(transform, data.x, part).flatten(1).double().numpy() for part in (train, test))
    found = {}
    for kind, labels in guesses(data.candidates.mask(train).cpu(), data.y[train], seed).items():
        models = {
            "logistic regression": LogisticRegression(max_iter=2000),
            "boosting": HistGradientBoostingClassifier(random_state=0),
        }
        for name, model in models.items():
            with threadpool_limits(1):
                model.fit(x, labels.numpy())
                found[f"{name}, {kind}"] = float((model.predict(held) == data.y[test].numpy()).mean())
    return found


def measure(data: Data, budget: str, seed: int, known: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return what `wsl fit` and the references get right on one split, and how well the confidences are calibrated.

    `known` is what the same split came to before: the references are taken from it.
    """
    registry = load_plugins().registry
    estimator = report.best_estimator(data, registry, seed=seed)
    options = fitting.options_for(registry, estimator=(estimator, {}), budget=budget, seed=seed)
    began = time.monotonic()
    fitted, held_out = fitting.fit_and_report(data, registry, options)
    seconds = time.monotonic() - began
    order = torch.randperm(len(data.x), generator=stream(seed, "split"))  # as fit_and_report draws it
    cut = round(fitting.HELD_OUT * len(order))
    test, train = order[:cut].sort().values, order[cut:].sort().values
    return {
        "wsl fit": held_out.accuracy,
        **(references(data, train, test, seed) if known is None else {key: known[key] for key in REFERENCES}),
        "calibration error before": held_out.calibration_error_before,
        "calibration error after": held_out.calibration_error,
        "chosen": description.shares(description.describe(options, fitted)),
        "laws": dict(fitted.laws),
        "estimator": estimator,
        "temperature": fitted.temperature,
        "seconds": round(seconds, 1),
    }


def measure_table(
    name: str, data_dir: Path, budget: str, splits: int, known: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return a table's facts and what each split came to; `known` is what it came to before, to keep the references."""
    data = TABLES[name](data_dir)
    assert data.candidates is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of scikit-learn, about classes that a split leaves out
        before = [None] * splits if known is None else known["splits"]
        found = [measure(data, budget, seed, past) for seed, past in zip(range(splits), before, strict=True)]
    return {
        "rows": len(data.x),
        "features": int(np.prod(data.input_shape)),
        "classes": data.num_classes,
        "mean size": data.candidates.mean_size,
        "splits": found,
    }


# -------------------------------------------------------------------- pages

COLUMNS = {
    "wsl fit": "`wsl fit`",
    "logistic regression, true labels": "LR, true",
    "boosting, true labels": "GB, true",
    "logistic regression, first candidate": "LR, first",
    "boosting, first candidate": "GB, first",
    "logistic regression, random candidate": "LR, random",
    "boosting, random candidate": "GB, random",
}


REFERENCES = [key for key in COLUMNS if key != "wsl fit"]


def mean(table: dict[str, Any], key: str) -> float | None:
    """Return the mean of a number over splits; None where a split has none."""
    values = [split[key] for split in table["splits"]]
    return None if any(value is None for value in values) else float(np.mean(values))


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def text(found: dict[str, Any]) -> str:
    """Return the page's tables: accuracies, calibration, and where the targets are missed."""
    lines = ["| table | rows | classes | mean size | " + " | ".join(COLUMNS.values()) + " |"]
    lines += ["|---" * (4 + len(COLUMNS)) + "|"]
    for name, table in found["tables"].items():
        facts = [name, f"{table['rows']:,}", str(table["classes"]), f"{table['mean size']:.2f}"]
        lines.append("| " + " | ".join([*facts, *(percent(mean(table, key)) for key in COLUMNS)]) + " |")
    lines += [
        "",
        "| table | held out | sets are explained best by | chosen | calibration error before | after |",
        "|---|---|---|---|---|---|",
    ]
    for name, table in found["tables"].items():
        chosen, splits = chosen_text(table), len(table["splits"])
        count = f"{splits} × " * (splits > 1) + f"{round(fitting.HELD_OUT * table['rows']):,}"
        errors = [percent(mean(table, f"calibration error {when}")) for when in ("before", "after")]
        laws = ", ".join(dict.fromkeys(next(iter(split.get("laws") or {"–": 0.0})) for split in table["splits"]))
        lines.append("| " + " | ".join([name, count, laws, chosen, *errors]) + " |")
    return "\n".join([*lines, "", *verdicts(found)])


def chosen_text(table: dict[str, Any]) -> str:
    """Return the kinds of models that were averaged with their mean weights over splits, the weightiest first."""
    kinds = {kind for split in table["splits"] for kind in split["chosen"]}
    weights = {kind: float(np.mean([split["chosen"].get(kind, 0.0) for split in table["splits"]])) for kind in kinds}
    return ", ".join(f"{kind} {weights[kind]:.0%}" for kind in sorted(kinds, key=lambda kind: (-weights[kind], kind)))


def verdicts(found: dict[str, Any]) -> list[str]:
    """Return in sentences which of the two targets hold where, and by how much they are missed."""
    behind, below, small = [], [], 0
    for name, table in found["tables"].items():
        ours = mean(table, "wsl fit") or 0.0
        gap = (mean(table, "boosting, true labels") or 0.0) - ours
        if table["mean size"] <= TARGET_SIZE:
            small += 1
            if gap > TARGET_GAP:
                behind.append(f"{name} ({100 * gap:.1f} points)")
        if ours < (mean(table, "logistic regression, random candidate") or 0.0):
            below.append(name)
    first = (
        f"Within {100 * TARGET_GAP:.0f} points of boosting on true labels: "
        f"{small - len(behind)} of the {small} tables whose sets hold at most {TARGET_SIZE:g} classes on average"
    )
    first += f"; further behind on {', '.join(behind)}." if behind else "."
    second = f"Below logistic regression on a random candidate: {', '.join(below) if below else 'nowhere'}."
    return [f"* {first}", f"* {second}"]


def write_page(found: dict[str, Any]) -> None:
    """Put the tables into the page, between the marks."""
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{text(found)}\n{END}{after}", encoding="utf-8")


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--data-dir", type=Path, default=Path("data"))
    options.add_argument("--only", default="", help="some of: " + ", ".join(TABLES))
    options.add_argument("--splits", type=int, default=1)
    options.add_argument("--budget", default="normal", choices=("quick", "normal", "thorough"))
    options.add_argument("--fit-only", action="store_true", help="keep what the references came to before")
    options.add_argument(
        "--write", action="store_true", help="write the results and the page; with --only, add to them"
    )
    given = options.parse_args()
    torch.set_num_threads(1)
    names = [name for name in TABLES if name in given.only.split(",")] if given.only else list(TABLES)
    found: dict[str, Any] = {"budget": given.budget, "tables": {}}
    known = json.loads(RESULTS.read_text(encoding="utf-8"))["tables"] if given.fit_only else {}
    if given.only and given.write and RESULTS.exists():
        found = json.loads(RESULTS.read_text(encoding="utf-8"))
    for name in names:
        found["tables"][name] = measure_table(name, given.data_dir, given.budget, given.splits, known.get(name))
        print(name, json.dumps(found["tables"][name]), flush=True)
        if given.write:
            found["tables"] = {each: found["tables"][each] for each in TABLES if each in found["tables"]}
            RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if given.write:
        write_page(found)
    print(text(found))


if __name__ == "__main__":
    main()
