"""On the first batch the engine refuses what would train to a wrong number, and changes no bit of what is sound."""

from __future__ import annotations

import random
from typing import Any, ClassVar, Literal

import attrs
import numpy as np
import pytest
import torch
from small_problems import MakeTrainer, inputs_and_candidates, network
from test_training_loop import assert_same_bits, everything
from torch import Tensor, nn

from wsl_toolkit import Estimator, Kind, Setting, State
from wsl_toolkit.errors import PluginError
from wsl_toolkit.losses import cross_entropy
from wsl_toolkit.training.stacking import Stack


@attrs.frozen(kw_only=True)
class Sound(Estimator):
    """Progressive identification, with the classes' frequencies as shared state."""

    name: ClassVar[str] = "sound"
    assumption: ClassVar[Setting] = Setting.ANY
    kind: ClassVar[Kind] = Kind.HEURISTIC
    update_when: ClassVar[Literal["never", "before", "after"]] = "before"
    on_candidates: ClassVar[frozenset[str]] = frozenset({"r"})

    def init_state(self, candidates: Tensor) -> State:
        return {"r": candidates / candidates.sum(-1, keepdim=True)}

    def init_shared(self, candidates: Any) -> State:
        return {"seen": torch.zeros(candidates.num_classes)}

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        return (state["r"] * cross_entropy(logits)).sum(-1)

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:
        r = torch.softmax(logits.masked_fill(~candidates, -torch.inf), dim=-1)
        return {"r": r, "seen": state["seen"] + r.sum(0)}


def variant(**attributes: Any) -> Estimator:
    made: Estimator = type("Variant", (Sound,), {"__doc__": "A variant.", **attributes})()
    return made


def loss(change: Any) -> dict[str, Any]:
    return {"loss": lambda self, f, s, state: change(Sound.loss(self, f, s, state))}


def update(change: Any) -> dict[str, Any]:
    return {"update": lambda self, f, s, state: change(Sound.update(self, f, s, state))}


FAULTS: list[tuple[dict[str, Any], str]] = [
    (loss(lambda losses: losses.unsqueeze(1)), r"loss must return one loss .* not torch.float32 \(32, 1\)"),
    (loss(lambda losses: losses.mean()), r"loss must return one loss .* not torch.float32 \(\)"),
    (loss(lambda losses: losses.unsqueeze(1) * torch.ones(5)), r"not torch.float32 \(32, 5\)"),
    (loss(lambda losses: None), "not NoneType"),
    (loss(lambda losses: losses.double()), "loss returned torch.float64 for torch.float32 logits"),
    (loss(lambda losses: losses.detach()), "does not depend on the logits"),
    (loss(lambda losses: losses + 0 * random.random()), "drew from Python's global random generator"),
    (loss(lambda losses: losses + 0 * float(np.random.rand())), "drew from numpy's global"),  # noqa: NPY002
    (loss(lambda losses: losses + 0 * torch.rand(())), "drew from torch's global"),
    ({"loss": lambda self, f, s, state: Sound.loss(self, f.mul_(2.0), s, state)}, "wrote to the logits"),
    ({"loss": lambda self, f, s, state: Sound.loss(self, f.detach().add_(1), s, state)}, "wrote to the logits"),
    ({"loss": lambda self, f, s, state: Sound.loss(self, f, s.logical_not_(), state)}, "wrote to the candidates"),
    ({"loss": lambda self, f, s, state: Sound.loss(self, f, s, {"r": state["r"].mul_(2)})}, "wrote to state 'r'"),
    ({"objective": lambda self, f, s, state: self.loss(f, s, state)}, "objective must return a scalar"),
    (
        {"objective": lambda self, f, s, state: self.loss(f, s, state).mean().double()},
        "objective returned torch.float64",
    ),
    (update(lambda new: {"q": new["r"]}), "update returned 'q', which neither"),
    (update(lambda new: {"r": new["r"].mean(0)}), r"update returned 'r' as torch.float32 \(5,\), not"),
    (update(lambda new: {"seen": new["seen"].sum()}), r"update returned 'seen' as torch.float32 \(\), not"),
    (update(lambda new: {"r": new["r"].double()}), "not torch.float32"),
    (update(lambda new: new["r"]), "update must return a dictionary of tensors"),
    (update(lambda new: {"r": torch.ones_like(new["r"])}), "not 0 off the candidates"),
    (update(lambda new: {"r": new["r"] + 0 * torch.rand(())}), "update drew from torch's"),
    ({"update_when": "never"}, "update_when is 'never'"),
    ({"init_state": lambda self, s: {"r": s * torch.rand(()) + 0.0}}, "init_state drew from torch's"),
]


