"""Each loss of a method with more machinery is what a slow, literal transcription of its formula gives."""

from __future__ import annotations

import math

import machinery_literals as literal
import pytest
import torch
from machinery_batches import B, K, made, matches, probabilities

from wsl_builtins.estimators.shared import restricted_softmax
from wsl_methods.cr_dpll import ConsistencyRegularised
from wsl_methods.crosel import CroSel
from wsl_methods.fredis import Fredis
from wsl_methods.gfws import GeneralFramework
from wsl_methods.idgp import Decompositional
from wsl_methods.pop import ProgressivePurification
from wsl_methods.valen import Valen, drawn


@pytest.mark.parametrize("epoch", [0.0, 30.0, 250.0])
def test_cr_dpll(epoch: float) -> None:
    method = ConsistencyRegularised(weight=0.7)
    batch = made(method, epoch)
    s, r = batch.candidates.tolist(), batch.state["confidence"].tolist()
    views = [probabilities(v) for v in (batch.logits, batch.state["view_logits"], batch.state["third_logits"])]
    weight = 0.7 * min(epoch / 100, 1)
    matches(
        method,
        batch,
        [
            literal.outside_loss(views[0][i], s[i]) + weight * sum(literal.divergence(r[i], view[i]) for view in views)
            for i in range(B)
        ],
    )
    mean = [[math.prod(view[i][j] for view in views) ** (1 / 3) for j in range(K)] for i in range(B)]
    wanted = torch.tensor([literal.normalised(mean[i], s[i]) for i in range(B)], dtype=torch.float64)
    torch.testing.assert_close(method.update(batch.logits, batch.candidates, batch.state)["confidence"], wanted)


def test_pop() -> None:
    pop = ProgressivePurification()
    batch = made(pop, 3.0)
    w = batch.state["confidence"].tolist()
    views = [probabilities(v) for v in (batch.logits, batch.state["view_logits"], batch.state["third_logits"])]
    matches(pop, batch, [sum(literal.cross_entropy(w[i], view[i]) for view in views) / 3 for i in range(B)])


def test_pop_drops_what_has_been_unlikely_for_a_while_and_asks_for_more_when_little_changes() -> None:
    pop = ProgressivePurification(threshold=0.3, growth=0.5, warm_up=4, window=2)
    members = torch.tensor([[True, True, True, False]])
    state = {**pop.init_state(members), "threshold": torch.tensor(0.3)}
    for epoch, confidence in enumerate(([0.8, 0.1, 0.1, 0.0], [0.6, 0.3, 0.1, 0.0]), start=3):
        state |= {"epoch": torch.tensor(float(epoch)), "confidence": torch.tensor([confidence])}
        state |= pop.after_epoch(members, state)
    # The mean is (0.7, 0.2, 0.1): both are below 0.3 · 0.7.
    assert state["members"].tolist() == [[True, False, False, False]]
    assert state["confidence"].tolist() == [[1.0, 0.0, 0.0, 0.0]]
    assert state["threshold"].item() == pytest.approx(0.3), "much has changed"
    state |= {"epoch": torch.tensor(6.0)}
    state |= pop.after_epoch(members, state)
    assert state["threshold"].item() == pytest.approx(0.45), "nothing has changed"
    batch = made(pop, 3.0, members=torch.eye(K, dtype=torch.bool)[[0, 1, 2, 3, 0, 1]])
    new = pop.update(batch.logits, batch.candidates, batch.state)
    assert torch.equal(new["confidence"], batch.state["members"].double()), "what was dropped stays away"


def test_fredis() -> None:
    fredis = Fredis(weight=0.6, outside_weight=0.9)
    batch = made(fredis, 3.0)
    batch.state["members"] = batch.candidates.roll(1, dims=1)
    members, r = batch.state["members"].tolist(), batch.state["confidence"].tolist()
    views = [probabilities(v) for v in (batch.logits, batch.state["view_logits"], batch.state["third_logits"])]
    matches(
        fredis,
        batch,
        [
            sum(0.6 * literal.divergence(r[i], v[i]) + 0.9 * literal.outside_loss(v[i], members[i]) for v in views)
            for i in range(B)
        ],
    )


