"""Sound components, and for each check of a contract one that breaks it, with what the check must say."""

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


GENERATORS = [
    ({"draw": naive_draw}, "test_the_work_does_not_grow_with_the_number_of_examples", "it loops over examples"),
    ({"draw": global_draw}, "test_the_same_seed_gives_the_same_sets", "torch's global random generator"),
    ({"draw": skewed_draw}, "test_samples_match_the_probabilities", "do not follow the probabilities"),
    ({"draw": singletons_only}, "test_samples_match_the_probabilities", "do not follow the probabilities"),
    ({"draw": writing_draw}, "test_inputs_and_labels_are_left_alone", "x was written to"),
    ({"draw": vector_draw}, "test_images_are_as_welcome_as_vectors", ""),
    ({"draw": float_draw}, "test_the_mask_is_boolean_and_on_the_labels_device", "torch.float32"),
    ({"draw": without_y}, "test_sets_hold_the_true_label_and_are_neither_empty_nor_full", "without the true label"),
    ({"probability": double_probability}, "test_probabilities_are_a_law", "do not sum to one"),
    ({"probability": single_probability}, "test_probabilities_are_a_law", "float32"),
    ({"probability": no_probability}, "test_the_declared_setting_is_proven_by_enumeration", "nobody can prove it"),
    ({"setting": Setting.PCPL}, "test_the_declared_setting_is_proven_by_enumeration", "declares PCPL, but lies in MCL"),
    ({"check_classes": lambda self, k: None}, "test_too_few_classes_are_refused_in_words", ""),
    ({"name": "Coin Toss"}, "test_it_has_a_name_and_a_sentence_that_says_what_it_is", "not kebab-case"),
    ({"__doc__": Coin.__doc__}, "test_it_has_a_name_and_a_sentence_that_says_what_it_is", "no docstring of its own"),
]


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


ESTIMATORS = [
    (loss_of(naive_loss), "test_loss_gradient_and_state_are_finite_at_extremes", "is not finite at"),
    (
        loss_of(quotient_loss),
        "test_loss_gradient_and_state_are_finite_at_extremes",
        "the gradient by logits is not finite at one logit 51, the rest -51",
    ),
    (loss_of(centred_loss), "test_an_examples_loss_does_not_depend_on_its_neighbours", "batch of one"),
    (loss_of(detached_loss), "test_the_gradient_is_that_of_the_loss", "Jacobian mismatch"),
    (loss_of(random_loss), "test_functions_are_pure", "torch's global random generator"),
    (loss_of(writing_loss), "test_functions_are_pure", "was written to"),
    (loss_of(branching_loss), "test_many_models_stack_under_vmap_or_it_says_that_they_do_not", "vmap"),
    (loss_of(flat_loss), "test_it_learns", "reach an accuracy"),
    (forgetful(), "test_training_goes_on_from_a_checkpoint_to_the_same_bits", "differs after resuming"),
    (loss_of(lambda *a: Plain.loss(*a).mean()), "test_the_loss_is_one_number_an_example", "shape ()"),
    (loss_of(lambda *a: Plain.loss(*a).float()), "test_the_loss_is_one_number_an_example", "torch.float32 losses"),
    (loss_of(average_loss), "test_the_promise_is_proven_by_enumeration", "its bias is"),
    ({"assumption": Setting.GENERAL}, "test_the_promise_is_proven_by_enumeration", "in general its bias is"),
    ({"assumption": Setting.MCL}, "test_the_assumption_is_the_widest", "it is unbiased in CMM too"),
    (
        {"kind": Kind.UPPER_BOUND, **loss_of(low_loss)},
        "test_the_promise_is_proven_by_enumeration",
        "below the risk",
    ),
    (
        {"kind": Kind.CONSISTENT, **loss_of(lambda *a: -Plain.loss(*a).clamp(max=3))},
        "test_the_promise_is_proven_by_enumeration",
        "misses the likeliest class",
    ),
    ({"update_when": "never"}, "test_update_returns_state_that_was_declared", "never stored"),
    (
        {"update": lambda self, f, s, state: {"q": f}},
        "test_update_returns_state_that_was_declared",
        "neither init_state nor init_shared",
    ),
    (
        {"update": lambda self, f, s, state: {"r": torch.softmax(f, -1)}},
        "test_update_returns_state_that_was_declared",
        "not 0 off the candidates",
    ),
    (
        {"update": lambda self, f, s, state: {"r": torch.softmax(f, -1).double()}},
        "test_update_returns_state_that_was_declared",
        "changes from torch.float32 to torch.float64",
    ),
    *(
        ({"after_epoch": back}, "test_looking_back_is_pure_and_returns_state_that_was_declared", reason)
        for back, reason in (
            (lambda self, s, state: {"q": state["r"]}, "neither init_state nor init_shared"),
            (lambda self, s, state: {"r": state["r"].sum(0)}, "as torch.float32 (5,), init as torch.float32 (7, 5)"),
            (lambda self, s, state: {"r": state["r"] / 0}, "is not finite"),
            (lambda self, s, state: {"r": torch.rand_like(state["r"])}, "global random generator"),
            (lambda self, s, state: {"r": state["r"] + next(TICKS)}, "give another 'r'"),
            (lambda self, s, state: {"r": state["r"].zero_()}, "after_epoch wrote to 'r'"),
        )
    ),
]


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


BACKBONES = [
    (
        {"build": lambda self, shape, k: Small.build(self, shape, k + 1)},
        "test_inputs_become_one_logit_a_class",
        "(4, 3)",
    ),
    ({"build": seeded}, "test_the_seed_rules_the_initialisation", "another seed gave the same"),
    (wrapped(lambda f, x: f(x)), "test_every_parameter_gets_a_gradient", "parameter idle.weight gets no gradient"),
    (wrapped(lambda f, x: f(x) - f(x).mean(0)), "test_an_input_is_judged_alone_in_evaluation", "batches matter"),
    (wrapped(lambda f, x: f(x.mul_(1.1))), "test_inputs_are_left_alone", "writes into its inputs"),
    ({"build": hidden_weight}, "test_weights_survive_a_checkpoint_and_a_copy", "something else"),
    ({"build": lambda self, shape, k: "a network"}, "test_inputs_become_one_logit_a_class", "returned str"),
]


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


DATASETS = [
    ({"load": lambda self, d: few(Made.load(self, d))}, "test_it_can_be_split_and_scaled", "too few"),
    ({"load": lambda self, d: Made.load(self, d).x}, "test_it_loads_sound_data", "returned Tensor"),
    (
        {"load": lambda self, d: attrs.evolve(Made.load(self, d), num_classes=4)},
        "test_it_loads_sound_data",
        "no example is of class 3",
    ),
    (
        {"load": lambda self, d: attrs.evolve(Made.load(self, d), x=torch.randn(60, 5))},
        "test_it_loads_the_same_data_every_time",
        "global random generator",
    ),
    ({"load": lambda self, d: (d / "x.csv").read_text()}, "test_missing_files_are_said_in_words", "raise DataError"),
    (
        {"load": lambda self, d: attrs.evolve(Made.load(self, d), x=torch.randn(60, 5).long())},
        "test_it_loads_sound_data",
        "inputs are torch.int64",
    ),
]
