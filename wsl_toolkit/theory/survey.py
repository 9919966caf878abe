"""Every installed generator on the map, each placed by its own proof; one that fails stops no other."""

from __future__ import annotations

import attrs

from wsl_toolkit.errors import TheoryError, one_line
from wsl_toolkit.plugins.registry import OWN_DISTRIBUTION, Registry
from wsl_toolkit.settings import Setting
from wsl_toolkit.theory.enumeration import MAX_CLASSES
from wsl_toolkit.theory.proofs import Proof
from wsl_toolkit.theory.sampling_tests import place


@attrs.frozen(kw_only=True)
class Placement:
    """One generator with its default parameters: its proof, or why there is none."""

    generator: str
    owner: str
    third_party: bool
    declared: Setting
    proof: Proof | None = None
    failure: str | None = None

    @property
    def region(self) -> Setting | None:
        """The smallest region it was found to lie in."""
        return self.proof.region if self.proof else None

    @property
    def problem(self) -> str | None:
        """What is wrong with it, if anything."""
        if self.failure is not None or self.proof is None:
            return self.failure
        if not self.proof.is_law:
            return f"its probabilities do not sum to one: {self.proof.verdict('normalised').witness}"
        if not self.proof.keeps_promise:
            return f"declares {self.declared}, but {self.proof.verdict(self.declared).witness}"
        return None


def survey(registry: Registry, num_classes: int, *, seed: int = 0) -> list[Placement]:
    """Place every generator of a registry, in the order of their names."""
    if num_classes > MAX_CLASSES:
        raise TheoryError(f"the map is drawn by enumeration, for at most {MAX_CLASSES} classes, not {num_classes}")
    return [_placed(registry, name, num_classes, seed) for name in registry.names("generator")]


def _placed(registry: Registry, name: str, num_classes: int, seed: int) -> Placement:
    entry = registry.entry("generator", name)
    placement = Placement(
        generator=name,
        owner=str(entry.owner),
        third_party=entry.owner.distribution != OWN_DISTRIBUTION,
        declared=entry.cls.setting,  # type: ignore[attr-defined]  # the registry checked that it declares one
    )
    try:
        proof = place(registry.create("generator", name, {}), num_classes, seed=seed)
    except (Exception, SystemExit) as error:  # a third party's code may raise anything
        return attrs.evolve(placement, failure=one_line(error))
    return attrs.evolve(placement, proof=proof)
