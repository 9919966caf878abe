"""Annotators kept apart: read, compared, judged by a model's out-of-fold answers, and told where to look next."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import attrs
import pytest
import torch
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import wsl_toolkit as wsl
from wsl_toolkit import Annotator, CandidateSets
from wsl_toolkit.cli import main
from wsl_toolkit.data.dataset import Data
from wsl_toolkit.data.formats.readers import Csv
from wsl_toolkit.errors import ConfigError, DataError
from wsl_toolkit.own_data.audit import annotators
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.system.statistics import wilson

REGISTRY = load_plugins().registry
K = 4
TABLE = "a,ann,bob\n1,x|y,x\n2,y,\n3,z,x|z\n4,,y\n"


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def said_by(y: Tensor, ability: float, wrong: float, seed: int) -> Tensor:
    """Sets of one who names the true class with that ability and each wrong one at a rate; some are no answer."""
    draws = torch.rand(len(y), K, generator=rng(seed))
    true = torch.nn.functional.one_hot(y, K).bool()
    return torch.where(true, draws < ability, draws < wrong)


def blobs(n: int, abilities: dict[str, tuple[float, float]], spread: float = 0.5) -> tuple[Data, Tensor]:
    y = torch.arange(n) % K
    x = 3 * torch.eye(K)[y] + spread * torch.randn(n, K, generator=rng(99))
    masks = {name: said_by(y, *given, seed) for seed, (name, given) in enumerate(abilities.items())}
    together = torch.stack(list(masks.values())).any(0)
    together[~together.any(1)] = True
    people = tuple(Annotator.from_mask(name, mask) for name, mask in masks.items())
    data = Data(name="blobs", x=x, candidates=CandidateSets.from_mask(together), num_classes=K, annotators=people)
    return data, y


PEOPLE = {"sure": (0.97, 0.1), "middling": (0.8, 0.1), "careless": (0.6, 0.1)}


def test_the_order_of_reliability_is_recovered_and_intervals_hold_the_true_shares() -> None:
    data, y = blobs(900, PEOPLE)
    found = wsl.audit(attrs.evolve(data, known_y=y))
    table = found.annotators().set_index("name")
    assert list(table["reliability"].sort_values(ascending=False).index) == ["sure", "middling", "careless"]
    for one in data.annotators:
        row = table.loc[one.name]
        index = one.answered.nonzero().flatten()
        true = one.sets.mask(index).gather(1, y[index, None]).double().mean()
        assert row["holds_true_label"] == pytest.approx(float(true))
        assert row["interval"][0] <= row["holds_true_label"] <= row["interval"][1]
        assert row["answers"] == len(index)
        assert row["mean_size"] == pytest.approx(float(one.sets.sizes[index].double().mean()))
        assert sum(row["sizes"].values()) == pytest.approx(1)
    assert len(found.agreements()) == 3
    assert len(found.look_next()) == annotators.SHOWN
    assert "To look at next" in found.to_html()


def test_true_labels_change_nothing_that_is_said_of_annotators_but_the_column_of_their_own() -> None:
    data, y = blobs(200, PEOPLE)
    blind, seeing = (wsl.audit(each).found.annotators for each in (data, attrs.evolve(data, known_y=y)))
    assert blind is not None
    assert seeing is not None
    assert all(person.holds_true_label is None for person in blind.people)
    assert blind.agreements == seeing.agreements
    assert len(blind.look_next) == len(seeing.look_next)


def test_what_a_model_answers_about_an_example_does_not_depend_on_its_own_set() -> None:
    data, _ = blobs(90, PEOPLE)
    before = annotators.out_of_fold_logits(data, REGISTRY, rng(1))
    assert data.candidates is not None
    fold = torch.randperm(90, generator=rng(1)) % annotators.FOLDS
    row = int((fold == 0).nonzero()[0])
    mask = data.candidates.mask()
    mask[row] = torch.tensor([False, False, False, True])
    after = annotators.out_of_fold_logits(
        attrs.evolve(data, candidates=CandidateSets.from_mask(mask)), REGISTRY, rng(1)
    )
    assert torch.equal(before[fold == 0], after[fold == 0])
    assert not torch.equal(before[fold != 0], after[fold != 0])


# ------------------------------------------------------------------------------------------------------- the interval


@given(st.integers(1, 500), st.data())
def test_wilsons_bounds_are_where_the_normal_test_just_refuses(n: int, data: st.DataObject) -> None:
    successes = data.draw(st.integers(0, n))
    low, high = wilson(successes, n)
    assert 0 <= low <= successes / n <= high <= 1
    for bound in (low, high):
        if 0 < bound < 1:
            distance = abs(successes / n - bound)
            assert distance == pytest.approx(1.959963984540054 * math.sqrt(bound * (1 - bound) / n), rel=1e-6, abs=1e-9)
    assert wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize("n", [20, 100, 400])
def test_wilsons_interval_holds_the_share_in_about_95_of_100_draws_exactly_counted(n: int) -> None:
    from scipy.stats import binom

    intervals = [wilson(k, n) for k in range(n + 1)]
    coverage = []
    for p in [place / 100 for place in range(5, 96)]:
        held = [k for k, (low, high) in enumerate(intervals) if low <= p <= high]
        coverage.append(sum(float(binom.pmf(k, n, p)) for k in held))
    assert min(coverage) > 0.88
    assert sum(coverage) / len(coverage) == pytest.approx(0.95, abs=0.01)


def test_the_interval_of_a_made_annotator_covers_its_ability() -> None:
    covered = 0
    y = torch.arange(150) % K
    for seed in range(300):
        one = Annotator.from_mask("a", said_by(y, 0.8, 1.0, seed))  # with all wrong classes, so that all are answers
        person = annotators.describe(one, y, None)
        covered += person.interval[0] <= 0.8 <= person.interval[1]
    assert 0.91 <= covered / 300 <= 0.985


# --------------------------------------------------------------------------------------------------- what to look at


def literal_reduction(belief: list[float], rho: float, wrong: float) -> float:
    def bits(ps: list[float]) -> float:
        return -sum(p * math.log2(p) for p in ps if p > 0)

    after = 0.0
    for answer in itertools.product((0, 1), repeat=len(belief)):
        joint = []
        for j, p in enumerate(belief):
            chance = 1.0
            for k, named in enumerate(answer):
                rate = rho if k == j else wrong
                chance *= rate if named else 1 - rate
            joint.append(p * chance)
        total = sum(joint)
        after += total * bits([each / total for each in joint])
    return bits(belief) - after


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.floats(0.001, 1), min_size=2, max_size=5),
    st.floats(0.01, 0.99),
    st.floats(0.01, 0.99),
)
def test_the_expected_reduction_is_that_of_the_enumeration(weights: list[float], rho: float, wrong: float) -> None:
    belief = [each / sum(weights) for each in weights]
    found = annotators.expected_reduction(torch.tensor([belief], dtype=torch.float64), rho, wrong)
    assert float(found) == pytest.approx(literal_reduction(belief, rho, wrong), abs=1e-9)
    assert 0 <= float(found) <= float(annotators.entropy(torch.tensor(belief, dtype=torch.float64))) + 1e-9


def test_a_sure_belief_an_ignorant_annotator_and_a_perfect_one_are_the_extremes() -> None:
    belief = torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3]], dtype=torch.float64)
    assert annotators.expected_reduction(belief, 0.3, 0.3).tolist() == pytest.approx([0, 0, 0], abs=1e-9)
    perfect = annotators.expected_reduction(belief, 1.0, 0.0)
    assert perfect.tolist() == pytest.approx([0, 1, math.log2(3)], abs=0.03)
    better = [float(annotators.expected_reduction(belief[1:2], rho, 0.1)) for rho in (0.2, 0.5, 0.8, 0.99)]
    assert better == sorted(better)
    many = torch.rand(5000, 6, generator=rng(), dtype=torch.float64)
    many = many / many.sum(1, keepdim=True)
    whole = annotators.expected_reduction(many, 0.9, 0.1)
    assert torch.equal(whole[4999:], annotators.expected_reduction(many[4999:], 0.9, 0.1)), "chunks change nothing"


def test_those_who_have_answered_are_not_asked_again_and_the_doubtful_example_comes_first() -> None:
    data, _ = blobs(40, {"a": (1.0, 0.3), "b": (1.0, 0.3)})
    first, second = data.annotators
    second = attrs.evolve(second, answered=torch.arange(40) != 7)
    data = attrs.evolve(data, annotators=(first, second))
    logits = 9 * torch.nn.functional.one_hot(torch.arange(40) % K, K).float()
    logits[7] = 0.0
    people = tuple(annotators.describe(one, logits.argmax(1), None) for one in data.annotators)
    (found,) = annotators.look_next(data, people, logits)
    assert (found.example, found.annotator) == ("7", "b")
    assert 0 < found.reduction <= found.entropy


# -------------------------------------------------------------------------------------------- from files, and refusals


def read(tmp_path: Path, **options: object) -> Data:
    (tmp_path / "t.csv").write_text(TABLE)
    return Csv(path=tmp_path / "t.csv", candidates_column=("ann", "bob"), **options).load(tmp_path)  # type: ignore[arg-type]


def test_columns_of_a_table_are_annotators(tmp_path: Path) -> None:
    data = read(tmp_path)
    assert data.candidates is not None
    assert data.candidates.to_sets() == [[0, 1], [1], [0, 2], [1]]
    ann, bob = data.annotators
    assert (ann.name, bob.name) == ("ann", "bob")
    assert ann.answered.tolist() == [True, True, True, False]
    assert bob.answered.tolist() == [True, False, True, True]
    assert ann.sets.to_sets() == [[0, 1], [1], [2], [0, 1, 2]]
    assert bob.sets.to_sets() == [[0], [0, 1, 2], [0, 2], [1]]
    pair = annotators.agreement(ann, bob)
    assert pair is not None
    assert (pair.examples, pair.common, pair.jaccard) == (2, 1.0, 0.5)
    with pytest.raises(ConfigError, match="would lose the annotators"):
        Csv(path=tmp_path / "again.csv").write(data, tmp_path)


def test_annotators_that_do_not_fit_the_data_are_refused(tmp_path: Path) -> None:
    data = read(tmp_path)
    ann, bob = data.annotators
    with pytest.raises(DataError, match="two annotators are called 'ann'"):
        attrs.evolve(data, annotators=(ann, attrs.evolve(bob, name="ann")))
    with pytest.raises(DataError, match="annotator 'x' has 1 sets of 2 classes, for 4 examples and 3 classes"):
        attrs.evolve(data, annotators=(Annotator.from_mask("x", torch.ones(1, 2).bool()),))


def test_those_who_never_answered_together_or_at_all_are_no_error() -> None:
    nobody = Annotator.from_mask("nobody", torch.zeros(3, K, dtype=torch.bool))
    person = annotators.describe(nobody, torch.zeros(3, dtype=torch.long), None)
    assert person.answers == 0
    assert person.interval == (0.0, 1.0)
    assert annotators.agreement(nobody, nobody) is None


def test_the_command_shows_them(tmp_path: Path) -> None:
    data, _ = blobs(60, PEOPLE)
    lines = ["x,sure,middling,careless"]
    for row, value in enumerate(data.x[:, 0].tolist()):
        told = [
            "|".join(f"c{j}" for j in one.sets.to_sets()[row]) if one.answered[row] else "" for one in data.annotators
        ]
        if any(told):
            lines.append(f"{value},{','.join(told)}")
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    arguments = ["audit", str(tmp_path / "t.csv"), "--candidates-column", "sure,middling,careless"]
    done = CliRunner().invoke(main, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["annotations"]
    assert [person["name"] for person in found["people"]] == ["sure", "middling", "careless"]
    shown = CliRunner().invoke(main, arguments)
    for words in ("Annotators (95 % intervals)", "How they agree", "To look at next"):
        assert words in shown.stdout
