"""A worked example for every component's page of the reference; tests/docs carries all of them out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Example = tuple[str, str]
"""The language of a block, and its text."""

EASY = ("mcl-skewed", "cl", "pcpl", "partition", "flip-class")
"""Generators for an estimator's example: the first that lies within what the estimator assumes."""

LOGITS = [[2.0, 1.0, 0.0, -1.0], [0.0, 0.5, 0.0, 0.0]]
CANDIDATES = [[True, True, False, False], [False, True, True, True]]

SHAPES = {"densenet22": (3, 32, 32), "resnet32": (3, 32, 32), "torchvision": (3, 64, 64)}
"""Inputs for a backbone's example; 28 × 28 grey pixels where nothing is said."""

TABLE = """\
import csv
import random

random.seed(0)
names = ["cat", "dog", "owl"]
with open("zoo.csv", "w", newline="") as file:
    rows = csv.writer(file)
    rows.writerow(["weight", "coat", "candidates"])
    for _ in range(300):
        k = random.randrange(3)
        sets = {names[k], random.choice(names)}
        rows.writerow([round(random.gauss(4 * k, 1), 2), ["grey", "brown"][k == 1], "|".join(sorted(sets))])
"""

DATASETS: dict[str, Sequence[Example]] = {
    "csv": [
        ("python", TABLE),
        ("sh", "wsl audit zoo.csv\nwsl run --dataset csv --dataset-path zoo.csv --estimator ppl --epochs 5\n"),
    ],
    "parquet": [
        (
            "python",
            "import pandas as pd\n\n"
            'sets = [["cat"], ["cat", "dog"], ["owl"]] * 100\n'
            'pd.DataFrame({"weight": [1.0, 4.2, 8.1] * 100, "candidates": sets}).to_parquet("zoo.parquet")\n',
        ),
        ("sh", "wsl run --dataset parquet --dataset-path zoo.parquet --estimator ppl --epochs 5\n"),
    ],
    "xlsx": [
        (
            "python",
            "import pandas as pd\n\n"
            'sets = ["cat", "cat|dog", "owl"] * 100\n'
            'pd.DataFrame({"weight": [1.0, 4.2, 8.1] * 100, "candidates": sets}).to_excel("zoo.xlsx", index=False)\n',
        ),
        ("sh", "wsl run --dataset xlsx --dataset-path zoo.xlsx --estimator ppl --epochs 5\n"),
    ],
    "npz": [
        (
            "python",
            "import numpy as np\n\n"
            "random = np.random.default_rng(0)\n"
            "y = random.integers(3, size=300)\n"
            "candidates = random.random((300, 3)) < 0.4\n"
            "candidates[np.arange(300), y] = True\n"
            'np.savez("made.npz", x=random.normal(size=(300, 5)) + y[:, None], candidates=candidates, y=y)\n',
        ),
        ("sh", "wsl run --dataset npz --dataset-path made.npz --estimator ppl --epochs 5\n"),
    ],
    "mat": [
        ("sh", "wsl run --dataset mat --dataset-path pll/lost.mat --estimator ppl --lr 0.01 --epochs 5\n"),
    ],
    "image-folder": [
        (
            "python",
            "from pathlib import Path\n\n"
            "import numpy as np\nfrom PIL import Image\n\n"
            "random = np.random.default_rng(0)\n"
            'for place, name in enumerate(["dark", "grey", "light"]):\n'
            '    folder = Path("pictures") / name\n'
            "    folder.mkdir(parents=True, exist_ok=True)\n"
            "    for number in range(40):\n"
            "        pixels = random.integers(80 * place, 80 * (place + 1), size=(8, 8, 3), dtype=np.uint8)\n"
            '        Image.fromarray(pixels).save(folder / f"{number}.png")\n',
        ),
        (
            "sh",
            "wsl run --dataset image-folder --dataset-path pictures --dataset-size 8 \\\n"
            "  --generator cl --estimator cc --epochs 5\n",
        ),
    ],
    "openml": [("sh", "wsl run --dataset openml --dataset-id 61 --generator flip --estimator ppl --epochs 5\n")],
    "digits": [("sh", "wsl run --dataset digits --estimator ppl --epochs 5\n")],
}


