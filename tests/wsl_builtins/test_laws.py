"""Every generator's law, by enumeration of all sets: its place on the map, its constants, its sizes, its samples."""

from __future__ import annotations

import math

import pytest
import torch
from generator_cases import CASES, case_id, create

from wsl_toolkit import Setting
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.theory.enumeration import all_sets, law
from wsl_toolkit.theory.instances import prepared
from wsl_toolkit.theory.proofs import prove
from wsl_toolkit.theory.sampling_tests import check_samples, examine

BUILT_IN = [
    "annotators",
    "cl",
    "cl-biased",
    "flip",
    "flip-class",
    "flip-instance",
    "flip-superclass",
    "mcl",
    "mcl-skewed",
    "noisy",
    "partition",
    "pcpl",
    "pcpl-symmetric",
    "proper-instance",
    "query",
]
ALL_REGIONS = set(Setting)
OUTSIDE = {
    Setting.CL: {Setting.PCPL},
    Setting.PCPL: {Setting.CL},
    Setting.MCL: {Setting.CL, Setting.PCPL},
    Setting.CMM: {Setting.CL, Setting.PCPL, Setting.MCL},
    Setting.PPL: {Setting.CL, Setting.PCPL, Setting.MCL, Setting.CMM},
    Setting.GENERAL: {Setting.CL, Setting.PCPL, Setting.MCL, Setting.CMM, Setting.PPL},
    Setting.ANY: ALL_REGIONS - {Setting.ANY},
}


def mean_size(generator, num_classes):
    ready, instances = prepared(generator, num_classes)
    table = law(ready, instances, num_classes)
    sizes = all_sets(num_classes).sum(1).double()
    return (table * sizes.view(1, -1, 1)).sum(1)  # [n, K]


def test_every_generator_of_the_map_is_installed_and_has_a_case():
    names = load_plugins().registry.names("generator")
    assert set(BUILT_IN) <= set(names)
    assert {name for name, _, _ in CASES} == set(BUILT_IN)


@pytest.mark.parametrize("num_classes", [3, 4, 5])
@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_generator_is_in_exactly_the_regions_it_should_be_in(case, num_classes):
    name, values, region = case
    proof = prove(create(name, num_classes, **values), num_classes)
    assert proof.is_law
    assert proof.keeps_promise
    assert proof.region is region
    assert proof.regions == ALL_REGIONS - OUTSIDE[region]


@pytest.mark.parametrize("case", CASES, ids=case_id)
@pytest.mark.parametrize("num_classes", [3, 5])
def test_samples_match_probabilities_over_all_sets(case, num_classes):
    name, values, _ = case
    verdict = check_samples(create(name, num_classes, **values), num_classes, draws=4000)
    assert verdict.p_value > 1e-4, str(verdict.witness)


@pytest.mark.parametrize("name", BUILT_IN)
def test_draws_alone_lead_to_the_same_place_as_the_proof(name):
    generator = create(name)
    assert examine(generator, 4, draws=20_000).region is prove(generator, 4).region


@pytest.mark.parametrize("num_classes", [3, 5, 12])
@pytest.mark.parametrize("name", BUILT_IN)
def test_defaults_keep_their_promise_up_to_twelve_classes(name, num_classes):
    proof = prove(create(name), num_classes)
    assert proof.is_law
    assert proof.keeps_promise


@pytest.mark.parametrize(("alpha", "table_2"), [(0.9, 5.69), (0.8, 6.40), (0.7, 7.05)])
def test_mean_size_of_skewed_is_the_papers_table_2_exact_and_sampled(alpha, table_2):
    generator = create("mcl-skewed", alpha=alpha)
    exact = mean_size(generator, 10)
    assert round(float(exact[0, 0]), 2) == table_2
    assert torch.allclose(exact, exact[0, 0].expand_as(exact))
    y = torch.arange(10).repeat(20_000)
    sets = generator.sample(torch.zeros(len(y), 1), y, 10, torch.Generator().manual_seed(0))
    error = float(sets.sizes.double().std()) / math.sqrt(len(y))
    assert abs(sets.mean_size - float(exact[0, 0])) < 4 * error


def test_table_2_needs_at_least_one_complementary_label():
    """With |s̄| from 0, as the paper's text has it, the means would be others than its table's."""
    weights = 0.9 ** torch.arange(10, dtype=torch.float64)
    assert round(float((weights * torch.arange(10, 0, -1)).sum() / weights.sum()), 2) == 6.35


def test_mean_size_of_pcpl_is_not_the_papers_5_but_that_of_its_authors_code_is():
    k = 10
    exact = float(mean_size(create("pcpl"), k)[0, 0])
    assert exact == pytest.approx(((k + 1) / 2 * 2 ** (k - 1) - k) / (2 ** (k - 1) - 1))
    assert round(exact, 4) == 5.4912
    assert float(mean_size(create("pcpl-symmetric"), k)[0, 0]) == pytest.approx(5.0)


@pytest.mark.parametrize("k", [3, 4, 5, 10])
def test_constants_are_those_of_table_1(k):
    sets = all_sets(k)
    x = torch.zeros(len(sets), 1)
    sizes = sets.sum(1)
    uniform = 1 / (2 ** (k - 1) - 1)
    assert torch.allclose(create("pcpl").constant(sets, x, k), torch.full((len(sets),), uniform, dtype=torch.float64))
    expected = torch.where(sizes == k - 1, 1 / (k - 1), 0.0).double()
    assert torch.allclose(create("cl").constant(sets, x, k), expected)
    weights = [0.7**j for j in range(k - 1)]  # of |s̄| = 1, 2, …
    for row, size in enumerate(sizes.tolist()):
        q = weights[k - size - 1] / sum(weights)
        value = float(create("mcl-skewed", alpha=0.7).constant(sets[row : row + 1], x[:1], k))
        assert value == pytest.approx(q / math.comb(k - 1, size - 1))


