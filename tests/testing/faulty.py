"""The catalogue of faults: small components that are wrong in one way each, and where they are found out.

Every fault is shown to be caught by the contracts and by loading or a run, or says why one of them cannot know.
docs/plugin-authors/what-is-caught.md is generated from it.
"""

from __future__ import annotations

from typing import Any

import attrs

PROMISE = "a false promise changes no number of a run: `wsl verify` and the contract enumerate it"


@attrs.frozen(kw_only=True)
class Fault:
    """One way to be wrong: what is exchanged in a sound component, and the words that catch it."""

    what: str
    attributes: dict[str, Any]
    check: str = ""
    """The contract's check that fails, without 'test_'; empty where loading refuses the class already."""
    says: str = ""
    """What the check says."""
    load: str = ""
    """What is said when the class is registered."""
    warns: str = ""
    """What is warned of when the class is registered, and in a run."""
    run: str = ""
    """What a run says."""
    why: str = ""
    """Why a run (or the check) cannot know."""
    decorate: bool = False
    """Whether the class has fields of its own, which attrs must see."""

    @property
    def caught_by_check(self) -> str:
        """Where the check catches it, as the page shows it."""
        if self.load:
            return "cannot be loaded"
        return self.check.replace("_", " ") if self.check else "warning" if self.warns else "–"

    @property
    def caught_by_run(self) -> str:
        """Where loading or a run catches it, as the page shows it."""
        return "refused when loaded" if self.load else "refused" if self.run else "warning" if self.warns else "–"


def catalogue() -> dict[str, list[Fault]]:
    """Return all faults, by role."""
    import faulty_estimators
    import faulty_generators
    import faulty_others

    return {
        "estimator": faulty_estimators.FAULTS,
        "generator": faulty_generators.FAULTS,
        "backbone": faulty_others.BACKBONES,
        "dataset": faulty_others.DATASETS,
    }
