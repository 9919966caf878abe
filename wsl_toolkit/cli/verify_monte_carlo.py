"""`wsl verify --monte-carlo`: consistency as n grows, and the bias of learned confidences, where p(y|x) is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from wsl_toolkit.cli.common import tell
from wsl_toolkit.cli.console import console, print_json
from wsl_toolkit.components import Estimator, Generator
from wsl_toolkit.errors import ConfigError
from wsl_toolkit.plugins.attribution import attributed
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.settings import Kind, Setting

if TYPE_CHECKING:
    from rich.table import Table

    from wsl_toolkit.plugins.registry import Registry
    from wsl_toolkit.theory.monte_carlo import Consistency, LearnedBias
    from wsl_toolkit.theory.verification import Request


@attrs.frozen(kw_only=True, eq=False)
class Findings:
    """What Monte Carlo found, for the table, the figure and JSON."""

    num_classes: int
    generator: str
    consistency: Consistency
    bias: LearnedBias | None


def run(estimators: list[Request], generators: list[Request], options: dict[str, Any]) -> None:
    """Learn, then show; the parts not named are chosen by what they declare."""
    registry = load_plugins().registry
    if len(generators) > 1:
        raise ConfigError("--monte-carlo looks at one --generator at a time")
    generator = _generator(registry, generators)
    found = _learn(registry, _estimators(registry, estimators), generator, options["num_classes"])
    if options["as_json"]:
        print_json(to_dict(found))
    else:
        show(found)
    if options["figure"] is not None:
        from wsl_toolkit.theory.figures.verify import draw_monte_carlo

        draw_monte_carlo(found.consistency, found.bias, found.generator, options["figure"])
        tell(f"figure: {options['figure']}")


def _generator(registry: Registry, requests: list[Request]) -> Generator:
    """Return the generator asked for, or the first that is proper and nothing narrower."""
    if requests:
        name, values = requests[0]
    else:
        proper = [
            name for name in registry.names("generator") if registry.get("generator", name).setting == Setting.PPL
        ]
        if not proper:
            raise ConfigError("no generator of the setting PPL is installed: choose a --generator")
        name, values = proper[0], {}
    made: Generator = registry.create("generator", name, values)
    return made


def _estimators(registry: Registry, requests: list[Request]) -> list[Estimator]:
    """Return the estimators asked for, or all that promise something in every proper setting and can train."""
    asked = requests or [(name, {}) for name in registry.names("estimator")]
    known = [(name, values) for name, values in asked if name in registry.names("estimator")]
    made: list[Estimator] = [registry.create("estimator", name, values) for name, values in known]
    usable = [estimator for estimator in made if estimator.trains and estimator.logits_suffice]
    if requests:
        if refused := [estimator.name for estimator in made if estimator not in usable]:
            raise ConfigError(
                f"{refused[0]} cannot train a network from logits alone: --monte-carlo has to leave it out"
            )
        if not usable:
            raise ConfigError(
                f"{asked[0][0]} is for theory alone: --monte-carlo needs an estimator that can be trained"
            )
        return usable
    return [e for e in usable if e.kind is not Kind.HEURISTIC and e.assumption.includes(Setting.PPL)]


def _learn(registry: Registry, estimators: list[Estimator], generator: Generator, num_classes: int) -> Findings:
    from wsl_toolkit.cli.verify import counting
    from wsl_toolkit.theory import monte_carlo
    from wsl_toolkit.theory.minimiser import works_on_batches

    generator.check_classes(num_classes)
    truth = monte_carlo.Truth.made(num_classes)
    confident = [
        estimator
        for estimator in estimators
        if estimator.kind is Kind.UNBIASED and estimator.update_when != "never" and not works_on_batches(estimator)
    ]
    total = len(estimators) * len(monte_carlo.SIZES) + len(confident)
    # Which component was at work is read off the traceback; the generator is named where none can be.
    with counting("trainings", total) as step, attributed(registry, "generator", generator.name):
        consistency = monte_carlo.consistency(truth, estimators, generator, step, sizes=monte_carlo.SIZES)
        bias = monte_carlo.learned_bias(truth, confident, generator, step) if confident else None
    return Findings(num_classes=num_classes, generator=generator.name, consistency=consistency, bias=bias)


def show(found: Findings) -> None:
    """Print excess risks against n with their slopes, and the bias against training time."""
    from wsl_toolkit.theory.monte_carlo import REPEATS, standard_error

    out = console()
    result = found.consistency
    table = _table(
        f"excess risk R(f̂) - R(f*), K = {found.num_classes}, {found.generator}, mean ± standard error of {REPEATS}",
        ("estimator", *(f"n = {n}" for n in result.sizes), "slope"),
    )
    for name, values in result.excess.items():
        numbers = zip(values.mean(-1).tolist(), standard_error(values).tolist(), strict=True)
        table.add_row(name, *(f"{mean:.4f}\n± {error:.4f}" for mean, error in numbers), f"{result.slope(name):.2f}")
    table.add_row("Theorem 4", *(f"{value:.2f}" for value in result.bound), "-0.50", style="dim")
    out.print(table)
    out.print("\nslope: of log excess against log n; the bound promises -1/2, well-specified models reach -1\n")
    if found.bias is None:
        return
    moments = found.bias.moments[::2]
    table = _table("bias of the risk estimate after so many steps, mean over x", ("", *map(str, moments)))
    rows = [(f"{name}, learned", values) for name, values in found.bias.learned.items()]
    rows += [(f"{name}, true p(y|x)", values) for name, values in found.bias.oracle.items()]
    for label, values in rows:
        # Adding 0 turns the negative zero that rounding may leave, and that would read as something, into 0.
        table.add_row(label, *(f"{value + 0.0:+.3f}" for value in values.mean(-1).round(decimals=3).tolist()[::2]))
    out.print(table)


def _table(title: str, headings: tuple[str, ...]) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for position, heading in enumerate(headings):
        table.add_column(heading, justify="right" if position else "left", no_wrap=True)
    return table


def to_dict(found: Findings) -> dict[str, Any]:
    """Return plain values, as JSON has them."""
    result, bias = found.consistency, found.bias
    return {
        "classes": found.num_classes,
        "generator": found.generator,
        "consistency": {
            "sizes": list(result.sizes),
            "excess_risk": {name: values.tolist() for name, values in result.excess.items()},
            "slope": {name: result.slope(name) for name in result.excess},
            "bound": list(result.bound),
        },
        "bias": bias
        and {
            "steps": list(bias.moments),
            "learned": {name: values.tolist() for name, values in bias.learned.items()},
            "oracle": {name: values.tolist() for name, values in bias.oracle.items()},
        },
    }
