"""Each loss of a method for classes of different size is what a slow, literal transcription of its formula gives."""

from __future__ import annotations

import math

import attrs
import machinery_literals as literal
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from machinery_batches import B, K, decayed, made, matches, probabilities

from wsl_methods.cr_dpll import ConsistencyRegularised
from wsl_methods.htc import HeadAndTail
from wsl_methods.modules import Centred, HeadedTwice
from wsl_methods.records import Debiasing, Records, RecordsProden, log_share
from wsl_methods.solar import Solar, rank_within, sinkhorn
from wsl_toolkit import Estimator, param
from wsl_toolkit.testing.batches import random_sets


def shared_out(p: literal.Rows, prior: literal.Row, iterations: int) -> literal.Rows:
    """Sinkhorn's iterations as the paper writes them: P^3 between two diagonal matrices."""
    n, classes = len(p), len(prior)
    powers = [[x**3 for x in row] for row in p]
    c = [1 / n] * n
    for _ in range(iterations):
        r = [prior[j] / sum(powers[i][j] * c[i] for i in range(n)) for j in range(classes)]
        c = [1 / n / literal.dot(powers[i], r) for i in range(n)]
    return [[n * c[i] * powers[i][j] * r[j] for j in range(classes)] for i in range(n)]


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("epoch", [0.0, 1.0, 7.0, 30.0])
def test_solar(epoch: float, full: bool) -> None:
    solar = Solar(queue=B if full else 11, ramp=10, threshold=0.5, iterations=12)
    prior = torch.tensor([0.5, 0.2, 0.2, 0.1], dtype=torch.float64)
    batch = made(solar, epoch, prior=prior)
    fixed, s = probabilities(batch.state["fixed_logits"]), batch.candidates.tolist()
    seen = probabilities(batch.logits)  # what the one update before has put into the queue
    pool = [[q * inside for q, inside in zip(row, s[i % B], strict=True)] for i, row in enumerate([*seen, *fixed])]
    q = shared_out(pool if full else pool[B:], prior.tolist(), 12)[-B:]
    p, view, mixed = (probabilities(v) for v in (batch.logits, batch.state["view_logits"], batch.state["mixed_logits"]))
    r = batch.state["confidence"].tolist()
    if epoch < 1:
        return matches(solar, batch, [literal.cross_entropy(r[i], p[i]) for i in range(B)])
    grown = min(epoch / 10, 1)
    label = [row.index(max(row)) for row in q]
    chosen = {i for i in range(B) if literal.dot(q[i], fixed[i]) > 0.5}
    for j in set(label):
        members = sorted((i for i in range(B) if label[i] == j), key=lambda i: literal.cross_entropy(q[i], fixed[i]))
        chosen |= set(members[: math.ceil(B * prior[j].item() * (0.2 + 0.6 * grown))])
    share, partner = batch.state["mixed_share"].item(), batch.state["mixed_partner"].tolist()
    both = [i for i in chosen if partner[i] in chosen]
    sure = sum(literal.cross_entropy(q[i], p[i]) + literal.cross_entropy(q[i], view[i]) for i in chosen) / len(chosen)
    if both:
        sure += sum(literal.cross_entropy(decayed(q[i], q[partner[i]], share), mixed[i]) for i in both) / len(both)
    others = [i for i in range(B) if i not in chosen]
    unsure = sum(literal.cross_entropy(r[i], p[i]) for i in others) / max(len(others), 1)
    expected = 0.9 * grown * sure + (1 - 0.9 * grown) * unsure
    assert batch.loss(solar).mean().item() == pytest.approx(expected)
    return None


