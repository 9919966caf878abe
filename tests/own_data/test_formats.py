"""Formats in and out, losslessly, through the one label type."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from wsl_toolkit.data.dataset import Data
from wsl_toolkit.data.formats import set_text, sources
from wsl_toolkit.data.formats.annotators import combine
from wsl_toolkit.data.table_schema import Column, TableSchema
from wsl_toolkit.errors import DataError, LabelError
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.plugins.registry import Registry

REGISTRY = load_plugins().registry
names = st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=12).filter(lambda s: s.strip())


def is_trimmed(name: str) -> bool:
    """Cells of a table are read without the blanks around them, so a class name may not end in one."""
    return bool(name) and name == name.strip()


def load(path: Path, **values: object) -> Data:
    return sources.load(path, values, REGISTRY, Path("."))


@settings(deadline=None, max_examples=300)
@given(st.lists(names, min_size=0, max_size=6, unique=True))
def test_a_set_reads_back_from_its_text_whatever_its_classes_are_called(members):
    assert set_text.parse(set_text.write(members)) == members


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.from_regex(r"[a-zé |,\"\[\]']{1,8}", fullmatch=True).filter(is_trimmed), min_size=2, max_size=5, unique=True
    ),
    st.integers(0, 2**32 - 1),
    st.sampled_from(["csv", "tsv", "parquet"]),
)
def test_data_read_back_from_a_table_are_the_same_data(tmp_path_factory, classes, seed, ending):
    rng = np.random.default_rng(seed)
    n, num_classes = 12, len(classes)
    mask = rng.random((n, num_classes)) < 0.5
    mask[np.arange(n), rng.integers(0, num_classes, n)] = True
    x = rng.normal(size=(n, 3)) * 10.0 ** rng.integers(-300, 300, (n, 3))
    x[:, 2] = rng.integers(0, 2, n)
    x[rng.random((n, 3)) < 0.3] = np.nan
    x[:2, 2] = [0, 1]
    schema = TableSchema((Column("a b"), Column("é"), Column("kind", ("x y", "zé"))))
    data = Data(
        name="made",
        x=torch.from_numpy(x),
        candidates=CandidateSets.from_mask(mask, classes),
        num_classes=num_classes,
        class_names=tuple(classes),
        known_y=torch.from_numpy(np.where(rng.random(n) < 0.5, mask.argmax(1), -1)),
        normalise=schema,
        ids=tuple(f"id {i}" for i in range(n)),
    )
    path = tmp_path_factory.mktemp("tables") / f"t.{ending}"
    sources.write(data, path, {}, REGISTRY)
    again = load(path)
    torch.testing.assert_close(again.x, data.x, rtol=0, atol=0, equal_nan=True)
    assert again.candidates == data.candidates
    assert again.class_names == data.class_names
    labels = again.known_y if again.known_y is not None else again.y
    assert labels is None or torch.equal(labels, data.known_y)
    assert again.ids == data.ids
    assert again.normalise.columns == schema.columns


def test_all_layouts_of_the_same_sets_are_the_same_sets(tmp_path):
    texts = {
        "text.csv": 'x,candidates\n1,cat|dog\n2,dog\n3,"cat|owl"\n',
        "spaces.csv": "x,candidates\n1, cat | dog\n2,dog\n3,owl|cat\n",
        "json.csv": 'x,candidates\n1,"[""cat"", ""dog""]"\n2,"[""dog""]"\n3,"[""owl"", ""cat""]"\n',
        "matrix.csv": "x,class:cat,class:dog,class:owl\n1,1,1,0\n2,0,1,0\n3,1,0,1\n",
        "not.csv": "x,complementary\n1,owl\n2,cat|owl\n3,dog\n",
    }
    found = []
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        found.append(load(tmp_path / name).candidates)
    assert found[0].class_names == ("cat", "dog", "owl")
    assert found[0].to_names() == [["cat", "dog"], ["dog"], ["cat", "owl"]]
    assert all(sets == found[0] for sets in found)


def test_an_empty_complementary_cell_is_an_unlabelled_example(tmp_path):
    (tmp_path / "t.csv").write_text("x,complementary\n1,cat\n2,\n3,dog\n", encoding="utf-8")
    sets = load(tmp_path / "t.csv", classes="cat,dog,owl").candidates
    assert sets.sizes.tolist() == [2, 3, 2]


def test_classes_are_ordered_by_value_where_they_are_numbers(tmp_path):
    (tmp_path / "t.csv").write_text("x,candidates\n1,10|9\n2,2\n3,1\n", encoding="utf-8")
    assert load(tmp_path / "t.csv").class_names == ("1", "2", "9", "10")


masks = st.integers(1, 5).flatmap(
    lambda annotators: st.lists(
        st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=4, max_size=4),
        min_size=annotators,
        max_size=annotators,
    )
)


@settings(deadline=None)
@given(masks)
def test_union_intersection_and_vote_are_what_their_names_say(raw):
    answers = [torch.tensor(mask) for mask in raw]
    union, vote = combine(answers, "union"), combine(answers, "vote")
    for row in range(4):
        given_sets = [set(m[row].nonzero().flatten().tolist()) for m in answers if bool(m[row].any())]
        counts = [sum(j in s for s in given_sets) for j in range(3)]
        assert set(union[row].nonzero().flatten().tolist()) == set().union(*given_sets)
        winners = {j for j in range(3) if 2 * counts[j] > len(given_sets)}
        winners = winners or {j for j in range(3) if counts[j] and counts[j] == max(counts)}
        assert set(vote[row].nonzero().flatten().tolist()) == winners
    shared = [
        set.intersection(*s) if (s := [set(m[r].nonzero().flatten().tolist()) for m in answers if m[r].any()]) else None
        for r in range(4)
    ]
    if any(s is not None and not s for s in shared):
        with pytest.raises(LabelError, match="no class in common"):
            combine(answers, "intersection")
    else:
        both = combine(answers, "intersection")
        assert [set(both[r].nonzero().flatten().tolist()) for r in range(4)] == [s or set() for s in shared]


def test_several_annotators_columns_become_one_set(tmp_path):
    (tmp_path / "t.csv").write_text("x,ann,bob,cid\n1,a|b,b,\n2,c,c,a\n3,a,a|b,a|c\n", encoding="utf-8")
    columns = {"candidates_column": "ann,bob,cid"}

    def read(how: str) -> list[list[str]]:
        return load(tmp_path / "t.csv", **columns, combine=how).candidates.to_names()

    assert read("union") == [["a", "b"], ["a", "c"], ["a", "b", "c"]]
    assert read("vote") == [["b"], ["c"], ["a"]]
    with pytest.raises(LabelError, match=r"t.csv: row 2, columns 'ann', 'bob', 'cid': .* no class in common"):
        read("intersection")


def test_ignored_columns_are_no_features(tmp_path):
    (tmp_path / "t.csv").write_text("x,note,candidates\n1,hello,a|b\n2,world,b\n", encoding="utf-8")
    assert load(tmp_path / "t.csv", ignore="note").normalise.names == ["x"]
    assert load(tmp_path / "t.csv").normalise.names == ["x", "note"]


def test_the_registry_is_the_one_place_where_readers_are_looked_for():
    empty = Registry()
    assert sources.readers(empty) == {}
    with pytest.raises(DataError, match=r"no installed dataset reads .a\.csv"):
        sources.reader_of(Path("a.csv"), empty)
    known = {REGISTRY.get("dataset", name) for name in REGISTRY.names("dataset")}
    assert set(sources.readers(REGISTRY).values()) <= known
    assert {".csv", ".tsv", ".parquet", ".mat", ".npz", "/"} <= set(sources.readers(REGISTRY))
