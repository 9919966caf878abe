"""Faulty estimators, each a variant of the sound `Plain`."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from contract_cases import (
    TICKS,
    Plain,
    average_loss,
    branching_loss,
    centred_loss,
    detached_loss,
    flat_loss,
    forgetful,
    loss_of,
    low_loss,
    naive_loss,
    quotient_loss,
    random_loss,
    writing_loss,
)
from faulty import PROMISE, Fault
from torch import Tensor

from wsl_toolkit import Kind, Setting, State, param

ONE = "the_loss_is_one_number_an_example"
GRADIENT = "the_gradient_is_that_of_the_loss"
EXTREMES = "loss_gradient_and_state_are_finite_at_extremes"
PURE = "functions_are_pure"
UPDATE = "update_returns_state_that_was_declared"
BACK = "looking_back_is_pure_and_returns_state_that_was_declared"
PROVEN = "the_promise_is_proven_by_enumeration"
WRITTEN = "a_gradient_that_is_written_out_is_that_of_the_loss"
WORK = "the_work_does_not_grow_with_the_batch"
LEARNS = "it_learns"

LEGITIMATE = "nothing is wrong with its form: only the promise, or the accuracy, shows it"


def loss(change: Any) -> dict[str, Any]:
    """Exchange the loss for something made of it."""
    return loss_of(lambda self, f, s, state: change(Plain.loss(self, f, s, state)))


def update(change: Any) -> dict[str, Any]:
    """Exchange the update for something made of it."""
    return {"update": lambda self, f, s, state: change(Plain.update(self, f, s, state))}


def back(change: Any) -> dict[str, Any]:
    """Look back after an epoch."""
    return {"after_epoch": lambda self, s, state: change(s, state), "stackable": False}


def looping_loss(self: Any, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
    rows = [(state["r"][i] * -torch.log_softmax(logits[i], -1)).sum() for i in range(len(logits))]
    return torch.stack(rows)


def counting_loss(self: Any, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
    sizes = []
    for row in candidates.tolist():
        sizes.append(0.0 * sum(row))  # noqa: PERF401
    return Plain.loss(self, logits, candidates, state) + torch.tensor(sizes, dtype=logits.dtype)


def root_loss(self: Any, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
    zero = (logits - logits.detach()).square().sum(-1)
    return Plain.loss(self, logits, candidates, state) + zero.sqrt()


def raising(self: Any, *arguments: Any) -> Any:
    raise KeyError("no such class")


def written(change: Any) -> dict[str, Any]:
    """Write the gradient of the loss out, with a change."""

    def loss_and_gradient(self: Any, f: Tensor, s: Tensor, state: State) -> Any:
        p = torch.softmax(f, -1)
        return Plain.loss(self, f, s, state), change(p * state["r"].sum(-1, keepdim=True) - state["r"])

    return {"has_gradient": True, "loss_and_gradient": loss_and_gradient}


FAULTS = [
    Fault(
        what="a gradient that is written out is not that of the loss",
        attributes=written(torch.neg),
        check=WRITTEN,
        says="the gradient of loss_and_gradient is another",
        why="a perceptron learns by the loss; a linear model would refuse it at its first batch",
    ),
    Fault(
        what="a gradient that is written out is infinite at large logits",
        attributes={
            "has_gradient": True,
            "loss_and_gradient": lambda self, f, s, state: (
                Plain.loss(self, f, s, state),
                state["r"].sum(-1, keepdim=True) * f.exp() / f.exp().sum(-1, keepdim=True) - state["r"],
            ),
        },
        check=WRITTEN,
        says="loss_and_gradient gives NaN",
        why="a run's first logits are small",
    ),
    Fault(
        what="the loss is [B, 1]",
        attributes=loss(lambda v: v.unsqueeze(1)),
        check=ONE,
        says="shape (7, 1)",
        run="one loss for each",
    ),
    Fault(
        what="the loss is [B, K]",
        attributes=loss_of(lambda self, f, s, state: -state["r"] * torch.log_softmax(f, -1)),
        check=ONE,
        says="shape (7, 5)",
        run="one loss for each",
    ),
    Fault(
        what="the loss is a mean",
        attributes=loss(lambda v: v.mean()),
        check=ONE,
        says="shape ()",
        run="one loss for each",
    ),
    Fault(what="the loss is None", attributes=loss(lambda v: None), check=ONE, says="NoneType", run="not NoneType"),
    Fault(what="the loss is a list", attributes=loss(lambda v: v.tolist()), check=ONE, says="list", run="not list"),
    Fault(
        what="the loss is float64",
        attributes=loss(lambda v: v.double()),
        check=ONE,
        says="torch.float64 losses",
        run="torch.float64 for torch.float32",
    ),
    Fault(
        what="the loss is always float32",
        attributes=loss(lambda v: v.float()),
        check=ONE,
        says="torch.float32 losses",
        why="a run's logits are float32",
    ),
    Fault(
        what="the loss is a whole number",
        attributes=loss(lambda v: v.long()),
        check=ONE,
        says="torch.int64",
        run="torch.int64 for",
    ),
    Fault(
        what="the loss lies on another device",
        attributes=loss(lambda v: v.to("meta")),
        check=ONE,
        run="on meta, but the logits are on cpu",
    ),
    Fault(
        what="the loss does not depend on the logits",
        attributes=loss(lambda v: v.detach()),
        check=GRADIENT,
        run="does not depend on the logits",
    ),
    Fault(
        what="part of the loss is detached",
        attributes=loss_of(detached_loss),
        check=GRADIENT,
        says="Jacobian mismatch",
        why="to stop a gradient is a method's right; that it is not the loss's own only the contract asks",
    ),
    Fault(
        what="the loss draws from torch's global generator",
        attributes=loss_of(random_loss),
        check=PURE,
        says="torch's global",
        run="drew from torch's",
    ),
    Fault(
        what="the loss draws from numpy's global generator",
        attributes=loss(lambda v: v + 0 * float(np.random.rand())),  # noqa: NPY002
        check=PURE,
        says="numpy's global",
        run="drew from numpy's",
    ),
    Fault(
        what="the loss draws from Python's global generator",
        attributes=loss(lambda v: v + 0 * random.random()),
        check=PURE,
        says="Python's global",
        run="drew from Python's",
    ),
    Fault(
        what="the loss writes to its state",
        attributes=loss_of(writing_loss),
        check=PURE,
        says="was written to",
        run="wrote to state 'r'",
    ),
    Fault(
        what="the loss writes to the logits",
        attributes=loss_of(lambda self, f, s, state: Plain.loss(self, f.mul_(2), s, state)),
        check=PURE,
        says="logits were written",
        run="wrote to the logits",
    ),
    Fault(
        what="the loss writes to the candidates",
        attributes=loss_of(lambda self, f, s, state: Plain.loss(self, f, s.logical_not_(), state)),
        check=PURE,
        says="candidates were written",
        run="wrote to the candidates",
    ),
    Fault(what="the loss raises", attributes={"loss": raising}, check=ONE, says="no such class", run="KeyError"),
    Fault(
        what="the loss is NaN",
        attributes=loss(lambda v: v * torch.nan),
        check=ONE,
        says="the loss is NaN",
        run="the logits were finite",
    ),
    Fault(
        what="the loss is infinite",
        attributes=loss(lambda v: v + torch.inf),
        check=ONE,
        says="the loss is infinite",
        run="the logits were finite",
    ),
    Fault(
        what="the loss is NaN at extreme logits",
        attributes=loss_of(naive_loss),
        check=EXTREMES,
        says="the loss is NaN at",
        why="a run meets it only if its logits get there, and then says where the NaN came from",
    ),
    Fault(
        what="the gradient overflows at extreme logits",
        attributes=loss_of(quotient_loss),
        check=EXTREMES,
        says="the gradient by logits is",
        why="a run meets it only if its logits get there, and then says where the NaN came from",
    ),
    Fault(
        what="the gradient is NaN, the loss is not",
        attributes=loss_of(root_loss),
        check=EXTREMES,
        says="the gradient by logits is NaN",
        run="a step before, the gradient of the loss",
    ),
    Fault(
        what="an example's loss depends on its neighbours",
        attributes=loss_of(centred_loss),
        check="an_examples_loss_does_not_depend_on_its_neighbours",
        says="batch of one",
        why="alone it trains as written; stacks and ranks find it out by trying, and train one by one",
    ),
    Fault(
        what="the loss branches on tensor values",
        attributes=loss_of(branching_loss),
        check="many_models_stack_under_vmap_or_it_says_that_they_do_not",
        says="vmap",
        why="alone it trains as written; trials are trained one by one, with a note",
    ),
    Fault(
        what="the loss is flat", attributes=loss_of(flat_loss), check=LEARNS, says="reach an accuracy", why=LEGITIMATE
    ),
    Fault(
        what="the loss points uphill",
        attributes=loss(lambda v: -v.clamp(max=5)),
        check=LEARNS,
        says="reach an accuracy",
        why=LEGITIMATE,
    ),
    Fault(
        what="the loss loops over examples, by tensor operations",
        attributes=loss_of(looping_loss),
        check=WORK,
        says="it loops over examples",
        why="it is slow, not wrong",
    ),
    Fault(
        what="the loss loops over examples, in plain Python",
        attributes=loss_of(counting_loss),
        check=WORK,
        says="lines of Python",
        why="it is slow, not wrong",
    ),
    Fault(
        what="it remembers something outside its state",
        attributes=forgetful(),
        check="training_goes_on_from_a_checkpoint_to_the_same_bits",
        says="differs after resuming",
        why="one run cannot know what another would have remembered",
    ),
    Fault(
        what="the objective is [B]",
        attributes={"objective": lambda self, f, s, state: self.loss(f, s, state)},
        check=ONE,
        says="must be a scalar",
        run="objective must return a scalar",
    ),
    Fault(
        what="the objective is float64",
        attributes={"objective": lambda self, f, s, state: self.loss(f, s, state).double().mean()},
        check=ONE,
        says="objective is torch.float64",
        run="objective returned torch.float64",
    ),
    Fault(
        what="the objective does not depend on the logits",
        attributes={"objective": lambda self, f, s, state: self.loss(f.detach(), s, state).mean()},
        check=LEARNS,
        run="objective does not depend on the logits",
    ),
    Fault(
        what="update returns state that nobody declared",
        attributes=update(lambda new: {"q": new["r"]}),
        check=UPDATE,
        says="neither init_state nor init_shared",
        run="update returned 'q'",
    ),
    Fault(
        what="update returns another shape, which would broadcast",
        attributes=update(lambda new: {"r": new["r"].mean(0)}),
        check=UPDATE,
        run="update returned 'r' as",
    ),
    Fault(
        what="update returns a number for all",
        attributes=update(lambda new: {"r": new["r"].mean()}),
        check=UPDATE,
        run="update returned 'r' as",
    ),
    Fault(
        what="update changes the precision of its state",
        attributes=update(lambda new: {"r": new["r"].double()}),
        check=UPDATE,
        says="to torch.float64",
        run="update returned 'r' as torch.float64",
    ),
    Fault(
        what="update returns a tensor, not a dictionary",
        attributes=update(lambda new: new["r"]),
        check=UPDATE,
        run="must return a dictionary",
    ),
    Fault(
        what="update gives weight off the candidates",
        attributes={"update": lambda self, f, s, state: {"r": torch.softmax(f, -1)}},
        check=UPDATE,
        says="not 0 off the candidates",
        run="not 0 off the candidates",
    ),
    Fault(
        what="update draws from a global generator",
        attributes=update(lambda new: {"r": new["r"] * (1 + 0 * torch.rand(()))}),
        check=PURE,
        says="torch's global",
        run="update drew from torch's",
    ),
    Fault(
        what="update writes into its state",
        attributes={
            "update": lambda self, f, s, state: {
                "r": state["r"].copy_(torch.softmax(f.masked_fill(~s, -torch.inf), -1))
            }
        },
        check=PURE,
        says="was written to",
        run="update wrote to state 'r'",
    ),
    Fault(
        what="update makes the state NaN",
        attributes=update(lambda new: {"r": new["r"] * torch.nan}),
        check=EXTREMES,
        says="that is NaN",
        run="the loss became nan",
    ),
    Fault(
        what="update is defined and never called",
        attributes={"update_when": "never"},
        check=UPDATE,
        says="never stored",
        warns="`update_when` is 'never'",
        run="update_when is 'never'",
    ),
    Fault(
        what="init_state draws from a global generator",
        attributes={"init_state": lambda self, s: {"r": s * torch.rand(())}},
        check=PURE,
        says="torch's global",
        run="init_state drew from torch's",
    ),
    Fault(
        what="init_state returns no dictionary",
        attributes={"init_state": lambda self, s: s.float()},
        check=ONE,
        run="init_state must return a dictionary",
    ),
    Fault(
        what="init_state returns other rows than examples",
        attributes={"init_state": lambda self, s: {"r": s[:1].float()}},
        check="training_goes_on_from_a_checkpoint_to_the_same_bits",
        says="init_state gave 'r' 1 rows",
        run="init_state gave 'r' 1 rows",
    ),
    Fault(
        what="init_shared raises", attributes={"init_shared": raising}, check=ONE, says="no such class", run="KeyError"
    ),
    Fault(
        what="after_epoch returns state that nobody declared",
        attributes=back(lambda s, state: {"q": state["r"]}),
        check=BACK,
        says="neither init_state",
        run="after_epoch returned 'q'",
    ),
    Fault(
        what="after_epoch returns another shape",
        attributes=back(lambda s, state: {"r": state["r"].sum(0)}),
        check=BACK,
        says="as torch.float32 (5,)",
        run="after_epoch returned 'r' as",
    ),
    Fault(
        what="after_epoch makes the state NaN",
        attributes=back(lambda s, state: {"r": state["r"] / 0}),
        check=BACK,
        says="that is NaN",
        run="the loss became nan",
    ),
    Fault(
        what="after_epoch draws from a global generator",
        attributes=back(lambda s, state: {"r": state["r"] * torch.rand(())}),
        check=BACK,
        says="global random generator",
        run="after_epoch drew from torch's",
    ),
    Fault(
        what="after_epoch gives something else each time",
        attributes=back(lambda s, state: {"r": state["r"] * (1 + next(TICKS))}),
        check=BACK,
        says="give another 'r'",
        why="one run calls it once an epoch",
    ),
    Fault(
        what="after_epoch writes into its state",
        attributes=back(lambda s, state: {"r": state["r"].zero_()}),
        check=BACK,
        says="after_epoch wrote to 'r'",
        run="after_epoch wrote to state 'r'",
    ),
    Fault(
        what="after_epoch, and still it says that it can be stacked",
        attributes={"after_epoch": lambda self, s, state: {}},
        load="stackable must be False",
    ),
    Fault(
        what="extend returns no network",
        attributes={"extend": lambda self, network: None},
        check=LEARNS,
        run="extend returned NoneType",
    ),
    Fault(
        what="it promises to be unbiased, and is not",
        attributes=loss_of(average_loss),
        check=PROVEN,
        says="its bias is",
        why=PROMISE,
    ),
    Fault(
        what="it promises to be unbiased more widely than it is",
        attributes={"assumption": Setting.GENERAL},
        check=PROVEN,
        says="in general its bias is",
        why=PROMISE,
    ),
    Fault(
        what="it promises less than it keeps",
        attributes={"assumption": Setting.MCL},
        check="the_assumption_is_the_widest",
        says="in CMM too",
        why=PROMISE,
    ),
    Fault(
        what="it promises an upper bound that is none",
        attributes={"kind": Kind.UPPER_BOUND, **loss_of(low_loss)},
        check=PROVEN,
        says="below the risk",
        why=PROMISE,
    ),
    Fault(
        what="it promises the right minimiser, and has another",
        attributes={"kind": Kind.CONSISTENT, **loss(lambda v: -v.clamp(max=3))},
        check=PROVEN,
        says="misses the likeliest class",
        why=PROMISE,
    ),
    Fault(what="update_when is misspelt", attributes={"update_when": "befor"}, load="`update_when` must be one of"),
    Fault(what="assumption is text", attributes={"assumption": "PPL"}, load="`assumption` must be one of"),
    Fault(what="kind is text", attributes={"kind": "unbiased"}, load="`kind` must be one of"),
    Fault(what="needs is text", attributes={"needs": "features"}, load="`needs` must be a frozenset"),
    Fault(
        what="it needs something that does not exist",
        attributes={"needs": frozenset({"featurs"})},
        load="which is not known",
    ),
    Fault(
        what="it needs features, and still says that it can be stacked",
        attributes={"needs": frozenset({"features"})},
        load="stackable must be False",
    ),
    Fault(what="on_candidates is text", attributes={"on_candidates": "r"}, load="`on_candidates` must be a frozenset"),
    Fault(what="stackable is text", attributes={"stackable": "no"}, load="`stackable` must be True or False"),
    Fault(what="its name is not kebab-case", attributes={"name": "Plain Method"}, load="in kebab-case"),
    Fault(what="a method is misspelt: `objectiv`", attributes={"objectiv": raising}, warns="did you mean 'objective'"),
    Fault(
        what="a method is misspelt: `after_epochs`",
        attributes={"after_epochs": raising},
        warns="did you mean 'after_epoch'",
    ),
    Fault(
        what="a field without param()",
        attributes={"rate": 1.0, "__annotations__": {"rate": "float"}},
        decorate=True,
        warns="without param()",
    ),
    Fault(
        what="a parameter of a type that no file can hold",
        attributes={"rate": param(None, help="a rate"), "__annotations__": {"rate": dict}},
        decorate=True,
        load="has the type dict",
    ),
    Fault(
        what="a default out of its own range",
        attributes={"rate": param(2.0, help="a rate", le=1), "__annotations__": {"rate": float}},
        decorate=True,
        load="must be <= 1",
    ),
    Fault(
        what="a default of another type",
        attributes={"rate": param("1", help="a rate"), "__annotations__": {"rate": float}},
        decorate=True,
        load="is not of its type",
    ),
    Fault(
        what="no docstring of its own",
        attributes={"__doc__": Plain.__doc__},
        check="it_has_a_name_and_a_sentence_that_says_what_it_is",
        says="no docstring",
        why="nothing that is trained depends on it",
    ),
]