def moved_one_by_one(
    p: literal.Rows, members: list[list[bool]], theta: float, delta: float, step: float, ratio: int
) -> tuple[list[list[bool]], float]:
    """Refinement and disambiguation as the authors' loops have them, where nothing exceeds the most that may move."""
    far = [[max(row) - q for q in row] for row in p]
    new = [[inside or d < theta for inside, d in zip(m, row, strict=True)] for m, row in zip(members, far, strict=True)]
    entered = sum(a != b for old, now in zip(members, new, strict=True) for a, b in zip(old, now, strict=True))

    def leavers() -> list[tuple[int, int]]:
        return [(i, j) for i, row in enumerate(far) for j, d in enumerate(row) if members[i][j] and d > delta]

    while len(leavers()) < entered * ratio:
        delta -= step
    for i, j in leavers():
        new[i][j] = False
    return [now if any(now) else old for now, old in zip(new, members, strict=True)], delta


def test_fredis_lets_likely_labels_enter_and_unlikely_ones_leave() -> None:
    fredis = Fredis(entry=0.05, exit=0.9, exit_step=0.01, ratio=2, changes=50, warm_up=0, interval=1)
    rng = torch.Generator().manual_seed(5)
    p = torch.softmax(2 * torch.randn(30, K, generator=rng, dtype=torch.float64), dim=1)
    members = torch.rand(30, K, generator=rng) < 0.6
    members[:, 0] |= ~members.any(1)
    state = {
        **fredis.init_state(members),
        **{name: torch.tensor(getattr(fredis, name), dtype=torch.float64) for name in ("entry", "exit")},
        "probability": p,
        "epoch": torch.tensor(0.0),
        "seed": torch.tensor(1),
    }
    new = fredis.after_epoch(members, state)
    wanted, delta = moved_one_by_one(p.tolist(), members.tolist(), 0.05, 0.9, 0.01, 2)
    assert new["members"].tolist() == wanted
    assert new["members"].any(1).all()
    assert (new["members"] & ~members).any(), "some label has entered"
    assert new["exit"].item() == pytest.approx(delta - 0.01), "as little has changed, it falls by one step more"
    assert new["entry"].item() == pytest.approx(0.05 + 1e-6)
    kept = torch.where(new["members"], p, 0.0)
    torch.testing.assert_close(new["confidence"].double(), kept / kept.sum(1, keepdim=True))


def test_fredis_moves_no_more_labels_than_it_may() -> None:
    fredis = Fredis(entry=0.9, ratio=3, changes=4, warm_up=0, interval=1)
    members = torch.eye(K, dtype=torch.bool)[torch.arange(20) % K] | torch.eye(K, dtype=torch.bool)[0]
    state = {
        **fredis.init_state(members),
        **{name: torch.tensor(getattr(fredis, name), dtype=torch.float64) for name in ("entry", "exit")},
        "probability": torch.softmax(torch.randn(20, K, generator=torch.Generator().manual_seed(1)), dim=1),
        "epoch": torch.tensor(0.0),
        "seed": torch.tensor(1),
    }
    new = fredis.after_epoch(members, state)["members"]
    assert int((new & ~members).sum()) == 4
    assert int((members & ~new).sum()) <= 12
    again = fredis.after_epoch(members, {**state, "seed": torch.tensor(2)})["members"]
    assert not torch.equal(new, again), "who moves is drawn from the seed"


