"""Who is exactly unbiased where, by enumerating every candidate set; the table of the documentation."""

from __future__ import annotations

import functools
import math

import pytest
import torch
from torch import Tensor

from wsl_toolkit.components import Generator
from wsl_toolkit.losses import MULTICLASS_LOSSES
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.theory.bias import Moments, moments_under, true_confidence_moments
from wsl_toolkit.theory.enumeration import all_sets, law

REGISTRY = load_plugins().registry
EXACTLY = 1e-10
CLEARLY = 1e-3

BLOCKS = {3: "0|1|2", 4: "0 1|2|3", 5: "0 1|2 3|4"}
"""A partition into three blocks: Σ_s C(s) = 3."""

PROPER = ("cl", "mcl", "mcl-skewed", "pcpl", "pcpl-symmetric", "flip", "partition", "query", "proper-instance")
MCL = ("cl", "mcl", "mcl-skewed", "pcpl", "pcpl-symmetric", "flip")
GENERAL = ("cl-biased", "flip-class", "flip-instance")


def instances(num_classes: int) -> dict[str, Tensor]:
    rng = torch.Generator().manual_seed(num_classes)
    return {
        "posterior": torch.softmax(1.5 * torch.randn(6, num_classes, generator=rng, dtype=torch.float64), -1),
        "logits": 2 * torch.randn(6, num_classes, generator=rng, dtype=torch.float64),
    }


@functools.cache
def table(name: str, num_classes: int) -> Tensor:
    rng = torch.Generator().manual_seed(7)
    x, y = torch.randn(6, 3, generator=rng), torch.randint(num_classes, (6,), generator=rng)
    values = {"partitions": BLOCKS[num_classes]} if name == "three-blocks" else {}
    generator: Generator = REGISTRY.create("generator", "partition" if name == "three-blocks" else name, values)
    return law(generator.prepare(x, y, num_classes, rng), x, num_classes)


def moments(estimator: str, generator: str, num_classes: int, **values: object) -> Moments:
    return moments_under(
        REGISTRY.create("estimator", estimator, values), table(generator, num_classes), **instances(num_classes)
    )


def largest(found: Moments) -> float:
    return float(found.bias.abs().max())


@pytest.mark.parametrize("num_classes", [3, 4, 5])
class TestWhoIsUnbiasedWhere:
    @pytest.mark.parametrize("estimator", ["ppl", "proden", "rc"])
    @pytest.mark.parametrize("generator", [*PROPER, "three-blocks"])
    def test_confidence_weighting_is_unbiased_in_every_proper_setting(self, estimator, generator, num_classes):
        assert largest(moments(estimator, generator, num_classes)) < EXACTLY

    @pytest.mark.parametrize("generator", GENERAL)
    def test_ppl_is_biased_outside_the_proper_settings(self, generator, num_classes):
        assert largest(moments("ppl", generator, num_classes)) > CLEARLY

    @pytest.mark.parametrize("estimator", ["mcl", "cl", "mcl-mae", "cl-pc"])
    @pytest.mark.parametrize("generator", MCL)
    def test_the_complementary_estimators_are_unbiased_in_mcl(self, estimator, generator, num_classes):
        assert largest(moments(estimator, generator, num_classes)) < EXACTLY

    @pytest.mark.parametrize("estimator", ["mcl", "cl", "mcl-mae", "cl-pc"])
    @pytest.mark.parametrize("generator", ["partition", "query", *GENERAL])
    def test_the_complementary_estimators_are_biased_beyond_mcl(self, estimator, generator, num_classes):
        assert largest(moments(estimator, generator, num_classes)) > CLEARLY

    def test_the_pcpl_estimator_is_unbiased_under_pcpl(self, num_classes):
        assert largest(moments("pcpl", "pcpl", num_classes)) < EXACTLY

    @pytest.mark.parametrize("generator", ["cl", "mcl", "three-blocks", *GENERAL])
    def test_the_pcpl_estimator_is_biased_elsewhere(self, generator, num_classes):
        assert largest(moments("pcpl", generator, num_classes)) > CLEARLY

    @pytest.mark.parametrize("generator", [*PROPER, "three-blocks"])
    def test_the_pcpl_estimator_is_unbiased_exactly_where_the_constants_sum_to_two(self, generator, num_classes):
        """Its expectation is ½ Σ_s C(x, s) times the risk."""
        found, law_of = moments("pcpl", generator, num_classes), table(generator, num_classes)
        total = law_of.amax(-1).sum(-1)
        assert torch.allclose(found.expectation, total / 2 * found.risk, atol=EXACTLY)
        assert (largest(found) < EXACTLY) == bool(((total - 2).abs() < 1e-9).all())

    @pytest.mark.parametrize("generator", [*PROPER, "three-blocks", *GENERAL])
    def test_true_confidences_are_unbiased_everywhere(self, generator, num_classes):
        found = true_confidence_moments(table(generator, num_classes), **instances(num_classes))
        assert largest(found) < EXACTLY

    @pytest.mark.parametrize("generator", [*PROPER, *GENERAL, "noisy"])
    def test_supervised_is_unbiased_whatever_the_sets_say(self, generator, num_classes):
        assert largest(moments("supervised", generator, num_classes)) < EXACTLY

    @pytest.mark.parametrize("estimator", ["mcl-log", "mcl-exp"])
    @pytest.mark.parametrize("generator", MCL)
    def test_the_bounds_bound_the_mae_risk_from_above_in_mcl(self, estimator, generator, num_classes):
        found = moments(estimator, generator, num_classes)
        assert found.is_upper_bound
        assert largest(found) > CLEARLY

    @pytest.mark.parametrize("generator", MCL)
    def test_average_is_biased_even_in_mcl(self, generator, num_classes):
        assert largest(moments("average", generator, num_classes)) > CLEARLY


