"""How sets come about is learned from the sets, and from them alone; held-out sets say which law holds."""

from __future__ import annotations

import itertools
import math
from typing import Any

import attrs
import pytest
import torch
from torch import Tensor

from tests.own_data.test_learning_in_parts import Hears
from tests.own_data.test_trees import quadrants
from wsl_toolkit.data.dataset import Data
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.own_data import calibration, choices, cleaning, fitting, set_laws, trees
from wsl_toolkit.own_data.averaging import average
from wsl_toolkit.own_data.judging import Judged
from wsl_toolkit.own_data.learning import Made
from wsl_toolkit.own_data.set_laws import LAWS
from wsl_toolkit.plugins.loading import load_plugins

REGISTRY = load_plugins().registry


@pytest.fixture
def two_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Laws are told apart by two folds as by five, in less time."""
    monkeypatch.setattr(fitting, "FOLDS", 2)


def every_set(classes: int) -> Tensor:
    """All sets but the empty one, [2^K - 1, K]."""
    return torch.tensor([s for s in itertools.product([False, True], repeat=classes) if any(s)])


def chances(classes: int, law: str = "pair", seed: int = 0) -> Tensor:
    drawn = 0.05 + 0.9 * torch.rand(classes, classes, generator=torch.Generator().manual_seed(seed)).double()
    return {"pair": drawn, "class": drawn[:1].expand(classes, -1), "uniform": drawn[:1, :1].expand(classes, classes)}[
        law
    ]


def drawn_sets(y: Tensor, table: Tensor, seed: int = 0) -> Tensor:
    draw = torch.rand(len(y), len(table), generator=torch.Generator().manual_seed(seed)).double()
    mask = draw < table[y]
    mask[torch.arange(len(y)), y] = True
    return mask


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("classes", [2, 3, 5])
def test_the_chances_of_all_sets_that_hold_a_class_sum_to_one(classes, law):
    sets = every_set(classes)
    found = set_laws.log_chance(chances(classes, law), sets).exp()
    torch.testing.assert_close((found * sets).sum(0), torch.ones(classes).double())
    by_hand = torch.tensor(
        [
            math.prod(float(q if inside else 1 - q) for k, (q, inside) in enumerate(zip(row, s, strict=True)) if k != 1)
            for row, s in ((chances(classes, law)[1].tolist(), s.tolist()) for s in sets)
        ]
    ).double()
    torch.testing.assert_close(found[:, 1], by_hand)


def test_the_uniform_law_says_nothing_about_which_candidate_is_true_and_the_others_do():
    sets = every_set(4)
    for law in LAWS:
        told = set_laws.log_chance(chances(4, law), sets)
        apart = max(float(row[s].max() - row[s].min()) for row, s in zip(told, sets, strict=True))
        assert (apart < 1e-12) == (law == "uniform")
    uniform = chances(4, "uniform")
    torch.testing.assert_close(set_laws.log_worth(uniform, uniform, sets), torch.zeros(len(sets), 4).double())


@pytest.mark.parametrize("law", LAWS)
def test_where_labels_are_plain_to_see_the_chances_are_relative_frequencies(law):
    y = torch.arange(6000) % 4
    mask = drawn_sets(y, chances(4, law))
    sure = 50.0 * torch.nn.functional.one_hot(y, 4).double()
    found = set_laws.learned(sure, mask, law, torch.ones(len(y), 1).double())
    others = ~torch.eye(4, dtype=torch.bool)
    torch.testing.assert_close(found[others], chances(4, law)[others], atol=0.04, rtol=0)


@pytest.mark.parametrize("law", LAWS)
def test_each_round_makes_the_sets_likelier(law, monkeypatch):
    """Expectation-maximisation never goes uphill in -Σ log Σ_j p_j q(s|j), where no prior is in its way."""
    monkeypatch.setattr(set_laws, "PRIOR", 0.0)
    monkeypatch.setattr(set_laws, "AGAIN", 1)
    rng = torch.Generator().manual_seed(3)
    y = torch.randint(5, (800,), generator=rng)
    mask = drawn_sets(y, chances(5))
    logits = torch.randn(800, 5, generator=rng).double() + 1.5 * torch.nn.functional.one_hot(y, 5)
    counts = 0.5 + torch.rand(800, 1, generator=rng).double()
    found, losses = chances(5, law, seed=9), []
    for _ in range(12):
        each = calibration.set_log_losses(logits, mask, set_laws.log_chance(found, mask))
        losses.append(float((counts.squeeze(1) * each).sum()))
        found = set_laws.learned(logits, mask, law, counts, found)
    assert all(later <= earlier + 1e-9 for earlier, later in itertools.pairwise(losses))
    assert losses[-1] < losses[0] - 1


def test_few_examples_say_little_and_extremes_stay_finite():
    logits = 1e4 * torch.eye(3).double()
    for law in LAWS:
        found = set_laws.learned(logits, torch.eye(3).bool(), law, torch.ones(3, 1).double())
        assert found.isfinite().all()
        assert set_laws.log_chance(found, every_set(3)).isfinite().all()
    lone = torch.tensor([[True, True, False]])
    (found,) = [set_laws.learned(torch.zeros(1, 3).double(), lone, "pair", torch.ones(1, 1).double())]
    assert float(found[0, 1] - found[0, 2]) < 0.06, "one example moves a chance by a twentieth at most"


def test_a_law_of_some_classes_is_one_of_all():
    small, kept = chances(3), torch.tensor([0, 2, 3])
    whole = set_laws.enlarged(small, kept, 5)
    sets = every_set(3)
    among = torch.zeros(len(sets), 5, dtype=torch.bool)
    among[:, kept] = sets
    torch.testing.assert_close(
        set_laws.log_chance(whole, among)[:, kept], set_laws.log_chance(small, sets), atol=1e-3, rtol=0
    )


def test_losses_and_temperatures_count_what_a_law_is_worth():
    y = torch.arange(3000) % 4
    table = chances(4)
    mask = drawn_sets(y, table)
    rng = torch.Generator().manual_seed(1)
    logits = torch.randn(3000, 4, generator=rng).double()
    true = torch.distributions.Categorical(logits=logits).sample()
    mask = drawn_sets(true, table)
    worth = set_laws.log_chance(table, mask)
    by_hand = -((logits.softmax(1) * worth.exp() * mask).sum(1)).log()
    torch.testing.assert_close(calibration.set_log_losses(logits, mask, worth), by_hand)
    kept = ~mask.all(1)
    assert calibration.set_log_loss(logits, mask, worth) == pytest.approx(float(by_hand[kept].mean()))
    assert calibration.temperature(3 * logits, mask, worth) == pytest.approx(3, rel=0.2)


def confused(n: int, seed: int, asymmetry: bool) -> tuple[Data, Tensor]:
    """Quadrants whose wrong candidates are drawn by class pairs that are often confused, or uniformly."""
    x, y, _ = quadrants(n, seed)
    table = torch.full((4, 4), 0.25).double()
    if asymmetry:
        table = torch.tensor([[0, 0.9, 0, 0], [0, 0, 0.9, 0.1], [0, 0.1, 0, 0.9], [0.9, 0, 0.1, 0]]).double()
    mask = drawn_sets(y, table, seed)
    data = Data(name="made", x=x.double(), candidates=CandidateSets.from_mask(mask), num_classes=4, known_y=y)
    return data, y


def test_trees_under_the_right_law_tell_confused_classes_apart():
    data, y = confused(1000, 0, asymmetry=True)
    right = {}
    for law in LAWS:
        grown = trees.grow(data.x[:600], data.candidates.take(torch.arange(600)), trees.Boosting(law=law, max_iter=60))
        right[law] = float((grown.ensembles[-1](data.x[600:]).argmax(1) == y[600:]).double().mean())
        assert set(grown.laws) == (set(LAWS) if law == "uniform" else {"uniform", law})
    assert right["pair"] > right["uniform"] + 0.03


@pytest.mark.usefixtures("two_folds")
@pytest.mark.parametrize("asymmetry", [True, False])
def test_held_out_sets_choose_the_law_and_later_trees_follow(asymmetry, monkeypatch):
    small = tuple(attrs.evolve(each, max_iter=40) for each in choices.FORESTS["normal"])
    monkeypatch.setattr(choices, "FORESTS", {**choices.FORESTS, "normal": small})
    data, _ = confused(500, 1, asymmetry)
    heard = Hears()
    options = fitting.options_for(REGISTRY, estimator=("cc", {}), epochs=2, backbone=(trees.NAME, {}), budget="normal")
    fitted = fitting.fit(data, REGISTRY, options, torch.arange(500), heard)
    told, losses = [law for law, _ in fitted.laws], dict(fitted.laws)
    assert set(told) == {*LAWS, *set_laws.RIVALS}
    expected = "pair" if asymmetry else "uniform"
    if asymmetry:
        assert told[0] == "pair"
        assert losses["pair"] == min(losses.values())
        assert fitted.chances is not None
    else:
        assert told[0] in ("uniform", *set_laws.RIVALS), "no law of the class, however little likelier one is"
        assert fitted.chances is None
    own = [each.get("law", "uniform") for each in fitted.tried]
    assert own[-2:] == [expected] * 2, "trees that are grown later"
    assert set(own) == {"uniform", expected}, "those of a law that was refused take no part"
    assert next(iter(fitting.describe(options, fitted)["set_laws"])) == told[0]
    assert fitted.choice.law == expected


def scenes(n: int, shown: bool) -> tuple[Data, Tensor]:
    """Rows of scenes, each with a cast that all its rows carry; with `shown`, a column says which scene it is."""
    x, y, _ = quadrants(n, 5)
    casts = torch.tensor([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [1, 0, 0, 1], [1, 1, 1, 0], [0, 1, 1, 1]]).bool()
    weight = torch.tensor([5.0, 1, 4, 2, 3, 3]) * casts.T[y]
    scene = torch.multinomial(weight, 1, generator=torch.Generator().manual_seed(6)).squeeze(1)
    told = 0.3 * torch.randn(n, 2, generator=torch.Generator().manual_seed(7))
    if shown:
        told += torch.stack([(scene % 3).float(), (scene // 3).float()], 1)
    data = Data(
        name="made",
        x=torch.cat([x, told], 1).double(),
        candidates=CandidateSets.from_mask(casts[scene]),
        num_classes=4,
        known_y=y,
    )
    return data, y


@pytest.mark.usefixtures("two_folds")
@pytest.mark.parametrize("shown", [False, True])
def test_scenes_are_not_taken_for_classes(shown, monkeypatch):
    """Under the pair law a scene becomes a class, and its sets so likely that no other law of the class is likelier."""
    small = (trees.Boosting(max_iter=60),)
    monkeypatch.setattr(choices, "FORESTS", {**choices.FORESTS, "normal": small})
    data, y = scenes(900, shown)
    train, test = torch.arange(700), torch.arange(700, 900)
    right = {}
    for law in ("uniform", "pair"):
        grown = trees.grow(data.x[train].float(), data.candidates.take(train), trees.Boosting(law=law, max_iter=60))
        right[law] = float((grown.ensembles[-1](data.x[test].float()).argmax(1) == y[test]).double().mean())
    assert right["pair"] < right["uniform"] - 0.1
    options = fitting.options_for(REGISTRY, estimator=("cc", {}), backbone=(trees.NAME, {}), budget="normal")
    fitted = fitting.fit(data, REGISTRY, options, train)
    losses = dict(fitted.laws)
    assert fitted.chances is None
    assert losses["pair"] < losses["uniform"], "by laws of the class alone it would have been taken"
    assert fitted.laws[0][0] == ("inputs" if shown else "set")


def test_sets_that_come_again_are_as_likely_as_they_are_frequent():
    rng = torch.Generator().manual_seed(0)
    kinds = torch.tensor([[1, 1, 0], [0, 1, 1], [1, 0, 0]]).bool()
    sets = kinds[torch.tensor([0] * 600 + [1] * 300 + [2] * 100)]
    logits = torch.randn(1000, 3, generator=rng).double()
    uniform = torch.full((3, 3), 0.3).double()
    asked = torch.cat([kinds, torch.tensor([[False, False, True]])])
    found = set_laws.log_worth_of_recurring(logits, sets, uniform, asked).squeeze(1)
    flat = set_laws.log_chance(uniform, asked).masked_fill(~asked, -math.inf).amax(1)
    marginal = (found + flat).exp() * (logits.softmax(1) @ asked.double().T).mean(0)
    own = (
        marginal[:3]
        - set_laws.PRIOR / (1000 + set_laws.PRIOR) * (flat.exp() * (logits.softmax(1) @ asked.double().T).mean(0))[:3]
    )
    torch.testing.assert_close(own, torch.tensor([600, 300, 100]).double() / 1020)
    assert marginal[3] < 0.01, "one that never came is as likely as the uniform law makes it, times little"


def test_inclusions_are_learned_from_the_inputs_and_sum_to_one_over_sets():
    x, _, _ = quadrants(400, 8)
    inside = torch.stack([x[:, 0] > 0, x[:, 1] > 0, x[:, 2] > 0.3], 1)
    inside[~inside.any(1), 0] = True
    sets = CandidateSets.from_mask(inside)
    *_, last = trees.grow_inclusions(x[:300], sets.take(torch.arange(300)), trees.Boosting(max_iter=30), watch=x[300:])
    assert float(((last > 0) == inside[300:]).double().mean()) > 0.95
    every = every_set(3)
    logits = torch.randn(1, 3, generator=torch.Generator().manual_seed(1)).expand(len(every), -1)
    uniform = torch.full((3, 3), 0.4).double()
    flat = set_laws.log_chance(uniform, every).masked_fill(~every, -math.inf).amax(1)
    told = set_laws.inclusion_losses(logits, every, uniform) - flat
    assert float((-told).exp().sum()) == pytest.approx(1)


def test_a_law_that_is_not_clearly_better_is_not_taken():
    rng = torch.Generator().manual_seed(0)
    noise = torch.randn(400, generator=rng).double()
    plain = 1 + noise
    better, clearly = plain - 0.01 + 0.5 * noise.flip(0), plain - 0.2 + 0.5 * noise.flip(0)
    assert set_laws.clearly_best({"uniform": plain, "class": better, "pair": better}) == "uniform"
    assert set_laws.clearly_best({"uniform": plain, "class": clearly, "pair": clearly}) == "class"
    assert set_laws.clearly_best({"uniform": plain, "pair": clearly}) == "pair"
    assert set_laws.clearly_best({"uniform": plain, "class": clearly, "pair": clearly - 0.2}) == "pair"
    assert set_laws.clearly_best({"uniform": plain, "class": plain, "pair": plain}) == "uniform"
    for rival in set_laws.RIVALS:
        assert set_laws.clearly_best({"uniform": plain, "pair": clearly, rival: clearly - 0.2}) == "uniform"
        assert set_laws.clearly_best({"uniform": plain, "pair": clearly, rival: plain}) == "pair"


def test_the_likelier_law_counts_in_averages():
    """A model that is right under the law gets the weight that the likelihood of the candidates alone would deny it."""
    data, y = confused(900, 2, asymmetry=True)
    mask = data.candidates.mask()
    truth = 3.0 * torch.nn.functional.one_hot(y, 4).double()
    fooled = 3.0 * mask.double()
    table = set_laws.learned(truth, mask, "pair", torch.ones(900, 1).double())
    flat = set_laws.learned(truth, mask, "uniform", torch.ones(900, 1).double())
    worth = set_laws.log_worth(table, flat, mask)
    judged: Any = [stand_in(truth, 1), stand_in(fooled, 2)]
    plain, _, _ = average(judged, mask, False)
    by_law, _, _ = average(judged, mask, False, worth)
    weights = [sum(part.weight for part in found.parts if part.choice == judged[0].choice) for found in (plain, by_law)]
    assert weights[0] < 0.2
    assert weights[1] > 0.8


def stand_in(logits: Tensor, iterations: int) -> Any:
    """A judged choice with these held-out logits."""
    choice = choices.TreesChoice(boosting=trees.Boosting(max_iter=iterations))
    made = Made(choice=choice, network=torch.nn.Identity(), transform=torch.nn.Identity(), logits=(logits,))
    return Judged(choice=choice, loss=0.0, temperature=1.0, parts=(made,), logits=logits)


def test_a_small_budget_tries_one_law_and_a_larger_one_all():
    first, others = choices.forests("quick")
    assert [each.law for each in (*first, *others)] == ["uniform"]
    first, others = choices.forests("normal")
    assert [each.law for each in first] == list(LAWS)
    before, after = choices.until_laws([*first, *others])
    assert before == first
    assert [each.under("class").law for each in after] == ["class"] * len(others)
    assert choices.until_laws(others) == (others, [])


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_networks_go_downhill_on_the_likelihood_under_the_law(scale):
    sets = every_set(4)
    table, flat = chances(4), chances(4, "uniform")
    estimator = set_laws.LawLikelihood(chances=table, uniform=flat)
    state = {"worth": set_laws.log_worth(table, flat, sets)}
    torch.testing.assert_close(estimator.init_state(sets)["worth"], state["worth"].float())
    logits = (scale * torch.randn(len(sets), 4, generator=torch.Generator().manual_seed(0)).double()).requires_grad_()
    losses = estimator.loss(logits, sets, state)
    torch.testing.assert_close(losses, calibration.set_log_losses(logits, sets, state["worth"]))
    (slopes,) = torch.autograd.grad(losses.sum(), logits)
    torch.testing.assert_close(
        estimator.loss_and_gradient(logits.detach(), sets, state), (losses.detach(), slopes), atol=1e-9, rtol=1e-9
    )


def test_networks_learn_under_the_law_that_the_trees_of_their_part_learned():
    data, y = confused(500, 3, asymmetry=True)
    linear = REGISTRY.create("backbone", "mlp", {"widths": (32,)})
    options = fitting.options_for(REGISTRY, estimator=("cc", {}), epochs=15, lr=0.1, weight_decay=1e-3)
    plain = choices.NetworkChoice(backbone=linear, training=options.trainings(400)[0])
    learner = fitting._learner(data, REGISTRY, options, None, None)
    parts = [(torch.arange(400), torch.arange(400, 500)), (torch.arange(100, 500), torch.arange(100))]
    law = choices.law_trees("pair")
    with_trees = learner.fit([law, plain, plain.under("pair")], parts)
    lone = learner.fit([plain.under("pair")], parts)
    for part, (own, other) in enumerate(zip(with_trees, lone, strict=True)):
        assert torch.equal(own[2].laws["pair"], own[0].laws["pair"])
        torch.testing.assert_close(own[2].logits[0], other[0].logits[0], rtol=1e-3, atol=1e-4)
        truth = y[parts[part][1]]
        right = [float((made.logits[0].argmax(1) == truth).double().mean()) for made in own[1:]]
        assert right[1] > right[0]
    assert not torch.equal(with_trees[0][0].laws["pair"], with_trees[1][0].laws["pair"])
    assert plain.under("pair").settings()["law"] == "pair"
    assert "law" not in plain.settings()


def test_once_a_law_is_found_networks_that_did_not_know_it_are_tried_again():
    options = fitting.options_for(REGISTRY, estimator=("cc", {}))
    linear = choices.NetworkChoice(
        backbone=REGISTRY.create("backbone", "linear", {}), training=options.trainings(100)[0]
    )
    tried, others = choices.forests("normal")
    first = [linear, *tried]
    assert choices.following("pair", first, others) == [linear.under("pair"), *(each.under("pair") for each in others)]
    assert choices.following("uniform", first, others) == others


def test_labels_are_cleaned_by_the_law_that_was_found(monkeypatch):
    monkeypatch.setattr(choices, "FORESTS", {**choices.FORESTS, "normal": (trees.Boosting(max_iter=40),)})
    data, y = confused(500, 4, asymmetry=True)
    asked = {"estimator": ("cc", {}), "backbone": (trees.NAME, {})}
    right = {}
    for budget in ("quick", "normal"):
        options = fitting.options_for(REGISTRY, budget=budget, **asked)
        found = cleaning.clean(data, REGISTRY, options, folds=2)
        right[budget] = float((found.label == y).double().mean())
        assert bool(data.candidates.mask()[torch.arange(500), found.label].all())
    assert right["normal"] > right["quick"] + 0.03
    fitted = fitting.fit(data, REGISTRY, options, torch.arange(500))
    mask, logits = data.candidates.mask(), fitted.logits(data.x)
    worth = set_laws.log_worth(*fitted.chances, mask)
    by_hand = logits.softmax(1) * worth.exp() * mask
    torch.testing.assert_close(fitted.shares(logits, mask), by_hand / by_hand.sum(1, keepdim=True), check_dtype=False)