@pytest.mark.parametrize("epoch", [2.0, 40.0])
def test_idgp(epoch: float) -> None:
    weights = {"own_weight": 0.9, "odds_weight": 0.2, "chance_weight": 0.3, "taught_weight": 0.4}
    idgp = Decompositional(warm_up=10, label_temperature=1.5, chance_temperature=2.5, **weights)
    batch = made(idgp, epoch)
    s, d, b = batch.candidates.tolist(), batch.state["confidence"].tolist(), batch.state["chance"].tolist()
    prefixes = ("", "view_", "third_")
    logits = [batch.logits, *(batch.state[f"{x}logits"] for x in prefixes[1:])]
    twins = [batch.state[f"twin_{x}logits"] for x in prefixes]
    fs = [(probabilities(view / 1.5), probabilities(view)) for view in logits]
    gs = [(torch.sigmoid(view / 2.5).tolist(), torch.sigmoid(view).tolist()) for view in twins]

    def bernoulli(target: list[float], q: list[float]) -> float:
        return -sum(t * math.log(x) + (1 - t) * math.log(1 - x) for t, x in zip(target, q, strict=True))

    expected = [0.0] * B
    for (f, cool_f), (g, cool_g) in zip(fs, gs, strict=True):
        for i in range(B):
            p, q = f[i], g[i]
            own, own_chance = literal.cross_entropy(d[i], p), bernoulli(b[i], q)
            top = literal.best(d[i], s[i])
            swapped = [1 - x if j == top else x for j, x in enumerate(q)]
            odds = literal.normalised([(1 - x) / x for x in swapped], s[i])
            likely = literal.normalised(p, s[i])
            taught = -sum(w * math.log(1 - x) for w, x in zip(likely, q, strict=True))
            taught += bernoulli([float(x) for x in s[i]], q)
            consistent = literal.divergence(d[i], cool_f[i]) + literal.divergence(b[i], cool_g[i])
            later = 0.9 * own + 0.2 * literal.cross_entropy(odds, p) + 0.3 * own_chance + 0.4 * taught
            later += (epoch - 10) / 100 * consistent
            expected[i] += own + own_chance if epoch < 10 else later
    matches(idgp, batch, expected)


@pytest.mark.parametrize(("epoch", "weight"), [(2.0, 0.01), (12.0, 0.01), (12.0, 1.0)])
def test_valen(epoch: float, weight: float) -> None:
    valen = Valen(warm_up=10, neighbours=2, prior=0.3, encoding=0.7, teaching=1.3, reconstruction=2.0, inputs=weight)
    batch = made(valen, epoch)
    graph = [[0, 1, 9], [1, 0, 2], [2, 3, 5], [3, 8, 9], [4, 5, 0], [5, 4, 1]]
    batch.state["neighbours"] = torch.tensor(graph)
    p, s, o = probabilities(batch.logits), batch.candidates.tolist(), batch.state["confidence"].tolist()
    if epoch < 10:
        return matches(valen, batch, [literal.cross_entropy(o[i], p[i]) for i in range(B)])
    described = batch.state["description"].tolist()
    a = batch.state["twin_logits"].tolist()
    d = drawn(batch.state["twin_logits"], batch.candidates, batch.state).tolist()
    inputs = batch.state["inputs"].tolist()
    w1, b1, w2, b2 = (
        batch.state[f"decoder_{name}"].tolist()
        for name in ("hidden_weight", "hidden_bias", "output_weight", "output_bias")
    )
    expected = []
    for i in range(B):
        hidden = [max(0.0, literal.dot(row, d[i]) + bias) for row, bias in zip(w1, b1, strict=True)]
        decoded = [literal.dot(row, hidden) + bias for row, bias in zip(w2, b2, strict=True)]
        loss = weight * sum((x - y) ** 2 for x, y in zip(decoded, inputs[i], strict=True)) / len(decoded)
        sigmoids = [1 / (1 + math.exp(-x)) for x in d[i]]
        loss += 0.01 * -sum(math.log(q if inside else 1 - q) for q, inside in zip(sigmoids, s[i], strict=True)) / K
        alike = literal.softmax([1 / (1 + math.exp(-literal.dot(d[i], d[j]))) for j in range(B)])
        loss += sum((alike[j] - (graph[j][0] in graph[i]) / 3) ** 2 for j in range(B)) / B
        alpha = [min(30.0, max(0.01, math.exp(x / 4))) for x in a[i]]
        expected.append(
            2.0 * loss
            + 0.3 * literal.dirichlet_divergence(alpha)
            + 0.7 * literal.cross_entropy(o[i], literal.softmax(a[i]))
            + 1.3 * literal.cross_entropy(described[i], p[i])
        )
    torch.testing.assert_close(batch.loss(valen), torch.tensor(expected, dtype=torch.float64), rtol=1e-6, atol=1e-6)
    return None


