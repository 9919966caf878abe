"""Each loss of a method that contrasts embeddings is what a slow, literal transcription of its formula gives."""

from __future__ import annotations

import math

import machinery_literals as literal
import pytest
import torch
from machinery_batches import EMBEDDED, WIDTH, B, Embedded, K, at, decayed, made, matches, probabilities

from wsl_methods.able import Able
from wsl_methods.alim import Alim
from wsl_methods.cel import ClassWiseEmbeddings
from wsl_methods.cr_dpll import ConsistencyRegularised
from wsl_methods.dirk import Dirk, rectified
from wsl_methods.papi import Papi
from wsl_methods.pico import Pico
from wsl_methods.pico_plus import PicoPlus
from wsl_methods.wsc import SpectralContrast


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
            target, contrast = (
                decayed(targets[i], at(nearest), 0.95 - 0.15 * (epoch - 1) / 10),
                parts.supervised(i, 0.07),
            )
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
    decay = 0.95 - 0.15 * min(max(epoch - 1, 0) / 10, 1)
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


@pytest.mark.parametrize(
    ("epoch", "target_decay", "prototype_decay", "weight"),
    [
        (0.0, 0.99, 0.99, 0.0),
        (1.0, 0.95, 0.9, 0.07),
        (4.0, 0.95 - 0.15 * 0.3, 0.9 - 0.4 * 0.3, 0.28),
        (99.0, 0.8, 0.5, 0.7),
    ],
)
def test_papi(epoch: float, target_decay: float, prototype_decay: float, weight: float) -> None:
    papi = Papi(weight=0.7, ramp=10, width=WIDTH)
    batch = made(papi, epoch)
    state, s = batch.state, batch.candidates.tolist()
    p, fixed, view = (probabilities(v) for v in (batch.logits, state["fixed_logits"], state["view_logits"]))
    old, prototypes = state["target"].tolist(), state["prototypes"].tolist()
    target = [decayed(old[i], literal.normalised(fixed[i], s[i]), target_decay) for i in range(B)]
    share, partner = state["mixed_share"].item(), state["mixed_partner"].tolist()
    expected = []
    for i in range(B):
        loss = literal.cross_entropy(target[i], p[i])
        for name in ("mixed_features", "mixed_view_features"):
            z = literal.unit(state[name][i].tolist())
            said = literal.softmax([literal.dot(z, mu) / 0.3 for mu in prototypes])
            loss += weight * share * literal.divergence(target[i], said)
            loss += weight * (1 - share) * literal.divergence(target[partner[i]], said)
        expected.append(loss)
    matches(papi, batch, expected)
    new = papi.update(batch.logits, batch.candidates, state)
    torch.testing.assert_close(new["target"], torch.tensor(target, dtype=torch.float64))
    for name, scores in (("features", p), ("view_features", view)):
        for i in range(B):
            label, z = literal.best(scores[i], s[i]), literal.unit(state[name][i].tolist())
            prototypes[label] = decayed(prototypes[label], z, prototype_decay)
    wanted = [literal.unit(mu) if any(mu) else mu for mu in prototypes]
    torch.testing.assert_close(new["prototypes"], torch.tensor(wanted, dtype=torch.float64))


@pytest.mark.parametrize(("epoch", "confidences"), [(0.0, "weak"), (4.0, "views"), (30.0, "weak")])
def test_wsc(epoch: float, confidences: str) -> None:
    wsc = SpectralContrast(
        weight=0.7, ramp=10, own_pull=1.5, class_pull=3.0, spread=0.4, width=WIDTH, confidences=confidences
    )
    batch = made(wsc, epoch)
    s, r = batch.candidates.tolist(), batch.state["confidence"].tolist()
    views = [probabilities(v) for v in (batch.logits, batch.state["view_logits"], batch.state["third_logits"])]
    # One embedding is made so short that it stays as it is.
    batch.state["view_features"][0] *= 0.1 / batch.state["view_features"][0].norm()
    given = [batch.state[name].tolist() for name in ("view_features", "third_features")]
    z = [[v if literal.dot(v, v) < 1 else literal.unit(v) for v in view] for view in given]
    contrast = -2 * 1.5 / B * sum(literal.dot(z[0][i], z[1][i]) for i in range(B))
    for i in range(B):
        for k in range(B):
            if i != k:
                near = sum(literal.dot(z[a][i], z[b][k]) for a, b in ((0, 1), (0, 0), (1, 1)))
                contrast -= 2 * 3.0 / (3 * B * (B - 1)) * literal.dot(r[i], r[k]) * near
    everyone = z[0] + z[1]
    squares = [literal.dot(u, v) ** 2 for a, u in enumerate(everyone) for b, v in enumerate(everyone) if a != b]
    contrast += 0.4 * (1.5 + 3.0 / K) ** 2 * sum(squares) / (2 * B * (2 * B - 1))
    outside = sum(literal.outside_loss(views[0][i], s[i]) for i in range(B)) / B
    agree = sum(literal.divergence(r[i], view[i]) for view in views for i in range(B)) / B
    expected = outside + 0.7 * min(epoch / 10, 1) * (agree + contrast)
    assert batch.loss(wsc).mean().item() == pytest.approx(expected)
    mean = [[math.prod(view[i][j] for view in views) ** (1 / 3) for j in range(K)] for i in range(B)]
    wanted = [literal.normalised((mean if confidences == "views" else views[0])[i], s[i]) for i in range(B)]
    new = wsc.update(batch.logits, batch.candidates, batch.state)["confidence"]
    torch.testing.assert_close(new, torch.tensor(wanted, dtype=torch.float64))


