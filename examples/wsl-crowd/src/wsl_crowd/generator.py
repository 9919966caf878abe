"""The union of several annotators' answers, each right with a probability of its own.

The one-coin model of Dawid, Skene. Maximum Likelihood Estimation of Observer Error-Rates Using the EM Algorithm.
Journal of the Royal Statistical Society C, 1979.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_toolkit import ProperGenerator, Setting, param
from wsl_toolkit.errors import ConfigError

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@attrs.frozen(kw_only=True)
class Crowd(ProperGenerator):
    """What several annotators named, each right with a probability of its own, else wrong uniformly.

    Sets without the true class and sets of all classes are drawn again. However unequal the annotators, the law depends
    on the size of the set alone, so it is MCL.
    """

    name: ClassVar[str] = "crowd"
    setting: ClassVar[Setting] = Setting.MCL
    citation: ClassVar[str] = "one-coin model of Dawid, Skene (JRSS C, 1979)"

    abilities: tuple[float, ...] = param(
        (0.9, 0.7, 0.5), help="each annotator's probability of naming the true class", ge=0.05, le=1
    )

    def check_classes(self, num_classes: int) -> None:
        """A crowd of nobody names nothing."""
        super().check_classes(num_classes)
        if not self.abilities:
            raise ConfigError(f"{self.name}: abilities must name at least one annotator")

    def draw(self, x: Tensor, y: Tensor, num_classes: int, rng: torch.Generator) -> Tensor:
        """Ask the crowd, and ask again where it missed the truth or named everything."""
        mask = self._ask(y, num_classes, rng)
        while bool((again := self._inadmissible(mask, y)).any()):
            mask[again] = self._ask(y[again], num_classes, rng)
        return mask

    def _ask(self, y: Tensor, num_classes: int, rng: torch.Generator) -> Tensor:
        import torch

        shape = (len(y), len(self.abilities))
        right = torch.rand(shape, generator=rng, device=rng.device) < torch.tensor(self.abilities, device=rng.device)
        shift = torch.randint(1, num_classes, shape, generator=rng, device=rng.device)
        answers = (y.unsqueeze(1) + shift.masked_fill_(right, 0).to(y.device)) % num_classes
        return torch.zeros(len(y), num_classes, dtype=torch.bool, device=y.device).scatter_(1, answers, True)

    @staticmethod
    def _inadmissible(mask: Tensor, y: Tensor) -> Tensor:
        return ~mask.gather(1, y.unsqueeze(1)).squeeze(1) | mask.all(1)

    def constant(self, sets: Tensor, x: Tensor, num_classes: int) -> Tensor:
        """C(x, s): the probability that the answers are exactly s, given that s is admissible."""
        import torch

        table = torch.zeros(num_classes + 1, dtype=torch.float64)
        for size in range(1, min(len(self.abilities), num_classes - 1) + 1):
            table[size] = self.exactly(size, num_classes)
        sizes = torch.arange(num_classes + 1)
        ways = torch.tensor(
            [math.comb(num_classes - 1, k - 1) if k else 0 for k in sizes.tolist()], dtype=torch.float64
        )
        table = table / (ways * table).sum()
        return table[sets.sum(1).cpu()].to(sets.device)

    def exactly(self, size: int, num_classes: int) -> float:
        """Return p(answers = s | y) of one set s with y and `size` - 1 others, by inclusion and exclusion."""
        total = 0.0
        for others in range(size):
            sign = (-1) ** (size - 1 - others)
            share = others / (num_classes - 1)
            with_truth = math.prod(ability + (1 - ability) * share for ability in self.abilities)
            without = math.prod((1 - ability) * share for ability in self.abilities)
            total += sign * math.comb(size - 1, others) * (with_truth - without)
        return total