def examples(role: str, name: str, cls: Any, registry: Any) -> list[Example]:
    """Return the blocks of a component's worked example."""
    by_role = {"generator": _generator, "estimator": _estimator, "backbone": _backbone, "dataset": _dataset}
    return {**by_role, "transform": _transform}[role](name, cls, registry)


def _generator(name: str, cls: Any, registry: Any) -> list[Example]:
    python = (
        "import torch\nfrom wsl_toolkit.plugins import load_plugins\n\n"
        f'generator = load_plugins().registry.create("generator", "{name}", {{}})\n'
        "y = torch.tensor([0, 1, 2, 3])\n"
        "x = torch.linspace(-1, 1, 20).view(4, 5)\n"
        "sets = generator.sample(x, y, 4, torch.Generator().manual_seed(0))\n"
        "print(sets.to_sets())  # {}\n"
    )
    shell = f"wsl inspect {name} --classes 4\nwsl run --generator {name} --estimator ppl --epochs 5\n"
    return [*_filled(python), ("sh", shell)]


def _estimator(name: str, cls: Any, registry: Any) -> list[Example]:
    chosen = next((g for g in EASY if cls.assumption.includes(registry.get("generator", g).setting)), EASY[0])
    network = " --backbone mlp" if cls.needs - {"true_labels", "epoch"} else ""
    shell = [f"wsl run --estimator {name} --generator {chosen}{network} --epochs 5"]
    plain = not cls.needs
    if plain:
        shell.append(f"wsl verify --estimator {name} --generator {chosen}")
    python = (
        "import torch\nfrom wsl_toolkit.plugins import load_plugins\n\n"
        f'estimator = load_plugins().registry.create("estimator", "{name}", {{}})\n'
        f"logits = torch.tensor({LOGITS})\n"
        f"candidates = torch.tensor({CANDIDATES})\n"
        "state = estimator.init_state(candidates)\n"
        "print(round(float(estimator.objective(logits, candidates, state)), 4))  # {}\n"
    )
    return [*(_filled(python) if plain else []), ("sh", "\n".join(shell) + "\n")]


def _transform(name: str, cls: Any, registry: Any) -> list[Example]:
    python = (
        "import torch\nfrom wsl_toolkit.plugins import load_plugins\n\n"
        "registry, rng = load_plugins().registry, torch.Generator().manual_seed(0)\n"
        "y = torch.arange(200) % 4\n"
        "x = torch.eye(4)[y] + 0.1 * torch.randn(200, 4, generator=rng)\n"
        'sets = registry.create("generator", "mcl-skewed", {}).sample(x, y, 4, rng)\n'
        f'cleaned = registry.create("transform", "{name}", {{}}).apply(x, sets, rng)\n'
        "print(round(sets.mean_size, 2), round(cleaned.mean_size, 2))  # {}\n"
    )
    return [*_filled(python), ("sh", f"wsl run --estimator ppl --generator mcl-skewed --transform {name} --epochs 5\n")]


def _backbone(name: str, cls: Any, registry: Any) -> list[Example]:
    shape = SHAPES.get(name, (1, 28, 28))
    python = (
        "import torch\nfrom wsl_toolkit.plugins import load_plugins\n\n"
        f'backbone = load_plugins().registry.create("backbone", "{name}", {{}})\n'
        f"network = backbone.build({shape}, 10)\n"
        f"print(tuple(network(torch.zeros(2, {', '.join(map(str, shape))})).shape))  # (2, 10)\n"
        "print(sum(p.numel() for p in network.parameters()))  # {}\n"
    )
    return _filled(python)


def _dataset(name: str, cls: Any, registry: Any) -> list[Example]:
    if name in DATASETS:
        return list(DATASETS[name])
    return [("sh", f"wsl run --dataset {name} --backbone linear --estimator ppl --epochs 1 --batch-size 256\n")]


def _filled(text: str) -> list[Example]:
    """Run a block whose last line prints, and write beside that line what it prints; a block that fails is none."""
    import contextlib
    import io

    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            exec(text, {})  # our own words, from this file
    except Exception:
        return []
    return [("python", text.replace("# {}", f"# {said.getvalue().strip().splitlines()[-1]}"))]
