"""Faulty backbones, variants of the sound `Small`, and faulty datasets, variants of the sound `Made`."""

from __future__ import annotations

import random
from typing import Any

import attrs
import torch
from contract_cases import Made, Small, few, hidden_weight, seeded, wrapped
from faulty import Fault
from torch import Tensor, nn

from wsl_toolkit import CandidateSets

LOGITS = "inputs_become_one_logit_a_class"
SEED = "the_seed_rules_the_initialisation"
SOUND = "it_loads_sound_data"


def raising(self: Any, *arguments: Any) -> Any:
    raise KeyError("no such layer")


def lucky(self: Any, shape: tuple[int, ...], classes: int) -> nn.Module:
    network = Small.build(self, shape, classes)
    with torch.no_grad():
        network[-1].bias.fill_(random.random())  # type: ignore[index, union-attr, operator]
    return network


def narrow(self: Any, shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(7, classes))


BACKBONES = [
    Fault(
        what="it gives a logit too many",
        attributes={"build": lambda self, shape, k: Small.build(self, shape, k + 1)},
        check=LOGITS,
        says="(4, 3)",
        run="the network returned logits of shape",
    ),
    Fault(
        what="its logits are [B, 1, K]",
        attributes=wrapped(lambda f, x: f(x).unsqueeze(1)),
        check=LOGITS,
        says="(4, 1, 2)",
        run="the network returned logits of shape",
    ),
    Fault(
        what="its logits are float64",
        attributes=wrapped(lambda f, x: f(x).double()),
        check=LOGITS,
        says="torch.float64",
        run="float64 logits",
    ),
    Fault(
        what="its logits are NaN",
        attributes=wrapped(lambda f, x: f(x) * torch.nan),
        check=LOGITS,
        says="logits are NaN",
        run="the network's logits were not finite",
    ),
    Fault(
        what="it returns a dictionary",
        attributes=wrapped(lambda f, x: {"logits": f(x)}),
        check=LOGITS,
        run="returned dict",
    ),
    Fault(
        what="its logits are detached",
        attributes=wrapped(lambda f, x: f(x).detach()),
        check="every_parameter_gets_a_gradient",
        run="depend on no parameter",
    ),
    Fault(
        what="build returns text",
        attributes={"build": lambda self, shape, k: "a network"},
        check=LOGITS,
        says="returned str",
        run="build returned str",
    ),
    Fault(
        what="build returns a network without parameters",
        attributes={"build": lambda self, shape, k: nn.Flatten()},
        check=LOGITS,
        run="without parameters to train",
    ),
    Fault(what="build raises", attributes={"build": raising}, check=LOGITS, says="no such layer", run="KeyError"),
    Fault(what="its layers do not fit the inputs", attributes={"build": narrow}, check=LOGITS, run="RuntimeError"),
    Fault(
        what="it seeds torch, so that all trials begin alike",
        attributes={"build": seeded},
        check=SEED,
        says="another seed gave the same",
        run="seeded torch",
    ),
    Fault(
        what="its initialisation draws from Python's generator",
        attributes={"build": lucky},
        check=SEED,
        says="two different networks",
        run="drew from Python's",
    ),
    Fault(
        what="a parameter that is never used",
        attributes=wrapped(lambda f, x: f(x)),
        check="every_parameter_gets_a_gradient",
        says="idle.weight gets no gradient",
        why="what is trained is trained rightly; frozen and unused layers are an author's right",
    ),
    Fault(
        what="an input's logits depend on its neighbours in evaluation",
        attributes=wrapped(lambda f, x: f(x) - f(x).mean(0)),
        check="an_input_is_judged_alone_in_evaluation",
        says="batches matter",
        why="a run evaluates in batches of one size and sees no other",
    ),
    Fault(
        what="it writes into its inputs",
        attributes=wrapped(lambda f, x: f(x.mul_(1.1))),
        check="inputs_are_left_alone",
        says="writes into its inputs",
        run="wrote into its inputs",
    ),
    Fault(
        what="a weight that no checkpoint holds",
        attributes={"build": hidden_weight},
        check="weights_survive_a_checkpoint_and_a_copy",
        says="something else",
        why="a run that is not interrupted never loads what it saved",
    ),
    Fault(what="its name is not kebab-case", attributes={"name": "Small_Net"}, load="in kebab-case"),
]


def data(change: Any) -> dict[str, Any]:
    """Exchange what is loaded for something made of it."""
    return {"load": lambda self, d: change(Made.load(self, d))}


