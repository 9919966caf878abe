"""Each loss of a method with more machinery is what a slow, literal transcription of its formula gives."""

from __future__ import annotations

import math
from typing import Any

import machinery_literals as literal
import pytest
import torch
from torch import Tensor

from wsl_methods.able import Able
from wsl_methods.alim import Alim
from wsl_methods.cr_dpll import ConsistencyRegularised
from wsl_methods.dirk import Dirk, rectified
from wsl_methods.fredis import Fredis
from wsl_methods.idgp import Decompositional
from wsl_methods.pico import Pico
from wsl_methods.pico_plus import PicoPlus
from wsl_methods.pop import ProgressivePurification
from wsl_methods.valen import Valen, drawn
from wsl_toolkit import Estimator
from wsl_toolkit.testing.situations import Situation, situation

B, K, WIDTH, QUEUE = 6, 4, 5, 11
EMBEDDED = {"width": WIDTH, "queue": QUEUE}


def made(estimator: Estimator, epoch: float, **state: Any) -> Situation:
    """A batch whose queue holds one batch already, and whose prototypes have moved once."""
    batch = situation(estimator, n=B, num_classes=K, seed=3)
    batch.state.update(epoch=torch.tensor(epoch, dtype=torch.float64), **state)
    return batch


def matches(estimator: Estimator, batch: Situation, expected: list[float]) -> None:
    torch.testing.assert_close(batch.loss(estimator), torch.tensor(expected, dtype=torch.float64))


def probabilities(logits: Tensor) -> literal.Rows:
    return [literal.softmax(row) for row in logits.tolist()]


class Embedded:
    """The parts of PiCO's loss as lists: queries, the pool, and the pool's pseudo-labels."""

    def __init__(self, batch: Situation, labels: list[int]) -> None:
        state = batch.state
        self.queries = [literal.unit(v) for v in state["features"].tolist()]
        keys = [literal.unit(v) for v in state["momentum_features"].tolist()]
        self.pool = [*self.queries, *keys, *state["keys"].tolist()]
        self.labels = [*labels, *labels, *(state["key_labels"].tolist() if "key_labels" in state else [])]
        self.prototypes = state["prototypes"].tolist() if "prototypes" in state else []

    def others(self, i: int) -> list[int]:
        return [k for k in range(len(self.pool)) if k != i and self.labels[k] >= 0]

    def supervised(self, i: int, temperature: float) -> float:
        positives = [k for k in self.others(i) if self.labels[k] == self.labels[i]]
        return literal.pull(self.queries[i], literal.alike(positives), self.others(i), self.pool, temperature)

    def own(self, i: int, temperature: float) -> float:
        others = [B + i, *(k for k in self.others(i) if k >= 2 * B)]
        return literal.pull(self.queries[i], {B + i: 1.0}, others, self.pool, temperature)

    def affinity(self, i: int) -> literal.Row:
        return [literal.dot(self.queries[i], mu) for mu in self.prototypes]


def decayed(target: literal.Row, pull: literal.Row, decay: float) -> literal.Row:
    return [decay * t + (1 - decay) * p for t, p in zip(target, pull, strict=True)]


def at(label: int) -> literal.Row:
    return [float(j == label) for j in range(K)]


@pytest.mark.parametrize("epoch", [0.0, 5.0])
def test_pico(epoch: float) -> None:
    pico = Pico(warm_up=2, ramp=10, **EMBEDDED)
    batch = made(pico, epoch)
    p, s = probabilities(batch.logits), batch.candidates.tolist()
    parts = Embedded(batch, [literal.best(p[i], s[i]) for i in range(B)])
    targets, expected = batch.state["target"].tolist(), []
    for i in range(B):
        if epoch < 2:
            target, contrast = targets[i], parts.own(i, 0.07)
        else:
            nearest = literal.best(parts.affinity(i), s[i])
            target, contrast = decayed(targets[i], at(nearest), 0.95 - 0.15 * epoch / 10), parts.supervised(i, 0.07)
        expected.append(literal.cross_entropy(target, p[i]) + 0.5 * contrast)
    matches(pico, batch, expected)


