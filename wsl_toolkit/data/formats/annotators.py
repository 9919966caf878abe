"""Several annotators' sets for one example, made into one: union, intersection or vote."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from wsl_toolkit.errors import ConfigError, LabelError

HOW = ("union", "intersection", "vote")


def combine(masks: Sequence[Tensor], how: str) -> Tensor:
    """Return one mask [n, K] from several; an annotator's empty row means no answer.

    union: what anybody named; intersection: what everybody who answered named; vote: what more than half of them
    named or, where nothing has a majority, what most of them named. A row without any answer comes out empty, and so
    does an intersection on which nobody agrees, which is refused by its place.
    """
    if how not in HOW:
        raise ConfigError(f"annotators are combined by {', '.join(HOW)}, not by {how!r}")
    named = torch.stack([mask.to(torch.int32) for mask in masks]).sum(0)
    answers = torch.stack([mask.any(1) for mask in masks]).sum(0)[:, None]
    if how == "union":
        return named > 0
    if how == "intersection":
        agreed = (named == answers) & (answers > 0)
        apart = ((answers.squeeze(1) > 0) & ~agreed.any(1)).nonzero().flatten()
        if len(apart):
            raise DisagreementError(int(apart[0]))
        return agreed
    majority = 2 * named > answers
    favourites = (named == named.amax(1, keepdim=True)) & (named > 0)
    return torch.where(majority.any(1, keepdim=True), majority, favourites)


class DisagreementError(LabelError):
    """The annotators of an example have no candidate in common."""

    def __init__(self, row: int) -> None:
        super().__init__(
            f"example {row}: the annotators' sets have no class in common; use --combine union or vote, or leave it out"
        )
        self.row = row
