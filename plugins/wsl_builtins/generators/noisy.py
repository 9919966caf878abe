"""Candidate sets that may miss the true label: another generator's, spoilt on purpose.

Lv, Liu, Feng, Xu, Xu, An, Niu, Geng, Sugiyama. On the Robustness of Average Losses for Partial-Label Learning.
TPAMI 2024; Xu, Lian, Feng, Liu, Tao. ALIM: Adjusting Label Importance Mechanism for Noisy Partial Label Learning.
NeurIPS 2023. Every other setting of the map assumes that there are no such sets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from wsl_builtins.generators.sampling import draw_column
from wsl_toolkit import Generator, Setting, param
from wsl_toolkit.errors import ConfigError
from wsl_toolkit.plugins import load_plugins

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@attrs.frozen(kw_only=True)
class Noisy(Generator):
    """Another generator's sets, in which the true label is replaced by a wrong one with probability η.

    The wrong label is uniform among those that were not in the set, so the size stays and the set is never empty.
    """

    name: ClassVar[str] = "noisy"
    setting: ClassVar[Setting] = Setting.ANY
    citation: ClassVar[str] = "Lv et al. (TPAMI 2024); Xu, Lian, Feng, Liu, Tao (NeurIPS 2023)"

    wraps: str = param("mcl-skewed", help="name of the generator that draws the sets")
    options: str | None = param(None, help="its parameters, as 'alpha=0.9' or 'low=0.5; high=0.9'")
    eta: float = param(0.1, help="probability that the true label is replaced", ge=0, le=1)
    inner: Any = attrs.field(default=None, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if self.inner is None:
            object.__setattr__(self, "inner", self.create())

    def create(self) -> Generator:
        """Look up the wrapped generator among all that are installed, and configure it."""
        entry: Generator = load_plugins().registry.create("generator", self.wraps, parse_options(self.options))
        if entry.setting is Setting.ANY:
            raise ConfigError(f"noisy: {self.wraps} may already miss the true label; wrap a generator that keeps it")
        return entry

    def check_classes(self, num_classes: int) -> None:
        super().check_classes(num_classes)
        self.inner.check_classes(num_classes)

    def prepare(self, x: Tensor, y: Tensor, num_classes: int, rng: torch.Generator) -> Noisy:
        return attrs.evolve(self, inner=self.inner.prepare(x, y, num_classes, rng))

    def reads_inputs(self) -> bool:
        reads: bool = self.inner.reads_inputs()
        return reads

    def draw(self, x: Tensor, y: Tensor, num_classes: int, rng: torch.Generator) -> Tensor:
        import torch

        mask: Tensor = self.inner.draw(x, y, num_classes, rng)
        draws = torch.rand(len(y), generator=rng, device=rng.device, dtype=torch.float64).to(y.device)
        replaced = (draws < self.eta).unsqueeze(1)
        newcomer = draw_column((~mask).double(), rng).unsqueeze(1)
        spoilt = mask.scatter(1, y.unsqueeze(1), False).scatter(1, newcomer, True)
        return torch.where(replaced, spoilt, mask)

    def probability(self, sets: Tensor, x: Tensor, y: Tensor, num_classes: int) -> Tensor | None:
        """(1-η) p(s) if y is in s, else η Σ_{j∈s} p(s - j + y) / (K - |s|)."""
        import torch

        kept = self.inner.probability(sets, x, y, num_classes)
        if kept is None:
            return None
        column = y.unsqueeze(1)
        holds_y = sets.gather(1, column).squeeze(1)
        with_y = sets.scatter(1, column, True)
        before = torch.zeros_like(kept)
        for j in range(num_classes):
            origin = with_y.clone()
            origin[:, j] = False
            possible = sets[:, j] & (y != j)
            before += torch.where(possible, self.inner.probability(origin, x, y, num_classes), 0.0)
        outsiders = (num_classes - sets.sum(1)).clamp(min=1)
        return torch.where(holds_y, (1 - self.eta) * kept, self.eta * before / outsiders)


def parse_options(text: str | None) -> dict[str, str]:
    """Read 'alpha=0.9; other=…' as parameter values."""
    values: dict[str, str] = {}
    last = ""
    for part in filter(None, (part.strip() for part in (text or "").split(";"))):
        name, equals, value = part.partition("=")
        if equals:
            last = name.strip()
            values[last] = value.strip()
        elif last:
            values[last] += f"; {part}"  # a value that itself holds ';', such as a list of partitions
        else:
            raise ConfigError(f"noisy: options must be written as name=value, not {part!r}")
    return values