def test_picos_prototypes_follow_one_example_after_another_and_its_queue_forgets_the_oldest() -> None:
    pico = Pico(prototype_decay=0.9, **EMBEDDED)
    batch = made(pico, 3.0)
    p, s = probabilities(batch.logits), batch.candidates.tolist()
    labels = [literal.best(p[i], s[i]) for i in range(B)]
    parts = Embedded(batch, labels)
    new = pico.update(batch.logits, batch.candidates, batch.state)
    prototypes = parts.prototypes
    for q, label in zip(parts.queries, labels, strict=True):
        prototypes[label] = [0.9 * m + 0.1 * a for m, a in zip(prototypes[label], q, strict=True)]
    wanted = [literal.unit(mu) if any(mu) else mu for mu in prototypes]
    torch.testing.assert_close(new["prototypes"], torch.tensor(wanted, dtype=torch.float64))
    # Six places are taken; six more fill the other five and the first again.
    assert new["place"].item() == 1
    assert new["key_labels"].tolist() == [labels[5], *batch.state["key_labels"].tolist()[1:6], *labels[:5]]
    keys = torch.nn.functional.normalize(batch.state["momentum_features"], dim=1)
    torch.testing.assert_close(new["keys"][6:], keys[:5])


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


@pytest.mark.parametrize("normalisation", ["one-hot", "scale"])
def test_alim(normalisation: str) -> None:
    alim = Alim(ramp=10, normalisation=normalisation, mixing_weight=0.3, **EMBEDDED)
    batch = made(alim, 4.0, importance=torch.tensor(0.4, dtype=torch.float64))
    p, s, mixed = probabilities(batch.logits), batch.candidates.tolist(), probabilities(batch.state["mixed_logits"])
    weighed = [[q * (1.0 if s[i][j] else 0.4) for j, q in enumerate(p[i])] for i in range(B)]
    parts = Embedded(batch, [literal.best(weighed[i], [True] * K) for i in range(B)])
    said = [literal.softmax([a / 0.07 for a in parts.affinity(i)]) for i in range(B)]
    targets, margins = [], []
    for i in range(B):
        c = [x * (1.0 if s[i][j] else 0.4) for j, x in enumerate(said[i])]
        to = at(literal.best(c, [True] * K)) if normalisation == "one-hot" else literal.normalised(c, [True] * K)
        targets.append(decayed(batch.state["target"][i].tolist(), to, 0.95 - 0.15 * 4 / 10))
        inside, outside = ([x for j, x in enumerate(said[i]) if s[i][j] is side] for side in (True, False))
        margins.append(min(1.0, max(inside) / max(outside)))
    share, partner = batch.state["mixed_share"].item(), batch.state["mixed_partner"].tolist()
    expected = [
        literal.cross_entropy(targets[i], p[i])
        + 0.5 * parts.supervised(i, 0.07)
        + 0.3 * literal.cross_entropy(decayed(targets[i], targets[partner[i]], share), mixed[i])
        for i in range(B)
    ]
    matches(alim, batch, expected)
    new = alim.update(batch.logits, batch.candidates, batch.state)
    torch.testing.assert_close(new["margin"], torch.tensor(margins, dtype=torch.float64))


def test_alims_importance_is_a_quantile_of_the_margins_once_it_is_time() -> None:
    alim = Alim(noise_rate=0.5, start=3, **EMBEDDED)
    margins = torch.tensor([0.9, 0.1, 0.5, 0.2])
    state = {"margin": margins, "importance": torch.tensor(0.0), "epoch": torch.tensor(2.0)}
    assert alim.after_epoch(torch.ones(4, K, dtype=torch.bool), state)["importance"].item() == 0.0
    state["epoch"] = torch.tensor(3.0)
    assert alim.after_epoch(torch.ones(4, K, dtype=torch.bool), state)["importance"].item() == pytest.approx(0.5)