def test_solars_prior_follows_the_likeliest_candidates_first_fast_then_slowly() -> None:
    solar = Solar(prior_rate=(0.5, 0.1), prior_epochs=3)
    logits = torch.tensor([[9.0, 1.0, 0.0], [9.0, 1.0, 0.0], [0.0, 0.0, 5.0], [5.0, 4.0, 4.5]])
    sets = torch.tensor([[True, True, False], [False, True, True], [True, False, True], [False, True, True]])
    state = {"prior": torch.tensor([0.2, 0.4, 0.4]), "all_logits": logits, "epoch": torch.tensor(2.0)}
    found = torch.tensor([0.25, 0.25, 0.5])  # classes 0, 1, 2 and 2
    torch.testing.assert_close(solar.after_epoch(sets, state)["prior"], 0.5 * state["prior"] + 0.5 * found)
    state["epoch"] = torch.tensor(3.0)
    torch.testing.assert_close(solar.after_epoch(sets, state)["prior"], 0.9 * state["prior"] + 0.1 * found)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(2, 40), classes=st.integers(3, 8), scale=st.floats(0, 200))
def test_what_sinkhorn_shares_out_stays_on_the_sets_and_sums_to_one(
    seed: int, n: int, classes: int, scale: float
) -> None:
    rng = torch.Generator().manual_seed(seed)
    sets = random_sets(n, classes, rng)
    logits = scale * torch.randn(n, classes, generator=rng)
    rows = logits.masked_fill(~sets, -torch.inf).softmax(1)
    log_mass = logits.masked_fill(~sets, -torch.inf).logsumexp(1) - logits.logsumexp(1)
    prior = torch.rand(classes, generator=rng).softmax(0)
    q = sinkhorn(rows, log_mass, torch.ones(n), prior, 3.0, 50)
    assert bool((q[~sets] == 0).all())
    torch.testing.assert_close(q.sum(1), torch.ones(n))


def test_sinkhorn_meets_a_prior_that_the_sets_allow() -> None:
    """Every example may be of any class but one, so that any shares of the other three can be had."""
    rng = torch.Generator().manual_seed(0)
    sets = torch.ones(200, 4, dtype=torch.bool)
    sets[:, 3] = False
    rows = torch.randn(200, 4, generator=rng).masked_fill(~sets, -torch.inf).softmax(1)
    prior = torch.tensor([0.6, 0.3, 0.1, 0.0])
    q = sinkhorn(rows, torch.zeros(200), torch.ones(200), prior, 3.0, 400)
    torch.testing.assert_close(q.mean(0), prior, atol=1e-3, rtol=0)


def test_ranks_are_counted_within_a_label() -> None:
    label, value = torch.tensor([2, 0, 2, 2, 0, 1]), torch.tensor([0.5, 3.0, 0.1, 0.5, 2.0, 9.0])
    assert rank_within(label, value, 4).tolist() == [1, 1, 0, 2, 0, 0]


def debiased(p: literal.Row, bias: literal.Row) -> literal.Row:
    """Probabilities divided by the shares of the classes, and normalised."""
    share = literal.softmax(bias)
    return literal.normalised([x / (q + 1e-9) for x, q in zip(p, share, strict=True)], [True] * K)


def test_records_proden() -> None:
    records = RecordsProden()
    batch = made(records, 4.0)
    p, s, r = probabilities(batch.logits), batch.candidates.tolist(), batch.state["confidence"].tolist()
    matches(records, batch, [literal.cross_entropy(r[i], p[i]) for i in range(B)])
    bias = batch.state["bias_logits"][0].tolist()
    wanted = [literal.normalised(debiased(p[i], bias), s[i]) for i in range(B)]
    new = records.update(batch.logits, batch.candidates, batch.state)
    torch.testing.assert_close(new["confidence"], torch.tensor(wanted, dtype=torch.float64))
    torch.testing.assert_close(new["share"], torch.tensor(literal.softmax(bias), dtype=torch.float64))


def test_records() -> None:
    records = Records()
    batch = made(records, 4.0)
    s, r = batch.candidates.tolist(), batch.state["confidence"].tolist()
    views = [probabilities(v) for v in (batch.logits, batch.state["view_logits"])]
    expected = [
        sum(literal.divergence(r[i], view[i]) + literal.outside_loss(view[i], s[i]) for view in views) for i in range(B)
    ]
    matches(records, batch, expected)
    bias = batch.state["bias_logits"][0].tolist()
    fair = [[debiased(row, bias) for row in view] for view in views]
    mean = [[math.sqrt(a * b) for a, b in zip(fair[0][i], fair[1][i], strict=True)] for i in range(B)]
    wanted = torch.tensor([literal.normalised(mean[i], s[i]) for i in range(B)], dtype=torch.float64)
    torch.testing.assert_close(records.update(batch.logits, batch.candidates, batch.state)["confidence"], wanted)


