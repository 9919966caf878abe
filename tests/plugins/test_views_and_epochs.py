"""Weak, strong and mixed views, seeds, and a look back after each epoch: declared, provided, resumed."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import attrs
import pytest
import torch
from torch import Tensor, nn

from wsl_toolkit import CandidateSets, Estimator, Kind, Setting, State, augmentation
from wsl_toolkit.errors import PluginError
from wsl_toolkit.networks import Extended, jitter
from wsl_toolkit.plugins.registry import Owner, Registry
from wsl_toolkit.training.plan import ExecutionPlan
from wsl_toolkit.training.risk import Risk
from wsl_toolkit.training.trainer import Trainer


def columns(n: int, channels: int, side: int = 16) -> Tensor:
    """Images whose every pixel says its column."""
    return torch.arange(float(side)).expand(n, channels, side, side).clone()


def test_a_weak_view_is_moved_by_at_most_an_eighth_and_only_colour_is_mirrored() -> None:
    torch.manual_seed(0)
    grey = augmentation.weak(columns(200, 1))
    assert int((grey - columns(200, 1)).abs().max()) == 2
    colour = augmentation.weak(columns(200, 3))
    mirrored = colour[:, 0, 0, 0] > colour[:, 0, 0, -1]
    assert 60 < int(mirrored.sum()) < 140
    assert int((colour[~mirrored] - columns(1, 3)).abs().max()) == 2
    assert int((colour[mirrored].flip(-1) - columns(1, 3)).abs().max()) == 2
    rows = torch.randn(5, 7)
    assert augmentation.weak(rows) is rows


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_strong_view_comes_from_the_global_stream_alone_and_differs_from_a_weak_one(channels: int) -> None:
    torch.manual_seed(0)
    images = torch.rand(40, channels, 12, 12) * torch.tensor([2.0]) - 0.5
    views = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        views.append(augmentation.strong(images))
    assert torch.equal(views[0], views[1])
    assert not torch.equal(views[0], views[2])
    assert views[0].shape == images.shape
    assert views[0].dtype == images.dtype
    torch.manual_seed(1)
    assert not torch.equal(views[0], augmentation.weak(images))
    if channels != 4:  # without RandAugment there is noise, which leaves the range
        assert float(views[0].min()) >= float(images.min()) - 1e-6
        assert float(views[0].max()) <= float(images.max()) + 1e-6


def test_parts_of_a_batch_are_augmented_by_operations_of_their_own() -> None:
    torch.manual_seed(3)
    images = torch.rand(1, 1, 12, 12).expand(16, 1, 12, 12)
    parts = augmentation.randaugmented(images).chunk(augmentation.RANDAUGMENT_DRAWS)
    assert all(torch.equal(part[0], part[1]) for part in parts), "a draw serves all of a part"
    assert len({part[0].numpy().tobytes() for part in parts}) > 4


def test_a_strong_view_of_a_table_has_noise_and_lacks_a_tenth() -> None:
    torch.manual_seed(0)
    rows = torch.full((500, 40), 3.0)
    view = augmentation.strong(rows)
    dropped = view == 0
    assert float(dropped.float().mean()) == pytest.approx(0.1, abs=0.01)
    assert float(view[~dropped].std()) == pytest.approx(0.1, abs=0.005)


def test_cutout_blanks_one_square_of_each_image() -> None:
    torch.manual_seed(0)
    blank = augmentation.cutout(torch.ones(50, 2, 16, 16)) == 0
    assert torch.equal(blank[:, 0], blank[:, 1])
    sizes = blank[:, 0].sum((1, 2))
    assert int(sizes.min()) >= 5 * 5
    assert int(sizes.max()) == 9 * 9


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 4))


def test_each_need_brings_its_extras_and_no_others() -> None:
    brought = {
        "weak_view": set(),
        "second_view": {"view_logits"},
        "third_view": {"third_logits"},
        "mixed": {"mixed_logits", "mixed_partner", "mixed_share"},
        "momentum": {"momentum_logits"},
        "seed": {"seed"},
    }
    for need, extras in brought.items():
        logits, found = Extended(network(), frozenset({need})).look(torch.randn(8, 5))
        assert set(found) == extras
        assert logits.requires_grad
    everything = Extended(network(), frozenset({*brought, "features", "momentum_view"})).look(torch.randn(8, 5))[1]
    more = {"features", "view_features", "third_features", "momentum_features"}
    assert set(everything) == set().union(*brought.values()) | more


def test_the_momentum_copy_has_a_view_of_its_own_if_it_asks_for_one() -> None:
    seen: list[Tensor] = []

    def augment(inputs: Tensor) -> Tensor:
        seen.append(jitter(inputs))
        return seen[-1]

    model = Extended(nn.Linear(5, 4), frozenset({"second_view", "momentum", "momentum_view"}), augment=augment)
    _, extras = model.look(torch.randn(8, 5))
    second, own = seen
    assert torch.equal(extras["view_logits"], model.network(second))
    assert torch.equal(extras["momentum_logits"], model.network(own))


def test_mixed_logits_are_those_of_the_mixed_inputs_and_the_example_weighs_more() -> None:
    model = Extended(nn.Linear(5, 4), frozenset({"mixed"}), mixing=0.5)
    inputs = torch.randn(8, 5)
    shares = set()
    for seed in range(20):
        torch.manual_seed(seed)
        _, extras = model.look(inputs)
        share, partner = extras["mixed_share"], extras["mixed_partner"]
        mixed = share * inputs + (1 - share) * inputs[partner]
        torch.testing.assert_close(extras["mixed_logits"], model.network(mixed))
        assert sorted(partner.tolist()) == list(range(8))
        shares.add(round(float(share), 6))
    assert min(shares) >= 0.5
    assert len(shares) == 20


def test_half_precision_leaves_whole_numbers_alone() -> None:
    model = Extended(nn.Linear(5, 4), frozenset({"mixed", "seed"})).train()
    _, extras = ExecutionPlan(autocast=True).prepare(model)(torch.randn(8, 5))
    assert extras["mixed_logits"].dtype == torch.float32
    assert extras["mixed_partner"].dtype == extras["seed"].dtype == torch.int64


@attrs.frozen(kw_only=True)
class Historian(Estimator):
    """Counts visits, and after each epoch notes the mean over all examples and a number drawn from the seed."""

    name: ClassVar[str] = "historian"
    assumption: ClassVar[Setting] = Setting.ANY
    kind: ClassVar[Kind] = Kind.HEURISTIC
    needs: ClassVar[frozenset[str]] = frozenset({"epoch", "seed"})
    stackable: ClassVar[bool] = False
    update_when: ClassVar[Literal["never", "before", "after"]] = "before"

    def init_state(self, candidates: Tensor) -> State:
        return {"visits": torch.zeros(len(candidates)), "rank": torch.zeros(len(candidates))}

    def init_shared(self, candidates: CandidateSets) -> State:
        return {"notes": torch.zeros(8), "draws": torch.zeros(8, dtype=torch.int64)}

    def loss(self, logits: Tensor, candidates: Tensor, state: State) -> Tensor:
        return -(torch.log_softmax(logits, -1) * candidates).sum(-1)

    def update(self, logits: Tensor, candidates: Tensor, state: State) -> State:
        return {"visits": state["visits"] + 1}

    def after_epoch(self, candidates: Tensor, state: State) -> State:
        place = torch.arange(8) == state["epoch"]
        return {
            "notes": torch.where(place, state["visits"].mean(), state["notes"]),
            "draws": torch.where(place, state["seed"], state["draws"]),
            "rank": torch.arange(float(len(candidates))),
        }


def trainer(estimator: Estimator | None = None) -> Trainer:
    estimator = estimator or Historian()
    draws = torch.Generator().manual_seed(2)
    mask = torch.rand(30, 4, generator=draws) < 0.5
    mask[:, 0] = True
    mask[7] = True  # a full set, which says nothing and is never visited
    mask[8:, 3] = False
    model = estimator.extend(network())
    torch.manual_seed(3)
    return Trainer(
        model=model,
        risk=Risk(estimator, CandidateSets.from_mask(mask)),
        inputs=torch.randn(30, 5, generator=draws),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        scheduler=None,
        batch_size=8,
        shuffle=torch.Generator().manual_seed(4),
        evaluate=lambda model, risk: {},
    )


def test_after_an_epoch_an_estimator_sees_all_examples_but_the_unlabelled_at_once() -> None:
    made = trainer()
    list(made.epochs(3))
    assert made.risk.shared()["notes"].tolist() == [1, 2, 3, 0, 0, 0, 0, 0]
    draws = made.risk.shared()["draws"].tolist()
    assert len(set(draws[:3])) == 3
    assert draws[3:] == [0] * 5
    visited = made.visited
    assert 7 not in visited
    assert torch.equal(made.risk.get_buffer("row_rank")[visited], torch.arange(float(len(visited))))


def test_what_is_drawn_after_an_epoch_is_drawn_again_after_a_resume() -> None:
    whole, first, second = trainer(), trainer(), trainer()
    list(whole.epochs(4))
    list(first.epochs(2))
    second.load_state_dict(first.state_dict())
    list(second.epochs(4))
    for name, value in whole.risk.state_dict().items():
        assert torch.equal(value, second.risk.state_dict()[name]), name


def test_looking_back_costs_other_estimators_nothing() -> None:
    class Plain(Historian):
        after_epoch = Estimator.after_epoch

    made = trainer(Plain())
    before = made.state_dict()["global_rng"].clone()
    made.end_epoch()
    assert not Plain.looks_back()
    assert torch.equal(made.state_dict()["global_rng"], before)


def test_undeclared_state_after_an_epoch_is_refused() -> None:
    class Forgetful(Historian):
        def after_epoch(self, candidates: Tensor, state: State) -> State:
            return {"nowhere": torch.zeros(())}

    with pytest.raises(
        PluginError, match="after_epoch returned 'nowhere', which neither init_state nor init_shared declares"
    ):
        list(trainer(Forgetful()).epochs(1))


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"needs": frozenset({"weak_views"})}, "needs 'weak_views', which is not known. Did you mean 'weak_view'"),
        ({"needs": frozenset(), "stackable": True}, "defines after_epoch, so stackable must be False"),
    ],
)
def test_what_cannot_be_provided_is_refused_when_the_plugin_is_loaded(attributes: dict[str, Any], message: str) -> None:
    wrong = type("Wrong", (Historian,), {"__doc__": "Wrong.", **attributes})
    with pytest.raises(PluginError, match=message):
        Registry().add_all([("estimator", wrong)], Owner("wsl-x", "1", "x"))


def test_without_a_momentum_copy_there_are_no_slow_outputs() -> None:
    with pytest.raises(PluginError, match="does not say that it needs 'momentum'"):
        Extended(network(), frozenset()).slow_outputs(torch.randn(2, 5))
