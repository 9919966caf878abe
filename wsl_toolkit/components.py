"""What a plugin provides: Generator, Estimator, Backbone, Dataset, Transform, Metric, Optimizer, Scheduler, Callback.

A component is an attrs class, frozen but for callbacks, whose `param()` fields are its configuration. Nothing here
imports torch: components are declared, listed and documented without it, and import it inside the functions that need
it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, final

import attrs

from wsl_toolkit.errors import ConfigError, LabelError, PluginError
from wsl_toolkit.needs import NEEDS
from wsl_toolkit.parameters import param
from wsl_toolkit.settings import Kind, Setting

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn
    from torch.optim.lr_scheduler import LRScheduler

    from wsl_toolkit.data.dataset import Data
    from wsl_toolkit.labels.candidate_sets import CandidateSets
    from wsl_toolkit.training.callbacks import Epoch, TrainingStart
    from wsl_toolkit.training.jobs import Trained
    from wsl_toolkit.training.metrics import Measured

__all__ = [
    "NEEDS",
    "ROLES",
    "Backbone",
    "Callback",
    "Component",
    "Dataset",
    "Estimator",
    "Generator",
    "Kind",
    "Metric",
    "Optimizer",
    "ProperGenerator",
    "Scheduler",
    "Setting",
    "State",
    "Transform",
    "param",
]

State = dict[str, "Tensor"]
"""An estimator's state: tensors whose first dimension is the example, or shared ones."""


