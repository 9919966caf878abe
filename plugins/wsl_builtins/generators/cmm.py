"""Candidate sets that depend on the set alone: coarse labels and yes-no questions.

The conditional multinomial model is that of Liu, Dietterich. A Conditional Multinomial Mixture Model for Superset Label
Learning. NeurIPS 2012. Both processes here are its members in general, and no member of MCL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_builtins.generators import set_text
from wsl_builtins.generators.mcl import BySize
from wsl_builtins.generators.pcpl import Pcpl
from wsl_builtins.generators.sampling import draw_index
from wsl_toolkit import ProperGenerator, Setting, param
from wsl_toolkit.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    import torch
    from torch import Tensor

CITATION = "Liu, Dietterich (NeurIPS 2012), as read by Wu, Lv, Sugiyama (2023), Proposition 1"


@attrs.frozen(kw_only=True)
class Partition(ProperGenerator):
    """Coarse labels: one of several partitions of the classes is drawn, and s is the block that holds y.

    By default there are two partitions, equally likely: lower and upper half, and even and odd classes. What the
    sets show of p(y|x) are its sums over the blocks: partitions into b_1, b_2, … blocks tell at most 1 + Σ (b_i - 1) of
    its K numbers. Where that is less than K, as by default from K = 4 on, p(y|x) is not identified, and no method can
    find it from the sets alone.
    """

    name: ClassVar[str] = "partition"
    setting: ClassVar[Setting] = Setting.CMM
    citation: ClassVar[str] = CITATION

    partitions: str | None = param(
        None, help="such as '0 1|2-4; 0 2|1 3|4' (blocks by |, partitions by ;), or @FILE; not given: halves, parity"
    )
    weights: tuple[float, ...] | None = param(None, help="relative weight of each partition; not given: equal", ge=0)

    def __attrs_post_init__(self) -> None:
        if self.partitions is not None:
            set_text.check_weights(self.weights, len(self.parsed(self.partitions)), "partition: weights")

    def parsed(self, text: str) -> list[list[tuple[int, ...]]]:
        """Read partitions as lists of blocks."""
        lines = set_text.parse_lines(set_text.read_text(text, "partition"))
        found = [set_text.parse_blocks(line, "partition") for line in lines]
        if not found:
            raise ConfigError("partition: no partition is given")
        return found

    def blocks(self, num_classes: int) -> list[list[tuple[int, ...]]]:
        """Return each partition's blocks."""
        if self.partitions is not None:
            return self.parsed(self.partitions)
        middle = (num_classes + 1) // 2
        halves = [tuple(range(middle)), tuple(range(middle, num_classes))]
        parity = [tuple(range(0, num_classes, 2)), tuple(range(1, num_classes, 2))]
        return [halves, parity]

    def check_classes(self, num_classes: int) -> None:
        super().check_classes(num_classes)
        partitions = self.blocks(num_classes)
        set_text.check_weights(self.weights, len(partitions), "partition: weights")
        for blocks in partitions:
            set_text.check_blocks(blocks, num_classes, "partition")

    def table(self, num_classes: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the weights [P], which block each class lies in [P, K], and all blocks as masks [B, K]."""
        import torch

        partitions = self.blocks(num_classes)
        weights = torch.tensor(set_text.check_weights(self.weights, len(partitions), ""), dtype=torch.float64)
        masks = masks_of([block for blocks in partitions for block in blocks], num_classes)
        block_of = torch.empty(len(partitions), num_classes, dtype=torch.long)
        position = 0
        for p, blocks in enumerate(partitions):
            for block in blocks:
                block_of[p, list(block)] = position
                position += 1
        return weights / weights.sum(), block_of, masks

    def reads_inputs(self) -> bool:
        return False

    def draw(self, x: Tensor, y: Tensor, num_classes: int, rng: torch.Generator) -> Tensor:
        weights, block_of, masks = self.table(num_classes)
        chosen = draw_index(weights, len(y), rng).to(y.device)
        return masks.to(y.device)[block_of.to(y.device)[chosen, y]]

    def constant(self, sets: Tensor, x: Tensor, num_classes: int) -> Tensor:
        """C(s) = Σ of the weights of the partitions that have s as a block."""
        weights, block_of, masks = self.table(num_classes)
        block_weight = weights.new_zeros(len(masks))
        block_weight[block_of.flatten()] = weights.repeat_interleave(num_classes)
        return matches(sets, masks) @ block_weight.to(sets.device)


@attrs.frozen(kw_only=True)
class Query(ProperGenerator):
    """Yes-no questions: "is it one of these?"; yes: s = q, no: s = Y \\ q.

    Presets: `thresholds` asks "is it at most j?" (ordered classes), `singletons` "is it j?", both with j uniform;
    `uniform` asks about any set but the empty and the full one, equally likely, which is PCPL.
    """

    name: ClassVar[str] = "query"
    setting: ClassVar[Setting] = Setting.CMM
    citation: ClassVar[str] = CITATION
    presets: ClassVar[tuple[str, ...]] = ("thresholds", "singletons", "uniform")

    queries: str = param("thresholds", help="thresholds, singletons, uniform, or sets such as '0 1; 2-4', or @FILE")
    weights: tuple[float, ...] | None = param(None, help="relative weight of each query; not given: equal", ge=0)

    def __attrs_post_init__(self) -> None:
        if self.queries == "uniform" and self.weights is not None:
            raise ConfigError("query: 'uniform' queries take no weights")
        if self.queries not in self.presets:
            if self.queries.isalpha():
                hint = did_you_mean(self.queries, self.presets)
                raise ConfigError(f"query: {self.queries!r} is no preset ({', '.join(self.presets)}).{hint}")
            set_text.check_weights(self.weights, len(self.parsed()), "query: weights")

    def parsed(self) -> list[tuple[int, ...]]:
        """Read the queries that were given as text."""
        found = [
            set_text.parse_classes(line, "query")
            for line in set_text.parse_lines(set_text.read_text(self.queries, "query"))
        ]
        if not found:
            raise ConfigError(f"query: no query is given; write sets such as '0 1; 2-4', or {', '.join(self.presets)}")
        return found

    def asked(self, num_classes: int) -> list[tuple[int, ...]]:
        """Return the queries, unless they are all sets."""
        if self.queries == "thresholds":
            return [tuple(range(j + 1)) for j in range(num_classes - 1)]
        if self.queries == "singletons":
            return [(j,) for j in range(num_classes)]
        return self.parsed()

    def check_classes(self, num_classes: int) -> None:
        super().check_classes(num_classes)
        if self.queries == "uniform":
            return
        queries = self.asked(num_classes)
        set_text.check_weights(self.weights, len(queries), "query: weights")
        for query in queries:
            shown = " ".join(map(str, query))
            if query[-1] >= num_classes:
                raise ConfigError(f"query: {shown!r} names a class out of range 0 to {num_classes - 1}")
            if len(query) == num_classes:
                raise ConfigError(f"query: {shown!r} asks about all {num_classes} classes, whose answer says nothing")

    def table(self, num_classes: int) -> tuple[Tensor, Tensor]:
        """Return the weights [Q] and the queries as masks [Q, K]."""
        import torch

        queries = self.asked(num_classes)
        weights = torch.tensor(set_text.check_weights(self.weights, len(queries), ""), dtype=torch.float64)
        return weights / weights.sum(), masks_of(queries, num_classes)

    def reads_inputs(self) -> bool:
        return False

    def draw(self, x: Tensor, y: Tensor, num_classes: int, rng: torch.Generator) -> Tensor:
        import torch

        if self.queries == "uniform":
            return self.all_queries.draw(x, y, num_classes, rng)
        weights, masks = self.table(num_classes)
        query = masks.to(y.device)[draw_index(weights, len(y), rng).to(y.device)]
        answer = query.gather(1, y.unsqueeze(1))
        return torch.where(answer, query, ~query)

    def constant(self, sets: Tensor, x: Tensor, num_classes: int) -> Tensor:
        """C(s) = w(s) + w(Y \\ s)."""
        if self.queries == "uniform":
            return self.all_queries.constant(sets, x, num_classes)
        weights, masks = self.table(num_classes)
        return (matches(sets, masks) + matches(sets, ~masks)) @ weights.to(sets.device)

    @property
    def all_queries(self) -> BySize:
        """The law of `uniform`: w(s) + w(Y \\ s) = 2/(2^K - 2) for every s, which is PCPL's constant."""
        return Pcpl()


def masks_of(sets: list[tuple[int, ...]], num_classes: int) -> Tensor:
    """Return lists of classes as masks [m, K]."""
    import torch

    masks = torch.zeros(len(sets), num_classes, dtype=torch.bool)
    for row, members in enumerate(sets):
        masks[row, list(members)] = True
    return masks


def matches(sets: Tensor, masks: Tensor) -> Tensor:
    """Return 1.0 where a set is one of the masks, float64 [m, M]: two sets are equal if they agree on all K classes."""
    ours, theirs = sets.double(), masks.to(sets.device).double()
    agreements = ours @ theirs.T + (1 - ours) @ (1 - theirs).T
    return (agreements == sets.shape[1]).double()
