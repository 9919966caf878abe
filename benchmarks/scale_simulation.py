"""What 10^9 examples, 10^5 classes and 1,000 runs would cost: arithmetic from the code's own layouts, and simulation.

`python -m benchmarks.scale_simulation` prints the tables of docs/scale.md, and with `--write` puts them there. Nothing
here needs a cluster: constants come from `cluster.json`, which `benchmarks.cluster` measured on two cores, and from
`ASSUMED`, which says what is not known here. Draws are seeded, so that the page can be compared with the code.
"""

from __future__ import annotations

import heapq
import json
import math
import random
import statistics
from pathlib import Path
from typing import Any

import attrs
import click

from benchmarks.cluster import RESULTS

PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
BEGIN, END = "<!-- simulation: begin -->", "<!-- simulation: end -->"
GB = 1e9


@attrs.frozen(kw_only=True)
class Plan:
    """The largest thing that the toolkit is to be measured against."""

    examples: int = 10**9
    classes: int = 10**5
    runs: int = 1_000
    set_size: int = 10
    """Candidates of an example, on average."""
    raw_bytes: int = 784
    """Bytes of an input as it lies on disk."""
    features: int = 512
    """What the last layer sees: its weights are most of such a network."""
    held_out: int = 10**4
    epochs: int = 5
    batch: int = 65_536
    ranks: int = 64
    metrics: int = 6


@attrs.frozen(kw_only=True)
class Assumed:
    """What this machine cannot tell."""

    network: float = 10 / 8 * 1e9
    """Bytes a second between two machines: 10 Gbit/s Ethernet."""
    latency: float = 50e-6
    """Seconds for a message between two machines."""
    flops: float = 1e14
    """Operations a second of an accelerator in training."""
    node_days: float = 30.0
    """Days for which a machine lives, on average."""
    tracked_batch: float = 0.06
    """Seconds for 1,000 metrics through a tracking server with one worker (twice the embedded database's)."""
    delivery: float = 0.25
    """Seconds of the driver for each result that it delivers: about seven calls to the server."""


PLAN, ASSUMED = Plan(), Assumed()
NOTICED = 25.0
"""Seconds until Ray misses a node that died: measured once, with its default settings."""


def table(title: str, head: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [f"**{title}**", "", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows), ""])


def gigabytes(value: float) -> str:
    """Return bytes as people read them."""
    return f"{value / 1e12:,.0f} TB" if value >= 1e13 else f"{value / GB:,.1f} GB"


# ----------------------------------------------------------------- arithmetic


