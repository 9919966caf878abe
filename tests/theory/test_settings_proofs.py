"""The proofs by enumeration: each claim of the map is decided rightly, and a failed one has a true witness."""

from __future__ import annotations

import math
from typing import ClassVar

import attrs
import pytest
import torch

from wsl_toolkit import Generator, ProperGenerator, Setting
from wsl_toolkit.errors import PluginError, TheoryError
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.theory import proofs
from wsl_toolkit.theory.enumeration import all_sets, law, set_index

INSIDE = {
    Setting.CL: {Setting.CL, Setting.MCL, Setting.CMM, Setting.PPL, Setting.GENERAL, Setting.ANY},
    Setting.PCPL: {Setting.PCPL, Setting.MCL, Setting.CMM, Setting.PPL, Setting.GENERAL, Setting.ANY},
    Setting.MCL: {Setting.MCL, Setting.CMM, Setting.PPL, Setting.GENERAL, Setting.ANY},
    Setting.CMM: {Setting.CMM, Setting.PPL, Setting.GENERAL, Setting.ANY},
    Setting.PPL: {Setting.PPL, Setting.GENERAL, Setting.ANY},
    Setting.GENERAL: {Setting.GENERAL, Setting.ANY},
    Setting.ANY: {Setting.ANY},
}


def create(name, **values):
    return load_plugins().registry.create("generator", name, values)


@attrs.frozen(kw_only=True)
class Tabulated(Generator):
    """A law given as a table [2^K - 2, K], the same for every instance."""

    name: ClassVar[str] = "tabulated"
    setting: ClassVar[Setting] = Setting.GENERAL
    table: torch.Tensor = attrs.field(eq=False)

    def draw(self, x, y, num_classes, rng):
        cumulative = self.table.T[y].cumsum(1)
        u = torch.rand(len(y), 1, generator=rng, dtype=torch.float64) * cumulative[:, -1:]
        return all_sets(num_classes)[(cumulative <= u).sum(1)]

    def probability(self, sets, x, y, num_classes):
        return self.table[set_index(sets), y]


def uniform_table(num_classes):
    sets = all_sets(num_classes)
    return sets.double() / (2 ** (num_classes - 1) - 1)


@pytest.mark.parametrize("num_classes", [2, 3, 5])
def test_all_sets_lists_every_admissible_set_once(num_classes):
    sets = all_sets(num_classes)
    assert len({tuple(row.tolist()) for row in sets}) == len(sets) == 2**num_classes - 2
    assert torch.equal(set_index(sets), torch.arange(len(sets)))
    assert ((sets.sum(1) >= 1) & (sets.sum(1) < num_classes)).all()


def test_enumeration_refuses_too_many_classes():
    with pytest.raises(TheoryError, match="2 to 12 classes, not 13"):
        all_sets(13)


@pytest.mark.parametrize("num_classes", [3, 4, 5])
@pytest.mark.parametrize(
    ("name", "region"),
    [("cl", "CL"), ("pcpl", "PCPL"), ("mcl", "MCL"), ("mcl-skewed", "MCL"), ("pcpl-symmetric", "MCL")],
)
def test_size_based_generators_lie_where_they_should(name, region, num_classes):
    proof = proofs.prove(create(name), num_classes)
    assert proof.region == region
    assert proof.regions == INSIDE[Setting(region)]
    assert proof.keeps_promise


def test_skewed_at_three_classes_and_one_half_is_pcpl():
    assert proofs.prove(create("mcl-skewed", alpha=0.5), 3).region is Setting.PCPL


