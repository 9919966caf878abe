"""The statistical tests: calibrated where the claim is true, and awake where it is not."""

from __future__ import annotations

from typing import ClassVar

import attrs
import pytest
import torch

from wsl_toolkit import Generator, Setting
from wsl_toolkit.errors import PluginError, TheoryError
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.theory import sampling_tests
from wsl_toolkit.theory.enumeration import law
from wsl_toolkit.theory.sampling_tests import (
    Counts,
    check_samples,
    chi_square_tail,
    class_p_values,
    compare,
    examine,
    judge_claim,
    observe,
    place,
)


def create(name, **values):
    return load_plugins().registry.create("generator", name, values)


@attrs.frozen(kw_only=True)
class Silent(Generator):
    """Draws another generator's sets and tells nobody their probabilities."""

    name: ClassVar[str] = "silent"
    setting: ClassVar[Setting] = Setting.GENERAL
    inner: Generator = attrs.field()

    def draw(self, x, y, num_classes, rng):
        return self.inner.draw(x, y, num_classes, rng)


@attrs.frozen(kw_only=True)
class Liar(Generator):
    """Draws one law and tells another."""

    name: ClassVar[str] = "liar"
    setting: ClassVar[Setting] = Setting.MCL
    drawn: Generator = attrs.field()
    told: Generator = attrs.field()

    def draw(self, x, y, num_classes, rng):
        return self.drawn.draw(x, y, num_classes, rng)

    def probability(self, sets, x, y, num_classes):
        return self.told.probability(sets, x, y, num_classes)


def p_values(generator, claim, repetitions=200, draws=400, k=4):
    x = torch.tensor([[0.0, 1.0], [1.0, -2.0]])
    table = law(generator, x, k)
    values = []
    for seed in range(repetitions):
        counts = observe(generator, x, k, torch.Generator().manual_seed(seed), draws)
        verdict = compare(counts, table) if claim is None else judge_claim(counts, claim)
        values.append(verdict.p_value)
    return torch.tensor(values)


@pytest.mark.parametrize("claim", [None, Setting.PPL, Setting.CMM, Setting.MCL, Setting.PCPL])
def test_p_values_are_uniform_where_the_claim_is_true(claim):
    p = p_values(create("pcpl"), claim).sort().values
    grid = (torch.arange(len(p)) + 0.5) / len(p)
    assert float((p - grid).abs().max()) < 1.95 / len(p) ** 0.5  # Kolmogorov-Smirnov at 0.1 %


def counts_of(cells):
    cells = torch.tensor(cells, dtype=torch.float64)
    return Counts(cells=cells, draws=cells.sum(1))


def test_p_values_of_single_classes_are_uniform_and_those_of_scipy():
    from scipy.stats import chisquare

    x = torch.tensor([[0.0, 1.0], [1.0, -2.0]])
    table = law(create("pcpl"), x, 4)
    values = []
    for seed in range(50):
        counts = observe(create("pcpl"), x, 4, torch.Generator().manual_seed(seed), 400)
        values.append(class_p_values(counts, table))
    held = table[1, :, 2] > 0
    counted, law_of_one = counts.cells[1, held, 2].numpy(), table[1, held, 2].numpy()
    by_scipy = chisquare(counted, law_of_one * counted.sum()).pvalue
    assert float(values[-1][1, 2]) == pytest.approx(by_scipy)
    p = torch.stack(values).flatten().sort().values
    grid = (torch.arange(len(p)) + 0.5) / len(p)
    assert float((p - grid).abs().max()) < 1.95 / len(p) ** 0.5  # Kolmogorov-Smirnov at 0.1 %


def test_a_fault_of_one_class_shows_in_its_own_p_value_and_drowns_in_the_pooled_one():
    table = torch.full((6, 6, 3), 1 / 6, dtype=torch.float64)
    noisy = [[[120.0 + (-1) ** (s + y + i) * 10 for y in range(3)] for s in range(6)] for i in range(6)]
    noisy[4][0][1], noisy[4][1][1] = 120.0 + 35, 120.0 - 35
    counts = counts_of(noisy)
    chances = class_p_values(counts, table)
    assert int(chances.argmin()) == 4 * 3 + 1
    assert float(chances.min()) * chances.numel() < 0.05
    assert compare(counts, table).p_value > 0.05


def test_a_set_without_a_chance_leaves_its_class_no_p_value_and_others_theirs():
    table = torch.tensor([[[0.5, 0.5], [0.5, 0.0], [0.0, 0.5]]], dtype=torch.float64)
    chances = class_p_values(counts_of([[[50.0, 50.0], [50.0, 1.0], [0.0, 49.0]]]), table)
    assert chances.tolist() == [[1.0, 0.0]]


