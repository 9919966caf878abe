"""What it brings to learn how sets come about, on made tables where that is known.

    python -m benchmarks.set_laws [--rows 2000] [--write]

The same inputs and classes (scikit-learn's `make_classification`) with sets that come about in seven ways. `wsl fit`
learns from each twice: as it does by default, and with the uniform law alone. A fifth is held out; true labels count.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier

from wsl_toolkit.data.dataset import Data
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.own_data import choices, fitting
from wsl_toolkit.own_data.set_laws import LAWS
from wsl_toolkit.plugins.loading import load_plugins

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "set_laws.json"
PAGE = ROOT / "docs" / "accuracy.md"
BEGIN, END = "<!-- generated: laws -->", "<!-- end of laws -->"
CLASSES = 8

Table = tuple[np.ndarray, np.ndarray]
"""Inputs [n, d] and sets [n, K]."""


def uniform(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> Table:
    """Each wrong class with probability 0.2."""
    return x, rng.random((len(y), CLASSES)) < 0.2


def by_class(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> Table:
    """Each wrong class with a probability of its own, up to a half."""
    return x, rng.random((len(y), CLASSES)) < rng.uniform(0, 0.5, CLASSES)


def by_pair(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> Table:
    """Each pair of classes with a probability of its own, few of them large, and not the same both ways."""
    return x, rng.random((len(y), CLASSES)) < (0.8 * rng.uniform(0, 1, (CLASSES, CLASSES)) ** 3)[y]


def by_inputs(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> Table:
    """The classes that a forest takes an example for: the likelier by out-of-bag votes, the sooner."""
    forest = RandomForestClassifier(100, min_samples_leaf=5, random_state=0, oob_score=True).fit(x, y)
    votes = np.array(forest.oob_decision_function_)
    votes[np.arange(len(y)), y] = 0
    votes /= votes.max(1, keepdims=True).clip(1e-9)
    return x, rng.random(votes.shape) < (votes * 1.2 / votes.sum(1).mean()).clip(0, 0.95)


def recordings(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> Table:
    """Rows of recordings, in each of which a few classes of one of twelve habitats are heard: its set."""
    sets = np.zeros((len(y), CLASSES), bool)
    left = {k: list(rng.permutation(np.flatnonzero(y == k))) for k in range(CLASSES)}
    habitats = rng.dirichlet(np.full(CLASSES, 0.5), size=12).clip(1e-6)
    while any(left.values()):
        habitat = habitats[rng.integers(12)]
        heard = rng.choice(CLASSES, rng.integers(1, 4), replace=False, p=habitat / habitat.sum())
        rows = []
        for _ in range(rng.integers(1, 9)):
            some = [k for k in heard if left[k]] or [k for k in range(CLASSES) if left[k]]
            if some:
                rows.append(left[some[rng.integers(len(some))]].pop())
        sets[np.ix_(rows, np.unique(y[rows]))] = True
    return x, sets


def scenes(x: np.ndarray, y: np.ndarray, rng: np.random.Generator, shown: float = 0.0) -> Table:
    """Rows of scenes, each with a cast whose names all its rows carry, but for a tenth of them."""
    casts = [rng.choice(CLASSES, rng.integers(1, 5), replace=False) for _ in range(25)]
    casts += [np.array([k]) for k in range(CLASSES) if not any(k in cast for cast in casts)]
    weight = rng.dirichlet(np.ones(len(casts)))
    held = np.stack([np.isin(np.arange(CLASSES), cast) for cast in casts])
    scene = np.array([rng.choice(len(casts), p=(own := weight * held[:, k]) / own.sum()) for k in y])
    moved = x + shown * rng.normal(size=(len(casts), x.shape[1]))[scene]
    return moved, held[scene] & (rng.random((len(y), CLASSES)) >= 0.1)


def shown_scenes(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> Table:
    """The same, and a scene moves the inputs of its rows."""
    return scenes(x, y, rng, shown=1.5)


WAYS: dict[str, Callable[[np.ndarray, np.ndarray, np.random.Generator], Table]] = {
    "uniform": uniform,
    "by class": by_class,
    "by pair of classes": by_pair,
    "by inputs": by_inputs,
    "recordings": recordings,
    "scenes": scenes,
    "scenes that inputs show": shown_scenes,
}


def made(way: str, rows: int) -> Data:
    """Return a made table; the true class is always a candidate, and no set is full."""
    rng = np.random.default_rng(list(WAYS).index(way))
    x, y = make_classification(
        rows,
        20,
        n_informative=8,
        n_redundant=4,
        n_classes=CLASSES,
        n_clusters_per_class=2,
        class_sep=1.3,
        random_state=7,
    )
    x, sets = WAYS[way](x, y, rng)
    sets[np.arange(rows), y] = True
    full = np.flatnonzero(sets.all(1))
    sets[full, (y[full] + 1) % CLASSES] = False
    labels = torch.from_numpy(y)
    return Data(
        name=way, x=torch.from_numpy(x), candidates=CandidateSets.from_mask(sets), num_classes=CLASSES, known_y=labels
    )


def measure(data: Data) -> dict[str, object]:
    """Return what is right with and without laws, and which law was found."""
    registry = load_plugins().registry
    options = fitting.options_for(registry, estimator=("cc", {}))
    with mock.patch.dict(choices.TRIED_LAWS, {"normal": LAWS[:1]}):
        _, without = fitting.fit_and_report(data, registry, options)
    fitted, found = fitting.fit_and_report(data, registry, options)
    assert data.candidates is not None
    return {
        "mean size": data.candidates.mean_size,
        "uniform law alone": without.accuracy,
        "laws learned": found.accuracy,
        "learned": fitted.laws[0][0] if fitted.chances is not None else "none",
        "likeliest": fitted.laws[0][0],
        "losses": dict(fitted.laws),
    }


def text(found: dict[str, dict[str, object]]) -> str:
    """Return the page's table."""
    lines = ["| sets come about | mean size | uniform law alone | laws learned | law | explains held-out sets best |"]
    lines += ["|---|---|---|---|---|---|"]
    for way, row in found.items():
        numbers = [f"{100 * float(str(row[key])):.1f}" for key in ("uniform law alone", "laws learned")]
        size = f"{float(str(row['mean size'])):.2f}"
        lines.append("| " + " | ".join([way, size, *numbers, str(row["learned"]), str(row["likeliest"])]) + " |")
    return "\n".join(lines)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=2000)
    options.add_argument("--write", action="store_true", help="write the results and the page")
    given = options.parse_args()
    torch.set_num_threads(1)
    found = {}
    for way in WAYS:
        found[way] = measure(made(way, given.rows))
        print(way, json.dumps(found[way]), flush=True)
    if given.write:
        RESULTS.write_text(json.dumps({"rows": given.rows, "tables": found}, indent=2) + "\n", encoding="utf-8")
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{text(found)}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
