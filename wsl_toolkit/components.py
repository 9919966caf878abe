"""What a plugin provides: Generator, Estimator, Backbone, Dataset.

A component is a frozen attrs class whose `param()` fields are its configuration. Nothing here imports torch:
components are declared, listed and documented without it, and import it inside the functions that need it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, final

import attrs

from wsl_toolkit.errors import ConfigError, LabelError, PluginError
from wsl_toolkit.parameters import param
from wsl_toolkit.settings import Kind, Setting

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from wsl_toolkit.data.dataset import Data
    from wsl_toolkit.labels.candidate_sets import CandidateSets

__all__ = [
    "NEEDS",
    "ROLES",
    "Backbone",
    "Component",
    "Dataset",
    "Estimator",
    "Generator",
    "Kind",
    "ProperGenerator",
    "Setting",
    "State",
    "param",
]

State = dict[str, "Tensor"]
"""An estimator's state: tensors whose first dimension is the example, or shared ones."""


@attrs.frozen(kw_only=True)
class Need:
    """Something that an estimator may ask for: what it gets, who provides it, and what follows from that."""

    gives: str
    provider: Literal["labels", "network", "loop"]
    stacks: bool = False
    """Whether models that need it can be trained as one stack."""
    splits: bool = True
    """Whether it means the same for a part of a batch as for the whole of it, as several ranks require."""


NEEDS = {
    "true_labels": Need(gives="candidates are the singletons {y}", provider="labels", stacks=True),
    "weak_view": Need(
        gives="logits and features are those of a weakly augmented copy of the batch, not of the batch itself",
        provider="network",
    ),
    "second_view": Need(gives="state['view_logits']: logits of an augmented copy of the batch", provider="network"),
    "third_view": Need(gives="state['third_logits']: logits of yet another augmented copy", provider="network"),
    "features": Need(
        gives="state['features']: what the network's last layer sees; 'view_features' with a second view",
        provider="network",
    ),
    "mixed": Need(
        gives="state['mixed_logits'], 'mixed_partner', 'mixed_share': λx + (1-λ)x' for another x' of the batch",
        provider="network",
        splits=False,
    ),
    "momentum": Need(
        gives="state['momentum_logits'] (and 'momentum_features'): a slow copy of the network, without gradient",
        provider="network",
    ),
    "momentum_view": Need(
        gives="the slow copy sees an augmented copy of the batch that nothing else sees", provider="network"
    ),
    "epoch": Need(gives="state['epoch']: the number of epochs behind, a scalar", provider="loop", stacks=True),
    "seed": Need(
        gives="state['seed']: a fresh whole number, from which a function may draw what is random",
        provider="network",
        splits=False,
    ),
}
"""What an estimator may declare in `needs`: the one table of which the engine, stacks and ranks ask."""


@attrs.frozen(kw_only=True)
class Component(ABC):
    """What all roles share: a name, a citation, and a docstring whose first line says what it is."""

    role: ClassVar[str]
    name: ClassVar[str]
    citation: ClassVar[str] = ""

    @classmethod
    def summary(cls) -> str:
        """Return the first line of the docstring."""
        return (cls.__doc__ or "").strip().splitlines()[0] if cls.__doc__ else ""


@attrs.frozen(kw_only=True)
class Generator(Component):
    """How candidate sets come about: p(s | x, y)."""

    role: ClassVar[str] = "generator"
    setting: ClassVar[Setting]
    """The smallest region of the map that holds for all parameter values."""
    min_classes: ClassVar[int] = 3
    """Fewer classes than this make no sense for the process."""

    @abstractmethod
    def draw(self, x: Tensor, y: Tensor, num_classes: int, rng: torch.Generator) -> Tensor:
        """Draw one set for each example: a boolean mask [n, K], on y's device, from `rng` alone."""

    def probability(self, sets: Tensor, x: Tensor, y: Tensor, num_classes: int) -> Tensor | None:
        """Return p(s_i | x_i, y_i) in float64 for masks `sets` [m, K], or None if it has no closed form."""
        return None

    def prepare(self, x: Tensor, y: Tensor, num_classes: int, rng: torch.Generator) -> Generator:
        """Return the generator ready to draw; one that must learn from the data (a reference model) does it here."""
        return self

    def check_classes(self, num_classes: int) -> None:
        """Refuse a number of classes that the parameters do not fit; override to check shapes, call super()."""
        if num_classes < self.min_classes:
            raise LabelError(f"{self.name} needs at least {self.min_classes} classes, not {num_classes}")

    @final
    def sample(self, x: Tensor, y: Tensor, num_classes: int, rng: torch.Generator) -> CandidateSets:
        """Draw candidate sets for labelled data, checked: of the right shape, never empty, never full, y in s."""
        from wsl_toolkit.labels import candidate_sets

        candidate_sets.check_labels(y, num_classes, n=len(x))
        self.check_classes(num_classes)
        y = y.long()
        ready = self.prepare(x, y, num_classes, rng)

        def draw(xs: Tensor, ys: Tensor) -> Tensor:
            mask = ready.draw(xs, ys, num_classes, rng)
            ready._check_draw(mask, ys, num_classes)
            return mask

        return candidate_sets.draw_in_chunks(draw, x, y, num_classes)

    def _check_draw(self, mask: Any, y: Tensor, num_classes: int) -> None:
        import torch

        if not isinstance(mask, torch.Tensor) or mask.dtype != torch.bool or mask.shape != (len(y), num_classes):
            got = f"{mask.dtype} {tuple(mask.shape)}" if isinstance(mask, torch.Tensor) else type(mask).__name__
            raise PluginError(
                f"generator {self.name} must draw a boolean mask of shape ({len(y)}, {num_classes}), not {got}"
            )
        sizes = mask.sum(1)
        for size, word in ((0, "an empty set"), (num_classes, "the full set")):
            if bool((sizes == size).any()):
                raise PluginError(f"generator {self.name} drew {word}, which no generator may")
        if self.setting is not Setting.ANY and not bool(mask.gather(1, y.unsqueeze(1)).all()):
            raise PluginError(f"generator {self.name} drew a set without the true label, but declares {self.setting}")


