"""Judge fitted choices by candidate sets that were held out, and tell by which law sets come about."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import attrs
import torch
from torch import Tensor

from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.own_data import calibration, set_laws, trees
from wsl_toolkit.own_data.choices import Choice, TreesChoice
from wsl_toolkit.own_data.learning import Made, Standing

SELECTED_BY = "set_log_loss"
"""The mean of -log Σ_{j∈s} p_j over held-out candidate sets, each model at its own temperature."""


@attrs.frozen(kw_only=True, eq=False)
class Judged:
    """A choice with what held-out sets say of it."""

    choice: Choice
    loss: float
    """Under the law of the sets that the choice takes, or the one under which all are compared."""
    temperature: float
    parts: tuple[Made, ...]
    """As fitted to each part."""
    logits: Tensor
    """Of the held-out examples of all parts."""

    @property
    def made(self) -> Made:
        """As fitted to the first part."""
        return self.parts[0]

    def under(self, worth: Tensor | None, mask: Tensor, calibrate: bool) -> Judged:
        """Return what held-out sets [n, K] say of it under another law, which is worth so much."""
        loss, temperature = _score(self.logits, mask, worth, calibrate)
        return attrs.evolve(self, loss=loss, temperature=temperature)

    def losses(self, worth: Tensor | None, mask: Tensor, calibrate: bool) -> Tensor:
        """Return the log loss of each held-out set that says something, under a law that is worth so much."""
        temperature = calibration.temperature(self.logits, mask, worth) if calibrate else 1.0
        informative = ~mask.all(1)
        return calibration.set_log_losses(self.logits.double() / temperature, mask, worth)[informative]

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        found = {"model": self.choice.name, **self.choice.settings()}
        return {**found, SELECTED_BY: self.loss, "temperature": self.temperature}


def judge(
    found: Sequence[Sequence[Made]], candidates: CandidateSets, held_out: Sequence[Tensor], calibrate: bool
) -> list[Judged]:
    """Judge each choice by the held-out examples of all parts at once; trees are judged after each stage."""
    masks = [candidates.mask(index).cpu() for index in held_out]
    mask = torch.cat(masks)
    judged = []
    for made in zip(*found, strict=True):
        stages = [torch.cat(parts) for parts in zip(*(each.logits for each in made), strict=False)]
        worth = worth_of(made, masks, made[0].choice.law)
        scored = [(*_score(logits, mask, worth, calibrate), stage) for stage, logits in enumerate(stages)]
        loss, temperature, stage = min(scored, key=lambda each: (each[0], each[2]))
        choice = made[0].choice
        if isinstance(choice, TreesChoice):
            size = min(trees.STAGE * (stage + 1), choice.boosting.max_iter)
            choice = TreesChoice(boosting=attrs.evolve(choice.boosting, max_iter=size))
        judged.append(
            Judged(
                choice=choice,
                loss=loss,
                temperature=temperature,
                parts=tuple(each.at(stage, choice) for each in made),
                logits=stages[stage],
            )
        )
    return judged


def standing(best: Judged, candidates: CandidateSets, held_out: Sequence[Tensor], *, left: int) -> Standing:
    """Return what held-out sets say of the best model so far."""
    mask = torch.cat([candidates.mask(index).cpu() for index in held_out])
    covered = mask.gather(1, best.logits.argmax(1, keepdim=True)).double().mean()
    return Standing(model=best.choice.name, loss=best.loss, covering_rate=float(covered), left=left)


def worth_of(made: Sequence[Made], masks: Sequence[Tensor], law: str) -> Tensor | None:
    """Return what a law is worth to held-out sets [n, K], as trees learned it from each part; None: nothing."""
    uniform = set_laws.LAWS[0]
    if law == uniform or any(law not in each.laws for each in made):
        return None
    own = zip(made, masks, strict=True)
    return torch.cat([set_laws.log_worth(each.laws[law], each.laws[uniform], mask) for each, mask in own])


@attrs.frozen(kw_only=True, eq=False)
class LawFound:
    """Which law of the sets makes held-out ones likeliest, and how likely each does."""

    law: str
    losses: tuple[tuple[str, float], ...]
    """Of the trees that were grown under each law, of those under the first the smallest under any; and of rivals."""
    worth: Tensor | None
    """What it adds to log p of each held-out example's candidates, [n, K]; None: nothing."""
    chances: tuple[Tensor, Tensor] | None
    """Q [K, K] of this law and of the uniform one, the means over parts; None for the uniform one itself."""

    @property
    def ranked(self) -> tuple[tuple[str, float], ...]:
        """The laws with their losses: the one that was found, or what was likelier than any, then the best first."""
        learned = self.law != set_laws.LAWS[0]
        return tuple(
            sorted(
                self.losses,
                key=lambda each: (each[0] != self.law if learned else each[0] in set_laws.LAWS[1:], each[1]),
            )
        )