def memory_rows(plan: Plan) -> list[list[str]]:
    """What lies in memory, in all, and on one rank of a data-parallel run."""
    from wsl_toolkit.data.inputs import CHUNK_CELLS
    from wsl_toolkit.labels.storage import choose_kind, index_dtype

    n, k, ranks = plan.examples, plan.classes, plan.ranks
    entries = n * plan.set_size
    kind = choose_kind(n, k, entries)
    width = index_dtype(k).itemsize
    sets = {"dense": n * k, "packed": n * (k // 8), "sparse": 8 * (n + 1) + width * entries}
    local = plan.batch // ranks
    chunk = plan.batch * max(1, CHUNK_CELLS // (plan.raw_bytes * plan.batch)) // ranks
    weights = 4 * plan.features * k
    rows = [
        ("candidate sets, a byte a cell", sets["dense"], None, "never: the store is chosen by size"),
        ("candidate sets, a bit a cell", sets["packed"], None, "never"),
        (f"candidate sets as the toolkit keeps them ({kind}), and their sizes", sets[kind] + 8 * n,
         (sets[kind] + 8 * n) / ranks, "each rank keeps its part, but **draws or reads the whole first**"),
        ("confidences, [n, K] in float32", 4 * n * k, None, "never: `on_candidates` state lies on candidates"),
        ("confidences on the candidates", 4 * entries + 8 * n, (4 * entries + 8 * n) / ranks, "each rank its own"),
        ("order of an epoch, int64", 8 * n, 8 * n, "**every rank draws the whole order**"),
        ("inputs, raw", plan.raw_bytes * n, 0, "a mapped file, read chunk by chunk"),
        ("logits, sets and state of a batch, dense", 0, (4 + 1 + 4) * local * k * 3, "with what autograd keeps"),
        (f"sets and state of a chunk ({chunk:,} examples a rank), dense", 0, (1 + 4) * chunk * k, "gathered at once"),
        ("last layer: weights, gradient, momentum, message", 4 * weights, 4 * weights, "on every rank"),
        ("held-out logits", 4 * plan.held_out * k, 4 * plan.held_out * k / ranks, "all of them meet on rank 0"),
        ("a checkpoint: confidences of all ranks", 4 * entries, 0, "**all of it meets on rank 0**"),
    ]  # fmt: skip
    return [
        [what, gigabytes(whole) if whole else "–", gigabytes(part) if part is not None and part else "–", remark]
        for what, whole, part, remark in rows
    ]


def network_rows(plan: Plan, assumed: Assumed) -> list[list[str]]:
    """What an epoch of one run sends, and how long that takes."""
    steps = math.ceil(plan.examples / plan.batch)
    message = 4 * plan.features * plan.classes
    ring = 2 * (plan.ranks - 1) / plan.ranks * message
    seconds = steps * (ring / assumed.network + 2 * (plan.ranks - 1) * assumed.latency)
    compute = 3 * 2 * plan.features * plan.classes * plan.examples / (plan.ranks * assumed.flops)
    whole = 2 * 4 * plan.batch * plan.classes
    return [
        ["steps of an epoch", f"{steps:,}"],
        ["gradients that a rank sends and gets in a step", gigabytes(ring)],
        ["adding up gradients, an epoch", f"{seconds / 3600:.1f} h"],
        ["computing the last layer, an epoch", f"{compute / 3600:.2f} h"],
        ["a step of a method that looks at whole batches: logits of all", gigabytes(whole)],
        ["reading inputs, a rank and epoch", gigabytes(plan.raw_bytes * plan.examples / plan.ranks)],
    ]


def tracking_rows(plan: Plan, assumed: Assumed) -> list[list[str]]:
    """What a tracking server hears, for the largest runs and for a table of the paper."""
    rows = []
    for what, epochs in (("this plan", plan.epochs), ("paper-sized: 250 epochs", 250)):
        points = plan.runs * epochs * plan.metrics
        batches = plan.runs * math.ceil(epochs * plan.metrics / 1000)
        seconds = batches * assumed.tracked_batch + plan.runs * assumed.delivery
        rows.append([what, f"{points:,}", f"{batches:,}", f"{seconds / 60:.0f} min"])
    every = plan.runs * 250 * plan.metrics
    rows.append(["the same, one call for each value", f"{every:,}", f"{every:,}", f"{every * 0.016 / 3600:.1f} h"])
    return rows


# ----------------------------------------------------------------- simulation


def step_seconds(ranks: int, local: int, example: float, fixed: float, message: float, rng: random.Random) -> float:
    """Simulate steps: each rank gets its share of a batch by chance, the slowest decides, then gradients are added."""
    if ranks == 1:
        return fixed + example * local
    steps = []
    spread = math.sqrt(local * (1 - 1 / ranks))  # of a binomial share, normal at such sizes
    for _ in range(200):
        largest = max(local + spread * rng.gauss(0, 1) for _ in range(ranks))
        steps.append(fixed + example * largest + message)
    return statistics.fmean(steps)


def weak_scaling_rows(found: dict[str, Any] | None) -> list[list[str]]:
    """One run, the same work for each rank: simulated from one rank's step and a sum's cost, beside the measured."""
    rng = random.Random(1)
    sizes = (1, 2, 4, 16, 64, 256)
    here = found["sections"]["One run on two ranks"]["details"] if found else None
    if here is None:
        return []
    batch = here["batch"]
    steps = math.ceil(here["examples"] / batch)
    seconds = here["seconds"]
    measured, beside = (
        {1: 1.0, 2: statistics.median(a / b for a, b in zip(seconds[alone], seconds["two"], strict=True))}
        for alone in ("one", "apart")
    )
    one = statistics.median(seconds["one"]) / steps
    message = statistics.median(here["sum"])
    rows = []
    for ranks in sizes:
        grown = message * (2 * (ranks - 1) / ranks) + ASSUMED.latency * 2 * (ranks - 1) if ranks > 1 else 0.0
        efficiency = one / step_seconds(ranks, batch, one / batch, 0.0, grown, rng)
        large = 1 / step_seconds(ranks, 1024, 1 / 1024, 0.0, 0.0, rng)
        seen = [f"{values[ranks]:.2f}" if ranks in values else "–" for values in (measured, beside)]
        rows.append([str(ranks), f"{efficiency:.2f}", *seen, f"{large:.2f}"])
    return rows


def simulate_study(
    workers: int, tasks: int, seconds: float, driver: float, node_days: float, seed: int = 0
) -> tuple[float, int]:
    """Return a study's efficiency (useful work / time of all workers) and how many tasks were begun again.

    Tasks are of random length, on workers that die now and then. The driver hears of one result after the other: it
    gives the worker its next task, then delivers, which keeps others waiting.
    """
    rng = random.Random(seed)
    lost = 0
    work = 0.0

    def end_of_task(begin: float) -> float:
        nonlocal lost, work
        length = rng.lognormvariate(math.log(seconds) - 0.125, 0.5)
        work += length
        while (death := rng.expovariate(1 / (node_days * 86_400))) < length:
            begin += death + NOTICED
            lost += 1
        return begin + length

    under_way = [end_of_task(0.0) for _ in range(workers)]
    heapq.heapify(under_way)
    waiting, heard, delivered = tasks - workers, 0.0, 0.0
    while under_way:
        heard = max(heapq.heappop(under_way), delivered)
        delivered = heard + driver
        if waiting:
            waiting -= 1
            heapq.heappush(under_way, end_of_task(heard))
    return work / (workers * delivered), lost


def study_rows(found: dict[str, Any] | None) -> list[list[str]]:
    """A study, the same number of tasks for each worker: simulated, beside what was measured on one and two cores."""
    measured = {}
    if found:
        seconds = found["sections"]["A study on Ray"]["details"]["seconds"]
        pairs = zip(seconds["ray, half the study on one core"], seconds["ray"], strict=True)
        measured = {1: 1.0, 2: statistics.median(a / b for a, b in pairs)}
    rows = []
    for workers in (1, 2, 8, 64, 256, 1024):
        tasks = 20 * workers
        minute, _ = simulate_study(workers, tasks, 60, ASSUMED.delivery, ASSUMED.node_days)
        hour, lost = simulate_study(workers, tasks, 3600, ASSUMED.delivery, ASSUMED.node_days)
        seen = f"{measured[workers]:.2f}" if workers in measured else "–"
        rows.append([f"{workers:,}", f"{tasks:,}", f"{minute:.2f}", f"{hour:.2f}", str(lost), seen])
    return rows


def measured_tables(found: dict[str, Any]) -> list[str]:
    """What `benchmarks.cluster` measured, and on what."""
    tables = []
    for title, section in found["sections"].items():
        facts = section["machine"]
        where = f"{facts['cores']} cores, Python {facts['python']}, torch {facts['torch']}"
        where += f", load {facts['load_average']:g}"
        rows = []
        for row in section["rows"]:
            unit = "" if row["unit"] == "×" else f" {row['unit']}"
            target = f"≤ {row['at_most']:g}" if row["at_most"] is not None else ""
            rows.append([row["what"], f"{row['median']:.2f}{unit}", f"{row['q1']:.2f} to {row['q3']:.2f}", target])
        tables.append(table(f"{title}, measured ({where})", ["", "median", "quartiles", "target"], rows))
        tables.append(f"{section['note']}\n")
    return tables


def text() -> str:
    """Return all tables."""
    found = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else None
    plan = PLAN
    parts = [
        table(
            f"Memory of one run: {plan.examples:,} examples, {plan.classes:,} classes, sets of {plan.set_size}, "
            f"{plan.ranks} ranks",
            ["what", "in all", "on a rank", ""],
            memory_rows(plan),
        ),
        table(
            f"Network of one run: batches of {plan.batch:,}, last layer {plan.features} × {plan.classes:,}, 10 Gbit/s",
            ["what", ""],
            network_rows(plan, ASSUMED),
        ),
        table(
            f"Tracking of {plan.runs:,} runs, {plan.metrics} metrics an epoch",
            ["what", "values", "calls", "time of the server and the driver"],
            tracking_rows(plan, ASSUMED),
        ),
        table(
            "Weak scaling of one run (work a rank is constant; 1 is perfect)",
            [
                "ranks",
                "simulated, batch of 256 a rank",
                "measured",
                "measured, against as many processes that send nothing",
                "simulated, 1,024 a rank and no network",
            ],
            weak_scaling_rows(found),
        ),
        table(
            "Weak scaling of a study (20 tasks a worker; 1 is perfect)",
            ["workers", "tasks", "simulated, tasks of a minute", "simulated, of an hour", "deaths in it", "measured"],
            study_rows(found),
        ),
    ]
    return "\n".join([*parts, *(measured_tables(found) if found else [])])


@click.command()
@click.option("--write", is_flag=True, help="Put the tables into docs/scale.md.")
def main(write: bool) -> None:
    """Print the tables."""
    tables = text()
    click.echo(tables)
    if write:
        from wsl_toolkit.system.files import write_atomically

        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        write_atomically(PAGE, f"{before}{BEGIN}\n\n{tables}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