@attrs.frozen(kw_only=True)
class ProperGenerator(Generator):
    """A generator that is proper by its form: p(s | x, y) = C(x, s) for every y in s (Definition 1)."""

    setting: ClassVar[Setting] = Setting.PPL

    @abstractmethod
    def constant(self, sets: Tensor, x: Tensor, num_classes: int) -> Tensor:
        """Return C(x_i, s_i) in float64 for masks `sets` [m, K]."""

    def probability(self, sets: Tensor, x: Tensor, y: Tensor, num_classes: int) -> Tensor | None:
        """Return C(x, s) where y is in s, else 0."""
        return self.constant(sets, x, num_classes) * sets.gather(1, y.unsqueeze(1)).squeeze(1)


@attrs.frozen(kw_only=True)
class Estimator(Component):
    """How a classifier is learned from candidate sets: three pure functions of logits, candidates and state.

    `logits` [B, K] and `candidates` [B, K] (boolean) are the batch's; `state` holds the batch's rows of what
    `init_state` returned, and what `init_shared` returned as it is. No function may use global randomness,
    branch on tensor values, or write into its arguments.
    """

    role: ClassVar[str] = "estimator"
    assumption: ClassVar[Setting]
    """The widest setting in which the promise holds."""
    kind: ClassVar[Kind]
    """What is promised there."""
    update_when: ClassVar[Literal["never", "before", "after"]] = "never"
    """Whether `update` sees the logits from before the optimiser's step, or a second pass after it."""
    on_candidates: ClassVar[frozenset[str]] = frozenset()
    """Names of state [n, K] that is zero off the candidates: kept compactly where K is large."""
    needs: ClassVar[frozenset[str]] = frozenset()
    """What else the engine must provide; the names are the keys of `NEEDS`."""
    stackable: ClassVar[bool] = True
    """Whether many models can share one call (the functions are pure and vectorise over a leading dimension)."""
    trains: ClassVar[bool] = True
    """False for forms that matter in theory but cannot train a network; a run warns."""

    @abstractmethod
    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        """Return one loss for each example, [B]."""

    def init_state(self, candidates: Tensor) -> State:
        """Return the first state of some examples, each tensor's first dimension B; called piece by piece."""
        return {}

    def init_shared(self, candidates: CandidateSets) -> State:
        """Return state that no single example owns, such as class frequencies."""
        return {}

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:
        """Return new values for the batch's rows (or for shared state); logits come detached."""
        return {}

    def after_epoch(self, candidates: Tensor, state: State) -> State:
        """Return new values after an epoch; `candidates` and `state` hold the rows of all examples, not of a batch."""
        return {}

    def objective(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        """Return what the batch minimises: the mean loss, unless the method works on whole batches."""
        return self.loss(logits, candidates, state).mean()

    def extend(self, network: nn.Module) -> nn.Module:
        """Return the network to train: as it is, or with what `needs` names around it; override to add a head."""
        if all(NEEDS[need].provider != "network" for need in self.needs):
            return network
        from wsl_toolkit.networks import Extended

        return Extended(network, self.needs)

    @property
    def logits_suffice(self) -> bool:
        """Whether the loss asks nothing of the network but logits, so that it can be evaluated anywhere."""
        return all(NEEDS[need].provider == "labels" for need in self.needs)

    @classmethod
    def reads_true_labels(cls) -> bool:
        """Whether it learns from the true labels, as an upper bound does, and not from candidate sets."""
        return "true_labels" in cls.needs

    @classmethod
    def needs_that_do_not(cls, property_name: Literal["stacks", "splits"]) -> list[str]:
        """Return the needs that lack a property of the table, in alphabetical order."""
        return sorted(need for need in cls.needs if not getattr(NEEDS[need], property_name))

    @classmethod
    def looks_back(cls) -> bool:
        """Whether something is to be done after each epoch."""
        return cls.after_epoch is not Estimator.after_epoch

    def target_loss(self, logits: Tensor) -> Tensor | None:
        """Return L(f, j) for every class j, [..., K]: the loss whose risk is estimated; None: the loss given {j}."""
        return None


@attrs.frozen(kw_only=True)
class Backbone(Component):
    """A network that turns inputs into K logits."""

    role: ClassVar[str] = "backbone"

    @abstractmethod
    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Build the network for one example's shape; the engine has seeded its initialisation."""


@attrs.frozen(kw_only=True)
class Dataset(Component):
    """Inputs with true labels, candidate sets of their own, or both."""

    role: ClassVar[str] = "dataset"
    suffixes: ClassVar[tuple[str, ...]] = ()
    """Endings of the files that it reads, such as '.mat', so that a command can choose it by a file's name."""

    @abstractmethod
    def load(self, data_dir: Path) -> Data:
        """Read the data; files live below `data_dir`."""

    def write(self, data: Data, data_dir: Path) -> None:
        """Write data where `load` would read it, atomically and without loss, or refuse."""
        raise ConfigError(f"dataset {self.name} can be read, not written")


ROLES: dict[str, type[Component]] = {
    "generator": Generator,
    "estimator": Estimator,
    "backbone": Backbone,
    "dataset": Dataset,
}