@pytest.mark.parametrize("epoch", [1.0, 7.0, 20.0])
def test_pico_plus(epoch: float) -> None:
    plus = PicoPlus(ramp=10, warm_up=5, neighbours_from=10, neighbours=4, guess_temperature=0.3, **EMBEDDED)
    reliable = torch.tensor([True, False, True, True, False, True])
    batch = made(plus, epoch, reliable=reliable)
    p, s, r = probabilities(batch.logits), batch.candidates.tolist(), reliable.tolist()
    mixed = probabilities(batch.state["mixed_logits"])
    parts = Embedded(batch, [literal.best(p[i], s[i] if r[i] else [True] * K) for i in range(B)])
    trusted = [*r, *r, *batch.state["key_reliable"].tolist()]
    old = batch.state["target"].tolist()
    if epoch < 5:
        return matches(plus, batch, [literal.cross_entropy(old[i], p[i]) + 0.5 * parts.own(i, 0.07) for i in range(B)])
    decay = 0.95 - 0.15 * min(epoch / 10, 1)
    target = [decayed(old[i], at(literal.best(parts.affinity(i), s[i])), decay) for i in range(B)]
    guess = [literal.softmax([a / 0.3 for a in parts.affinity(i)]) for i in range(B)]
    goal = [target[i] if r[i] else guess[i] for i in range(B)]
    share, partner = batch.state["mixed_share"].item(), batch.state["mixed_partner"].tolist()
    total = sum(literal.cross_entropy(decayed(goal[i], goal[partner[i]], share), mixed[i]) for i in range(B)) / B
    total += 2 * sum(literal.cross_entropy(target[i], p[i]) for i in range(B) if r[i]) / sum(r)
    total += 0.1 * sum(literal.cross_entropy(guess[i], p[i]) for i in range(B) if not r[i]) / (B - sum(r))
    for i in range(B):
        positives = {B + i}
        if r[i]:
            positives |= {k for k in parts.others(i) if parts.labels[k] == parts.labels[i] and trusted[k]}
        elif epoch >= 10:
            filled = [k for k in range(len(parts.pool)) if parts.labels[k] >= 0]
            near = sorted(filled, key=lambda k: -literal.dot(parts.queries[i], parts.pool[k]))[:4]
            positives |= set(near) - {i}
        weight = (0.5 if r[i] else 0.1) if epoch >= 10 else 1.0
        drawn_in = literal.pull(parts.queries[i], literal.alike(sorted(positives)), parts.others(i), parts.pool, 0.07)
        total += (weight * drawn_in + 0.1 * parts.supervised(i, 0.07)) / B
    torch.testing.assert_close(plus.objective(batch.logits, batch.candidates, batch.state).item(), total)
    return None


def test_pico_plus_trusts_those_that_are_nearest_to_their_prototype() -> None:
    plus = PicoPlus(reliable_share=0.5, warm_up=5, **EMBEDDED)
    batch = made(plus, 4.0)
    p, s = probabilities(batch.logits), batch.candidates.tolist()
    parts = Embedded(batch, [0] * B)
    new = plus.update(batch.logits, batch.candidates, batch.state)
    distance = [-parts.affinity(i)[literal.best(p[i], s[i])] for i in range(B)]
    torch.testing.assert_close(new["distance"], torch.tensor(distance, dtype=torch.float64))
    trusted = plus.after_epoch(batch.candidates, {**batch.state, **new})["reliable"].tolist()
    assert [i for i in range(B) if trusted[i]] == sorted(sorted(range(B), key=lambda i: distance[i])[:3])
    early = {**batch.state, **new, "epoch": torch.tensor(3.0)}
    assert plus.after_epoch(batch.candidates, early)["reliable"].all(), "not before the warm-up is over"


def test_able() -> None:
    able = Able(weight=0.8, temperature=0.2, width=WIDTH)
    batch = made(able, 0.0)
    p, s, w = probabilities(batch.logits), batch.candidates.tolist(), batch.state["confidence"].tolist()
    label = [literal.best(p[i], s[i]) for i in range(B)]
    z = [literal.unit(v) for name in ("features", "view_features") for v in batch.state[name].tolist()]
    expected = []
    for i in range(B):
        contrast = 0.0
        for anchor in (i, B + i):
            others = [b for b in range(2 * B) if b != anchor]
            weights: dict[int, float] = {}
            for c in range(K):
                group = [b for b in range(2 * B) if label[b % B] == c]
                if s[i][c] and group:
                    weights |= {b: w[i][c] / (len(group) / 2) for b in group if b != anchor}
            contrast += literal.pull(z[anchor], weights, others, z, 0.2) / 2
        expected.append(literal.cross_entropy(w[i], p[i]) + 0.8 * contrast)
    matches(able, batch, expected)


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
    idgp = Decompositional(warm_up=10)
    batch = made(idgp, epoch)
    s, d, b = batch.candidates.tolist(), batch.state["confidence"].tolist(), batch.state["chance"].tolist()
    prefixes = ("", "view_", "third_")
    fs = [probabilities(batch.logits), *(probabilities(batch.state[f"{x}logits"]) for x in prefixes[1:])]
    gs = [torch.sigmoid(batch.state[f"twin_{x}logits"]).tolist() for x in prefixes]

    def bernoulli(target: list[float], q: list[float]) -> float:
        return -sum(t * math.log(x) + (1 - t) * math.log(1 - x) for t, x in zip(target, q, strict=True))

    expected = [0.0] * B
    for f, g in zip(fs, gs, strict=True):
        for i in range(B):
            p, q = f[i], g[i]
            loss = literal.cross_entropy(d[i], p) + bernoulli(b[i], q)
            if epoch >= 10:
                top = literal.best(d[i], s[i])
                swapped = [1 - x if j == top else x for j, x in enumerate(q)]
                odds = literal.normalised([(1 - x) / x for x in swapped], s[i])
                likely = literal.normalised(p, s[i])
                loss += literal.cross_entropy(odds, p)
                loss += -sum(w * math.log(1 - x) for w, x in zip(likely, q, strict=True))
                loss += bernoulli([float(x) for x in s[i]], q)
                loss += (epoch - 10) / 100 * (literal.divergence(d[i], p) + literal.divergence(b[i], q))
            expected[i] += loss
    matches(idgp, batch, expected)


