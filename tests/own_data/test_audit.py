"""The audit's counts are exact, and its tests have their level and their power."""

from __future__ import annotations

import attrs
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from wsl_toolkit.data.dataset import Data
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.own_data.audit import checks, laws
from wsl_toolkit.own_data.audit.counting import count
from wsl_toolkit.own_data.audit.report import audit, best_estimator
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.settings import Setting
from wsl_toolkit.theory.enumeration import all_sets

REGISTRY = load_plugins().registry
ORDER = [Setting.CL, Setting.PCPL, Setting.MCL, Setting.CMM, Setting.PPL, Setting.GENERAL]


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def made(
    name: str, n: int = 2500, num_classes: int = 6, seed: int = 0, *, labels: bool = True, **values: object
) -> Data:
    stream = rng(seed)
    priors = torch.tensor([0.3, 0.2, 0.2, 0.1, 0.1, 0.1])[:num_classes]
    y = torch.multinomial(priors, n, replacement=True, generator=stream)
    centres = 2 * torch.eye(num_classes, 4)
    x = centres[y] + torch.randn(n, 4, generator=stream)
    sets = REGISTRY.create("generator", name, values).sample(x, y, num_classes, stream)
    return Data(name=name, x=x, candidates=sets, num_classes=num_classes, known_y=y if labels else None)


def refuted(data: Data) -> set[Setting]:
    return {setting for setting, (verdict, _) in audit(data, REGISTRY).verdicts.items() if verdict == "refuted"}


@pytest.mark.parametrize(
    ("generator", "values", "expected"),
    [
        ("cl", {}, {Setting.PCPL}),
        ("pcpl", {}, {Setting.CL}),
        ("mcl-skewed", {"alpha": 0.7}, {Setting.CL, Setting.PCPL}),
        ("partition", {}, {Setting.CL, Setting.PCPL, Setting.MCL}),
        ("flip-class", {}, {Setting.CL, Setting.PCPL, Setting.MCL, Setting.CMM, Setting.PPL}),
        ("cl-biased", {}, {Setting.CL, Setting.PCPL, Setting.MCL, Setting.CMM, Setting.PPL}),
    ],
)
def test_the_audit_refutes_what_is_false_and_only_that(generator, values, expected):
    assert refuted(made(generator, **values)) == expected


def test_a_set_without_its_true_label_refutes_every_setting():
    data = made("mcl-skewed")
    mask = data.candidates.mask().clone()
    single = (mask.sum(1) > 1).nonzero().flatten()[:40]
    mask[single, data.known_y[single]] = False
    wrong = attrs.evolve(data, candidates=CandidateSets.from_mask(mask))
    found = audit(wrong, REGISTRY)
    assert found.verdicts[Setting.GENERAL][0] == "refuted"
    assert any("Some sets miss the true label: 40 of" in note for note in found.notes)


def test_without_true_labels_properness_is_said_to_be_untestable():
    found = audit(made("flip-class", labels=False), REGISTRY)
    assert found.verdicts[Setting.PPL][0] == "not testable"
    assert found.verdicts[Setting.MCL][0] == "refuted"
    assert found.recommendations[0].fit == "fits"