def test_valens_samples_have_the_moments_of_their_dirichlet_law() -> None:
    inferred = torch.tensor([[1.0, 0.0, -1.0, 2.0]]).expand(40_000, -1)
    sets = torch.tensor([[True, True, True, False]]).expand(40_000, -1)
    sample = drawn(inferred, sets, {"seed": torch.tensor(3)})
    alpha = torch.tensor([*torch.tensor([1.0, 0.0, -1.0]).softmax(0).tolist(), 0.0]) + 0.01
    mean = alpha / alpha.sum()
    variance = mean * (1 - mean) / (alpha.sum() + 1)
    assert torch.allclose(sample.mean(0), mean, atol=0.01)
    assert torch.allclose(sample.var(0), variance, atol=0.01)
    assert torch.equal(sample, drawn(inferred, sets, {"seed": torch.tensor(3)}))


def test_valens_graph_joins_each_example_with_its_nearest_once_the_warm_up_is_over() -> None:
    valen = Valen(warm_up=3, neighbours=2)
    points = torch.tensor([[0.0], [1.0], [1.5], [10.0], [10.2]])
    state = {"seen": points, "epoch": torch.tensor(1.0)}
    assert valen.after_epoch(torch.ones(5, 1, dtype=torch.bool), state) == {}
    state["epoch"] = torch.tensor(2.0)
    found = valen.after_epoch(torch.ones(5, 1, dtype=torch.bool), state)["neighbours"]
    assert found.tolist() == [[0, 1, 2], [1, 2, 0], [2, 1, 0], [3, 4, 2], [4, 3, 2]]


@pytest.mark.parametrize("unlabelled", [(), (1, 4), tuple(range(B))])
def test_gfws(unlabelled: tuple[int, ...]) -> None:
    gfws = GeneralFramework(balance=0.3, alignment_decay=0.9)
    share = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
    batch = made(gfws, 1.0, share=share)
    batch.candidates[list(unlabelled)] = True
    views = [probabilities(v) for v in (batch.logits, batch.state["view_logits"], batch.state["third_logits"])]
    fixed, s = probabilities(batch.state["fixed_logits"]), batch.candidates.tolist()
    told = [i for i in range(B) if i not in unlabelled]
    expected = 0.0
    for i in told:
        q = literal.normalised(fixed[i], s[i])
        views_loss = sum(literal.cross_entropy(q, view[i]) for view in views) / 3
        expected += (literal.outside_loss(views[0][i], s[i]) + views_loss) / len(told)
    if unlabelled:
        mean = [sum(fixed[i][j] for i in unlabelled) / len(unlabelled) for j in range(K)]
        moved = [0.9 * a + 0.1 * b for a, b in zip(share.tolist(), mean, strict=True)]
        for i in unlabelled:
            u = literal.normalised([x / y for x, y in zip(fixed[i], moved, strict=True)], [True] * K)
            expected += sum(literal.cross_entropy(u, view[i]) for view in views[1:]) / 2 / len(unlabelled)
    means = [sum(views[0][i][j] for i in told) / len(told) if told else 1e-6 for j in range(K)]
    expected -= 0.3 / K * sum(math.log(x) for x in means)
    assert batch.loss(gfws).mean().item() == pytest.approx(expected)
    new = gfws.update(batch.logits, batch.candidates, batch.state)["share"]
    seen = (
        [sum(views[0][i][j] for i in unlabelled) / len(unlabelled) for j in range(K)] if unlabelled else share.tolist()
    )
    torch.testing.assert_close(new, 0.9 * share + 0.1 * torch.tensor(seen, dtype=torch.float64))


def test_the_expected_label_of_gfws_is_that_over_all_paths_of_the_automaton_of_a_set() -> None:
    """One symbol is read; every class is a path, which the automaton accepts if the class is in the set."""
    p, accepted = [0.5, 0.1, 0.3, 0.1], [True, False, True, True]
    mass = sum(p[path] for path in range(4) if accepted[path])
    wanted = [sum(p[path] for path in range(4) if accepted[path] and path == j) / mass for j in range(4)]
    found = restricted_softmax(torch.tensor([p], dtype=torch.float64).log(), torch.tensor([accepted]))
    torch.testing.assert_close(found[0], torch.tensor(wanted, dtype=torch.float64))