@pytest.mark.parametrize("num_classes", [3, 4, 5])
def test_beyond_cmm_only_confidence_weighting_and_true_confidences_are_unbiased(num_classes):
    """PPL without CMM: which question is asked ("is it one of these?") depends on x."""
    sets = all_sets(num_classes)
    asked = torch.rand(6, len(sets), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    asked = asked + asked.flip(-1)  # a set and its complement are asked about together; they lie at mirrored places
    question = (2 * asked / asked.sum(-1, keepdim=True)).unsqueeze(-1) * sets
    assert torch.allclose(question.sum(1), torch.ones(6, num_classes, dtype=torch.float64))
    by_size = table("proper-instance", num_classes)
    mixed = 0.5 * question + 0.5 * by_size
    for estimator, unbiased in (("ppl", True), ("mcl", False), ("cl", False), ("pcpl", False)):
        found = moments_under(REGISTRY.create("estimator", estimator, {}), mixed, **instances(num_classes))
        assert (largest(found) < EXACTLY) == unbiased, estimator
    assert largest(true_confidence_moments(mixed, **instances(num_classes))) < EXACTLY
    # Where Σ_s C(x, s) = 2, as for questions alone, the PCPL estimator is unbiased here too.
    found = moments_under(REGISTRY.create("estimator", "pcpl", {}), question, **instances(num_classes))
    assert largest(found) < EXACTLY


@pytest.mark.parametrize("estimator", ["mcl", "cl", "mcl-mae", "cl-pc"])
def test_mcl_is_unbiased_wherever_the_law_is_uniform_given_the_size_even_if_sizes_depend_on_x(estimator):
    """`proper-instance` is MCL at every x, though not as a whole: unbiasedness is a matter of each x."""
    assert largest(moments(estimator, "proper-instance", 4)) < EXACTLY


def test_nothing_that_reads_sets_survives_a_missing_true_label():
    """Sets without y break the very first assumption; Theorem 2 itself needs y in s."""
    for estimator in ("ppl", "mcl", "pcpl"):
        assert largest(moments(estimator, "noisy", 4)) > CLEARLY
    assert largest(true_confidence_moments(table("noisy", 4), **instances(4))) > CLEARLY


@pytest.mark.parametrize("base", MULTICLASS_LOSSES)
@pytest.mark.parametrize(("estimator", "generator"), [("ppl", "proper-instance"), ("mcl", "mcl"), ("cl", "cl")])
def test_unbiasedness_holds_for_every_loss_of_the_family(base: str, estimator: str, generator: str):
    assert largest(moments(estimator, generator, 4, base_loss=base)) < EXACTLY


def test_flip_with_one_half_is_pcpl_and_so_is_pcpl_unbiased_there():
    generator = REGISTRY.create("generator", "flip", {"q": 0.5})
    found = moments_under(
        REGISTRY.create("estimator", "pcpl", {}), law(generator, torch.zeros(6, 3), 4), **instances(4)
    )
    assert largest(found) < EXACTLY


def test_query_lets_the_pcpl_estimator_be_unbiased_and_three_blocks_do_not():
    assert largest(moments("pcpl", "query", 4)) < EXACTLY
    assert largest(moments("pcpl", "partition", 4)) < EXACTLY  # two blocks in each partition
    assert largest(moments("pcpl", "three-blocks", 4)) > CLEARLY


def test_a_law_that_is_uniform_but_for_one_set_already_biases_mcl():
    """The proof is not blind to small departures: moving 1 % between two sets of one size is seen."""
    sets = all_sets(4)
    sizes = sets.sum(-1)
    constant = (sizes == 2).double() / 3
    base = constant.unsqueeze(-1) * sets
    skewed = constant.clone()
    # Moving weight around the cycle {0,1}, {1,2}, {2,3}, {3,0} keeps Σ_{s∋y} C(s) = 1 for every y.
    for members, sign in (((0, 1), 1), ((1, 2), -1), ((2, 3), 1), ((0, 3), -1)):
        index = next(i for i, s in enumerate(sets.tolist()) if [j for j in range(4) if s[j]] == list(members))
        skewed[index] += sign * 0.01 / 3
    altered = skewed.unsqueeze(-1) * sets
    assert torch.allclose(altered.sum(0), torch.ones(4, dtype=torch.float64))
    for law_of, unbiased in ((base, True), (altered, False)):
        stacked = law_of.unsqueeze(0).expand(6, -1, -1)
        found = moments_under(REGISTRY.create("estimator", "mcl", {}), stacked, **instances(4))
        assert (largest(found) < EXACTLY) == unbiased
        found = moments_under(REGISTRY.create("estimator", "ppl", {}), stacked, **instances(4))
        assert largest(found) < EXACTLY


def test_knowing_the_true_confidences_beats_the_true_label_in_variance():
    """Rao and Blackwell: r-weighting averages over the label, so it varies less than ℓ_y does."""
    for generator in PROPER:
        ppl, supervised = moments("ppl", generator, 4), moments("supervised", generator, 4)
        assert bool((ppl.variance <= supervised.variance + 1e-12).all())


def test_the_variance_of_cl_is_that_of_its_closed_form():
    """Under CL, Var = (K-1)² Var[ℓ_ȳ] with ȳ ~ (1 - p)/(K-1)."""
    given = instances(5)
    ell = -torch.log_softmax(given["logits"], -1)
    chance = (1 - given["posterior"]) / 4
    variance = 16 * ((chance * ell**2).sum(-1) - (chance * ell).sum(-1) ** 2)
    assert torch.allclose(moments("cl", "cl", 5).variance, variance)
    assert math.isclose(float(chance.sum()), 6)