@pytest.mark.parametrize("records", [Records(), RecordsProden()], ids=lambda each: each.name)
def test_records_leaves_targets_alone_in_the_first_epoch(records: Estimator) -> None:
    batch = made(records, 0.0)
    new = records.update(batch.logits, batch.candidates, batch.state)
    assert torch.equal(new["confidence"], batch.state["confidence"])


def test_the_mean_of_features_follows_all_views_and_predictions_are_free_of_what_it_says() -> None:
    network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, K)).double()
    around = Centred(network, Records.needs, log_share, 0.9, weaken=lambda x: x, augment=lambda x: x + 1).double()
    batches = torch.randn(3, B, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    mean = torch.zeros(4, dtype=torch.float64)
    for x in batches:
        _, extras = around.look(x)
        mean = 0.9 * mean + 0.1 * ((network[:2](x) + network[:2](x + 1)) / 2).mean(0)
        torch.testing.assert_close(extras["bias_logits"], network[2](mean).expand(B, K))
        assert not extras["bias_logits"].requires_grad
    wanted = network(batches[0]) - torch.log(network[2](mean).softmax(0) + 1e-9)
    torch.testing.assert_close(around.eval()(batches[0]), wanted)


@attrs.frozen(kw_only=True)
class DebiasedConsistency(Debiasing, ConsistencyRegularised):
    """`cr-dpll`, to show that any estimator with confidences can be debiased."""

    needs = ConsistencyRegularised.needs | {"features"}
    feature_decay: float = param(0.9, help="how slowly the mean of the features follows")


def test_any_estimator_that_keeps_confidences_can_be_debiased() -> None:
    plain, fair = ConsistencyRegularised(), DebiasedConsistency()
    batch = made(fair, 4.0)
    torch.testing.assert_close(batch.loss(fair), batch.loss(plain))
    bias = batch.state["bias_logits"][0].tolist()
    views = [probabilities(v) for v in (batch.logits, batch.state["view_logits"], batch.state["third_logits"])]
    mean = [[math.prod(debiased(view[i], bias)[j] for view in views) ** (1 / 3) for j in range(K)] for i in range(B)]
    wanted = [literal.normalised(mean[i], batch.candidates[i].tolist()) for i in range(B)]
    new = fair.update(batch.logits, batch.candidates, batch.state)
    torch.testing.assert_close(new["confidence"], torch.tensor(wanted, dtype=torch.float64))


def told_and_sure(
    label: literal.Rows, p: dict[str, literal.Rows], dist: literal.Row, rho: float, mix: tuple[float, list[int]]
) -> float:
    """Cross-entropies with the strong view of the chosen, and with mixed views of pairs of them."""
    losses = [literal.cross_entropy(label[i], p["fixed_"][i]) for i in range(B)]
    chosen: set[int] = set()
    for j in range(K):
        members = sorted((i for i in range(B) if label[i].index(max(label[i])) == j), key=lambda i: losses[i])
        chosen |= set(members[: max(1, math.ceil(B * dist[j] * rho))])
    share, partner = mix
    both = [i for i in chosen if partner[i] in chosen]
    sure = sum(literal.cross_entropy(label[i], p["view_"][i]) for i in chosen) / len(chosen)
    if both:
        targets = {i: decayed(label[i], label[partner[i]], share) for i in both}
        sure += sum(literal.cross_entropy(targets[i], p["mixed_"][i]) for i in both) / len(both)
    return sure


@pytest.mark.parametrize("epoch", [0.0, 1.0, 6.0, 30.0])
def test_htc(epoch: float) -> None:
    htc = HeadAndTail(ramp=10, fusion_ramp=20)
    share = torch.tensor([0.6, 0.2, 0.15, 0.05], dtype=torch.float64)
    batch = made(htc, epoch, share=share)
    state = {**batch.state, "logits": batch.logits}
    head = {name: probabilities(state[f"{name}logits"]) for name in ("", "fixed_", "view_", "mixed_")}
    tail = {name: probabilities(state[f"tail_{name}logits"]) for name in ("", "fixed_", "view_", "mixed_")}
    r, prior = state["confidence"].tolist(), share.tolist()
    adjusted = [
        [f - 2 * math.log(q) for f, q in zip(row, prior, strict=True)] for row in state["fixed_logits"].tolist()
    ]
    labels = {"head": r, "tail": [literal.softmax(row) for row in adjusted]}
    mix = state["mixed_share"].item(), state["mixed_partner"].tolist()
    expected = sum(literal.cross_entropy(r[i], p[""][i]) for p in (head, tail) for i in range(B)) / B
    if epoch >= 1:
        grown = min(epoch / 10, 1)
        rho = 0.2 + 0.4 * grown
        expected += 0.9 * grown * told_and_sure(labels["head"], head, prior, rho, mix)
        expected += 0.9 * grown * told_and_sure(labels["tail"], tail, [1 / K] * K, rho, mix)
    fused = probabilities(state["fused_logits"])
    expected += 0.5 * min(epoch / 20, 1) * sum(literal.cross_entropy(r[i], fused[i]) for i in range(B)) / B
    assert batch.loss(htc).mean().item() == pytest.approx(expected)
    wanted = [decayed(r[i], literal.normalised(tail[""][i], batch.candidates[i].tolist()), 0.4) for i in range(B)]
    new = htc.update(batch.logits, batch.candidates, batch.state)
    torch.testing.assert_close(new["confidence"], torch.tensor(wanted, dtype=torch.float64))


def test_htc_counts_classes_by_all_confidences_and_leaves_out_those_in_no_set() -> None:
    htc = HeadAndTail()
    confidence = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.25, 0.75, 0.0]])
    found = htc.after_epoch(confidence > 0, {"confidence": confidence, "share": torch.full((3,), 1 / 3)})["share"]
    torch.testing.assert_close(found, torch.tensor([1.75, 1.25, 0.0]) / 3)
    labels = htc._tail_labels({"share": found, "fixed_logits": torch.zeros(2, 3)})
    fair = torch.tensor([1 / 1.75**2, 1 / 1.25**2, 0.0])
    torch.testing.assert_close(labels, (fair / fair.sum()).expand(2, 3))


