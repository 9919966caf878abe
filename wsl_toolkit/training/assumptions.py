"""Whether an estimator's promise covers the way in which candidate sets come about."""

from __future__ import annotations

from wsl_toolkit.components import Estimator, Generator
from wsl_toolkit.settings import Kind


def mismatch(estimator: type[Estimator], generator: type[Generator]) -> str | None:
    """Return a sentence if a generator lies outside what an estimator promises for, else None.

    Both speak for all their parameter values, so a particular pair may still be in order: `wsl verify` tells.
    """
    if estimator.kind is Kind.HEURISTIC or estimator.assumption.includes(generator.setting):
        return None
    return (
        f"{estimator.name} is {PROMISE[estimator.kind]} in {estimator.assumption} "
        f"({estimator.assumption.meaning}), but {generator.name} is {generator.setting}: the promise does not hold here"
    )


PROMISE = {
    Kind.UNBIASED: "unbiased",
    Kind.CONSISTENT: "classifier-consistent",
    Kind.UPPER_BOUND: "an upper bound of the risk",
    Kind.HEURISTIC: "a heuristic",
}
"""What each kind promises, as it is read in a sentence."""