def law_found(
    judged: Sequence[Judged], candidates: CandidateSets, held_out: Sequence[Tensor], calibrate: bool
) -> LawFound | None:
    """Return the law by which the first trees make held-out sets likeliest; None unless several were tried.

    Trees that were grown under the first law may be right although another law holds, where that depends on the inputs:
    so they are judged under each, and what is chosen then is how to grow trees, by the law if that is better.
    """
    grown: dict[str, Judged] = {}
    for each in judged:
        if isinstance(each.choice, TreesChoice):
            grown.setdefault(each.choice.law, each)
    if len(grown) < 2:
        return None
    masks = [candidates.mask(index).cpu() for index in held_out]
    mask = torch.cat(masks)
    losses = {law: each.losses(worth_of(each.parts, masks, law), mask, calibrate) for law, each in grown.items()}
    first = grown[set_laws.LAWS[0]]
    under = [first.losses(worth_of(first.parts, masks, law), mask, calibrate) for law in set_laws.LAWS]
    losses[set_laws.LAWS[0]] = min(under, key=lambda own: float(own.mean()))
    rivals = [each.rivals for each in first.parts if each.rivals is not None]
    if len(rivals) == len(first.parts):
        recurring = torch.cat([each.recurring for each in rivals])
        losses["set"] = first.losses(recurring, mask, calibrate)
        stages = [torch.cat(own)[~mask.all(1)] for own in zip(*(each.inclusions for each in rivals), strict=False)]
        losses["inputs"] = min(stages, key=lambda own: float(own.mean()))
    law = set_laws.clearly_best(losses)
    means = tuple((name, float(own.mean())) for name, own in losses.items())
    parts, uniform = grown[law].parts, set_laws.LAWS[0]
    own = (torch.stack([each.laws[name] for each in parts]).mean(0) for name in (law, uniform))
    return LawFound(
        law=law,
        losses=means,
        worth=worth_of(parts, masks, law),
        chances=None if law == uniform else (next(own), next(own)),
    )


def compared(
    judged: Sequence[Judged],
    law: LawFound,
    candidates: CandidateSets,
    held_out: Sequence[Tensor],
    calibrate: bool,
) -> list[Judged]:
    """Return all under the law that was found; trees that were grown under one that was not take no part."""
    kept = [each for each in judged if each.choice.law in (set_laws.LAWS[0], law.law)]
    if law.worth is None:
        return kept
    mask = torch.cat([candidates.mask(index).cpu() for index in held_out])
    return [each.under(law.worth, mask, calibrate) for each in kept]


def _score(logits: Tensor, mask: Tensor, worth: Tensor | None, calibrate: bool) -> tuple[float, float]:
    """Return the log loss of the sets at the temperature, and the temperature."""
    temperature = calibration.temperature(logits, mask, worth) if calibrate else 1.0
    loss = calibration.set_log_loss(logits / temperature, mask, worth)
    return loss if math.isfinite(loss) else math.inf, temperature
