"""Theorems 1 to 3 and Propositions 1 and 2 of the paper, each by enumerating every set.

Laws are drawn at random inside and outside each region, so that both directions of an "if and only if" are seen.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from wsl_toolkit.losses import MULTICLASS_LOSSES
from wsl_toolkit.theory.bias import set_probability, true_confidence, true_confidence_moments
from wsl_toolkit.theory.enumeration import all_sets

N = 5


def random_proper_constant(sets: Tensor, rng: torch.Generator) -> Tensor:
    """C(x, s) for N instances with Σ_{s∋y} C(x, s) = 1 for every y, [N, m].

    Half of the mass is a random mixture of partitions {s, s̄}, each of which covers every y once; the other half is a
    random size law that is uniform given the size. Neither is in the other's region.
    """
    num_classes, sizes = sets.shape[1], sets.sum(-1)
    question = torch.rand(N, len(sets), generator=rng, dtype=torch.float64)
    question = question + question.flip(-1)  # all_sets lists s and its complement at mirrored places
    question = question / question.sum(-1, keepdim=True) * 2
    by_size = torch.rand(N, num_classes - 1, generator=rng, dtype=torch.float64)
    by_size = by_size / by_size.sum(-1, keepdim=True)
    ways = torch.tensor([math.comb(num_classes - 1, k - 1) for k in range(1, num_classes)], dtype=torch.float64)
    return 0.5 * question + 0.5 * (by_size / ways)[:, sizes - 1]


def random_general_law(sets: Tensor, rng: torch.Generator) -> Tensor:
    """p(s | x, y), arbitrary but for y in s, [N, m, K]."""
    law = torch.rand(N, *sets.shape, generator=rng, dtype=torch.float64) * sets
    return law / law.sum(1, keepdim=True)


def posteriors(num_classes: int, rng: torch.Generator) -> Tensor:
    return torch.softmax(torch.randn(N, num_classes, generator=rng, dtype=torch.float64), -1)


def candidate_confidence(posterior: Tensor, sets: Tensor) -> Tensor:
    """The right-hand side of Eq. (9): p(y|x) / Σ_{k∈s} p(k|x) on s, [N, m, K]."""
    inside = posterior.unsqueeze(1) * sets
    return inside / inside.sum(-1, keepdim=True)


@pytest.fixture(params=[3, 4, 5])
def sets(request: pytest.FixtureRequest) -> Tensor:
    return all_sets(request.param)


@pytest.fixture
def rng() -> torch.Generator:
    return torch.Generator().manual_seed(2023)


def is_proper(law: Tensor, sets: Tensor) -> bool:
    """Whether p(s|x,y) is the same for every y in s, straight from Definition 1."""
    lowest = law.masked_fill(~sets, math.inf).amin(-1)
    highest = law.masked_fill(~sets, -math.inf).amax(-1)
    return bool((highest - lowest < 1e-10).all()) and bool((law[:, ~sets] == 0).all())


def test_the_random_laws_are_laws_inside_and_outside_the_region(sets, rng):
    proper = random_proper_constant(sets, rng).unsqueeze(-1) * sets
    general = random_general_law(sets, rng)
    for law in (proper, general):
        assert torch.allclose(law.sum(1), torch.ones(N, sets.shape[1], dtype=torch.float64))
    assert is_proper(proper, sets)
    assert not is_proper(general, sets)


def test_theorem_1_a_proper_law_has_the_confidence_formula(sets, rng):
    posterior = posteriors(sets.shape[1], rng)
    law = random_proper_constant(sets, rng).unsqueeze(-1) * sets
    assert torch.allclose(true_confidence(law, posterior), candidate_confidence(posterior, sets), atol=1e-12)


def test_theorem_1_conversely_the_confidence_formula_makes_a_law_proper(sets, rng):
    """Any p(s|x) with confidences of that form that is compatible with p(y|x) comes from a C(x, s)."""
    posterior = posteriors(sets.shape[1], rng)
    marginal = set_probability(random_proper_constant(sets, rng).unsqueeze(-1) * sets, posterior)
    joint = candidate_confidence(posterior, sets) * marginal.unsqueeze(-1)  # p(y, s | x)
    assert torch.allclose(joint.sum(1), posterior)
    law = joint / posterior.unsqueeze(1)
    assert is_proper(law, sets)
    constant = marginal / (posterior.unsqueeze(1) * sets).sum(-1)
    assert torch.allclose(law, constant.unsqueeze(-1) * sets, atol=1e-12)


def test_theorem_1_an_improper_law_breaks_the_confidence_formula(sets, rng):
    posterior = posteriors(sets.shape[1], rng)
    found = true_confidence(random_general_law(sets, rng), posterior)
    assert float((found - candidate_confidence(posterior, sets)).abs().max()) > 0.01


@pytest.mark.parametrize("proper", [True, False])
def test_theorem_2_true_confidences_give_the_risk_under_any_law(sets, rng, proper: bool):
    posterior = posteriors(sets.shape[1], rng)
    logits = 3 * torch.randn(N, sets.shape[1], generator=rng, dtype=torch.float64)
    law = random_proper_constant(sets, rng).unsqueeze(-1) * sets if proper else random_general_law(sets, rng)
    assert true_confidence_moments(law, posterior=posterior, logits=logits).bias.abs().max() < 1e-10


@pytest.mark.parametrize("base", MULTICLASS_LOSSES)
def test_theorem_3_a_proper_law_needs_p_of_y_given_x_alone(sets, rng, base: str):
    posterior = posteriors(sets.shape[1], rng)
    losses = MULTICLASS_LOSSES[base](3 * torch.randn(N, sets.shape[1], generator=rng, dtype=torch.float64))
    law = random_proper_constant(sets, rng).unsqueeze(-1) * sets
    estimate = (candidate_confidence(posterior, sets) * losses.unsqueeze(1)).sum(-1)
    expected = (set_probability(law, posterior) * estimate).sum(-1)
    assert torch.allclose(expected, (posterior * losses).sum(-1), atol=1e-10)


def test_theorem_3_fails_outside_the_proper_laws(sets, rng):
    posterior = posteriors(sets.shape[1], rng)
    losses = MULTICLASS_LOSSES["cross-entropy"](3 * torch.randn(N, sets.shape[1], generator=rng, dtype=torch.float64))
    estimate = (candidate_confidence(posterior, sets) * losses.unsqueeze(1)).sum(-1)
    expected = (set_probability(random_general_law(sets, rng), posterior) * estimate).sum(-1)
    assert float((expected - (posterior * losses).sum(-1)).abs().max()) > 1e-3


def test_proposition_1_a_constant_of_the_set_alone_is_independence_of_x_and_back(sets, rng):
    """(6) and (7), p(s|x,y) = p(s|y) = C(s) 1{y∈s}, hold if and only if (8), p(s|x,y) = C(s) 1{y∈s}, does."""
    constant = random_proper_constant(sets, rng)[:1].expand(N, -1)
    law = constant.unsqueeze(-1) * sets  # (8)
    instance_weights = torch.softmax(torch.randn(N, sets.shape[1], generator=rng, dtype=torch.float64), 0)  # p(x|y)
    without_x = (law * instance_weights.unsqueeze(1)).sum(0)  # p(s|y) = Σ_x p(s|x,y) p(x|y)
    assert torch.allclose(law, without_x.expand_as(law))  # (6)
    assert torch.allclose(without_x, constant[0].unsqueeze(-1) * sets)  # (7)
    # Where C depends on x, (6) fails, though the law is proper.
    varying = random_proper_constant(sets, rng).unsqueeze(-1) * sets
    assert is_proper(varying, sets)
    without_x = (varying * instance_weights.unsqueeze(1)).sum(0)
    assert float((varying - without_x).abs().max()) > 0.01


def test_proposition_2_pcpl_is_mcl_with_binomial_sizes(sets):
    num_classes = sets.shape[1]
    law = sets.double() / (2 ** (num_classes - 1) - 1)  # PCPL, p(s|y)
    sizes = sets.sum(-1)
    for k in range(1, num_classes):
        share = law[sizes == k].sum(0)  # Q_k given y: the same for every y
        expected = math.comb(num_classes - 1, k - 1) / (2 ** (num_classes - 1) - 1)
        assert torch.allclose(share, torch.full_like(share, expected))
        as_mcl = expected / math.comb(num_classes - 1, k - 1) * sets[sizes == k].double()
        assert torch.allclose(law[sizes == k], as_mcl)


def test_proposition_2_the_converse_fails_from_three_classes_on(sets):
    """CL is MCL with all weight on |s| = K-1, and for K ≥ 3 it is not PCPL."""
    num_classes = sets.shape[1]
    one_out = sets.sum(-1) == num_classes - 1
    law = (sets & one_out.unsqueeze(-1)).double() / (num_classes - 1)
    assert torch.allclose(law.sum(0), torch.ones(num_classes, dtype=torch.float64))
    assert float((law - sets.double() / (2 ** (num_classes - 1) - 1)).abs().max()) > 0.1


def test_proposition_2_for_two_classes_cl_and_pcpl_coincide():
    sets = all_sets(2)
    assert torch.equal(sets.double() / (2**1 - 1), (sets & (sets.sum(-1, keepdim=True) == 1)).double() / (2 - 1))
