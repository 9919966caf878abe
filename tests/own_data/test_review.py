"""Two lists for a person to look at, by Bayes' rule; and plain words where labels are guesses."""

from __future__ import annotations

import itertools
import json
import math

import attrs
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import wsl_toolkit
from benchmarks.review import BEGIN, END, PAGE, RESULTS, corrupted, text
from tests.own_data.test_cleaning import made
from wsl_toolkit.own_data import calibration, cleaning, fitting
from wsl_toolkit.own_data.review import class_frequencies, log_odds_of_a_miss, miss_rate, remarks, review, sharpened
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.training.formulas import candidate_confidence

REGISTRY = load_plugins().registry


def sets_of_which_some_miss(n: int, share: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return log p(y|x), sets of all sizes of which a share misses the truth, and which those are."""
    stream = torch.Generator().manual_seed(0)
    classes = 5
    logits = 3 * torch.randn(n, classes, generator=stream, dtype=torch.float64)
    y = torch.multinomial(logits.softmax(1), 1, generator=stream)
    missed = torch.rand(n, generator=stream) < share
    scores = torch.rand(n, classes, generator=stream).scatter_(
        1, y, torch.where(missed, 2.0, -1.0).float().unsqueeze(1)
    )
    sizes = torch.randint(1, classes, (n, 1), generator=stream)
    mask = torch.zeros(n, classes, dtype=torch.bool)
    return logits, mask.scatter_(1, scores.argsort(1), torch.arange(classes).expand(n, -1) < sizes), missed


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_the_odds_are_bayes_rule_over_all_sets_of_a_size(classes):
    """Enumerate: draw the truth by p, then whether the set misses it (e), then a set of size k uniformly."""
    p = torch.softmax(torch.randn(classes, generator=torch.Generator().manual_seed(1), dtype=torch.float64), 0)
    e = 0.3
    for size in range(1, classes):
        for members in itertools.combinations(range(classes), size):
            hit = sum(p[y] for y in members) / math.comb(classes - 1, size - 1)
            miss = sum(p[y] for y in range(classes) if y not in members) / math.comb(classes - 1, size)
            wanted = e * miss / (e * miss + (1 - e) * hit)
            mask = torch.zeros(1, classes, dtype=torch.bool)
            mask[0, list(members)] = True
            found = torch.sigmoid(log_odds_of_a_miss(p.log().unsqueeze(0), mask) + math.log(e / (1 - e)))
            torch.testing.assert_close(found, wanted.unsqueeze(0))


def test_a_full_set_misses_nothing_and_logits_of_any_size_are_fine():
    logits = torch.tensor([[1000.0, -1000.0, 0.0], [0.0, 0.0, 0.0], [-1e30, 1e30, 0.0]])
    mask = torch.tensor([[False, True, True], [True, True, True], [True, False, False]])
    found = log_odds_of_a_miss(logits, mask)
    assert found[1] == -math.inf
    assert not found.isnan().any()
    listed = review(found, torch.ones(3))
    assert 0 < listed.miss_rate < 0.5
    assert listed.missed[1] == 0
    assert listed.suspicious.tolist() == [2, 3, 1]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-30, 30), min_size=1, max_size=40))
def test_the_share_of_misses_maximises_the_likelihood_of_the_sets(odds):
    odds = torch.tensor(odds, dtype=torch.float64)

    def objective(e: float) -> float:
        return float(torch.log(1 - e + e * odds.exp()).sum()) + math.log(e) + 19 * math.log(1 - e)

    found = miss_rate(odds)
    assert 0 < found <= 0.5
    assert all(objective(found) >= objective(float(e)) - 1e-6 for e in np.linspace(0.001, 0.5, 101))


def test_the_share_of_misses_is_found_where_probabilities_are_true():
    logits, mask, missed = sets_of_which_some_miss(20_000, 0.15)
    found = review(log_odds_of_a_miss(logits, mask), torch.ones(len(mask)))
    assert found.miss_rate == pytest.approx(0.15, abs=0.01)
    bins = torch.tensor_split(found.missed.argsort(), 10)
    for part in bins:
        assert float(found.missed[part].mean()) == pytest.approx(float(missed[part].double().mean()), abs=0.04)


def test_the_ambiguous_come_by_the_probability_of_a_wrong_label():
    odds = torch.tensor([-3.0, 0.0, 4.0, -math.inf], dtype=torch.float64)
    confidence = torch.tensor([0.4, 0.9, 1.0, 0.5], dtype=torch.float64)
    found = review(odds, confidence)
    wrong = found.missed + (1 - found.missed) * (1 - confidence)
    assert found.ambiguous.tolist() == (wrong.argsort(descending=True).argsort() + 1).tolist() == [2, 4, 1, 3]
    assert (found.missed > 0.5).tolist() == [False, False, True, False]
    surely = review(odds, torch.tensor([0.01, 0.9, 1.0, 0.5], dtype=torch.float64))
    assert surely.ambiguous.tolist() == [1, 4, 2, 3]
    assert surely.suspicious.tolist() == [2, 4, 1, 3]  # the one that probably misses, then as in the other list


@pytest.mark.parametrize("share", [0.0, 0.1, 0.2])
def test_no_list_by_confidence_has_more_wrong_labels_where_probabilities_are_true(share):
    """Sets of all sizes, labels drawn from p(y|x), judged at a temperature that misses have raised."""
    logits, mask, missed = sets_of_which_some_miss(20_000, share)
    stream = torch.Generator().manual_seed(7)
    hot = logits / calibration.temperature(logits, mask)
    sharp = sharpened(hot, mask)
    own = candidate_confidence(logits, mask)
    truth = torch.multinomial(own, 1, generator=stream).squeeze(1)  # of those whose set holds it
    wrong = missed | (own.argmax(1) != truth)
    found = review(log_odds_of_a_miss(sharp, mask), candidate_confidence(sharp, mask).amax(1))
    first = {
        "ambiguous": found.ambiguous.argsort()[:2000],
        "suspicious": found.suspicious.argsort()[:2000],
        "confidence": candidate_confidence(hot, mask).amax(1).argsort(stable=True)[:2000],
    }
    counts = {name: int(wrong[order].sum()) for name, order in first.items()}
    if share:
        assert min(counts["ambiguous"], counts["suspicious"]) > 1.1 * counts["confidence"]
    else:
        assert min(counts["ambiguous"], counts["suspicious"]) >= 0.98 * counts["confidence"]


@pytest.mark.parametrize("share", [0.05, 0.1, 0.2])
def test_sharpening_undoes_what_misses_did_to_the_temperature_and_finds_their_share(share):
    logits, mask, _ = sets_of_which_some_miss(20_000, share)
    hot = calibration.temperature(logits, mask)
    assert hot > 1.2, "sets that miss the truth raise the temperature"
    given = logits / hot
    back = sharpened(given, mask)
    assert float((back / logits).mean()) == pytest.approx(1.0, abs=0.1)  # the values that are tried are 5 % apart
    assert miss_rate(log_odds_of_a_miss(given, mask)) < 0.75 * share, "at the high temperature most are explained away"
    assert miss_rate(log_odds_of_a_miss(back, mask)) == pytest.approx(share, abs=0.015)


def test_where_no_set_misses_the_truth_nothing_is_sharpened_but_by_chance():
    logits, mask, _ = sets_of_which_some_miss(6000, 0.0)
    assert float((sharpened(logits, mask) / logits).mean()) == pytest.approx(1.0, abs=0.06)
    full = torch.ones(4, 3, dtype=torch.bool)
    z = torch.randn(4, 3, dtype=torch.float64)
    assert torch.equal(sharpened(z, full), z)


def test_the_sharpening_is_the_likeliest_of_a_literal_transcription():
    logits, mask, _ = sets_of_which_some_miss(40, 0.2)
    given = logits / 2

    def objective(t: float, e: float) -> float:
        total = math.log(e) + 19 * math.log(1 - e) - math.log(t) ** 2 / (2 * 0.5**2)
        for z, members in zip((given / t).tolist(), mask.tolist(), strict=True):
            weights = [math.exp(each) for each in z]
            inside = sum(w for w, held in zip(weights, members, strict=True) if held) / sum(weights)
            k, classes = sum(members), len(members)
            total += math.log((1 - e) * inside + e * (1 - inside) * k / (classes - k))
        return total

    t = float((given / sharpened(given, mask)).mean())
    found = objective(t, miss_rate(log_odds_of_a_miss(given / t, mask)))
    others = [objective(float(a), float(b)) for a in np.linspace(0.2, 1, 17) for b in np.linspace(0.01, 0.5, 25)]
    assert found >= max(others) - 0.05


def test_sets_that_miss_the_truth_are_found_by_the_suspicious_list():
    data = attrs.evolve(made(400), known_y=None, y=made(400).known_y)
    spoilt = corrupted(data)
    missed = ~spoilt.candidates.mask().gather(1, data.y.unsqueeze(1)).squeeze(1)
    assert torch.equal(spoilt.candidates.sizes, data.candidates.sizes)
    assert 30 <= int(missed.sum()) <= 40
    options = fitting.options_for(REGISTRY, estimator=("ppl", {}), epochs=10, lr=0.1, weight_decay=0.0)
    found = cleaning.clean(spoilt, REGISTRY, options, folds=3)
    first = found.review.suspicious <= 40
    by_confidence = torch.argsort(found.confidence, stable=True)[:40]
    assert int(missed[first].sum()) > 2 * int(missed[by_confidence].sum())
    assert int(missed[first].sum()) >= 25
    calm = cleaning.clean(data, REGISTRY, options, folds=3)
    assert calm.review.miss_rate < found.review.miss_rate < 0.1


def test_guesses_are_called_guesses():
    data = made(200)
    noise = torch.randn(data.x.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    options = fitting.options_for(REGISTRY, estimator=("ppl", {}), epochs=5, lr=0.1, weight_decay=0.0)
    blind = attrs.evolve(data, x=noise, known_y=torch.randint(0, 3, (200,)).where(torch.arange(200) < 0, -1))
    told = cleaning.summarise(blind, cleaning.clean(blind, REGISTRY, options, folds=3))["remarks"]
    assert len(told) == 1
    assert "little better than guesses" in told[0]
    assert cleaning.summarise(data, cleaning.clean(data, REGISTRY, options, folds=3))["remarks"] == []


def test_known_labels_tell_guesses_and_confidences_that_are_too_high():
    n = 300
    mask = torch.ones(n, 4, dtype=torch.bool)
    mask[:, 3] = False
    quarter = (torch.arange(n) % 3 == 0).float()
    told = remarks(torch.zeros(n), mask, torch.full((n,), 0.5), quarter)
    assert "no better than guesses: of 300 known ones in sets of several classes 33% are right" in told[0]
    assert "right in 33%" in told[0]
    assert "too high: 0.50 on average in sets of several classes, where 0.33" in told[1]
    good = (torch.arange(n) % 10 > 0).float()
    assert remarks(torch.zeros(n), mask, torch.full((n,), 0.9), good) == []
    singles = torch.eye(4, dtype=torch.bool)[torch.arange(n) % 4]
    assert remarks(torch.full((n,), 0.1), singles, torch.ones(n), torch.ones(n)) == []


def test_the_frequencies_of_classes_are_the_likeliest():
    stream = torch.Generator().manual_seed(2)
    mask = torch.rand(200, 3, generator=stream) < 0.4
    mask = mask[mask.any(1) & ~mask.all(1)]
    found = class_frequencies(mask)

    def loss(share: torch.Tensor) -> float:
        return -float((mask.double() @ share).log().sum())

    others = torch.distributions.Dirichlet(torch.ones(3, dtype=torch.float64)).sample((500,))
    assert loss(found) <= min(loss(share) for share in others) + 1e-3


def test_known_labels_are_kept_if_asked_and_then_judge_nothing():
    data = made(120)
    known = torch.where(torch.arange(120) % 2 == 0, data.known_y, -1)
    data = attrs.evolve(data, known_y=known)
    options = fitting.options_for(
        REGISTRY, estimator=("ppl", {}), epochs=3, lr=0.1, weight_decay=0.0, use_known_labels=True
    )
    found = cleaning.clean(data, REGISTRY, options, folds=3)
    assert torch.equal(found.label[::2], known[::2])
    assert bool((found.confidence[::2] == 1).all())
    assert bool((found.review.missed[::2] == 0).all())
    summary = cleaning.summarise(data, found)
    assert (summary["kept_labels"], summary["known_labels"], summary["accuracy"]) == (60, 0, None)
    frame = cleaning.to_frame(data, found)
    assert frame["kept"].tolist() == [True, False] * 60


def test_python_gives_the_lists_in_order():
    data = made(60)
    found = wsl_toolkit.clean(data, estimator="ppl", folds=2, epochs=2, lr=0.1, weight_decay=0.0)
    assert found.suspicious(5)["suspicious"].tolist() == [1, 2, 3, 4, 5]
    assert found.ambiguous()["ambiguous"].tolist() == list(range(1, 61))


def test_the_command_shows_both_lists_and_writes_all_columns(wsl, zoo):
    told = wsl(
        "clean", zoo, "--candidates-column", "espèces", "--out", "c.csv", "--epochs", 2, "--folds", 2, "--lr", 0.1,
        "--weight-decay", 0,
    ).output  # fmt: skip
    assert "Ambiguous: the candidates are hard to tell apart" in told
    assert "Suspicious: the set probably misses the truth" in told
    table = pd.read_csv(wsl.home / "c.csv")
    for name in ("review", "ambiguous", "suspicious"):
        assert sorted(table[name]) == list(range(1, 241))
    assert table["missed_probability"].between(0, 1).all()


def test_the_page_shows_what_was_counted():
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    shown = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].strip()
    assert shown == text(found), "run `python -m benchmarks.review --write`"
