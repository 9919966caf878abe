"""Sound components, and functions that break them, of which the catalogue of faults is made."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, ClassVar, Literal

import attrs
import torch
from torch import Tensor, nn

from wsl_toolkit import Backbone, Data, Dataset, Estimator, Generator, Kind, Setting, State, param
from wsl_toolkit.losses import cross_entropy


@attrs.frozen(kw_only=True)
class Coin(Generator):
    """Every wrong class joins by the toss of a coin; a full set loses one wrong class."""

    name: ClassVar[str] = "coin"
    setting: ClassVar[Setting] = Setting.MCL

    def draw(self, x: Tensor, y: Tensor, num_classes: int, rng: torch.Generator) -> Tensor:
        keep = torch.rand(len(y), num_classes, generator=rng) < 0.5
        mask = keep.scatter(1, y.unsqueeze(1), True)
        full = mask.all(1)
        drop = (y + torch.randint(1, num_classes, y.shape, generator=rng)) % num_classes
        mask[full, drop[full]] = False
        return mask

    def probability(self, sets: Tensor, x: Tensor, y: Tensor, num_classes: int) -> Tensor | None:
        sizes = sets.sum(1)
        p = torch.full((len(sets),), 0.5 ** (num_classes - 1), dtype=torch.float64)
        p = p * torch.where(sizes == num_classes - 1, 1 + 1 / (num_classes - 1), 1.0)
        return p * sets.gather(1, y.unsqueeze(1)).squeeze(1)


@attrs.frozen(kw_only=True)
class Plain(Estimator):
    """Confidence-weighted cross-entropy."""

    name: ClassVar[str] = "plain"
    assumption: ClassVar[Setting] = Setting.PPL
    kind: ClassVar[Kind] = Kind.UNBIASED
    update_when: ClassVar[Literal["never", "before", "after"]] = "before"
    on_candidates: ClassVar[frozenset[str]] = frozenset({"r"})

    def init_state(self, candidates: Tensor) -> State:
        return {"r": candidates / candidates.sum(-1, keepdim=True)}

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        return (state["r"] * cross_entropy(logits)).sum(-1)

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:
        return {"r": torch.softmax(logits.masked_fill(~candidates, -torch.inf), dim=-1)}


def variant(base: type, **attributes: Any) -> Any:
    """Return an instance of `base` with some attributes or methods exchanged."""
    return type("Variant", (base,), {"__doc__": "A variant.", **attributes})()


def naive_draw(self: Any, x: Tensor, y: Tensor, num_classes: int, rng: torch.Generator) -> Tensor:
    return torch.stack([Coin.draw(self, x[i : i + 1], y[i : i + 1], num_classes, rng)[0] for i in range(len(y))])


def global_draw(self: Any, x: Tensor, y: Tensor, num_classes: int, rng: torch.Generator) -> Tensor:
    return Coin.draw(self, x, y, num_classes, torch.default_generator)


def skewed_draw(self: Any, x: Tensor, y: Tensor, num_classes: int, rng: torch.Generator) -> Tensor:
    mask = Coin.draw(self, x, y, num_classes, rng)
    mask[y == 0, 1] &= torch.rand(int((y == 0).sum()), generator=rng) < 0.9
    return mask


def singletons_only(self: Any, x: Tensor, y: Tensor, num_classes: int, rng: torch.Generator) -> Tensor:
    return torch.nn.functional.one_hot(y, num_classes).bool()


def writing_draw(self: Any, x: Tensor, y: Tensor, num_classes: int, rng: torch.Generator) -> Tensor:
    x += 1
    return Coin.draw(self, x, y, num_classes, rng)


def reading_draw(self: Any, x: Tensor, y: Tensor, num_classes: int, rng: torch.Generator) -> Tensor:
    mask = singletons_only(self, x, y, num_classes, rng)
    return mask.scatter(1, ((y + 1 + (x.flatten(1).mean(1) > 0)) % num_classes).unsqueeze(1), True)


def vector_draw(self: Any, x: Tensor, y: Tensor, num_classes: int, rng: torch.Generator) -> Tensor:
    assert x.shape[1] == 8
    return Coin.draw(self, x, y, num_classes, rng)


def float_draw(self: Any, x: Tensor, y: Tensor, num_classes: int, rng: torch.Generator) -> Tensor:
    return Coin.draw(self, x, y, num_classes, rng).float()


def without_y(self: Any, x: Tensor, y: Tensor, num_classes: int, rng: torch.Generator) -> Tensor:
    return torch.roll(singletons_only(self, x, y, num_classes, rng), 1, dims=1)


def double_probability(self: Any, sets: Tensor, x: Tensor, y: Tensor, num_classes: int) -> Tensor:
    return 2 * Coin.probability(self, sets, x, y, num_classes)  # type: ignore[operator]


def single_probability(self: Any, sets: Tensor, x: Tensor, y: Tensor, num_classes: int) -> Tensor:
    return Coin.probability(self, sets, x, y, num_classes).float()  # type: ignore[union-attr]


def no_probability(self: Any, sets: Tensor, x: Tensor, y: Tensor, num_classes: int) -> None:
    return None


def loss_of(function: Any) -> dict[str, Any]:
    return {"loss": lambda self, logits, candidates, state: function(self, logits, candidates, state)}


def naive_loss(self: Any, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
    return -(state["r"] * torch.softmax(logits, -1).log()).sum(-1)


def centred_loss(self: Any, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
    losses = Plain.loss(self, logits, candidates, state)
    return losses - 0.1 * (losses - losses.mean())


def detached_loss(self: Any, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
    p = torch.softmax(logits.detach(), -1)
    return -(state["r"] * p * torch.log_softmax(logits, -1)).sum(-1)


def random_loss(self: Any, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
    return Plain.loss(self, logits, candidates, state) + torch.rand(())


def writing_loss(self: Any, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
    state["r"] *= 0.5
    return Plain.loss(self, logits, candidates, state)


def branching_loss(self: Any, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
    losses = Plain.loss(self, logits, candidates, state)
    return losses if bool((losses > 0).all()) else losses * 2


def average_loss(self: Any, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
    return (candidates * cross_entropy(logits)).sum(-1) / candidates.sum(-1)


def low_loss(self: Any, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
    return Plain.loss(self, logits, candidates, state) - 0.2 * (candidates.sum(-1) > 1)


def quotient_loss(self: Any, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
    """Finite wherever a softmax is zero or large; where it is hardly more than zero, 1 / total overflows."""
    p = torch.softmax(logits, -1) * candidates
    total = p.sum(-1, keepdim=True).detach()
    return ((1 - p / torch.where(total > 0, total, 1)) ** 2).sum(-1)


def flat_loss(self: Any, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
    return 0 * Plain.loss(self, logits, candidates, state)


def forgetful() -> dict[str, Any]:
    """Keep state outside of `state`, where no checkpoint finds it."""
    memory = {"calls": 0}

    def loss(self: Any, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        memory["calls"] += 1
        return Plain.loss(self, logits, candidates, state) * (1 + 0.01 * memory["calls"])

    return {"loss": loss}


TICKS = itertools.count()


@attrs.frozen(kw_only=True)
class Small(Backbone):
    """A small network."""

    name: ClassVar[str] = "small"

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        width = int(torch.tensor(input_shape).prod())
        return nn.Sequential(nn.Flatten(), nn.Linear(width, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, num_classes))


class Wrapped(nn.Module):
    """A network whose forward pass something is done to."""

    def __init__(self, network: nn.Module, around: Any) -> None:
        super().__init__()
        self.network, self.around, self.idle = network, around, nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.around(self.network, x)
        return result


def wrapped(around: Any) -> dict[str, Any]:
    return {"build": lambda self, shape, classes: Wrapped(Small.build(self, shape, classes), around)}


def seeded(self: Any, shape: tuple[int, ...], classes: int) -> nn.Module:
    torch.manual_seed(0)
    return Small.build(self, shape, classes)


def hidden_weight(self: Any, shape: tuple[int, ...], classes: int) -> nn.Module:
    secret = torch.rand(())  # neither a parameter nor a buffer
    return Wrapped(Small.build(self, shape, classes), lambda network, x: secret * network(x))


@attrs.frozen(kw_only=True)
class Made(Dataset):
    """A made dataset."""

    name: ClassVar[str] = "made"
    size: int = param(60, help="how many examples", ge=10)

    def load(self, data_dir: Path) -> Data:
        draws = torch.Generator().manual_seed(0)
        x = torch.randn(self.size, 5, generator=draws)
        return Data(name=self.name, x=x, y=torch.arange(self.size) % 3, num_classes=3)


def few(data: Data) -> Data:
    return attrs.evolve(data, x=data.x[:2], y=data.y[:2])  # type: ignore[index]
