"""An estimator that declares more than logits gets it, in training only, and a checkpoint carries all of it."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import attrs
import pytest
import torch
from torch import Tensor, nn

from wsl_toolkit import CandidateSets, Estimator, Kind, Setting, State
from wsl_toolkit.errors import PluginError
from wsl_toolkit.losses import cross_entropy
from wsl_toolkit.networks import Extended, classifier, jitter, logits_and_features, plain, run
from wsl_toolkit.plugins.registry import Owner, Registry
from wsl_toolkit.training.engine import predict
from wsl_toolkit.training.risk import Risk
from wsl_toolkit.training.trainer import Trainer

ALL = frozenset({"second_view", "features", "momentum", "epoch"})


@attrs.frozen(kw_only=True)
class Greedy(Estimator):
    """Uses everything the engine can provide."""

    name: ClassVar[str] = "greedy"
    assumption: ClassVar[Setting] = Setting.ANY
    kind: ClassVar[Kind] = Kind.HEURISTIC
    needs: ClassVar[frozenset[str]] = ALL
    stackable: ClassVar[bool] = False
    update_when: ClassVar[Literal["never", "before", "after"]] = "before"

    def init_state(self, candidates: Tensor) -> State:
        return {"seen_in_epoch": torch.full((len(candidates),), -1.0)}

    def init_shared(self, candidates: CandidateSets) -> State:
        return {"last_feature": torch.zeros(6)}

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        agreement = (logits - state["view_logits"]).square().mean(-1)
        slow = (state["features"] - state["momentum_features"]).square().mean(-1)
        return (candidates * cross_entropy(logits)).sum(-1) + agreement + slow

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:
        assert not any(value.requires_grad for value in state.values())
        return {
            "seen_in_epoch": state["epoch"].expand(len(logits)).clone(),
            "last_feature": state["momentum_features"][-1],
        }


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.1), nn.Linear(6, 4))


def trainer() -> Trainer:
    draws = torch.Generator().manual_seed(2)
    x = torch.randn(40, 5, generator=draws)
    candidates = CandidateSets.from_labels(torch.randint(4, (40,), generator=draws), 4)
    model = Greedy().extend(network())
    torch.manual_seed(3)
    return Trainer(
        model=model,
        risk=Risk(Greedy(), candidates),
        inputs=x,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        scheduler=None,
        batch_size=16,
        shuffle=torch.Generator().manual_seed(4),
        evaluate=lambda model, risk: {"size": torch.tensor(float(predict(model, x).shape[1]))},
    )


def test_extras_are_there_in_training_and_the_backbone_alone_in_evaluation() -> None:
    model = Greedy().extend(network())
    x = torch.randn(8, 5)
    logits, extras = run(model, x)
    assert set(extras) == {
        "view_logits",
        "features",
        "view_features",
        "momentum_logits",
        "momentum_features",
    }
    assert logits.requires_grad
    assert extras["view_logits"].requires_grad
    assert not extras["momentum_features"].requires_grad
    assert extras["features"].shape == (8, 6)
    model.eval()
    assert torch.equal(run(model, x)[0], plain(model)(x))
    assert run(model, x)[1] == {}


def test_features_times_the_last_layer_are_the_logits() -> None:
    model = network().eval()
    logits, features = logits_and_features(model, torch.randn(7, 5))
    assert torch.equal(classifier(model)(features), logits)


def test_the_momentum_copy_follows_by_its_decay() -> None:
    model = Extended(nn.Linear(3, 2, bias=False), frozenset({"momentum"}), decay=0.9)
    assert model.slow is not None
    start = model.network.weight.detach().clone()  # type: ignore[union-attr, operator]
    with torch.no_grad():
        model.network.weight.fill_(5.0)  # type: ignore[union-attr, operator]
    model.after_step()
    torch.testing.assert_close(model.slow[0].weight, 0.9 * start + 0.1 * 5.0)


def test_an_ordinary_estimator_trains_the_backbone_itself() -> None:
    class Simple(Greedy):
        needs = frozenset()

    backbone = network()
    assert Simple().extend(backbone) is backbone
    assert Simple().logits_suffice


def test_the_engine_provides_everything_and_stores_what_update_returns() -> None:
    made = trainer()
    records = list(made.epochs(3))
    assert torch.equal(made.risk.get_buffer("row_seen_in_epoch"), torch.full((40,), 2.0))
    assert bool(made.risk.get_buffer("shared_last_feature").any())
    assert records[-1].metrics["size"] == 4


def test_resuming_an_extended_network_gives_the_same_bits() -> None:
    whole = trainer()
    list(whole.epochs(4))
    first = trainer()
    list(first.epochs(2))
    saved: dict[str, Any] = first.state_dict()
    second = trainer()
    second.load_state_dict(saved)
    list(second.epochs(4))
    for ours, theirs in zip(whole.model.state_dict().values(), second.model.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_shifted_image_keeps_its_shape_and_moves_by_at_most_an_eighth() -> None:
    image = torch.arange(16.0).expand(3, 2, 16, 16)  # every pixel says its column
    view = jitter(image, noise=0.0)
    assert view.shape == image.shape
    assert int((view - image).abs().max()) <= 2
    assert not torch.equal(jitter(torch.zeros(4, 3)), torch.zeros(4, 3))


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"needs": frozenset({"second-view"})}, "needs 'second-view', which is not known. Did you mean 'second_view'"),
        ({"stackable": True}, "so stackable must be False"),
    ],
)
def test_a_need_that_cannot_be_met_is_refused_when_the_plugin_is_loaded(
    attributes: dict[str, Any], message: str
) -> None:
    wrong = type("Wrong", (Greedy,), {"__doc__": "Wrong.", **attributes})
    with pytest.raises(PluginError, match=message):
        Registry().add_all([("estimator", wrong)], Owner("wsl-x", "1", "x"))