def test_htc_predicts_by_both_classifiers_weighed_with_the_shares_that_it_is_told() -> None:
    network = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, K)).double()
    around = HeadedTwice(network, HeadAndTail.needs, weaken=lambda x: x, augment=lambda x: x + 1).double()
    x = torch.randn(B, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    prior = [0.7, 0.2, 0.06, 0.04]
    around.after_epoch({"share": torch.tensor(prior, dtype=torch.float64)})
    logits, extras = around.look(x)
    features = network[:2](x)
    torch.testing.assert_close(extras["tail_logits"], around.tail(features))
    torch.testing.assert_close(extras["tail_view_logits"], around.tail(network[:2](x + 1)))
    mixed = extras["mixed_share"] * x + (1 - extras["mixed_share"]) * x[extras["mixed_partner"]]
    torch.testing.assert_close(extras["mixed_logits"], network(mixed))
    weight, bias = around.attention.weight.tolist(), around.attention.bias.tolist()
    for i in range(B):
        a = literal.softmax([f - math.log(q + 1e-5) for f, q in zip(logits[i].tolist(), prior, strict=True)])
        b = literal.softmax(extras["tail_logits"][i].tolist())
        scores = [literal.dot(weight[c], [*a, *b]) + bias[c] for c in range(2)]
        w = literal.unit(literal.softmax([s if s > 0 else 0.01 * s for s in scores]))
        wanted = torch.tensor([w[0] * u + w[1] * v for u, v in zip(a, b, strict=True)], dtype=torch.float64)
        torch.testing.assert_close(extras["fused_logits"][i], wanted)
    torch.testing.assert_close(around.eval()(x), extras["fused_logits"])
    (head,) = torch.autograd.grad(extras["fused_logits"].sum(), network[2].weight, allow_unused=True)
    assert head is None, "answers are constants where they are weighed"