@pytest.mark.parametrize("epoch", [0.0, 3.0])
def test_dirk(epoch: float) -> None:
    dirk = Dirk(weight=0.7, **EMBEDDED)
    batch = made(dirk, epoch)
    p, s = probabilities(batch.logits), batch.candidates.tolist()
    target = []
    for i, teacher in enumerate(probabilities(batch.state["momentum_logits"])):
        on, off = literal.normalised(teacher, s[i]), literal.normalised(teacher, [not x for x in s[i]])
        m = 1 / sum(t for t, inside in zip(teacher, s[i], strict=True) if inside)
        a = m * max(off) / (m * max(off) + min(t for t, inside in zip(on, s[i], strict=True) if inside))
        target.append([a * u + (1 - a) * v for u, v in zip(on, off, strict=True)])
    parts = Embedded(batch, [0] * B)
    targets = [*target, *target, *batch.state["key_targets"].tolist()]
    sets = [*s, *s, *batch.state["key_sets"].tolist()]
    filled = [k for k in range(len(parts.pool)) if any(sets[k])]
    expected = []
    for i in range(B):
        others = [k for k in filled if k != i]
        positives = [
            k
            for k in others
            if any(x and y for x, y in zip(s[i], sets[k], strict=True))
            and literal.best(targets[k], [True] * K) == literal.best(target[i], [True] * K)
        ]
        if epoch < 1:
            others, positives = [B + i, *(k for k in filled if k >= 2 * B)], [B + i]
        near = [literal.dot(literal.unit(target[i]), literal.unit(targets[k])) / 0.4 for k in positives]
        weights = dict(zip(positives, literal.softmax(near), strict=True))
        contrast = literal.pull(parts.queries[i], weights, others, parts.pool, 0.07)
        expected.append(literal.cross_entropy(target[i], p[i]) + 0.7 * contrast)
    matches(dirk, batch, expected)


def test_dirks_targets_prefer_every_candidate_to_every_other_label() -> None:
    rng = torch.Generator().manual_seed(0)
    logits = torch.cat([8 * torch.randn(200, 7, generator=rng), 1e4 * torch.randn(50, 7, generator=rng)])
    sets = torch.rand(250, 7, generator=rng) < 0.4
    sets[:, 0] |= ~sets.any(1)
    sets[-1] = True
    target = rectified(logits, sets)
    torch.testing.assert_close(target.sum(1), torch.ones(250))
    weakest = target.masked_fill(~sets, torch.inf).amin(1)
    strongest = target.masked_fill(sets, -torch.inf).amax(1)
    assert bool((weakest[:-1] >= strongest[:-1] - 1e-6).all())


@pytest.mark.parametrize("epoch", [2.0, 12.0])
def test_valen(epoch: float) -> None:
    valen = Valen(warm_up=10, neighbours=2, prior=0.3, encoding=0.7, teaching=1.3, reconstruction=2.0)
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
        loss = 0.01 * sum((x - y) ** 2 for x, y in zip(decoded, inputs[i], strict=True)) / len(decoded)
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
