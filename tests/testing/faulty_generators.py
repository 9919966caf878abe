"""Faulty generators, each a variant of the sound `Coin`."""

from __future__ import annotations

import random
from typing import Any

import torch
from contract_cases import (
    Coin,
    double_probability,
    float_draw,
    global_draw,
    naive_draw,
    no_probability,
    reading_draw,
    single_probability,
    singletons_only,
    skewed_draw,
    vector_draw,
    without_y,
    writing_draw,
)
from faulty import PROMISE, Fault
from torch import Tensor

from wsl_toolkit import Setting, param

HOLDS = "sets_hold_the_true_label_and_are_neither_empty_nor_full"
LAW = "probabilities_are_a_law"
MATCH = "samples_match_the_probabilities"
SEED = "the_same_seed_gives_the_same_sets"
PROVEN = "the_declared_setting_is_proven_by_enumeration"
WORK = "the_work_does_not_grow_with_the_number_of_examples"
STATISTICS = "what a run draws is what was asked for; only thousands of draws tell that the law is another"
BLIND = "a run gives it zeros, and cannot know that it would have looked at more"
UNUSED = "a run draws and never asks for probabilities"


def draw(change: Any) -> dict[str, Any]:
    """Exchange the draw for something made of it."""
    return {"draw": lambda self, x, y, k, rng: change(Coin.draw(self, x, y, k, rng), y)}


def probability(change: Any) -> dict[str, Any]:
    """Exchange the probabilities for something made of them."""
    return {"probability": lambda self, sets, x, y, k: change(Coin.probability(self, sets, x, y, k))}


def listed_draw(self: Any, x: Tensor, y: Tensor, num_classes: int, rng: torch.Generator) -> Tensor:
    mask = Coin.draw(self, x, y, num_classes, rng)
    rows = []
    for row in mask.tolist():
        rows.append(row)  # noqa: PERF402
    return torch.tensor(rows)


def remembering() -> dict[str, Any]:
    """Draw something else each time, whatever the stream says."""
    calls: list[int] = []

    def remembered(self: Any, x: Tensor, y: Tensor, num_classes: int, rng: torch.Generator) -> Tensor:
        calls.append(1)
        return Coin.draw(self, x, y, num_classes, torch.Generator().manual_seed(len(calls)))

    return {"draw": remembered}


def raising(self: Any, *arguments: Any) -> Any:
    raise KeyError("no annotator")


def python_draw(self: Any, x: Tensor, y: Tensor, num_classes: int, rng: torch.Generator) -> Tensor:
    random.random()
    return Coin.draw(self, x, y, num_classes, rng)