@pytest.mark.parametrize(("attributes", "words"), FAULTS)
def test_what_breaks_the_contract_is_refused_by_name_and_place(
    make_trainer: MakeTrainer, attributes: dict[str, Any], words: str
) -> None:
    trainer = make_trainer(variant(**attributes))
    with pytest.raises(PluginError, match=words) as caught:
        trainer.train_epoch()
    assert str(caught.value).startswith("estimator sound: ")
    assert "test_first_batch.py:" in str(caught.value)


@pytest.mark.parametrize("number", [0, 4, 8, 12, 14, 17, 20])
def test_it_is_refused_in_a_stack_too(make_trainer: MakeTrainer, number: int) -> None:
    attributes, words = FAULTS[number]
    stack = Stack([make_trainer(variant(**attributes), seed=seed) for seed in range(2)])
    with pytest.raises(PluginError, match=words):
        stack.train_epoch()


class Odd(nn.Module):
    """A network whose logits something is done to."""

    def __init__(self, change: Any) -> None:
        super().__init__()
        self.network, self.change = network("linear", 6, 5), change

    def forward(self, x: Tensor) -> Any:
        return self.change(self.network(x))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: f[:, :4], r"logits of shape \(32, 4\), not \(32, 5\)"),
        (lambda f: f.unsqueeze(1), r"logits of shape \(32, 1, 5\)"),
        (lambda f: f.long(), "torch.int64 logits"),
        (lambda f: f.double(), "float64 logits"),
        (lambda f: f.detach(), "depend on no parameter"),
        (lambda f: {"logits": f}, "dict, not a tensor"),
    ],
)
def test_a_network_that_gives_no_logits_is_refused_and_not_the_estimator(
    make_trainer: MakeTrainer, change: Any, words: str
) -> None:
    trainer = make_trainer("ppl")
    trainer._loop._forward = Odd(change)
    with pytest.raises(PluginError, match=f"the network returned .*{words}") as caught:
        trainer.train_epoch()
    assert caught.value.wsl_role == "backbone"  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["mlp", "dropout"])
@pytest.mark.parametrize("stacked", [False, True])
def test_the_checks_change_no_bit(make_trainer: MakeTrainer, kind: str, stacked: bool) -> None:
    if stacked and kind == "dropout":
        pytest.skip("networks that draw are not stacked")
    checked, plain = ([make_trainer(Sound(), kind, seed=seed) for seed in range(2)] for _ in range(2))
    for trainers, unchecked in ((checked, True), (plain, False)):
        for unit in [Stack(trainers)] if stacked else trainers:
            unit._loop.unchecked = unchecked
            for _ in range(2):
                unit.train_epoch()
            assert not unit._loop.unchecked
    for one, other in zip(checked, plain, strict=True):
        assert_same_bits(everything(one), everything(other))


def test_a_resumed_training_is_checked_again(make_trainer: MakeTrainer) -> None:
    first = make_trainer(Sound())
    first.train_epoch()
    resumed = make_trainer(variant(**loss(lambda losses: losses.mean())))
    resumed.load_state_dict(first.state_dict())
    with pytest.raises(PluginError, match="loss must return"):
        resumed.train_epoch()


def test_a_draw_by_another_thread_is_not_laid_at_the_methods_door(make_trainer: MakeTrainer) -> None:
    """A stream that moves once, but not when the function is called again, was moved by somebody else."""
    calls: list[int] = []

    def once(losses: Tensor) -> Tensor:
        calls.append(1)
        if len(calls) == 1:
            random.random()
        return losses

    make_trainer(variant(**loss(once))).train_epoch()
    assert len(calls) > 2


def test_what_looks_back_returns_what_was_declared(make_trainer: MakeTrainer) -> None:
    back = {"after_epoch": lambda self, s, state: {"r": state["r"].mean(0)}, "stackable": False}
    with pytest.raises(PluginError, match=r"after_epoch returned 'r' as torch.float32 \(5,\), not"):
        make_trainer(variant(**back)).train_epoch()


def test_a_batch_of_rows_that_lie_on_candidates_alone_is_checked_as_a_dense_one(
    make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wsl_toolkit.training.risk.DENSE_LIMIT", 1)
    trainer = make_trainer(Sound(), problem=inputs_and_candidates())
    assert trainer.risk.is_compact
    trainer.train_epoch()
    with pytest.raises(PluginError, match="not 0 off the candidates"):
        make_trainer(variant(**update(lambda new: {"r": new["r"] + 1}))).train_epoch()
