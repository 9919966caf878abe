"""Proofs from Python: where a generator lies on the map, and which estimator is unbiased under which generator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs

from wsl_toolkit.api.components import described, make_component, registry_with
from wsl_toolkit.api.display import shown
from wsl_toolkit.components import Component, Estimator, Generator
from wsl_toolkit.plugins.attribution import attributed
from wsl_toolkit.settings import Setting
from wsl_toolkit.theory.figures.generator import profile_figure
from wsl_toolkit.theory.figures.verify import matrix_figure
from wsl_toolkit.theory.generator_profile import GeneratorProfile, profile_generator
from wsl_toolkit.theory.verification import TRUE_CONFIDENCE, Matrix
from wsl_toolkit.theory.verification import verify as look
from wsl_toolkit.training.plan import ExecutionPlan

if TYPE_CHECKING:
    import pandas as pd


class Inspection:
    """What a generator's candidate sets are like, and where it lies on the map of settings, with the proof."""

    def __init__(self, profile: GeneratorProfile) -> None:
        self.profile = profile
        """All numbers, as `wsl inspect` has them."""

    @property
    def setting(self) -> Setting | None:
        """The smallest region of the map that it was found in; None where it could not be placed."""
        return self.profile.proof.region if self.profile.proof is not None else None

    def claims(self) -> pd.DataFrame:
        """Return a row a claim: whether it holds, how far from it, and the witness where it does not."""
        import pandas as pd

        verdicts = self.profile.proof.verdicts if self.profile.proof is not None else ()
        rows = [
            {
                "claim": verdict.claim,
                "holds": verdict.holds,
                "deviation": verdict.deviation,
                "p_value": verdict.p_value,
                "witness": str(verdict.witness) if verdict.witness is not None else "",
            }
            for verdict in verdicts
        ]
        return pd.DataFrame(rows, columns=["claim", "holds", "deviation", "p_value", "witness"])

    def sizes(self) -> pd.DataFrame:
        """Return the probability of each size of a set."""
        import pandas as pd

        values = self.profile.sizes.tolist()
        return pd.DataFrame({"size": range(len(values)), "probability": values})

    def cooccurrence(self) -> pd.DataFrame:
        """Return P(z in s | y): a row a true class y, a column a class z."""
        import pandas as pd

        return pd.DataFrame(self.profile.cooccurrence.numpy()).rename_axis(index="y", columns="z")

    def constants(self) -> pd.DataFrame:
        """Return C(x, s) by the size of s, where the generator is proper and has one; else no rows."""
        import pandas as pd

        rows = [attrs.asdict(constant) for constant in self.profile.constants or ()]
        return pd.DataFrame(rows, columns=["size", "low", "high", "possible", "sets"])

    def figure(self) -> Any:
        """Return the law of sizes beside that of uniform sets, and who joins whom, as a matplotlib figure."""
        return shown(profile_figure(self.profile))

    def __repr__(self) -> str:
        size = self.profile.mean_size
        about = f"{'exact' if size.exact else 'sampled'} mean |s| {size.value:.3f}"
        return f"Inspection({self.profile.generator} at K = {self.profile.num_classes}: {self.setting}, {about})"

    def _repr_html_(self) -> str:
        return f"<p>{self!r}</p>{self.claims().to_html(index=False)}"


def inspect(generator: str | Generator, *, classes: int = 10, seed: int = 0, **parameters: Any) -> Inspection:
    """Look at a generator as `wsl inspect` does: by enumeration for up to 12 classes, by sampling beyond."""
    made: Generator = make_component("generator", generator, parameters)
    with attributed(registry_with(made), "generator", made.name):
        return Inspection(profile_generator(made, classes, seed=seed))


class Verification:
    """Every estimator under every generator, judged by enumeration of all candidate sets."""

    def __init__(self, matrix: Matrix) -> None:
        self.matrix = matrix
        """All cells, as `wsl verify` has them."""

    def table(self) -> pd.DataFrame:
        """Return a row a pair: what was promised and found, the bias, the deviation of the loss given x."""
        import pandas as pd

        rows = [
            {**attrs.asdict(cell), "verdict": str(cell.verdict), "broken": cell.broken}
            for cell in self.matrix.cells.values()
        ]
        return pd.DataFrame(rows)

    def verdicts(self) -> pd.DataFrame:
        """Return what was found: a row an estimator, a column a generator."""
        table = self.table().pivot(index="estimator", columns="generator", values="verdict")
        return table.loc[[row.name for row in self.matrix.rows], [column.name for column in self.matrix.columns]]

    @property
    def broken(self) -> pd.DataFrame:
        """The pairs that are not as promised; there should be none."""
        table = self.table()
        return table[table["broken"]]

    def figure(self) -> Any:
        """Return the matrix as a matplotlib figure."""
        return shown(matrix_figure(self.matrix))

    def __repr__(self) -> str:
        rows, columns = len(self.matrix.rows), len(self.matrix.columns)
        said = f"{len(self.broken)} broken promises" if len(self.broken) else "every promise holds"
        return f"Verification({rows} estimators x {columns} generators at K = {self.matrix.num_classes}: {said})"

    def _repr_html_(self) -> str:
        return f"<p>{self!r}</p>{self.verdicts().to_html()}"


def verify(
    estimators: Sequence[str | Estimator] | str | Estimator | None = None,
    generators: Sequence[str | Generator] | str | Generator | None = None,
    *,
    classes: int = 4,
) -> Verification:
    """Look at every pair as `wsl verify` does: names or objects, all that are installed where none are given."""
    rows, columns = _requested("estimator", estimators), _requested("generator", generators)
    registry = registry_with(*(each for each in (*rows, *columns) if isinstance(each, Component)))
    requests = [[(each, {}) if isinstance(each, str) else described(each) for each in side] for side in (rows, columns)]
    # The tensors are small: threads would only wait for each other.
    with ExecutionPlan(threads=1).in_force():
        return Verification(look(registry, requests[0], requests[1], classes))


def _requested(role: str, given: Any) -> list[Any]:
    """Return components, or the name of the yardstick that is none."""
    if given is None:
        registry = registry_with()
        names: list[Any] = [make_component(role, name) for name in registry.names(role)]
        return [*names, TRUE_CONFIDENCE] if role == "estimator" else names
    several = given if isinstance(given, list | tuple) else [given]
    return [each if each == TRUE_CONFIDENCE else make_component(role, each) for each in several]
