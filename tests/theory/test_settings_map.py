"""The map itself: CL, PCPL ⊂ MCL ⊂ CMM ⊂ PPL ⊂ general, shown from the definitions and on random laws."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from wsl_toolkit import Setting
from wsl_toolkit.theory.claims import CLAIMS, FORBIDDEN, cell_groups, smallest
from wsl_toolkit.theory.enumeration import all_sets
from wsl_toolkit.theory.proofs import check_claim, check_normalised

INSTANCES = 2


def implies(narrow: Setting, wide: Setting, num_classes: int) -> bool:
    """Whether the claim of `narrow` forces that of `wide`: what `wide` wants equal or zero, `narrow` makes so."""
    inner = cell_groups(narrow, INSTANCES, num_classes).flatten()
    outer = cell_groups(wide, INSTANCES, num_classes).flatten()
    if not (inner[outer == FORBIDDEN] == FORBIDDEN).all():
        return False
    groups = outer.max() + 1
    allowed = outer != FORBIDDEN
    low = torch.zeros(groups, dtype=torch.long).scatter_reduce(
        0, outer[allowed], inner[allowed], "amin", include_self=False
    )
    high = torch.zeros(groups, dtype=torch.long).scatter_reduce(
        0, outer[allowed], inner[allowed], "amax", include_self=False
    )
    return bool((low == high).all())


@pytest.mark.parametrize("num_classes", [3, 4, 5])
def test_the_inclusions_of_the_map_hold_and_no_others(num_classes):
    for narrow, wide in itertools.product(CLAIMS, CLAIMS):
        assert implies(narrow, wide, num_classes) is wide.includes(narrow), (narrow, wide)


def test_cl_and_pcpl_are_one_where_there_are_two_classes():
    assert implies(Setting.CL, Setting.PCPL, 2)
    assert implies(Setting.PCPL, Setting.CL, 2)


def dirichlet(shape, rng):
    draws = torch.empty(shape, dtype=torch.float64).exponential_(generator=rng)
    return draws / draws.sum(0, keepdim=True)


def random_law(setting: Setting, num_classes: int, rng: torch.Generator) -> torch.Tensor:
    """Make a random law [n, 2^K - 2, K] of a region, by what defines it and not by what is claimed of it."""
    sets = all_sets(num_classes)
    sizes = sets.sum(1)
    member = sets.double().unsqueeze(0).expand(INSTANCES, -1, -1)
    if setting is Setting.CL:
        constant = (sizes == num_classes - 1) / (num_classes - 1)
    elif setting is Setting.PCPL:
        constant = torch.full((len(sets),), 1 / (2 ** (num_classes - 1) - 1))
    elif setting is Setting.MCL:
        q = dirichlet((num_classes - 1,), rng)
        ways = torch.tensor([float(((sizes == size) & sets[:, 0]).sum()) for size in range(1, num_classes)])
        constant = (q / ways)[sizes - 1]
    elif setting in (Setting.CMM, Setting.PPL):
        rows = [random_queries(sets, rng) for _ in range(1 if setting is Setting.CMM else INSTANCES)]
        return torch.stack(rows).unsqueeze(2) * member
    else:
        table = torch.stack([dirichlet(sets.shape, rng) * sets for _ in range(INSTANCES)])
        return table / table.sum(1, keepdim=True)
    return constant.double().view(1, -1, 1) * member


def random_queries(sets, rng):
    """C(s) of random yes-no questions: w(s) + w(Y \\ s), which sums to one over the sets of each class."""
    w = dirichlet((len(sets),), rng)
    return w + w.flip(0)  # in binary order, the complement of row i is row -1-i


@given(setting=st.sampled_from(CLAIMS), num_classes=st.sampled_from([3, 4, 5]), seed=st.integers(0, 2**40))
@settings(max_examples=120, deadline=None)
def test_random_laws_of_a_region_lie_in_it_and_in_all_that_include_it_and_in_no_other(setting, num_classes, seed):
    table = random_law(setting, num_classes, torch.Generator().manual_seed(seed))
    assert check_normalised(table).holds
    found = frozenset(claim for claim in CLAIMS if check_claim(table, claim).holds)
    assert found == {claim for claim in CLAIMS if claim.includes(setting)}
    assert smallest(found | {Setting.ANY}) is setting


@given(num_classes=st.sampled_from([3, 4]), seed=st.integers(0, 2**40))
@settings(max_examples=40, deadline=None)
def test_properness_is_equivalent_to_the_confidence_formula(num_classes, seed):
    """Theorem 1: p(y|x,s) = p(y|x)/Σ_{j∈s} p(j|x) for all y in s, if and only if the law is proper."""
    rng = torch.Generator().manual_seed(seed)
    sets = all_sets(num_classes).double()
    prior = dirichlet((num_classes, INSTANCES), rng).T
    for setting in (Setting.PPL, Setting.GENERAL):
        table = random_law(setting, num_classes, rng)
        joint = table * prior.unsqueeze(1)
        posterior = joint / joint.sum(2, keepdim=True)
        formula = prior.unsqueeze(1) * sets / (prior.unsqueeze(1) * sets).sum(2, keepdim=True)
        assert torch.allclose(posterior, formula, atol=1e-9) is (setting is Setting.PPL)
        assert check_claim(table, Setting.PPL).holds is (setting is Setting.PPL)