class Component(ABC):
    """What all roles share: a name, a citation, and a docstring whose first line says what it is."""

    __slots__ = ()  # frozen subclasses have no other attributes than their fields

    role: ClassVar[str]
    name: ClassVar[str]
    citation: ClassVar[str] = ""
    contract: ClassVar[Mapping[str, Any]] = {}
    """What its contract is told (`epochs`, `learning_rate`, `input_shapes`, …), and `parameters` to make it with."""

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

    def reads_inputs(self) -> bool:
        """Return whether sets depend on x; one that says no spares large data a copy, and is given zeros for x."""
        return True

    def check_classes(self, num_classes: int) -> None:
        """Refuse a number of classes that the parameters do not fit; override to check shapes, call super()."""
        if num_classes < self.min_classes:
            raise LabelError(f"{self.name} needs at least {self.min_classes} classes, not {num_classes}")

    @final
    def sample(self, x: Tensor, y: Tensor, num_classes: int, rng: torch.Generator) -> CandidateSets:
        """Draw candidate sets for labelled data, checked: of the right shape, never empty, never full, y in s."""
        from wsl_toolkit.labels import candidate_sets
        from wsl_toolkit.system.random_streams import watched

        candidate_sets.check_labels(y, num_classes, n=len(x))
        self.check_classes(num_classes)
        y = y.long()
        begin, versions = rng.get_state(), (x._version, y._version)

        def drawn() -> CandidateSets:
            rng.set_state(begin)
            ready = self.prepare(x, y, num_classes, rng)
            if not isinstance(ready, Generator):
                raise PluginError(f"generator {self.name}: prepare returned {type(ready).__name__}, not a generator")

            def draw(xs: Tensor, ys: Tensor) -> Tensor:
                mask = ready.draw(xs, ys, num_classes, rng)
                ready._check_draw(mask, ys, num_classes)
                return mask

            return candidate_sets.draw_in_chunks(draw, x, y, num_classes)

        sets, moved = watched(drawn)
        if moved:
            raise PluginError(f"generator {self.name} drew from {moved}'s global random generator: use `rng` alone")
        if (x._version, y._version) != versions:
            raise PluginError(f"generator {self.name} wrote to its inputs or labels, which belong to the caller")
        return sets

    def _check_draw(self, mask: Any, y: Tensor, num_classes: int) -> None:
        import torch

        if not isinstance(mask, torch.Tensor) or mask.dtype != torch.bool or mask.shape != (len(y), num_classes):
            got = f"{mask.dtype} {tuple(mask.shape)}" if isinstance(mask, torch.Tensor) else type(mask).__name__
            raise PluginError(
                f"generator {self.name} must draw a boolean mask of shape ({len(y)}, {num_classes}), not {got}"
            )
        if mask.device != y.device:
            raise PluginError(f"generator {self.name} drew a mask on {mask.device}, but the labels are on {y.device}")
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

    def init_features(self, candidates: CandidateSets, width: int) -> State:
        """Return more shared state, of one that needs 'features': so many numbers are the features of an example."""
        return {}

    def report(self, state: State) -> Mapping[str, Tensor | float]:
        """Return numbers to log after an epoch, from all of the state; the record has them as 'estimator/<name>'."""
        return {}

    def after_epoch(self, candidates: Tensor, state: State) -> State:
        """Return new values after an epoch; `candidates` and `state` hold the rows of all examples, not of a batch."""
        return {}

    def objective(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        """Return what the batch minimises: the mean loss, unless the method works on whole batches."""
        return self.loss(logits, candidates, state).mean()

    @property
    def has_gradient(self) -> bool:
        """Whether `loss_and_gradient` is written, for these parameters."""
        return False

    def loss_and_gradient(self, logits: Tensor, candidates: Tensor, state: State) -> tuple[Tensor, Tensor]:
        """Return the losses [B] and their derivatives by the logits [B, K], written out as formulas.

        They are those of `loss` up to rounding, which the first batch and a contract check. Linear models learn faster
        by them than by torch's differentiation; other networks, and a method with an objective of its own, use `loss`.
        """
        raise PluginError(f"estimator {self.name}: loss_and_gradient is not written, though has_gradient says so")

    def extend(self, network: nn.Module) -> nn.Module:
        """Return the network to train: as it is, or with what `needs` names around it; override to add a head."""
        if all(NEEDS[need].provider != "network" for need in self.needs):
            return network
        from wsl_toolkit.networks import Extended

        return Extended(network, self.needs)

    def extend_two(self, build: Callable[[], nn.Module]) -> nn.Module:
        """Return what to train in the place of `extend`, of one that needs 'two_networks'.

        Each call of `build` returns another network of the configured kind, with an initialisation of its own.
        """
        from wsl_toolkit.networks import Extended

        return Extended(build(), self.needs, second=build())

    @property
    def logits_suffice(self) -> bool:
        """Whether the loss asks nothing of the network but logits, so that it can be evaluated anywhere."""
        return all(NEEDS[need].provider == "labels" for need in self.needs)

    @classmethod
    def reads_true_labels(cls) -> bool:
        """Whether it learns from the true labels, as an upper bound does, and not from candidate sets."""
        return "true_labels" in cls.needs

    @classmethod
    def has_views(cls) -> bool:
        """Whether it looks at augmented copies of its own, which `--augmentation` leaves as they are."""
        return any(NEEDS[need].view for need in cls.needs)

    @classmethod
    def needs_that_do_not(cls, property_name: Literal["stacks", "splits"]) -> list[str]:
        """Return the needs that lack a property of the table, in alphabetical order."""
        return sorted(need for need in cls.needs if not getattr(NEEDS[need], property_name))

    @classmethod
    def reports(cls) -> bool:
        """Whether it has numbers to log after each epoch."""
        return cls.report is not Estimator.report

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

    frozen: bool = param(
        False,
        help="run this network once over the data, as it is, and train a head alone, on what its last layer sees",
    )
    frozen_head: str = param("linear", help="what is trained on a frozen network's features: linear, mlp, any backbone")
    frozen_weights: Path | None = param(
        None,
        help="a .safetensors or .pt file with a frozen network's weights, its last layer's of any size; without one "
        "they are random, the same in every run",
    )

    @abstractmethod
    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Build the network for one example's shape; the engine has seeded its initialisation."""

    def check_start(self) -> None:
        """Refuse, before anything is recorded, to start from weights that are not there."""

    def start_file(self) -> Path | None:
        """Return the file that `start` reads, if any: a study's results belong to its content."""
        return None

    def start(self, network: nn.Module) -> str:
        """Give a network that `build` made the weights that training starts from, if not those it was built with.

        Returns a sentence about them for the user, or nothing. Models that are read back are built, not started.
        """
        return ""


@attrs.frozen(kw_only=True)
class Dataset(Component):
    """Inputs with true labels, candidate sets of their own, or both."""

    role: ClassVar[str] = "dataset"
    suffixes: ClassVar[tuple[str, ...]] = ()
    """Endings of the files that it reads, such as '.mat', so that a command can choose it by a file's name."""

    imbalance: float = param(
        1.0,
        help="thin the classes, but not those of the test part, to an exponential profile: the first class keeps so "
        "many times as many examples as the last; needs true labels",
        ge=1,
    )

    @abstractmethod
    def load(self, data_dir: Path) -> Data:
        """Read the data; files live below `data_dir`."""

    def write(self, data: Data, data_dir: Path) -> None:
        """Write data where `load` would read it, atomically and without loss, or refuse."""
        raise ConfigError(f"dataset {self.name} can be read, not written")


@attrs.frozen(kw_only=True)
class Transform(Component):
    """What happens to the training part's candidate sets before training: sets in, sets out."""

    role: ClassVar[str] = "transform"

    @abstractmethod
    def apply(self, x: Tensor, candidates: CandidateSets, rng: torch.Generator) -> CandidateSets:
        """Return new sets of the same examples and classes, none empty, from `rng` alone.

        `x` are the inputs as the network gets them, on which it may train. A full set says that nothing is known.
        """


@attrs.frozen(kw_only=True)
class Metric(Component):
    """A number measured after each epoch on a held-out part; the parameters of one that is installed are its defaults.

    It stands in records, tables, curves and MLflow as '<part>/<name>', with '_' for '-'.
    """

    role: ClassVar[str] = "metric"
    label: ClassVar[str]
    """What people read in a table or beside a curve."""
    reads: ClassVar[Literal["candidates", "clean labels"]]
    """What it is given beside logits; one that reads clean labels never selects a model."""
    better: ClassVar[Literal["higher", "lower"]]
    part: ClassVar[Literal["validation", "test"]] = "validation"
    """The part that it is measured on; the test part has no candidate sets."""
    scale: ClassVar[Literal["share", "risk", "classes"]] = "share"
    """Whether it is a mean over examples of numbers between 0 and 1, a risk, or a number of classes."""

    @classmethod
    def key(cls) -> str:
        """Return the name under which records hold it: '<part>/<name>', with '_' for '-'."""
        return f"{cls.part}/{cls.name.replace('-', '_')}"

    @abstractmethod
    def compute(self, part: Measured) -> Tensor | float | None:
        """Return the value, or None where it cannot be had."""


@attrs.frozen(kw_only=True)
class Optimizer(Component):
    """An optimiser beside those of torch.optim, whose names it must not take."""

    role: ClassVar[str] = "optimizer"

    @abstractmethod
    def make(
        self, parameters: list[nn.Parameter], lr: float, weight_decay: float, momentum: float
    ) -> torch.optim.Optimizer:
        """Return it for a network; refuse, with a ConfigError, a weight decay that it has no use for."""


@attrs.frozen(kw_only=True)
class Scheduler(Component):
    """How the learning rate changes from epoch to epoch, or from step to step."""

    role: ClassVar[str] = "scheduler"

    @abstractmethod
    def make(self, optimizer: torch.optim.Optimizer, epochs: int) -> LRScheduler | None:
        """Return torch's schedule, stepped after each of so many epochs; None for a constant learning rate."""

    def by_step(self) -> bool:
        """Return whether it is stepped after each batch; then `make` is told the number of steps, not of epochs."""
        return False


@attrs.define(kw_only=True, eq=False, slots=False)
class Callback(Component):
    """Hears of a model's training: may look on, log numbers and figures of its own, and end it.

    It may change while it listens, unlike other components: an ordinary class with an `__init__` of its own will do, or
    one with `param()` fields under `@attrs.define(kw_only=True, eq=False)`. It is told nothing that was computed from
    clean labels, unless it says that it reads them; one that does cannot end a training.
    """

    role: ClassVar[str] = "callback"
    name: ClassVar[str] = ""
    """What people call it; one that no plugin registers is known by its class if it has no name."""
    reads_clean_labels: ClassVar[bool] = False
    """Whether it evaluates: it is given clean labels and what was measured with them, logs under names that begin with
    'oracle/', and the run says so."""

    def on_train_start(self, about: TrainingStart) -> None:
        """Training is about to begin, or to go on from a checkpoint."""

    def on_epoch_end(self, record: Epoch) -> bool | None:
        """An epoch ended and was measured; log with `record.log`, and return True to end this training here."""

    def on_train_end(self, trained: Trained) -> None:
        """Training is complete; not called where it was interrupted."""

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint must hold for it to go on: tensors and plain values."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to a saved moment; called after `on_train_start`, where there is a checkpoint."""


ROLES: dict[str, type[Component]] = {
    "generator": Generator,
    "estimator": Estimator,
    "backbone": Backbone,
    "dataset": Dataset,
    "transform": Transform,
    "metric": Metric,
    "optimizer": Optimizer,
    "scheduler": Scheduler,
    "callback": Callback,
}