def test_without_contrast_and_with_confidences_of_all_views_wsc_is_cr_dpll() -> None:
    wsc = SpectralContrast(ramp=100, own_pull=0, class_pull=0, confidences="views")
    batch, other = made(wsc, 7.0), ConsistencyRegularised()
    torch.testing.assert_close(batch.loss(wsc), batch.loss(other))
    new, same = (each.update(batch.logits, batch.candidates, batch.state) for each in (wsc, other))
    assert torch.equal(new["confidence"], same["confidence"])


def test_a_batch_of_one_has_nobody_to_be_compared_with() -> None:
    wsc = SpectralContrast(spread=0)
    state = {
        "view_features": torch.tensor([[3.0, 4.0]]),
        "third_features": torch.tensor([[0.0, 0.5]]),
        "confidence": torch.tensor([[0.5, 0.5, 0.0]]),
    }
    torch.testing.assert_close(wsc._contrast(state), torch.tensor([-2 * 0.8 * 0.5]))


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


@pytest.mark.parametrize("epoch", [1.0, 5.0])
def test_cel(epoch: float) -> None:
    cel = ClassWiseEmbeddings(
        association=0.3, association_contrast=0.8, prototype=0.6, prototype_contrast=0.7, prototypes_from=3, width=2
    )
    batch = made(cel, epoch)
    s, r, mu = batch.candidates.tolist(), batch.state["confidence"].tolist(), batch.state["prototypes"].tolist()
    label = [literal.best(row, members) for row, members in zip(batch.logits.tolist(), s, strict=True)]
    views = (batch.logits, "features"), (batch.state["view_logits"], "view_features")
    expected = [0.0] * B
    for logits, name in views:
        p, z = probabilities(logits), batch.state[name].tolist()
        for i in range(B):
            h = [literal.unit(z[i][2 * j : 2 * j + 2]) for j in range(K)]
            pairs = [(a, b) for a in range(K) for b in range(K) if a != b]
            inside = [literal.dot(h[a], h[b]) for a, b in pairs if s[i][a] and s[i][b]]
            across = [abs(literal.dot(h[a], h[b])) for a, b in pairs if s[i][a] != s[i][b]]
            expected[i] += literal.cross_entropy(r[i], p[i]) + 0.3 * (1 - mean(inside) + 0.8 * mean(across))
            if epoch >= 3:
                own = h[label[i]]
                others = [abs(literal.dot(own, mu[k])) for k in range(K) if k != label[i]]
                expected[i] += 0.6 * (1 - literal.dot(own, mu[label[i]]) + 0.7 * mean(others))
    matches(cel, batch, expected)
    new = cel.update(batch.logits, batch.candidates, batch.state)
    sums = [list(row) for row in mu]
    for i, row in enumerate(batch.state["features"].tolist()):
        h = literal.unit(row[2 * label[i] : 2 * label[i] + 2])
        sums[label[i]] = [a + b for a, b in zip(sums[label[i]], h, strict=True)]
    wanted = [literal.unit(row) if any(row) else row for row in sums]
    torch.testing.assert_close(new["prototypes"], torch.tensor(wanted, dtype=torch.float64))
    p = probabilities(batch.logits)
    confidence = [literal.normalised(p[i], s[i]) for i in range(B)]
    torch.testing.assert_close(new["confidence"], torch.tensor(confidence, dtype=torch.float64))