def test_a_law_that_depends_on_which_candidate_is_true_is_improper_with_its_witness():
    table = uniform_table(3)
    pair, single = int(set_index(torch.tensor([[True, True, False]]))), int(set_index(torch.eye(3).bool()[:1]))
    table[pair, 0] += 0.1
    table[single, 0] -= 0.1
    verdict = proofs.prove(Tabulated(table=table), 3).verdict(Setting.PPL)
    assert not verdict.holds
    assert verdict.deviation == pytest.approx(0.1)
    witness = verdict.witness
    assert (witness.cell.x, witness.cell.s, witness.cell.y) == (0, (0, 1), 0)
    assert (witness.other.x, witness.other.s, witness.other.y) == (0, (0, 1), 1)
    assert witness.cell.p == pytest.approx(1 / 3 + 0.1)
    assert "but" in str(witness)


def test_a_law_that_loses_the_true_label_is_outside_general():
    table = uniform_table(3)
    wrong = int(set_index(torch.eye(3).bool()[1:2]))
    table[wrong, 0] = 0.2
    table[int(set_index(torch.eye(3).bool()[:1])), 0] -= 0.2
    proof = proofs.prove(Tabulated(table=table), 3)
    assert proof.region is Setting.ANY
    assert not proof.keeps_promise
    assert str(proof.verdict("general").witness) == "p({1} | x0, y=0) = 0.2, which must be 0"


def test_probabilities_that_do_not_sum_to_one_are_no_law():
    proof = proofs.prove(Tabulated(table=uniform_table(4) * 0.9), 4)
    assert not proof.is_law
    assert proof.region is None
    assert proof.regions == frozenset()
    assert "sum over all sets" in str(proof.verdict("normalised").witness)


@pytest.mark.parametrize("bad", [-0.25, math.nan, math.inf])
def test_a_cell_that_is_no_probability_is_named(bad):
    table = uniform_table(3)
    table[0, 0] = bad
    proof = proofs.prove(Tabulated(table=table), 3)
    assert proof.region is None
    assert (proof.verdict("normalised").witness.cell.s, proof.verdict("normalised").witness.cell.y) == ((0,), 0)


def test_single_precision_is_rounding_and_a_relative_difference_of_a_thousandth_is_not():
    assert proofs.prove(Tabulated(table=uniform_table(6).float()), 6).region is Setting.PCPL
    table = uniform_table(6)
    table[2, 0] *= 1.001
    table[0, 0] -= 0.001 / 31
    assert proofs.prove(Tabulated(table=table), 6).region is Setting.GENERAL


def test_a_generator_without_probabilities_cannot_be_proven():
    @attrs.frozen(kw_only=True)
    class Silent(Tabulated):
        def probability(self, sets, x, y, num_classes):
            return None

    with pytest.raises(TheoryError, match="no exact probability"):
        proofs.prove(Silent(table=uniform_table(3)), 3)


def test_probabilities_of_the_wrong_shape_are_the_plugins_fault():
    @attrs.frozen(kw_only=True)
    class Wide(Tabulated):
        def probability(self, sets, x, y, num_classes):
            return self.table

    with pytest.raises(PluginError, match="tabulated: probability must return"):
        proofs.prove(Wide(table=uniform_table(3)), 3)


def test_the_law_may_differ_between_instances_and_chunks_do_not_matter(monkeypatch):
    @attrs.frozen(kw_only=True)
    class BySign(ProperGenerator):
        name: ClassVar[str] = "by-sign"

        def draw(self, x, y, num_classes, rng):
            raise NotImplementedError

        def constant(self, sets, x, num_classes):
            uniform = torch.full((len(sets),), 1 / (2 ** (num_classes - 1) - 1), dtype=torch.float64)
            single = (sets.sum(1) == 1).double()
            return torch.where(x[:, 0] > 0, uniform, single)

    x = torch.tensor([[1.0], [-1.0]])
    whole = law(BySign(), x, 4)
    monkeypatch.setattr("wsl_toolkit.theory.enumeration.CHUNK_ROWS", 7)
    assert torch.equal(law(BySign(), x, 4), whole)
    proof = proofs.prove(BySign(), 4, x)
    assert proof.region is Setting.PPL
    witness = proof.verdict("CMM").witness
    assert witness.cell.s == witness.other.s
    assert witness.cell.x != witness.other.x