def test_any_frequencies_of_sets_are_explained_by_a_law_of_the_set_alone():
    """Why sets alone never refute CMM: with maximum-likelihood priors, C(s) = p(s)/π(s) is a proper law."""
    sets = all_sets(4)
    frequencies = torch.rand(len(sets), generator=rng(3), dtype=torch.float64) + 0.1
    frequencies /= frequencies.sum()
    priors = torch.full((4,), 0.25, dtype=torch.float64)
    for _ in range(20_000):
        priors = ((sets * priors) / (sets.double() @ priors)[:, None] * frequencies[:, None]).sum(0)
    law = frequencies / (sets.double() @ priors)
    assert bool((priors > 1e-6).all())
    torch.testing.assert_close((sets * law[:, None]).sum(0), torch.ones(4, dtype=torch.float64), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(law * (sets.double() @ priors), frequencies)


@pytest.mark.parametrize("generator", ["mcl-skewed", "flip"])
def test_a_true_assumption_is_refuted_no_more_often_than_the_level_allows(generator):
    """30 tests at level 0.01: 4 refutations would come once in 4,000 times."""
    found = 0
    for seed in range(10):
        data = made(generator, n=250, seed=seed)
        stream = rng(seed)
        verdicts = checks.uniform_within_sizes(data.candidates.mask(), stream)
        verdicts.append(checks.choice_rule(Setting.CMM, None, data.candidates.mask(), data.known_y, stream))
        found += sum(check.verdict == "refuted" for check in verdicts)
    assert found < 4


@pytest.mark.parametrize("num_classes", [3, 4, 5])
def test_the_expected_pairs_and_inclusions_are_those_of_the_law(num_classes):
    """Against the enumeration of every set of every size under the MCL law."""
    priors = torch.rand(num_classes, generator=rng(1), dtype=torch.float64)
    priors /= priors.sum()
    sets = all_sets(num_classes)
    for k in range(1, num_classes):
        of_size = sets[sets.sum(1) == k].double()
        share = of_size @ priors
        share = share / share.sum()
        sizes = torch.tensor([k])
        expected = laws.expected_pairs(sizes, priors)
        exact = of_size.T @ (share[:, None] * of_size)
        off = ~torch.eye(num_classes, dtype=torch.bool)
        torch.testing.assert_close(expected[off], exact[off])
        inclusions = laws.expected_inclusions(sizes, torch.zeros(1, dtype=torch.int64), priors)
        torch.testing.assert_close(inclusions[0], exact.diagonal())


def test_class_priors_are_recovered_from_sets_that_are_uniform_given_their_size():
    data = made("mcl-skewed", n=40_000)
    priors = laws.class_priors(data.candidates.mask())
    assert float(priors.sum()) == pytest.approx(1, abs=1e-5)
    truth = torch.bincount(data.known_y, minlength=6) / len(data.x)
    assert float((priors - truth).abs().max()) < 0.02


def test_labels_are_drawn_from_the_set_in_proportion_to_the_weights():
    mask = torch.tensor([[True, False, True], [False, True, True]]).repeat_interleave(20_000, 0)
    drawn = laws.draw_labels(torch.tensor([1.0, 2.0, 3.0]), mask, rng())
    assert bool(mask.gather(1, drawn[:, None]).all())
    share = torch.stack([torch.bincount(part, minlength=3) / 20_000 for part in drawn.split(20_000)])
    torch.testing.assert_close(share, torch.tensor([[0.25, 0, 0.75], [0, 0.4, 0.6]]), atol=0.02, rtol=0)


def test_the_choice_rule_recovers_its_parameters():
    stream = rng()
    mask = torch.rand(20_000, 4, generator=stream) < 0.6
    mask = mask[mask.sum(1) > 1]
    utility = torch.randn(mask.shape, generator=stream)
    truth = torch.tensor([0.0, 1.0, -0.5, 0.3, 0.8], dtype=torch.float64)
    rule = laws.ChoiceRule(mask, utility)
    labels = laws.draw_labels(rule.shares(truth), mask, stream)
    fitted = rule.fit(labels, rule.parameters, 20)
    torch.testing.assert_close(fitted[:4] - fitted[0], truth[:4] - truth[0], atol=0.1, rtol=0)
    assert float(fitted[4]) == pytest.approx(0.8, abs=0.05)


matrices = st.integers(2, 5).flatmap(
    lambda k: st.lists(st.lists(st.booleans(), min_size=k, max_size=k).filter(any), min_size=1, max_size=12)
)


@settings(deadline=None, max_examples=200)
@given(matrices)
def test_counts_are_what_counting_by_hand_gives(rows):
    sets = CandidateSets.from_mask(rows, [f"c{j}" for j in range(len(rows[0]))])
    counts = count(sets)
    told = [{j for j, inside in enumerate(row) if inside} for row in rows if not all(row)]
    classes = range(len(rows[0]))
    assert counts.full == len(rows) - len(told)
    assert counts.singletons == sum(sum(row) == 1 for row in rows)
    holding = [[i for i, s in enumerate(told) if j in s] for j in classes]
    assert counts.never == tuple(f"c{j}" for j in classes if not holding[j])
    assert counts.always == tuple(f"c{j}" for j in classes if told and len(holding[j]) == len(told))
    groups: dict[tuple[int, ...], list[str]] = {}
    for j in classes:
        if holding[j]:
            groups.setdefault(tuple(holding[j]), []).append(f"c{j}")
    assert set(counts.twins) == {tuple(group) for group in groups.values() if len(group) > 1}
    shadows = {
        (f"c{j}", f"c{k}")
        for j in classes
        for k in classes
        if holding[j] and set(holding[j]) < set(holding[k]) and len(holding[k]) < len(told)
    }
    assert set(counts.shadows) == shadows


def test_classes_that_only_appear_together_are_named_as_unlearnable():
    sets = [["dog", "wolf"], ["cat"], ["dog", "wolf", "cat"], ["owl"]] * 10
    data = Data(
        name="pets",
        x=torch.randn(40, 2, generator=rng()),
        candidates=CandidateSets.from_sets(sets, class_names=["cat", "dog", "owl", "wolf", "yeti"]),
        num_classes=5,
    )
    notes = audit(data, REGISTRY).notes
    assert notes[0].startswith("'dog' and 'wolf' only ever appear together: no method can tell them apart")
    assert any("No set holds 'yeti'" in note for note in notes)


def test_the_choice_of_an_estimator_reads_no_true_label():
    data = made("flip-class", n=400)
    shuffled = attrs.evolve(data, known_y=data.known_y.roll(1))
    assert best_estimator(data, REGISTRY) == best_estimator(shuffled, REGISTRY)


def test_estimators_whose_assumption_is_refuted_come_after_those_that_fit():
    found = audit(made("partition"), REGISTRY)
    fits = [choice.fit for choice in found.recommendations]
    assert fits == sorted(fits, key=["fits", "promise refuted", "no promise", "cannot be used"].index)
    by_name = {choice.estimator: choice.fit for choice in found.recommendations}
    assert by_name["ppl"] == "fits"
    assert by_name["mcl"] == "promise refuted"
    assert by_name["supervised"] == "cannot be used"
    assert found.best_estimator == found.recommendations[0].estimator == "ppl"
