"""Which estimators fit the data, in order, and why: read off what each declares and what the tests left standing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs

from wsl_toolkit.components import Estimator
from wsl_toolkit.own_data.audit.checks import Verdict
from wsl_toolkit.plugins.registry import Registry
from wsl_toolkit.settings import Kind, Setting
from wsl_toolkit.training.assumptions import PROMISE
from wsl_toolkit.training.config import DEFAULT_COMPONENTS

Fit = Literal["fits", "no promise", "promise refuted", "cannot be used"]

_WIDTH = {Setting.CL: 0, Setting.PCPL: 0, Setting.MCL: 1, Setting.CMM: 2, Setting.PPL: 3, Setting.GENERAL: 4}


@attrs.frozen(kw_only=True)
class Recommendation:
    """One estimator and what the audit thinks of it."""

    estimator: str
    fit: Fit
    why: str

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return attrs.asdict(self)


def recommend(registry: Registry, verdicts: Mapping[Setting, tuple[Verdict, str]]) -> list[Recommendation]:
    """Order all installed estimators: those whose promise holds first, the ones that assume least before the others."""
    judged = [
        (_judge(cls, verdicts), cls) for cls in (registry.get("estimator", n) for n in registry.names("estimator"))
    ]
    order: dict[Fit, int] = {"fits": 0, "promise refuted": 1, "no promise": 2, "cannot be used": 3}

    def key(pair: tuple[Recommendation, type[Estimator]]) -> tuple[Any, ...]:
        found, cls = pair
        promise = [Kind.CONSISTENT, Kind.UNBIASED, Kind.UPPER_BOUND, Kind.HEURISTIC].index(cls.kind)
        preferred = cls.name != DEFAULT_COMPONENTS["estimator"]
        needs_extra = bool(cls.needs)
        # An unbiased estimate and a consistent classifier are equally good promises.
        return order[found.fit], -_WIDTH.get(cls.assumption, -1), max(promise, 1), preferred, needs_extra, cls.name

    return [found for found, _ in sorted(judged, key=key)]


def _judge(cls: type[Estimator], verdicts: Mapping[Setting, tuple[Verdict, str]]) -> Recommendation:
    if cls.reads_true_labels():
        return Recommendation(estimator=cls.name, fit="cannot be used", why="it needs every true label")
    if not cls.trains:
        return Recommendation(estimator=cls.name, fit="cannot be used", why="it matters in theory but cannot train")
    if cls.kind is Kind.HEURISTIC:
        return Recommendation(
            estimator=cls.name, fit="no promise", why="a heuristic: it may work well, but nothing is proven of it"
        )
    verdict, reason = verdicts.get(cls.assumption, ("not testable", ""))
    promise = f"{PROMISE[cls.kind]} in {cls.assumption}"
    if verdict == "refuted":
        return Recommendation(
            estimator=cls.name, fit="promise refuted", why=f"{promise}, which the data refute: {reason}"
        )
    stands = "which the data do not refute" if verdict == "not refuted" else "which these data cannot test"
    return Recommendation(estimator=cls.name, fit="fits", why=f"{promise}, {stands}")
