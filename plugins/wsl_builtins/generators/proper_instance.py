"""Proper, and dependent on the instance: the region PPL \\ CMM of the map, which no earlier setting reaches.

Wu, Lv, Sugiyama. Learning with Proper Partial Labels. Neural Computation, 2023, Definition 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_builtins.generators import size_laws
from wsl_builtins.generators.sampling import draw_complement
from wsl_toolkit import ProperGenerator, Setting, param
from wsl_toolkit.errors import ConfigError

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@attrs.frozen(kw_only=True)
class ProperInstance(ProperGenerator):
    """`mcl-skewed` whose α depends on x: between alpha-low and alpha-high, by the mean of the inputs (brightness).

    The dimmer an example, the smaller its α and the larger its candidate set:
    α(x) = low + (high - low) σ(t(x)), where t(x) is the mean input value, standardised over the data.
    """

    name: ClassVar[str] = "proper-instance"
    setting: ClassVar[Setting] = Setting.PPL
    citation: ClassVar[str] = "Wu, Lv, Sugiyama (2023), Definition 1 and Figure 1"

    alpha_low: float = param(0.5, help="α of the dimmest examples", gt=0)
    alpha_high: float = param(0.9, help="α of the brightest examples", gt=0)
    centre: float = attrs.field(default=0.0, eq=False)
    spread: float = attrs.field(default=1.0, eq=False)

    def __attrs_post_init__(self) -> None:
        if self.alpha_low > self.alpha_high:
            raise ConfigError(
                f"proper-instance: alpha_low ({self.alpha_low:g}) must not exceed alpha_high ({self.alpha_high:g})"
            )

    def prepare(self, x: Tensor, y: Tensor, num_classes: int, rng: torch.Generator) -> ProperInstance:
        """Learn the mean and deviation of brightness, so that α covers its range on any data."""
        brightness = mean_input(x)
        spread = float(brightness.std(correction=0))
        return attrs.evolve(self, centre=float(brightness.mean()), spread=spread if spread > 0 else 1.0)

    def alpha(self, x: Tensor) -> Tensor:
        """Return α(x), float64 [n]."""
        import torch

        share = torch.sigmoid((mean_input(x) - self.centre) / self.spread)
        return self.alpha_low + (self.alpha_high - self.alpha_low) * share

    def complement_sizes(self, x: Tensor, num_classes: int) -> Tensor:
        """Return Q̄_k(x) ∝ α(x)^k for k = 1..K-1, float64 [n, K-1]."""
        import torch

        k = torch.arange(1, num_classes, dtype=torch.float64, device=x.device)
        return torch.softmax(self.alpha(x).log().unsqueeze(1) * k, dim=1)

    def draw(self, x: Tensor, y: Tensor, num_classes: int, rng: torch.Generator) -> Tensor:
        import torch

        edges = self.complement_sizes(x.to(y.device), num_classes).cumsum(1)
        draws = torch.rand(len(y), 1, generator=rng, device=rng.device, dtype=torch.float64).to(y.device)
        excluded = (edges[:, :-1] <= draws * edges[:, -1:]).sum(1) + 1
        return draw_complement(y, excluded, num_classes, rng)

    def constant(self, sets: Tensor, x: Tensor, num_classes: int) -> Tensor:
        """C(x, s) = Q̄_{|s̄|}(x) / binom(K-1, |s̄|)."""
        import torch

        excluded = (~sets).sum(1)
        inside = (excluded > 0) & (excluded < num_classes)
        column = excluded.clamp(1, num_classes - 1).unsqueeze(1) - 1
        log_binomial = size_laws.log_binomial(num_classes - 1).to(sets.device)[1:]
        by_size = self.complement_sizes(x.to(sets.device), num_classes) * torch.exp(-log_binomial)
        return by_size.gather(1, column).squeeze(1) * inside


def mean_input(x: Tensor) -> Tensor:
    """Return the mean over all inputs of each example, float64 [n]."""
    import torch

    return x.reshape(len(x), -1).mean(1, dtype=torch.float64)
