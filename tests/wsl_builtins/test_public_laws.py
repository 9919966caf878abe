"""Laws of public benchmarks: what their code does, written down as it is done, against the exact law here."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
import torch
from generator_cases import create

from wsl_builtins import superclasses
from wsl_toolkit import Setting
from wsl_toolkit.errors import ConfigError
from wsl_toolkit.theory.enumeration import all_sets, law
from wsl_toolkit.theory.instances import made_data
from wsl_toolkit.theory.proofs import prove
from wsl_toolkit.theory.sampling_tests import check_samples

SETTINGS_PAGE = (Path(__file__).parents[2] / "docs" / "settings.md").read_text(encoding="utf-8")


def mean_size(complement_sizes):
    k = len(complement_sizes) + 1
    return float((complement_sizes * (k - torch.arange(1, k))).sum())


def as_dict(generator, num_classes, y):
    """The law given y as {set: probability}, without what is impossible."""
    table = law(generator, torch.zeros(1, 1), num_classes)[0, :, y]
    sets = [tuple(row.nonzero().flatten().tolist()) for row in all_sets(num_classes)]
    return {s: float(p) for s, p in zip(sets, table, strict=True) if p > 0}


def progressive_identification(q, num_classes, y):
    """Every label joins with q; where only y is left, one label after the other is tried until another one is in."""
    found: dict[tuple[int, ...], float] = {}
    wrong = [j for j in range(num_classes) if j != y]
    for joined in itertools.product([False, True], repeat=len(wrong)):
        chance = math.prod(q if j else 1 - q for j in joined)
        others = [j for j, joins in zip(wrong, joined, strict=True) if joins]
        endings = [[y, *others]] if others else [[y, j] for j in wrong]
        for ending in endings:
            key = tuple(sorted(ending))
            found[key] = found.get(key, 0) + chance / len(endings)
    return found


@pytest.mark.parametrize("q", [0.1, 0.7])
@pytest.mark.parametrize("num_classes", [3, 4, 5])
def test_flip_without_singletons_is_the_published_process_given_that_the_set_is_not_full(num_classes, q):
    expected = progressive_identification(q, num_classes, y=1)
    full = expected.pop(tuple(range(num_classes)))
    assert full == pytest.approx(q ** (num_classes - 1))
    found = as_dict(create("flip", q=q, singletons="extended"), num_classes, y=1)
    assert found == pytest.approx({s: p / (1 - full) for s, p in expected.items()})


def test_flip_without_singletons_is_cl_at_three_classes_and_mcl_beyond():
    regions = [prove(create("flip", singletons="extended"), k).region for k in (3, 4, 5)]
    assert regions == [Setting.CL, Setting.MCL, Setting.MCL]


def test_mean_sizes_of_flip_at_a_tenth_and_ten_classes_are_those_of_the_two_public_variants():
    """1 + 9q without the rule; a set that would be a singleton (39 %) gets one label more with it."""
    kept, extended = (create("flip", q=0.1, singletons=s).complement_sizes(10) for s in ("kept", "extended"))
    assert float(kept[-1]) == pytest.approx(0.9**9)
    assert mean_size(kept) == pytest.approx(1.9, abs=1e-7)
    assert float(extended[-1]) == 0
    assert mean_size(extended) == pytest.approx(1.9 + 0.9**9, abs=1e-7)


@pytest.mark.parametrize("num_classes", [3, 4, 5])
def test_the_pair_of_progressive_identification_is_that_of_flip_class(num_classes):
    """The class after y, around the circle, joins with the rate; nothing else ever does."""
    for y in range(num_classes):
        found = as_dict(create("flip-class", matrix="pair", rate=0.3), num_classes, y)
        pair = tuple(sorted((y, (y + 1) % num_classes)))
        assert found == pytest.approx({(y,): 0.7, pair: 0.3})


@pytest.mark.parametrize(("scale", "entries"), [("mean-wrong", 4), ("mean-all", 5)])
def test_flip_instance_divides_by_the_mean_over_the_entries_that_its_scale_says(scale, entries):
    data = made_data(5)
    ready = create("flip-instance", rate=0.4, scale=scale).prepare(data.x, data.y, 5, torch.Generator().manual_seed(0))
    p = torch.softmax(ready.model.logits(data.x), dim=1).scatter(1, data.y.unsqueeze(1), 0)
    expected = (p / (p.sum(1, keepdim=True) / entries) * 0.4).clamp(max=1)
    assert torch.allclose(ready.joining(data.x, data.y, 5), expected)


def test_flip_instance_by_the_maximum_lets_the_likeliest_wrong_label_join_with_the_rate():
    data = made_data(5)
    ready = create("flip-instance", rate=0.8, scale="max").prepare(data.x, data.y, 5, torch.Generator().manual_seed(0))
    p = torch.softmax(ready.model.logits(data.x), dim=1).scatter(1, data.y.unsqueeze(1), 0)
    joins = ready.joining(data.x, data.y, 5)
    assert torch.allclose(joins, 0.8 * p / p.amax(1, keepdim=True))
    assert torch.allclose(joins.amax(1), torch.tensor(0.8, dtype=torch.float64))


def test_scales_that_would_leave_only_the_full_set_are_refused(tmp_path):
    data = made_data(3)
    with pytest.raises(ConfigError, match=r"rate must be below 0\.666667, not 0\.7"):
        create("flip-instance", rate=0.7, scale="mean-all").sample(data.x, data.y, 3, torch.Generator())
    path = tmp_path / "alike.csv"
    path.write_text("0.2,0.4,0.4\n" * len(data.x))
    sure = create("flip-instance", rate=1.0, scale="max", reference=str(path))
    with pytest.raises(ConfigError, match=r"all wrong labels of example .* alike"):
        sure.sample(data.x, torch.zeros_like(data.y), 3, torch.Generator())


def test_cifar_100_has_twenty_superclasses_of_five():
    blocks = superclasses.CIFAR100
    assert len(blocks) == 20
    assert {len(block) for block in blocks} == {5}
    assert sorted(c for block in blocks for c in block) == list(range(100))


def test_superclass_flips_draw_within_the_superclass_at_the_rate():
    generator = create("flip-superclass", groups="cifar100", q=0.5)
    y = torch.arange(100).repeat(200)
    sets = generator.sample(torch.zeros(len(y), 1), y, 100, torch.Generator().manual_seed(0))
    group = generator.group_of(100)
    assert not sets.mask()[group[y].unsqueeze(1) != group].any()
    error = math.sqrt(4 * 0.25 / len(y))
    assert abs(sets.mean_size - (1 + 4 * 0.5)) < 4 * error
    rows = sets.mask()[:50]
    expected = 0.5 ** (rows.sum(1) - 1) * 0.5 ** (5 - rows.sum(1))
    assert torch.allclose(generator.constant(rows, rows, 100), expected.double())


def test_superclass_flips_are_flip_inside_a_superclass_and_partition_at_rate_one(tmp_path):
    path = tmp_path / "groups.txt"
    path.write_text("# a superclass a line\n0 2\n1 3-4\n")
    generator = create("flip-superclass", groups=f"@{path}", q=0.3)
    assert as_dict(generator, 5, 1) == pytest.approx(
        {(1,): 0.49, (1, 3): 0.21, (1, 4): 0.21, (1, 3, 4): 0.09},
    )
    certain = create("flip-superclass", groups="0 2|1 3-4", q=1.0)
    same = create("partition", partitions="0 2|1 3-4")
    assert torch.equal(law(certain, torch.zeros(1, 1), 5), law(same, torch.zeros(1, 1), 5))


def people(abilities, combine, num_classes, y):
    """Ask people in every way they can answer, and combine as said: {set: probability}, redraws included."""
    found: dict[tuple[int, ...], float] = {}
    for answers in itertools.product(range(num_classes), repeat=len(abilities)):
        chance = math.prod(
            a if answer == y else (1 - a) / (num_classes - 1) for a, answer in zip(abilities, answers, strict=True)
        )
        most = max(answers.count(j) for j in answers)
        named = {j for j in answers if combine == "union" or answers.count(j) == most}
        if y in named and len(named) < num_classes:
            key = tuple(sorted(named))
            found[key] = found.get(key, 0) + chance
    return {s: p / sum(found.values()) for s, p in found.items() if p > 0}


@pytest.mark.parametrize("combine", ["union", "vote"])
@pytest.mark.parametrize("abilities", [(0.6,), (0.9, 0.7, 0.5), (0.3, 1.0, 0.8, 0.2), (0.5, 0.5, 0.1, 0.4, 0.6)])
@pytest.mark.parametrize("num_classes", [3, 4, 5])
def test_the_law_of_annotators_is_that_of_asking_them_in_every_way(num_classes, abilities, combine):
    found = as_dict(create("annotators", abilities=abilities, combine=combine), num_classes, y=2)
    assert found == pytest.approx(people(abilities, combine, num_classes, y=2))


@pytest.mark.parametrize("num_classes", [3, 5])
@pytest.mark.parametrize("values", [{"q": 0.1}, {"q": 0.6}])
def test_draws_of_flip_without_singletons_match_its_probabilities(values, num_classes):
    verdict = check_samples(create("flip", **values, singletons="extended"), num_classes, draws=4000)
    assert verdict.p_value > 1e-4, str(verdict.witness)


def exact_mean_size(generator, num_classes=10):
    """E|s| given y = 0 at one instance, over all sets."""
    table = law(generator, torch.zeros(1, 1), num_classes)[0, :, 0]
    assert float(table.sum()) == pytest.approx(1)
    return float((table * all_sets(num_classes).sum(1)).sum())


@pytest.mark.parametrize(
    ("name", "values", "mean"),
    [
        ("flip", {"q": 0.1, "singletons": "extended"}, 2.2874),
        ("flip", {"q": 0.1}, 1.9000),
        ("flip", {"q": 0.9}, 8.5308),
        ("flip-class", {"matrix": "pair"}, 1.5000),
        ("pcpl-symmetric", {}, 5.0000),
        ("annotators", {"abilities": (0.9, 0.7, 0.5)}, 1.85),
        ("annotators", {"abilities": (0.9, 0.7, 0.5), "combine": "vote"}, 1.34),
    ],
)
def test_the_mean_sizes_that_the_docs_give_are_those_of_the_laws(name, values, mean):
    found = exact_mean_size(create(name, **values))
    digits = 2 if name == "annotators" else 4
    assert round(found, digits) == mean
    assert f"{mean:.{digits}f}" in SETTINGS_PAGE


@pytest.mark.parametrize(("scale", "mean"), [("mean-all", 4.9966), ("mean-wrong", 4.5986)])
def test_the_mean_sizes_of_flip_instance_are_those_of_a_model_that_finds_all_wrong_labels_alike(tmp_path, scale, mean):
    path = tmp_path / "alike.csv"
    path.write_text(",".join(["0.1"] * 10) + "\n")
    x, y = torch.zeros(1, 1), torch.zeros(1, dtype=torch.long)
    generator = create("flip-instance", rate=0.4, scale=scale, reference=str(path))
    ready = generator.prepare(x, y, 10, torch.Generator().manual_seed(0))
    joins = ready.joining(x, y, 10)[0, 1:].double()
    full = float(joins.prod())
    assert round((1 + float(joins.sum()) - 10 * full) / (1 - full), 4) == mean, "given that the set is not full"
    assert f"{mean:.4f}" in SETTINGS_PAGE


def test_a_hundred_annotators_of_a_thousand_classes_have_a_law():
    for combine in ("union", "vote"):
        sizes = create("annotators", abilities=(0.3,) * 100, combine=combine).complement_sizes(1000)
        assert bool(torch.isfinite(sizes).all())
        assert float(sizes.sum()) == pytest.approx(1)
    union = create("annotators", abilities=(0.3,) * 100).complement_sizes(1000)
    expected = 1 + 999 * (1 - (1 - 0.7 / 999) ** 100)
    assert mean_size(union) == pytest.approx(expected, rel=1e-6)
