"""What several people answer, each right with a probability of their own: everything named, or what most named.

The one-coin model of Dawid, Skene. Maximum Likelihood Estimation of Observer Error-Rates Using the EM Algorithm.
Journal of the Royal Statistical Society C, 1979.

Wrong answers are uniform, so that all sets of one size that hold y are equally likely, however unequal the people: the
law is MCL, and all there is to know is how likely each size is. Let r of the k people be right, which has a
Poisson-binomial law. The k - r wrong answers fall on K-1 labels. There are (k-r)! [z^(k-r)] Π_j g_j(z) ways in which
label j gets a number of them that the generating function g_j admits, out of (K-1)^(k-r). A label of s other than y
gets at least one by `union` and exactly r by `vote`; a label outside s none by `union` and fewer than r by `vote`.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_builtins.generators.mcl import BySize
from wsl_toolkit import param
from wsl_toolkit.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

MOST = 100
"""More people than this would bring numbers that a float64 does not hold."""


@attrs.frozen(kw_only=True)
class Annotators(BySize):
    """Several people name one label each, right with a probability of their own, else wrong uniformly.

    The set is everything that was named (union), or what was named most often, ties included (vote). Sets without the
    true label and sets of all labels are drawn again.
    """

    name: ClassVar[str] = "annotators"
    citation: ClassVar[str] = "one-coin model of Dawid, Skene (JRSS C, 1979)"

    abilities: tuple[float, ...] = param(
        (0.9, 0.7, 0.5), help="each person's probability of naming the true label, one a person", gt=0, le=1
    )
    combine: str = param("union", help="the set is all that was named, or what most named", choices=("union", "vote"))

    def __attrs_post_init__(self) -> None:
        if not 1 <= len(self.abilities) <= MOST:
            raise ConfigError(
                f"annotators: abilities must be those of 1 to {MOST} people, not of {len(self.abilities)}"
            )

    def complement_sizes(self, num_classes: int) -> Tensor:
        """Return Q̄_k for k = 1..K-1: how likely each size is, given that y is in the set and the set is not full."""
        import torch

        law = torch.zeros(num_classes - 1, dtype=torch.float64)
        for size in range(1, min(len(self.abilities), num_classes - 1) + 1):
            law[num_classes - size - 1] = math.comb(num_classes - 1, size - 1) * self.exactly(size, num_classes)
        return law / law.sum()

    def exactly(self, size: int, num_classes: int) -> float:
        """Return p(the answers make s | y) for one set s of the given size that holds y, before any redraw."""
        return _exactly(self.abilities, self.combine, size, num_classes)


@functools.lru_cache(maxsize=4096)
def _exactly(abilities: tuple[float, ...], combine: str, size: int, num_classes: int) -> float:
    import numpy as np

    people = len(abilities)
    right = np.ones(1)
    for ability in abilities:
        right = np.convolve(right, [1 - ability, ability])
    # 1/(t! (K-1)^t): the coefficients of e^(z/(K-1)), so that the ways come out as probabilities.
    terms = np.cumprod(np.concatenate([[1.0], 1 / ((num_classes - 1) * np.arange(1.0, people + 1))]))
    total = 0.0
    for r in range(1, people + 1):
        if r == 1 or combine != "union":  # what a union admits does not depend on r
            inside, outside = _admitted(terms, r, combine)
            ways = _times(_power(inside, size - 1, people), _power(outside, num_classes - size, people), people)
        total += float(right[r]) * math.factorial(people - r) * float(ways[people - r])
    return total


def _admitted(terms: np.ndarray, r: int, combine: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the generating functions of a wrong label inside s and of one outside, given r right answers."""
    import numpy as np

    number = np.arange(len(terms))
    if combine == "union":
        return np.where(number >= 1, terms, 0), np.where(number == 0, terms, 0)
    return np.where(number == r, terms, 0), np.where(number < r, terms, 0)


def _times(a: np.ndarray, b: np.ndarray, degree: int) -> np.ndarray:
    """Return the product of two polynomials up to a degree."""
    import numpy as np

    return np.convolve(a, b)[: degree + 1]


def _power(base: np.ndarray, exponent: int, degree: int) -> np.ndarray:
    """Return a polynomial's power up to a degree, by repeated squaring."""
    import numpy as np

    result = np.zeros(degree + 1)
    result[0] = 1.0
    while exponent:
        if exponent & 1:
            result = _times(result, base, degree)
        base = _times(base, base, degree)
        exponent >>= 1
    return result
