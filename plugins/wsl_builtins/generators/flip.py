"""Wrong labels join one by one: with one probability, by class, or within a superclass; full sets are redrawn.

The class-independent process is that of Lv, Xu, Feng, Niu, Geng, Sugiyama. Progressive Identification of True Labels
for Partial-Label Learning. ICML 2020, and of most benchmarks since. Without the redraw it would emit the full set
with probability q^(K-1), which is 39 % at q = 0.9 and K = 10. The code published with that paper gives a set that would
be a singleton one more label, uniform among the wrong ones; most codes since leave it as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from wsl_builtins import superclasses
from wsl_builtins.generators import matrices, set_text, size_laws
from wsl_builtins.generators.mcl import BySize
from wsl_builtins.generators.sampling import draw_joining, joining_probability
from wsl_toolkit import Generator, ProperGenerator, Setting, param
from wsl_toolkit.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@attrs.frozen(kw_only=True)
class Flip(BySize):
    """Every wrong label joins with probability q, whatever the class; a full set is redrawn."""

    name: ClassVar[str] = "flip"
    citation: ClassVar[str] = "Lv, Xu, Feng, Niu, Geng, Sugiyama (ICML 2020)"

    q: float = param(0.3, help="probability that a wrong label joins the set", ge=0, lt=1)
    singletons: str = param(
        "kept",
        help="what becomes of a set that no wrong label joined: kept, or extended by one uniform wrong label",
        choices=("kept", "extended"),
    )

    def complement_sizes(self, num_classes: int) -> Tensor:
        """Q̄_k ∝ binom(K-1, k) (1-q)^k q^(K-1-k): the binomial law without k = 0, and without K-1 if extended."""
        sizes = size_laws.binomial(self.q, num_classes)
        if self.singletons == "extended":
            sizes[-2] += sizes[-1]
            sizes[-1] = 0
        return sizes


@attrs.frozen(kw_only=True)
class FlipSuperclass(ProperGenerator):
    """Every wrong label of y's superclass joins with probability q, a label of another superclass never.

    Given the superclass the law is that of `flip`, so it depends on the set alone; with q = 1 it is `partition`.
    """

    name: ClassVar[str] = "flip-superclass"
    setting: ClassVar[Setting] = Setting.CMM
    citation: ClassVar[str] = "Wang, Xiao, Li, Feng, Niu, Chen, Zhao (ICLR 2022), Section 4"
    presets: ClassVar[tuple[str, ...]] = ("halves", "cifar100")

    q: float = param(0.5, help="probability that a wrong label of the same superclass joins the set", ge=0, le=1)
    groups: str = param(
        "halves",
        help="superclasses: halves (of the classes in order), cifar100 (its twenty), such as '0 1|2-4|5', or @FILE",
    )

    def __attrs_post_init__(self) -> None:
        if self.groups not in self.presets:
            if self.groups.isalnum() and not self.groups.isdigit():
                hint = did_you_mean(self.groups, self.presets)
                raise ConfigError(f"{self.name}: {self.groups!r} is no preset ({', '.join(self.presets)}).{hint}")
            self.blocks(0)

    def blocks(self, num_classes: int) -> list[tuple[int, ...]]:
        """Return each superclass's classes."""
        if self.groups == "halves":
            middle = (num_classes + 1) // 2
            return [tuple(range(middle)), tuple(range(middle, num_classes))]
        if self.groups == "cifar100":
            return list(superclasses.CIFAR100)
        lines = set_text.parse_lines(set_text.read_text(self.groups, self.name))
        return set_text.parse_blocks("|".join(line.strip(" |") for line in lines), self.name)

    def check_classes(self, num_classes: int) -> None:
        super().check_classes(num_classes)
        set_text.check_blocks(self.blocks(num_classes), num_classes, self.name)

    def group_of(self, num_classes: int) -> Tensor:
        """Return the superclass of every class, int64 [K]."""
        import torch

        found = torch.empty(num_classes, dtype=torch.long)
        for number, block in enumerate(self.blocks(num_classes)):
            found[list(block)] = number
        return found

    def reads_inputs(self) -> bool:
        return False

    def draw(self, x: Tensor, y: Tensor, num_classes: int, rng: torch.Generator) -> Tensor:
        import torch

        group = self.group_of(num_classes).to(y.device)
        draws = torch.rand(len(y), num_classes, generator=rng, device=rng.device, dtype=torch.float64).to(y.device)
        mask = (draws < self.q) & (group[y].unsqueeze(1) == group)
        return mask.scatter_(1, y.unsqueeze(1), True)

    def constant(self, sets: Tensor, x: Tensor, num_classes: int) -> Tensor:
        """C(s) = q^(|s|-1) (1-q)^(g-|s|) where s lies in one superclass, of g classes, else 0."""
        import torch

        group = self.group_of(num_classes).to(sets.device)
        inside = sets.double() @ torch.nn.functional.one_hot(group).double()  # [m, superclasses]
        sizes = sets.sum(1).double()
        held, chosen = inside.max(1)
        rest = torch.bincount(group).double()[chosen] - sizes
        chance = self.q ** (sizes - 1) * (1 - self.q) ** rest.clamp(min=0)
        return torch.where((held == sizes) & (sizes > 0), chance, torch.zeros_like(chance))


@attrs.frozen(kw_only=True)
class FlipClass(Generator):
    """Wrong label j joins with probability T[y, j]; a full set is redrawn."""

    name: ClassVar[str] = "flip-class"
    setting: ClassVar[Setting] = Setting.GENERAL
    citation: ClassVar[str] = "Wen, Cui, Hang, Liu, Wang, Lin (ICML 2021)"

    matrix: str = param(
        "pair",
        help=f"how labels join: {', '.join(matrices.JOINING)}, or a file (.csv, .npy) with a K×K matrix T",
    )
    rate: float = param(0.5, help="joining probability of the presets; files ignore it", ge=0, le=1)
    table: Any = attrs.field(init=False, default=None, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        matrices.read_into(self, matrices.JOINING)

    def joining(self, num_classes: int) -> Tensor:
        """Return T, float64 [K, K]; its diagonal means nothing."""
        if self.table is not None:
            table: Tensor = self.table
            return table
        return matrices.JOINING[self.matrix](num_classes, self.rate)

    def check_classes(self, num_classes: int) -> None:
        super().check_classes(num_classes)
        joins = self.joining(num_classes)
        matrices.check_probabilities(joins, num_classes, f"flip-class: matrix {self.matrix}")
        certain = joins.clone().fill_diagonal_(1).eq(1).all(1).nonzero().flatten()
        if len(certain):
            raise ConfigError(
                f"flip-class: matrix {self.matrix} lets every wrong label join class {int(certain[0])} with "
                "probability 1, so that only the full set could be drawn; lower one of them"
            )

    def reads_inputs(self) -> bool:
        return False

    def draw(self, x: Tensor, y: Tensor, num_classes: int, rng: torch.Generator) -> Tensor:
        return draw_joining(y, self.joining(num_classes).to(y.device)[y], rng)

    def probability(self, sets: Tensor, x: Tensor, y: Tensor, num_classes: int) -> Tensor:
        return joining_probability(sets, y, self.joining(num_classes).to(y.device)[y])