def test_chi_square_tail_is_that_of_the_distribution():
    from scipy.stats import chi2

    for freedom, statistic in ((1, 3.84), (10, 2.5), (1000, 1100.0), (3, 0.0)):
        assert chi_square_tail(statistic, freedom) == pytest.approx(chi2.sf(statistic, freedom))
    assert chi_square_tail(5.0, 0) == 1


@pytest.mark.parametrize(
    ("name", "values", "k", "region"),
    [
        ("cl", {}, 4, Setting.CL),
        ("pcpl", {}, 4, Setting.PCPL),
        ("mcl-skewed", {"alpha": 0.9}, 4, Setting.MCL),
        ("partition", {}, 5, Setting.CMM),
        ("cl-biased", {"ratio": 0.9}, 4, Setting.GENERAL),
    ],
)
def test_a_generator_that_only_draws_is_placed_by_its_draws(name, values, k, region):
    proof = place(Silent(inner=create(name, **values)), k)
    assert proof.method == "sampling"
    assert proof.region is region
    assert proof.keeps_promise
    assert all(verdict.p_value is not None for verdict in proof.verdicts if verdict.claim in ("PPL", "CMM", "MCL"))


def test_a_generator_that_tells_its_probabilities_is_placed_by_proof():
    assert place(create("mcl-skewed"), 4).method == "enumeration"


def test_a_refuted_claim_comes_with_frequencies_as_witness():
    proof = examine(Silent(inner=create("flip-class", matrix="pair", rate=0.5)), 4)
    verdict = proof.verdict(Setting.PPL)
    assert not verdict.holds
    assert verdict.p_value < 1e-12
    cell, other = verdict.witness.cell, verdict.witness.other
    assert (cell.x, cell.s) == (other.x, other.s)
    assert cell.p == pytest.approx(0.5, abs=0.02)
    assert other.p == 0


def test_samples_that_do_not_follow_the_probabilities_are_found_out():
    lie = Liar(drawn=create("mcl-skewed", alpha=0.7), told=create("mcl-skewed", alpha=0.75))
    verdict = check_samples(lie, 5)
    assert not verdict.holds
    assert verdict.p_value < 1e-6
    assert "about" in str(verdict.witness)


def test_a_draw_of_probability_zero_refutes_at_once():
    lie = Liar(drawn=create("pcpl"), told=create("cl"))
    verdict = check_samples(lie, 4, draws=50)
    assert verdict.p_value == 0
    assert "must be 0" in str(verdict.witness)


def test_a_missing_true_label_refutes_every_setting_but_any():
    proof = examine(create("noisy", eta=0.01), 4)
    assert proof.region is Setting.ANY
    assert proof.verdict("general").p_value == 0


def test_too_few_draws_judge_nothing_and_say_so():
    counts = Counts(torch.zeros(1, 14, 4, dtype=torch.float64), torch.ones(1, 4, dtype=torch.float64))
    verdict = judge_claim(counts, Setting.PPL)
    assert verdict.holds
    assert verdict.p_value == 1
    assert verdict.note.startswith("0 of ")


@pytest.mark.parametrize("wrong", ["empty", "full", "float", "narrow"])
def test_draws_that_are_no_sets_are_the_plugins_fault(wrong):
    @attrs.frozen(kw_only=True)
    class Broken(Silent):
        def draw(self, x, y, num_classes, rng):
            mask = self.inner.draw(x, y, num_classes, rng)
            if wrong == "float":
                return mask.float()
            if wrong == "narrow":
                return mask[:, 1:]
            return torch.full_like(mask, wrong == "full")

    with pytest.raises(PluginError, match="silent"):
        examine(Broken(inner=create("cl")), 4, draws=20)


def test_more_classes_than_can_be_enumerated_are_refused():
    with pytest.raises(TheoryError, match="at most 12 classes, not 13"):
        place(create("cl"), 13)


def test_chunks_of_draws_do_not_change_the_counts(monkeypatch):
    generator, x = create("query"), torch.zeros(2, 1)
    whole = observe(generator, x, 4, torch.Generator().manual_seed(0), 300)
    monkeypatch.setattr(sampling_tests, "CHUNK_DRAWS", 100)
    parts = observe(generator, x, 4, torch.Generator().manual_seed(0), 300)
    assert torch.equal(whole.draws, parts.draws)
    assert torch.equal(whole.cells.sum(1), parts.cells.sum(1))