@pytest.mark.parametrize("k", [3, 5, 10, 30])
def test_pcpl_is_mcl_with_binomial_sizes(k):
    """Proposition 2: Q_k = binom(K-1, k-1) / (2^{K-1} - 1)."""
    by_complement = create("pcpl").complement_sizes(k)
    for size in range(1, k):
        expected = math.comb(k - 1, size - 1) / (2 ** (k - 1) - 1)
        assert float(by_complement[k - size - 1]) == pytest.approx(expected)


def test_pair_is_improper_with_its_witness():
    verdict = prove(create("flip-class", matrix="pair", rate=0.5), 4).verdict(Setting.PPL)
    assert not verdict.holds
    assert verdict.deviation == pytest.approx(0.5)
    cell, other = verdict.witness.cell, verdict.witness.other
    assert (cell.x, cell.s, cell.y, cell.p) == (0, (0, 1), 0, pytest.approx(0.5))
    assert (other.x, other.s, other.y, other.p) == (0, (0, 1), 1, 0)


@pytest.mark.parametrize("k", [3, 4, 10])
def test_flip_is_the_binomial_process_given_that_the_set_is_not_full(k):
    q = 0.9
    sets = all_sets(k)
    sets = sets[sets[:, 0]]
    joined = sets.sum(1).double() - 1
    free = q**joined * (1 - q) ** (k - 1 - joined)
    assert float(free.sum()) == pytest.approx(1 - q ** (k - 1))
    assert torch.allclose(create("flip", q=q).constant(sets, sets, k), free / free.sum())
    if k == 10:
        assert round(100 * q ** (k - 1)) == 39  # what plain `flip` would emit as full sets


def test_flip_and_flip_class_uniform_and_cl_and_cl_biased_uniform_are_the_same_laws():
    x = torch.zeros(2, 3)
    flip, by_class = create("flip", q=0.35), create("flip-class", matrix="uniform", rate=0.35)
    assert torch.allclose(law(flip, x, 5), law(by_class, x, 5))
    assert torch.allclose(law(create("cl"), x, 5), law(create("cl-biased", matrix="uniform"), x, 5))
    assert torch.allclose(law(create("pcpl"), x, 5), law(create("query", queries="uniform"), x, 5))
    assert torch.allclose(law(create("pcpl"), x, 5), law(create("flip", q=0.5), x, 5))


def test_asking_about_single_classes_is_mcl_and_at_three_classes_pcpl():
    assert prove(create("query", queries="singletons"), 3).region is Setting.PCPL
    assert prove(create("query", queries="singletons"), 4).region is Setting.MCL
    assert prove(create("query", queries="singletons"), 5).region is Setting.MCL


def test_query_answers_sum_to_two_and_three_blocks_to_three():
    """Σ_s C(s) is the expected number of possible answers: what the PCPL estimator takes to be 2."""
    k = 5
    sets = all_sets(k)
    for generator, total in ((create("query"), 2), (create("partition", partitions="0 1|2|3 4"), 3)):
        assert float(generator.constant(sets, sets, k).sum()) == pytest.approx(total)


def test_proper_instance_interpolates_alpha_and_dimmer_examples_get_larger_sets():
    x = torch.linspace(-3, 3, 200).unsqueeze(1).repeat(1, 4)
    y = torch.zeros(200, dtype=torch.long)
    ready = create("proper-instance", alpha_low=0.3, alpha_high=0.9).prepare(x, y, 10, torch.Generator())
    alpha = ready.alpha(x)
    assert 0.3 < float(alpha.min()) < float(alpha.max()) < 0.9
    assert (alpha.diff() > 0).all()
    sizes = 10 - (ready.complement_sizes(x, 10) * torch.arange(1, 10)).sum(1)
    assert (sizes.diff() < 0).all()
    single = create("mcl-skewed", alpha=float(alpha[7]))
    sets = all_sets(10)
    at_seven = ready.constant(sets, x[7:8].expand(len(sets), -1), 10)
    assert torch.allclose(at_seven, single.constant(sets, sets, 10))


def test_noisy_loses_the_true_label_with_probability_eta_and_keeps_the_sizes():
    k, eta = 5, 0.3
    x = torch.zeros(1, 1)
    plain, spoilt = law(create("mcl-skewed"), x, k), law(create("noisy", eta=eta), x, k)
    sets = all_sets(k)
    kept = (spoilt * sets).sum(1)
    assert torch.allclose(kept, torch.full_like(kept, 1 - eta))
    by_size = torch.nn.functional.one_hot(sets.sum(1), k).double()
    assert torch.allclose(torch.einsum("nsk,sc->nkc", plain, by_size), torch.einsum("nsk,sc->nkc", spoilt, by_size))


@pytest.mark.parametrize(("name", "values", "rank"), [("partition", {}, 3), ("mcl-skewed", {}, 5)])
def test_what_the_sets_tell_of_p_has_the_dimension_that_the_page_says(name, values, rank):
    """p(s|x) = Σ_y p(s|x,y) p(y|x): p(y|x) is identified where that map has rank K."""
    table = law(create(name, 5, **values), torch.zeros(1, 1), 5)[0]
    assert int(torch.linalg.matrix_rank(table)) == rank