def test_gfws_learns_from_every_unlabelled_example() -> None:
    gfws = GeneralFramework(augmentation="none", balance=0.0)
    assert "unlabelled" in gfws.needs
    batch = made(gfws, 1.0)
    batch.candidates[:] = True
    logits = batch.state["view_logits"].clone().requires_grad_()
    gfws.loss(batch.logits, batch.candidates, {**batch.state, "view_logits": logits}).sum().backward()
    assert logits.grad is not None
    assert bool((logits.grad.abs().sum(1) > 0).all())


@pytest.mark.parametrize("mixing", [0.0, 0.75])
@pytest.mark.parametrize("epoch", [1.0, 5.0])
def test_crosel(epoch: float, mixing: float) -> None:
    crosel = CroSel(warm_up=3, history=2, weight=0.6, threshold=0.5, mixing=mixing)
    s = made(crosel, epoch).candidates.tolist()
    likeliest = torch.tensor([[row.index(True)] * 2 for row in s])
    likeliest[1, 0] = (likeliest[1, 0] + 1) % K  # has changed its mind
    likeliest[2] = s[2].index(False)  # is sure of what is no candidate
    certainty = torch.tensor([[0.9, 0.8], [0.9, 0.9], [0.9, 0.9], [0.4, 0.5], [0.2, 0.9], [1.0, 1.0]])
    histories = {"likeliest": likeliest, "certainty": certainty}
    histories |= {"second_likeliest": likeliest.flip(0), "second_certainty": certainty.flip(0)}
    batch = made(crosel, epoch, chosen_share=torch.tensor(0.25, dtype=torch.float64), **histories)
    state = {**batch.state, "logits": batch.logits}
    expected = 0.0
    for own, other in (("", "second_"), ("second_", "")):
        p = probabilities(state[f"{own}logits"])
        if epoch < 3:
            inside = [sum(x for x, among in zip(p[i], s[i], strict=True) if among) for i in range(B)]
            expected -= sum(math.log(x) for x in inside) / B
            continue
        label, sure = state[f"{other}likeliest"].tolist(), state[f"{other}certainty"].tolist()
        chosen = [
            i for i in range(B) if len(set(label[i])) == 1 and s[i][label[i][-1]] and sum(sure[i]) / len(sure[i]) > 0.5
        ]
        assert 0 < len(chosen) < B
        expected -= sum(math.log(p[i][label[i][-1]]) for i in chosen) / len(chosen)
        swapped = [probabilities(state[f"{own}{name}"]) for name in ("fixed_view_logits", "fixed_logits")]
        target = [literal.normalised(row, s[i]) for view in swapped for i, row in enumerate(view)]
        mixed = [row for name in ("mixed_logits", "mixed_view_logits") for row in probabilities(state[f"{own}{name}"])]
        share, partner = state[f"{own}mixed_share"].item(), state[f"{own}mixed_partner"].tolist()
        goal = [
            [share * a + (1 - share) * b for a, b in zip(target[i], target[partner[i]], strict=True)]
            for i in range(2 * B)
        ]
        expected += 0.6 * 0.75 * sum(literal.cross_entropy(goal[i], mixed[i]) for i in range(2 * B)) / (2 * B)
    assert batch.loss(crosel).mean().item() == pytest.approx(expected, rel=1e-6)


def test_crosels_histories_forget_the_oldest_epoch_and_count_who_is_chosen() -> None:
    crosel = CroSel(history=2, threshold=0.6)
    sets = torch.tensor([[True, True, False], [True, False, True]])
    state = {**crosel.init_state(sets), "chosen_share": torch.zeros(())}
    first = torch.tensor([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]]).log()
    second = torch.tensor([[0.5, 0.4, 0.1], [0.1, 0.2, 0.7]]).log()
    for _ in range(2):
        state |= crosel.after_epoch(sets, {**state, "all_logits": first, "second_all_logits": second})
    assert state["likeliest"].tolist() == [[0, 0], [1, 1]]
    torch.testing.assert_close(state["second_certainty"], torch.tensor([[0.5, 0.5], [0.7, 0.7]]))
    assert crosel.chosen("", sets, state).tolist() == [True, False], "the second one's label is no candidate"
    assert crosel.chosen("second_", sets, state).tolist() == [False, True]
    assert state["chosen_share"].item() == 0.5