def made_of(**changes: Any) -> dict[str, Any]:
    """Exchange some fields of what is loaded."""
    return data(lambda found: attrs.evolve(found, **{key: value(found) for key, value in changes.items()}))


def spoiled(x: Tensor) -> Tensor:
    x = x.clone()
    x[3, 1] = torch.nan
    return x


DATASETS = [
    Fault(
        what="there are too few examples to split",
        attributes=data(few),
        check="it_can_be_split_and_scaled",
        says="too few",
        run="too few",
    ),
    Fault(
        what="load returns the inputs alone",
        attributes=data(lambda found: found.x),
        check=SOUND,
        says="returned Tensor",
        run="load returned Tensor",
    ),
    Fault(
        what="load returns nothing",
        attributes=data(lambda found: None),
        check=SOUND,
        says="returned NoneType",
        run="load returned NoneType",
    ),
    Fault(
        what="inputs are whole numbers",
        attributes=made_of(x=lambda d: d.x.long()),
        check=SOUND,
        says="torch.int64",
        run="inputs are torch.int64",
    ),
    Fault(
        what="inputs are float16",
        attributes=made_of(x=lambda d: d.x.half()),
        check=SOUND,
        says="torch.float16",
        run="inputs are torch.float16",
    ),
    Fault(
        what="inputs are an array of numpy's",
        attributes=made_of(x=lambda d: d.x.numpy()),
        check=SOUND,
        says="ndarray",
        run="x must be a torch tensor",
    ),
    Fault(
        what="inputs are one-dimensional",
        attributes=made_of(x=lambda d: d.x[:, 0]),
        check=SOUND,
        says="inputs have shape",
        run="inputs have shape",
    ),
    Fault(
        what="an input is NaN",
        attributes=made_of(x=lambda d: spoiled(d.x)),
        check=SOUND,
        says="nan",
        run="NaN and infinity mean nothing",
    ),
    Fault(
        what="labels are floats",
        attributes=made_of(y=lambda d: d.y.float()),
        check=SOUND,
        says="vector of integers",
        run="vector of integers",
    ),
    Fault(
        what="a label is out of range",
        attributes=made_of(y=lambda d: d.y + 1),
        check=SOUND,
        says="out of range",
        run="out of range",
    ),
    Fault(
        what="there are fewer labels than examples",
        attributes=made_of(y=lambda d: d.y[:-1]),
        check=SOUND,
        says="59 labels for 60",
        run="59 labels for 60",
    ),
    Fault(
        what="candidates are a mask",
        attributes=made_of(candidates=lambda d: torch.ones(60, 3).bool()),
        check=SOUND,
        says="must be CandidateSets",
        run="must be CandidateSets",
    ),
    Fault(
        what="candidates over other classes",
        attributes=made_of(candidates=lambda d: CandidateSets.from_labels(d.y, 4)),
        check=SOUND,
        says="over 4 classes",
        run="over 4 classes",
    ),
    Fault(
        what="a class that no example has",
        attributes=made_of(num_classes=lambda d: 4),
        check=SOUND,
        says="no example is of class 3",
        why="part of a dataset may lack a class, and a run on it means what it says",
    ),
    Fault(
        what="class names for other classes",
        attributes=made_of(class_names=lambda d: ("a", "b")),
        check=SOUND,
        says="2 class names for 3",
        run="2 class names for 3",
    ),
    Fault(
        what="test examples of another shape",
        attributes=made_of(test_x=lambda d: torch.zeros(4, 2), test_y=lambda d: torch.zeros(4).long()),
        check=SOUND,
        says="test examples have shape",
        run="test examples have shape",
    ),
    Fault(
        what="something else each time, from a global generator",
        attributes=made_of(x=lambda d: torch.randn(60, 5)),
        check="it_loads_the_same_data_every_time",
        says="global random generator",
        run="drew from torch's",
    ),
    Fault(
        what="a missing file is FileNotFoundError",
        attributes={"load": lambda self, d: (d / "x.csv").read_text()},
        check="missing_files_are_said_in_words",
        says="raise DataError",
        run="FileNotFoundError",
    ),
    Fault(what="load raises", attributes={"load": raising}, check=SOUND, says="no such layer", run="KeyError"),
    Fault(what="suffixes is text", attributes={"suffixes": ".mat"}, load="`suffixes` must be a tuple"),
]
