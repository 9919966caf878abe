"""What an epoch of every method costs, relative to `ppl`: the same network, examples and batches for all.

`python -m benchmarks.methods` measures all methods and writes `benchmarks/methods.json`, of which the leaderboard's
costs are made; so does a whole run of all benchmarks. `python -m benchmarks.methods NAME …` prints the costs of some
methods, and writes nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import click
import torch

from benchmarks import report
from benchmarks.harness import Row, Section, measure, ratio
from benchmarks.problems import LR, MOMENTUM, WEIGHT_DECAY, Synthetic, backbone
from wsl_toolkit.components import Estimator
from wsl_toolkit.parameters import parameters_of
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.system.files import write_atomically
from wsl_toolkit.training.optimisers import make_optimizer
from wsl_toolkit.training.plan import ExecutionPlan
from wsl_toolkit.training.risk import Risk
from wsl_toolkit.training.trainer import Trainer

RESULTS = report.ROOT / "benchmarks" / "methods.json"
TITLE = "Cost of methods"
BATCH = 100
REFERENCE = "ppl"
SIZES = {"linear": (5_000, (48,), 23), "mlp": (5_000, (784,), 10)}
"""Examples, their shape, classes: about MSRCv2's, and the leaderboard's part of MNIST."""


def sections(quick: bool) -> list[Section]:
    """Time an epoch of each method on each network."""
    return [compare(network, rounds=1 if quick else 7, scale=0.1 if quick else 1.0) for network in SIZES]


def compare(network: str, rounds: int, scale: float, names: Sequence[str] = ()) -> Section:
    """Time an epoch of these methods, or of all, round by round, and compare with the reference."""
    n, shape, num_classes = SIZES[network]
    problem = Synthetic.draw(int(n * scale), shape, num_classes)
    names = list(dict.fromkeys([REFERENCE, *(names or methods())]))
    cases = {name: epoch_of(problem, network, name) for name in names}
    seconds = measure(cases, rounds=rounds, clock=time.process_time)
    rows = [Row.of(f"{network}: {name}", ratio(seconds, name, REFERENCE)) for name in names if name != REFERENCE]
    note = (
        f"One epoch of {int(n * scale):,} examples, batch {BATCH}, one model and one thread at a time: processor time "
        f"relative to `{REFERENCE}`, which a busy machine disturbs least. "
        "Methods that can be stacked cost less in studies."
    )
    return Section(
        title=f"{TITLE}, {network}",
        note=note,
        rows=tuple(sorted(rows, key=lambda row: row.median)),
        details=seconds,
    )


def methods() -> list[str]:
    """Return the estimators that can train and need no parameter."""
    registry = load_plugins().registry
    classes = {name: registry.get("estimator", name) for name in registry.names("estimator")}
    return [
        name
        for name, cls in classes.items()
        if cls.trains and not any(parameter.required for parameter in parameters_of(cls).values())
    ]


def epoch_of(problem: Synthetic, network: str, name: str) -> Callable[[], Any]:
    """Return a function that trains a method for one more epoch."""
    method: Estimator = load_plugins().registry.create("estimator", name, {})
    if "two_networks" in method.needs:
        model = method.extend_two(lambda: backbone(network, problem))
    else:
        model = method.extend(backbone(network, problem))
    trainer = Trainer(
        model=model,
        risk=Risk(method, problem.candidates),
        inputs=problem.x,
        optimizer=make_optimizer("sgd", model.parameters(), LR, WEIGHT_DECAY, MOMENTUM),
        scheduler=None,
        batch_size=BATCH,
        shuffle=torch.Generator().manual_seed(0),
        evaluate=lambda model, risk: {},
        plan=ExecutionPlan(threads=1),
    )
    return lambda: list(trainer.epochs(trainer.epoch + 1))


def write(sections: Sequence[Section], facts: dict[str, Any]) -> None:
    """Write the costs that are among some sections, and what was measured on."""
    costs = [attrs.asdict(section) for section in sections if section.title.startswith(TITLE)]
    write_atomically(RESULTS, json.dumps({"machine": facts, "sections": costs}, indent=1, ensure_ascii=False) + "\n")


@click.command()
@click.argument("names", nargs=-1)
@click.option("--rounds", default=7, show_default=True, type=click.IntRange(min=1), help="Epochs of each.")
def main(names: tuple[str, ...], rounds: int) -> None:
    """Print what an epoch of some methods costs, relative to ppl; of all methods, and write it, if none is named."""
    facts = report.machine()
    found = []
    for network in SIZES:
        found.append(compare(network, rounds, 1.0, names))
        click.echo(report.text(found[-1]) + "\n")
    if not names:
        write(found, facts)
        click.echo(f"Written: {RESULTS.name}.")


if __name__ == "__main__":
    main()
