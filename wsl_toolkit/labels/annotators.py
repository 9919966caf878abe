"""What each of several annotators said, kept apart from what is made of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import attrs
import torch
from torch import Tensor

from wsl_toolkit.labels.candidate_sets import CandidateSets


@attrs.frozen(kw_only=True, eq=False)
class Annotator:
    """One annotator's candidate sets, for all examples of the data."""

    name: str
    sets: CandidateSets
    """What they said; where they gave no answer the set is full."""
    answered: Tensor
    """Whether they gave an answer, [n]; a full set may be one."""

    @classmethod
    def from_mask(cls, name: str, mask: Tensor, class_names: Sequence[str] | None = None) -> Annotator:
        """Take a boolean mask [n, K]; a row without any class is no answer."""
        return cls.from_chunks(name, [mask], len(mask), mask.shape[1], class_names)

    @classmethod
    def from_chunks(
        cls,
        name: str,
        masks: Iterable[Tensor],
        n: int,
        num_classes: int,
        class_names: Sequence[str] | None = None,
    ) -> Annotator:
        """Take boolean masks piece by piece, so that n x K need never be dense in memory."""
        answered: list[Tensor] = []

        def filled() -> Iterator[Tensor]:
            for mask in masks:
                said = mask.any(1)
                answered.append(said)
                yield mask | ~said.unsqueeze(1)

        sets = CandidateSets.from_chunks(filled(), n, num_classes, class_names)
        return cls(name=name, sets=sets, answered=torch.cat(answered) if answered else torch.zeros(0, dtype=torch.bool))
