"""Several models as one: a weighted average of their probabilities, which held-out candidate sets choose.

    p(y|x) = Σ_c w_c softmax(z_c(x) / T_c)_y,   w_c ≥ 0,   Σ_c w_c = 1,   z_c = 1/F Σ_f z_cf

Choices c (settings that were tried) are averaged by their probabilities, the F models of one choice, which learned from
different folds, by their logits: models of one kind are about as sure as each other, and the average of their
probabilities would be less sure than any of them.

Selection is that of Caruana, Niculescu-Mizil, Crew and Ksikes ("Ensemble Selection from Libraries of Models", ICML
2004), with the likelihood of candidate sets in place of that of labels: begin with nothing and add, again and again,
the model that makes held-out sets likeliest in the average; one that was added may be added once more, which gives it
more weight. The likelihood of a set is linear in p, so that -log of it is convex in the weights, and steps downhill do
not end in a valley of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import torch
from torch import Tensor, nn

from wsl_toolkit.errors import DataError
from wsl_toolkit.own_data import calibration
from wsl_toolkit.own_data.choices import Choice
from wsl_toolkit.own_data.judging import Judged

NAME = "average of models"
"""What it is called where a single network has a backbone's name; no component's name has a space."""
ROUNDS = 20
"""So often a model is added: weights are multiples of 1/20, or of more where fewer rounds did better."""
TINY = 1e-30
"""A set that no model believes in costs so much, and not infinitely much."""


class Average(nn.Module):
    """Logarithms [n, K] of the average of the choices' probabilities, each choice at its own temperature.

    The members are the models of the first choice, then those of the second, and so on, as many of each.
    """

    share: Tensor
    temperature: Tensor

    def __init__(self, members: Sequence[nn.Module], share: Tensor, temperature: Tensor) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.models = len(members) // len(share)
        self.register_buffer("share", share)
        self.register_buffer("temperature", temperature)

    def forward(self, x: Tensor) -> Tensor:
        """Return log Σ_c w_c p_c, which are logits whose softmax is the average."""
        logits = torch.stack([member(x) for member in self.members])
        of_choice = logits.unflatten(0, (len(self.share), self.models)).mean(1)
        own = torch.log_softmax(of_choice / self.temperature[:, None, None], 2)
        return torch.logsumexp(own + self.share.log()[:, None, None], 0)

    def uncalibrated(self) -> Average:
        """Return the same average with every temperature at 1."""
        return Average(list(self.members), self.share, torch.ones_like(self.temperature)).eval()

    @classmethod
    def load(cls, members: Sequence[nn.Module], share: Tensor | None, temperature: Tensor | None) -> Average:
        """Make the module of what a file holds, whoever wrote it; what makes no average is refused."""
        if share is None or temperature is None or share.shape != temperature.shape or share.ndim != 1:
            raise ValueError("an average has a weight and a temperature for each choice")
        if not len(share) or not members or len(members) % len(share):
            raise ValueError(f"an average of {len(share)} choices cannot have {len(members)} models")
        for name, values in (("share", share), ("temperature", temperature)):
            if values.dtype != torch.float32 or not bool((torch.isfinite(values) & (values > 0)).all()):
                raise ValueError(f"{name!r} of an average must be positive")
        if abs(float(share.double().sum()) - 1) > 1e-3:
            raise ValueError("the weights of an average must sum to 1")
        return cls(members, share, temperature)


def selected(inside: Tensor) -> Tensor:
    """Return weights [m] of models from what each gives to each held-out set, Σ_{j∈s} p_j, [m, n]; NaN is never taken.

    Of equally good averages the one of fewer rounds is taken, and of equally good models the first.
    """
    usable = torch.isfinite(inside).all(1)
    if not bool(usable.any()):
        raise DataError(
            "no model that was tried gives every held-out example probabilities: look for huge values in it"
        )
    belief = torch.where(usable.unsqueeze(1), inside.double(), 0.0)
    total, counts = torch.zeros(inside.shape[1], dtype=torch.float64), torch.zeros(len(inside), dtype=torch.float64)
    best, found = torch.inf, counts
    for number in range(1, ROUNDS + 1):
        losses = -((total + belief) / number).clamp(min=TINY).log().mean(1)
        place = int(losses.masked_fill(~usable, torch.inf).argmin())
        total, counts = total + belief[place], counts.clone()
        counts[place] += 1
        if float(losses[place]) < best:
            best, found = float(losses[place]), counts
    return found / found.sum()


@attrs.frozen(kw_only=True)
class Part:
    """A choice in an average."""

    choice: Choice
    weight: float
    temperature: float

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        own = {"model": self.choice.name, **self.choice.settings()}
        return {**own, "weight": self.weight, "temperature": self.temperature}


@attrs.frozen(kw_only=True)
class AverageChoice:
    """Which choices are averaged, the weightiest first, and of how many models each of them is made."""

    parts: tuple[Part, ...]
    models: int = 1
    """Of each choice there is a model for each fold, or one of all the data."""

    @property
    def name(self) -> str:
        """What stands where a single model has its backbone's name."""
        return NAME

    def network(self, made: Sequence[Sequence[nn.Module]]) -> Average:
        """Return the average of networks [parts][models], on the CPU."""
        share, temperature = zip(*((part.weight, part.temperature) for part in self.parts), strict=True)
        members = [network.cpu() for own in made for network in own]
        return Average(members, torch.tensor(share), torch.tensor(temperature)).eval()


def average(
    judged: Sequence[Judged], candidates: Tensor, calibrate: bool, worth: Tensor | None = None
) -> tuple[AverageChoice, Average, float]:
    """Return the average of what held-out sets [n, K] choose, its network, and its temperature.

    `worth` is what a law of the sets adds to each log p_j.
    """
    chances = [torch.softmax(each.logits.double() / each.temperature, 1) for each in judged]
    evidence = candidates.double()
    if worth is not None:
        # Beside that of the likeliest candidate, which changes no choice and keeps chances of sets away from 0.
        inside = worth.masked_fill(~candidates, -torch.inf)
        evidence = torch.exp(inside - inside.amax(1, keepdim=True))
    weights = selected(torch.stack([(chance * evidence).sum(1) for chance in chances]))
    order = [place for place in weights.argsort(descending=True, stable=True).tolist() if weights[place] > 0]
    choice = AverageChoice(
        parts=tuple(
            Part(choice=judged[i].choice, weight=float(weights[i]), temperature=judged[i].temperature) for i in order
        ),
        models=len(judged[0].parts),
    )
    whole = torch.stack([weights[i] * chances[i] for i in order]).sum(0)
    temperature = calibration.temperature(whole.clamp(min=TINY).log(), candidates, worth) if calibrate else 1.0
    return choice, choice.network([[made.network for made in judged[i].parts] for i in order]), temperature
