"""Many models at once against the same models one by one."""

from __future__ import annotations

import functools
import itertools
import statistics
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.harness import Row, Section, measure, ratio, spread
from benchmarks.loop import one_epoch, with_threads
from benchmarks.problems import BATCH, Synthetic, estimator, trainer
from wsl_toolkit.data.dataset import Data
from wsl_toolkit.data.problem import Problem, make_problem
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.training.config import Training
from wsl_toolkit.training.stacking import Stack, group
from wsl_toolkit.training.train import TrainingJob, train
from wsl_toolkit.training.trainer import Trainer

GRID = [(10.0**-a, 10.0**-b) for a, b in itertools.product(range(1, 7), repeat=2)]
"""The paper's 36 pairs of learning rate and weight decay."""


def sections(quick: bool) -> list[Section]:
    """One grid, five grids with seeds of their own, a perceptron, and how time grows with the number of models."""
    n, rounds = (6_000, 2) if quick else (60_000, 5)
    return [
        commands(n, max(2, rounds - 2)),
        grid(n, rounds),
        seeds(n, max(2, rounds - 2)),
        small_perceptrons(rounds),
        perceptron(rounds),
        growth(n // 3, rounds),
    ]


def commands(n: int, rounds: int) -> Section:
    """What `wsl run --trials 5` and the grid of `wsl fit` train, at once and one after the other."""
    rows, details = [], {}
    for what, size, jobs, wanted in (
        (f"wsl run --trials 5, linear, {n:,} × 784", n, _trials(n, 784), 2.0),
        ("wsl run --trials 5, linear, digits' size", 1_797, _trials(1_797, 64), None),
        ("the grid of wsl fit, linear, 2,000 × 20", 2_000, _fit_grid(2_000, 20), None),
    ):
        cases = {
            "one by one": functools.partial(_one_by_one, jobs),
            "at once": functools.partial(train, jobs),
        }
        seconds = measure(cases, rounds)
        rows.append(Row.of(what, ratio(seconds, "one by one", "at once"), at_least=wanted))
        details[what] = {"examples": size, "seconds": seconds}
    note = (
        "The same jobs, built, trained and evaluated by the one function that every command calls; batch 64, 3 epochs. "
        "Problems are drawn before; tracking and figures are not part of it."
    )
    return Section(title="Stacked: whole commands", note=note, rows=tuple(rows), details=details)


def _one_by_one(jobs: list[TrainingJob]) -> None:
    for job in jobs:
        train([job])


def _problem(n: int, features: int, seed: int) -> Problem:
    drawn = Synthetic.draw(n, (features,), 10, seed)
    data = Data(
        name="synthetic", x=drawn.x, y=drawn.candidates.mask().int().argmax(1), num_classes=10, normalise="none"
    )
    generator = load_plugins().registry.create("generator", "mcl-skewed", {})
    return make_problem(data, generator, seed=seed, validation=0.1, test=0.1)


def _job(problem: Problem, training: Training, seed: int) -> TrainingJob:
    linear = load_plugins().registry.create("backbone", "linear", {})
    return TrainingJob(problem=problem, estimator=estimator("ppl"), backbone=linear, training=training, seed=seed)


def _trials(n: int, features: int) -> list[TrainingJob]:
    settings = Training(epochs=3, device="cpu")
    return [_job(_problem(n, features, seed), settings, seed) for seed in range(5)]


def _fit_grid(n: int, features: int) -> list[TrainingJob]:
    problem = _problem(n, features, 0)
    pairs = itertools.product((0.1, 0.01), (1e-3, 1e-2))
    return [_job(problem, Training(epochs=3, device="cpu", lr=lr, weight_decay=wd), 0) for lr, wd in pairs]


def grid(n: int, rounds: int) -> Section:
    """36 learning rates and weight decays, one seed."""
    problem = Synthetic.draw(n, (784,), 10)
    rows, details = [], {}
    products = {
        f"products, {count}": with_threads(count, bare_products(problem, len(GRID)))
        for count in sorted({1, torch.get_num_threads()})
    }
    for method in ("ppl", "proden", "cc"):
        alone, together = (grid_members(problem, "linear", method, seed=0) for _ in range(2))
        cases = {"one by one": _each(alone), "stacked": Stack(together).train_epoch}
        seconds = measure(cases | (products if method == "proden" else {}), rounds)
        rows.append(Row.of(f"36 linear models, {method}", ratio(seconds, "one by one", "stacked"), at_least=10))
        details[method] = seconds
    best = min(products, key=lambda name: statistics.median(details["proden"][name]))
    rows += [
        Row.of("the stack, proden / its matrix products alone", ratio(details["proden"], "stacked", best)),
        Row.of("one by one, proden / the same matrix products", ratio(details["proden"], "one by one", best)),
    ]
    note = (
        "Time of one epoch of all models one after the other, by our own loop, over that of the stack. The last row is "
        "what the second would be if a stack did nothing but multiply matrices, forward and backward: the faster a "
        "single model is, the less a stack can gain."
    )
    return Section(title="Stacked: a grid of 36", note=note, rows=tuple(rows), details={"examples": n, **details})


def bare_products(problem: Synthetic, models: int) -> Callable[[], None]:
    """The matrix products of a stack's linear layer, forward and backward, into memory that is there already."""
    outputs = problem.candidates.num_classes * models
    weight = torch.randn(outputs, problem.x[0].numel())
    logits, gradient = torch.randn(BATCH, outputs), torch.empty(weight.shape[1], outputs)
    slopes = torch.randn(BATCH, outputs)

    def epoch() -> None:
        for start in range(0, len(problem.x) - BATCH + 1, BATCH):
            inputs = problem.x[start : start + BATCH].flatten(1)
            torch.mm(inputs, weight.t(), out=logits)
            torch.mm(inputs.t(), slopes, out=gradient)

    return epoch


def seeds(n: int, rounds: int) -> Section:
    """The grid for five seeds, each with its own inputs, sets, order and initialisation; then seeds alone."""
    problems = [Synthetic.draw(n, (784,), 10, seed) for seed in range(5)]
    together = [m for seed, problem in enumerate(problems) for m in grid_members(problem, "linear", "ppl", seed)]
    alone = [trainer(problem, "linear", estimator("ppl"), seed=seed) for seed, problem in enumerate(problems)]
    seconds = measure({"five": _each(alone), "all": _grouped(together)}, rounds)
    first = Row.of("180 linear models, ppl (36 × 5 seeds)", ratio(seconds, "five", "all", times=36), at_least=10)
    del together
    own = [trainer(problem, "linear", estimator("ppl"), seed=seed) for seed, problem in enumerate(problems)]
    pair = measure({"five": _each(alone), "own orders": _grouped(own)}, rounds)
    second = Row.of("5 linear models, ppl (one for each seed)", ratio(pair, "five", "own orders"), at_least=2.5)
    note = (
        "One model of each seed is trained alone, and counted 36 times. Models that share every batch become one "
        "matrix product; five models with five orders have nothing to share but the overhead."
    )
    return Section(
        title="Stacked: five seeds", note=note, rows=(first, second), details={"grid": seconds, "seeds": pair}
    )


def small_perceptrons(rounds: int) -> Section:
    """Perceptrons of which `wsl fit` trains many, in batches and of widths between which a stack's gain varies."""
    rows, details = [], {}
    for batch, width, features in itertools.product((16, 64, 256), (32, 300), (30, 784)):
        problem = Synthetic.draw(20 * batch, (features,), 10)
        shape = {"network": "mlp", "widths": (width,), "batch": batch}
        alone, together = (
            [trainer(problem, method=estimator("ppl"), lr=lr, weight_decay=wd, **shape) for lr, wd in GRID[:6]]
            for _ in range(2)
        )
        what = f"6 perceptrons {features}-{width}-10, batch {batch}"
        seconds = measure({"one by one": _each(alone), "stacked": Stack(together).train_epoch}, rounds)
        rows.append(Row.of(what, ratio(seconds, "one by one", "stacked")))
        details[what] = seconds
    note = "Twenty steps of `ppl`, batch norm and ReLU on the hidden layer."
    return Section(title="Stacked: small perceptrons", note=note, rows=tuple(rows), details=details)


def perceptron(rounds: int) -> Section:
    """A network large enough to keep the processor busy alone: the toolkit must notice."""
    problem = Synthetic.draw(3_072, (784,), 10)
    alone, automatic, forced = (grid_members(problem, "mlp", "ppl", seed=0)[:6] for _ in range(3))
    decided = group(automatic)
    seconds = measure(
        {
            "one by one": _each(alone),
            "automatic": _grouped(automatic),
            "forced": Stack(forced).train_epoch,
        },
        rounds,
    )
    rows = (
        Row.of("6 perceptrons, as the toolkit decides", ratio(seconds, "one by one", "automatic"), at_least=0.95),
        Row.of("6 perceptrons, stacked by force", ratio(seconds, "one by one", "forced")),
    )
    note = f"784-300-300-300-300-10 with batch norm. The toolkit's decision: {decided[0].alone_because or 'stack'}."
    return Section(title="Stacked: perceptrons", note=note, rows=rows, details=seconds)


def growth(n: int, rounds: int) -> Section:
    """Time for each model as there are more of them."""
    problem = Synthetic.draw(n, (784,), 10)
    grid_of = {count: [GRID[i % 36] for i in range(count)] for count in (2, 4, 9, 18, 36, 72, 144)}
    cases: dict[str, Callable[[], Any]] = {"1": one_epoch(trainer(problem, "linear", estimator("ppl")))}
    for count, pairs in grid_of.items():
        members = [trainer(problem, "linear", estimator("ppl"), lr=lr, weight_decay=wd) for lr, wd in pairs]
        cases[str(count)] = Stack(members).train_epoch
    seconds = measure(cases, rounds)
    per_model = {name: [value / int(name) for value in values] for name, values in seconds.items()}
    rows = tuple(
        Row.of(
            f"{count} models: time for each, of that of one alone",
            spread([a / b for a, b in zip(per_model[count], per_model["1"], strict=True)]),
        )
        for count in per_model
        if count != "1"
    )
    note = "Linear models, `ppl`; the smaller the better."
    return Section(
        title="Stacked: growth", note=note, rows=rows, details={"examples": n, "seconds per model": per_model}
    )


def grid_members(problem: Synthetic, network: str, method: str, seed: int) -> list[Trainer]:
    return [trainer(problem, network, estimator(method), lr=lr, weight_decay=wd, seed=seed) for lr, wd in GRID]


def _each(trainers: list[Trainer]) -> Callable[[], Any]:
    epochs = [one_epoch(each) for each in trainers]
    return lambda: [epoch() for epoch in epochs]


def _grouped(trainers: list[Trainer]) -> Callable[[], Any]:
    """Return a function that trains all of them an epoch further, in the groups that the toolkit makes of them."""
    members = [[trainers[place] for place in each.places] for each in group(trainers)]
    units = [Stack(together) if len(together) > 1 else together[0] for together in members]
    return lambda: [unit.train_epoch() for unit in units]
