"""Classifier-consistency: where the minimiser of the exact expected loss has its largest logit."""

from __future__ import annotations

import pytest
import torch
from test_bias_table import MCL, PROPER, REGISTRY, table

from wsl_toolkit.theory.enumeration import law
from wsl_toolkit.theory.minimiser import _apportion, identifies, minimise

K = 4


@pytest.fixture
def posterior() -> torch.Tensor:
    """Six instances whose likeliest class leads by at least 0.05."""
    rng = torch.Generator().manual_seed(1)
    drawn = torch.softmax(torch.randn(60, K, generator=rng, dtype=torch.float64), -1)
    top = drawn.topk(2).values
    return drawn[top[:, 0] - top[:, 1] > 0.05][:6]


def found(name: str, generator: str, posterior: torch.Tensor, **values: object):
    return minimise(REGISTRY.create("estimator", name, values), table(generator, K), posterior)


@pytest.mark.parametrize("generator", PROPER)
def test_cc_finds_p_of_y_given_x_in_every_proper_setting(generator, posterior):
    result = found("cc", generator, posterior)
    assert result.is_consistent
    # Halves and parity of four classes: p(0)+p(1) and p(0)+p(2) are all that the sets can tell.
    assert identifies(table(generator, K)) == (generator != "partition")
    assert result.posterior_error < 0.01 or generator == "partition"


@pytest.mark.parametrize("generator", MCL)
@pytest.mark.parametrize("name", ["mcl-log", "scl-nl", "cl-forward"])
def test_proper_complementary_losses_find_p_of_y_given_x_in_mcl(name, generator, posterior):
    assert found(name, generator, posterior).posterior_error < 0.01


@pytest.mark.parametrize("generator", ["cl", "mcl-skewed", "pcpl"])
@pytest.mark.parametrize("name", ["average", "scl-exp", "mcl-exp", "cl-nn", "cl-ga"])
def test_the_others_find_the_likeliest_class_in_mcl(name, generator, posterior):
    assert found(name, generator, posterior).is_consistent


def test_forward_correction_with_the_right_matrix_undoes_a_bias_that_the_uniform_one_does_not(posterior):
    right = found("cl-forward", "cl-biased", posterior, matrix="skewed", ratio=0.5)
    assert right.posterior_error < 0.01
    assert found("cl-forward", "cl-biased", posterior).posterior_error > 0.1


def test_average_is_consistent_but_too_flat(posterior):
    result = found("average", "cl", posterior)
    assert result.is_consistent
    assert float(torch.softmax(result.logits, -1).max()) < float(posterior.max()) - 0.1


def test_lw_is_right_at_its_authors_leverages_and_wrong_at_a_large_one(posterior):
    """Why it is declared a heuristic: no parameter-free promise can be made."""
    for leverage in (0, 1, 2):
        assert found("lw", "mcl", posterior, leverage=leverage).is_consistent
    small_sets = REGISTRY.create("generator", "mcl-skewed", {"alpha": 5.0})
    law_of_them = law(small_sets, torch.zeros(len(posterior), 2), K)
    wrong = minimise(REGISTRY.create("estimator", "lw", {"leverage": 10.0}), law_of_them, posterior)
    assert not wrong.is_consistent


def test_a_wrong_method_is_found_out(posterior):
    """Rewarding the complement must lead to the wrong class."""
    cc = type(REGISTRY.create("estimator", "cc", {}))

    class Reversed(cc):
        def loss(self, logits, candidates, state):
            return super().loss(logits, ~candidates, state)

    result = minimise(Reversed(), table("cl", K), posterior)
    assert not bool(result.right.any())


def test_apportioned_copies_sum_to_the_whole_and_stay_within_one_of_their_share():
    weights = torch.softmax(torch.randn(7, 14, generator=torch.Generator().manual_seed(0)).double(), -1)
    copies = _apportion(weights, 256)
    assert copies.sum(-1).tolist() == [256] * 7
    assert float((copies - 256 * weights).abs().max()) < 1