FAULTS = [
    Fault(
        what="it loops over examples, by tensor operations",
        attributes={"draw": naive_draw},
        check=WORK,
        says="it loops over them",
        why="it is slow, not wrong",
    ),
    Fault(
        what="it loops over examples, in plain Python",
        attributes={"draw": listed_draw},
        check=WORK,
        says="lines of Python",
        why="it is slow, not wrong",
    ),
    Fault(
        what="it draws from torch's global generator",
        attributes={"draw": global_draw},
        check=SEED,
        says="torch's global",
        run="drew from torch's",
    ),
    Fault(
        what="it draws from Python's global generator",
        attributes={"draw": python_draw},
        check=SEED,
        says="Python's global",
        run="drew from Python's",
    ),
    Fault(
        what="it draws something else each time",
        attributes=remembering(),
        check=SEED,
        says="two draws from the same seed differ",
        why="one run draws once",
    ),
    Fault(
        what="it draws by another law than it says",
        attributes={"draw": skewed_draw},
        check=MATCH,
        says="do not follow",
        why=STATISTICS,
    ),
    Fault(
        what="it draws nothing but {y}",
        attributes={"draw": singletons_only},
        check=MATCH,
        says="do not follow",
        why=STATISTICS,
    ),
    Fault(
        what="it writes to the inputs",
        attributes={"draw": writing_draw},
        check="inputs_and_labels_are_left_alone",
        says="",
        run="wrote to its inputs",
    ),
    Fault(
        what="it says that it reads no inputs, and does",
        attributes={"draw": reading_draw, "reads_inputs": lambda self: False, "setting": Setting.GENERAL}
        | {"probability": no_probability},
        check="one_that_reads_no_inputs_draws_the_same_for_all",
        says="other inputs gave other sets",
        why=BLIND,
    ),
    Fault(
        what="it takes vectors alone, and fails on others",
        attributes={"draw": vector_draw},
        check="images_are_as_welcome_as_vectors",
        run="AssertionError",
    ),
    Fault(
        what="its mask is float",
        attributes={"draw": float_draw},
        check="the_mask_is_boolean_and_on_the_labels_device",
        says="torch.float32",
        run="must draw a boolean mask",
    ),
    Fault(
        what="its mask lies on another device",
        attributes=draw(lambda mask, y: mask.to("meta")),
        check="the_mask_is_boolean_and_on_the_labels_device",
        says="the mask is on meta",
        run="on meta",
    ),
    Fault(
        what="it lacks a class",
        attributes=draw(lambda mask, y: mask[:, :-1]),
        check=HOLDS,
        says="boolean mask of shape",
        run="boolean mask of shape",
    ),
    Fault(
        what="it lacks an example",
        attributes=draw(lambda mask, y: mask[:-1]),
        check=HOLDS,
        says="boolean mask of shape",
        run="boolean mask of shape",
    ),
    Fault(
        what="it returns a list",
        attributes=draw(lambda mask, y: mask.tolist()),
        check=HOLDS,
        says="not list",
        run="not list",
    ),
    Fault(
        what="it draws sets without the true label",
        attributes={"draw": without_y},
        check=HOLDS,
        says="without the true label",
        run="without the true label",
    ),
    Fault(
        what="it draws empty sets",
        attributes=draw(lambda mask, y: mask & False),
        check=HOLDS,
        says="an empty set",
        run="an empty set",
    ),
    Fault(
        what="it draws full sets",
        attributes=draw(lambda mask, y: mask | True),
        check=HOLDS,
        says="the full set",
        run="the full set",
    ),
    Fault(what="it raises", attributes={"draw": raising}, check=HOLDS, says="no annotator", run="KeyError"),
    Fault(
        what="prepare returns nothing",
        attributes={"prepare": lambda self, *arguments: None},
        check=HOLDS,
        run="prepare returned NoneType",
    ),
    Fault(
        what="its probabilities sum to two",
        attributes={"probability": double_probability},
        check=LAW,
        says="do not sum to one",
        why=UNUSED,
    ),
    Fault(
        what="its probabilities are float32",
        attributes={"probability": single_probability},
        check=LAW,
        says="float32",
        why=UNUSED,
    ),
    Fault(what="its probabilities are NaN", attributes=probability(lambda p: p * torch.nan), check=LAW, why=UNUSED),
    Fault(
        what="it declares a setting and gives no probabilities",
        attributes={"probability": no_probability},
        check=PROVEN,
        says="nobody can prove it",
        why=PROMISE,
    ),
    Fault(
        what="it lies outside the setting that it declares",
        attributes={"setting": Setting.PCPL},
        check=PROVEN,
        says="lies in MCL",
        why=PROMISE,
    ),
    Fault(
        what="too few classes are not refused",
        attributes={"check_classes": lambda self, k: None},
        check="too_few_classes_are_refused_in_words",
        why="a run with enough classes never asks",
    ),
    Fault(what="its setting is text", attributes={"setting": "MCL"}, load="`setting` must be one of"),
    Fault(
        what="its least number of classes is no whole number",
        attributes={"min_classes": 2.5},
        load="`min_classes` must be a whole number",
    ),
    Fault(what="its name is not kebab-case", attributes={"name": "Coin Toss"}, load="in kebab-case"),
    Fault(what="a method is misspelt: `prepar`", attributes={"prepar": raising}, warns="did you mean 'prepare'"),
    Fault(
        what="a parameter without a default",
        attributes={"rate": param(help="a rate"), "__annotations__": {"rate": float}},
        decorate=True,
        check="parameters_have_defaults",
        run="parameter 'rate' is required",
    ),
    Fault(
        what="a parameter without help",
        attributes={"rate": param(1.0, help=""), "__annotations__": {"rate": float}},
        decorate=True,
        check="every_parameter_says_what_it_means",
        says="has no help",
        why="nothing that is trained depends on it",
    ),
    Fault(
        what="no docstring of its own",
        attributes={"__doc__": Coin.__doc__},
        check="it_has_a_name_and_a_sentence_that_says_what_it_is",
        says="no docstring",
        why="nothing that is trained depends on it",
    ),
]
