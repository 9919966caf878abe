"""How many wrong labels the lists of `wsl clean` bring to light, beside ordering by confidence alone.

    python -m benchmarks.review [--data-dir FOLDER] [--only patients,lost] [--write]

For each table, and again after a tenth of its sets were exchanged for sets of the same size that miss the truth, the
labels are cleaned out of fold (`--budget quick`), and the wrong ones among the first tenth of each list are counted: by
the lists `ambiguous` and `suspicious`, by confidence alone, and by p_y = confidence × candidates_probability,
which was the ranking before. True labels are used to count, and for nothing else.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import attrs
import torch
from torch import Tensor

from benchmarks.tables import TABLES
from wsl_toolkit.data.dataset import Data
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.own_data import cleaning, fitting
from wsl_toolkit.own_data.audit import report
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.system.random_streams import stream

HERE = Path(__file__).parent
RESULTS, PAGE = HERE / "review.json", HERE.parent / "docs" / "own-data.md"
BEGIN, END = "<!-- generated: review -->", "<!-- end of generated -->"
NAMES = ("digits", "patients", "clusters", "lost", "MSRCv2", "BirdSong")
CORRUPTED = 0.1
LISTS = ("ambiguous", "suspicious", "confidence alone", "as before")


def corrupted(data: Data, share: float = CORRUPTED, seed: int = 0) -> Data:
    """Return data of which a share of the sets, drawn at random, are others of the same size that miss the truth."""
    assert data.candidates is not None
    assert data.y is not None
    mask = data.candidates.mask().cpu().clone()
    n, classes = mask.shape
    rng = stream(seed, "corruption")
    chosen = torch.randperm(n, generator=rng)[: round(share * n)]
    chosen = chosen[mask[chosen].sum(1) < classes]
    # The sizes' first classes in an order that has the true one last.
    order = torch.rand(len(chosen), classes, generator=rng).scatter_(1, data.y[chosen].unsqueeze(1), 2.0).argsort(1)
    places = torch.arange(classes).expand(len(chosen), -1) < mask[chosen].sum(1, keepdim=True)
    mask[chosen] = torch.zeros_like(places).scatter_(1, order, places)
    return attrs.evolve(data, candidates=CandidateSets.from_mask(mask, data.candidates.class_names))


def orders(found: cleaning.Cleaned) -> dict[str, Tensor]:
    """Return the examples in the order of each list."""
    sure = found.confidence.double()
    return {
        "ambiguous": found.review.ambiguous.argsort(),
        "suspicious": found.review.suspicious.argsort(),
        "confidence alone": torch.argsort(sure, stable=True),
        "as before": torch.argsort(sure * found.covered.double(), stable=True),
    }


def measure(data: Data, seed: int = 0) -> dict[str, Any]:
    """Return how many labels are wrong, and how many of them the first tenth of each list holds."""
    assert data.candidates is not None
    assert data.y is not None
    registry = load_plugins().registry
    estimator = report.best_estimator(data, registry, seed=seed)
    options = fitting.options_for(registry, estimator=(estimator, {}), budget="quick", seed=seed)
    found = cleaning.clean(data, registry, options)
    wrong = found.label != data.y
    missed = ~data.candidates.mask().cpu().gather(1, data.y.unsqueeze(1)).squeeze(1)
    tenth = len(wrong) // 10
    listed = orders(found)
    return {
        "rows": len(wrong),
        "wrong": int(wrong.sum()),
        "missed": int(missed.sum()),
        "thought to miss": found.review.miss_rate,
        "tenth": tenth,
        "wrong in the first tenth": {name: int(wrong[order[:tenth]].sum()) for name, order in listed.items()},
        "missed in the first tenth": {name: int(missed[order[:tenth]].sum()) for name, order in listed.items()},
    }


def text(found: dict[str, Any]) -> str:
    """Return the page's table."""
    lines = [
        "| table | wrong labels | sets that miss | first tenth | " + " | ".join(LISTS) + " |",
        "|---" * (4 + len(LISTS)) + "|",
    ]
    for name, row in found.items():
        counts = [
            f"{row['wrong in the first tenth'][each]}"
            + (f" ({row['missed in the first tenth'][each]})" if row["missed"] else "")
            for each in LISTS
        ]
        facts = [name, f"{row['wrong']:,} of {row['rows']:,}", str(row["missed"]), str(row["tenth"])]
        lines.append("| " + " | ".join([*facts, *counts]) + " |")
    return "\n".join(lines)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--data-dir", type=Path, default=Path("data"))
    options.add_argument("--only", default="", help="some of: " + ", ".join(NAMES))
    options.add_argument(
        "--write", action="store_true", help="write the results and the page; with --only, add to them"
    )
    given = options.parse_args()
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    if given.only and given.write and RESULTS.exists():
        found = json.loads(RESULTS.read_text(encoding="utf-8"))
    for name in [name for name in NAMES if not given.only or name in given.only.split(",")]:
        data = TABLES[name](given.data_dir)
        for title, version in ((name, data), (f"{name}, corrupted", corrupted(data))):
            found[title] = measure(version)
            print(title, json.dumps(found[title]), flush=True)
    if given.write:
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{text(found)}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
    print(text(found))


if __name__ == "__main__":
    main()
