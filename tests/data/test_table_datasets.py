"""The csv and parquet datasets: real data through a table and back, labels alone, and damaged files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from damaging import damage, loads_or_says_why
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_files import partial_labels, write_v5

from wsl_builtins.datasets import DATASETS
from wsl_builtins.datasets.mat import Mat
from wsl_toolkit.data.dataset import Data, split
from wsl_toolkit.data.formats.readers import Csv, Parquet
from wsl_toolkit.data.table_schema import Column, TableSchema
from wsl_toolkit.errors import ConfigError, DataError, LabelError, WslError
from wsl_toolkit.labels.candidate_sets import CandidateSets

HERE = Path()


def csv_of(tmp_path: Path, text: str, **options: object) -> Csv:
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    return Csv(path=tmp_path / "t.csv", **options)  # type: ignore[arg-type]


def test_tables_are_registered_as_datasets():
    assert {"csv", "parquet", "image-folder", "mat", "npz"} <= {cls.name for cls in DATASETS}


@pytest.mark.parametrize("kind", [Csv, Parquet])
def test_a_mat_file_and_its_export_train_on_the_same_bits(tmp_path, kind):
    write_v5(tmp_path / "made.mat", partial_labels(n=200, num_classes=12, features=7))
    check_export(Mat(path=tmp_path / "made.mat").load(HERE), kind(path=tmp_path / f"made.{kind.name}"))


@pytest.mark.data("pll")
@pytest.mark.parametrize("name", ["lost", "MSRCv2", "BirdSong"])
@pytest.mark.parametrize("kind", [Csv, Parquet])
def test_a_real_file_and_its_export_train_on_the_same_bits(tmp_path, data_dir, name, kind):
    data = Mat(path=data_dir / "pll" / f"{name}.mat").load(HERE)
    check_export(data, kind(path=tmp_path / f"{name}.{kind.name}"))


def check_export(data: Data, table: Csv | Parquet) -> None:
    table.write(data, HERE)
    again = table.load(HERE)
    assert torch.equal(again.x, data.x)
    assert torch.equal(again.y, data.y)
    assert again.candidates.content_hash == data.candidates.content_hash
    assert again.class_names == tuple(str(j) for j in range(data.num_classes))
    parts = [split(d, 0.1, 0.2, torch.Generator().manual_seed(3)) for d in (data, again)]
    assert torch.equal(parts[0].train, parts[1].train)
    inputs = [d.fit_inputs(p.train)(d.x) for d, p in zip((data, again), parts, strict=True)]
    assert torch.equal(inputs[0], inputs[1])


def test_labels_alone_are_true_labels_for_a_generator(tmp_path):
    data = csv_of(tmp_path, "height,label\n1.5, cat\n2,dog \n3,cat\n").load(HERE)
    assert data.candidates is None
    assert data.class_names == ("cat", "dog")
    assert data.y.tolist() == [0, 1, 0]


def test_an_example_with_neither_label_nor_set_is_refused_by_row(tmp_path):
    with pytest.raises(LabelError, match="row 2, column 'label': there is neither a label nor a candidate set"):
        csv_of(tmp_path, "height,label\n1.5,cat\n2,\n3,dog\n").load(HERE)


def test_labels_alone_survive_being_written_or_are_refused(tmp_path):
    x = torch.rand(3, 2, dtype=torch.float64)
    data = Data(name="t", x=x, y=torch.tensor([0, 1, 0]), num_classes=2, class_names=("a", "b"))
    Csv(path=tmp_path / "t.csv").write(data, HERE)
    again = Csv(path=tmp_path / "t.csv").load(HERE)
    assert torch.equal(again.x, x)
    assert torch.equal(again.y, data.y)
    for classes in (("b", "a"), ("a", "b", "c")):
        lossy = Data(name="t", x=x, y=torch.tensor([0, 1, 0]), num_classes=len(classes), class_names=classes)
        with pytest.raises(ConfigError, match="would lose a class or the classes' order"):
            Csv(path=tmp_path / "lossy.csv").write(lossy, HERE)
    assert not (tmp_path / "lossy.csv").exists()


def test_a_class_may_be_called_na_or_null(tmp_path):
    data = csv_of(tmp_path, "x,candidates,label\n1,NA|null,NA\n2,null,null\n3,NA|?,?\n").load(HERE)
    assert data.class_names == ("?", "NA", "null")
    assert data.candidates.to_names() == [["NA", "null"], ["null"], ["?", "NA"]]
    assert data.y.tolist() == [1, 2, 0]


def test_gaps_in_numbers_and_in_categories_are_missing_values(tmp_path):
    text = "n,c,candidates\n1,red,a|b\n?,NA,a\n,blue,b\nNaN,,b\n"
    data = csv_of(tmp_path, text).load(HERE)
    assert data.normalise.columns == (Column("n"), Column("c", ("blue", "red")))
    assert torch.isnan(data.x).tolist() == [[False, False], [True, True], [True, False], [True, True]]


def test_text_among_numbers_is_a_mistake_named_by_row(tmp_path):
    with pytest.raises(DataError, match="row 3, column 'n': '3,5' is not a number"):
        csv_of(tmp_path, 'n,candidates\n1,a|b\n?,a\n"3,5",b\n4,b\n5,b\n').load(HERE)


def test_an_unnamed_column_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"column 1 has no name.*index=False"):
        csv_of(tmp_path, ",x,candidates\n0,1.0,a|b\n1,2.0,a\n").load(HERE)


def test_a_file_in_another_encoding_is_one_line(tmp_path):
    (tmp_path / "t.csv").write_bytes("x,candidates\n1,café|thé\n2,thé\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"t\.csv: line 2 is not utf-8 text: name the file's --encoding"):
        Csv(path=tmp_path / "t.csv", encoding="utf-8").load(HERE)


@pytest.mark.parametrize("categories", [("01234", "99999"), ("1.5", "abc"), ("true", "false")])
def test_categories_that_a_text_file_would_change_are_refused_unless_named(tmp_path, categories):
    schema = TableSchema((Column("zip", categories),))
    codes = torch.arange(6, dtype=torch.float64).remainder(len(categories)).unsqueeze(1)
    sets = CandidateSets.from_sets([[0], [1], [0, 1]] * 2, 2, ("a", "b"))
    data = Data(name="t", x=codes, candidates=sets, num_classes=2, class_names=("a", "b"), normalise=schema)
    with pytest.raises(ConfigError, match=r"column 'zip'.*use parquet, or say that it is categorical"):
        Csv(path=tmp_path / "t.csv").write(data, HERE)
    assert list(tmp_path.iterdir()) == []
    for table in (Csv(path=tmp_path / "t.csv", categorical=("zip",)), Parquet(path=tmp_path / "t.parquet")):
        table.write(data, HERE)
        again = table.load(HERE)
        assert again.normalise.decode(again.x)["zip"].to_pylist() == schema.decode(codes)["zip"].to_pylist()
        assert again.candidates == sets


def test_categories_that_would_be_read_as_dates_are_refused_unless_named(tmp_path):
    schema = TableSchema((Column("batch", ("2020-01-01", "2020-02-01")),))
    codes = torch.arange(4, dtype=torch.float64).remainder(2).unsqueeze(1)
    sets = CandidateSets.from_sets([[0], [1]] * 2, 2, ("a", "b"))
    data = Data(name="t", x=codes, candidates=sets, num_classes=2, class_names=("a", "b"), normalise=schema)
    for path in (tmp_path / "t.csv", tmp_path / "t.parquet"):
        kind = Csv if path.suffix == ".csv" else Parquet
        with pytest.raises(ConfigError, match=r"column 'batch'.* read as dates: say that it is categorical"):
            kind(path=path).write(data, HERE)
        kind(path=path, categorical=("batch",)).write(data, HERE)
        assert kind(path=path, categorical=("batch",)).load(HERE).digest() == data.digest()


def test_parquet_lists_booleans_and_dictionaries_are_read(tmp_path):
    table = pa.table(
        {
            "flag": [True, False, None],
            "colour": pa.array(["red", "blue", "red"]).dictionary_encode(),
            "count": pa.array([1, 2, 3], pa.int32()),
            "candidates": [["a", "b"], ["b"], ["c", "a"]],
            "label": pa.array(["a", None, "c"]),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    data = Parquet(path=tmp_path / "t.parquet").load(HERE)
    assert data.candidates.to_names() == [["a", "b"], ["b"], ["a", "c"]]
    assert data.known_y.tolist() == [0, -1, 2]
    assert data.normalise.columns == (Column("flag"), Column("colour", ("blue", "red")), Column("count"))


def test_a_column_of_times_is_refused_with_a_remedy(tmp_path):
    with pytest.raises(DataError, match=r"column 'when' holds time32.*leave it out"):
        csv_of(tmp_path, "when,candidates\n12:30:00,a|b\n12:31:00,a\n").load(HERE)
    assert csv_of(tmp_path, "when,x,candidates\n12:30:00,1,a|b\n12:31:00,2,a\n", ignore=("when",)).load(HERE)


@pytest.mark.parametrize("keep", [0, 3, 4, 100, -1, -8, -200])
def test_a_truncated_parquet_file_is_one_line(tmp_path, keep):
    pq.write_table(pa.table({"x": [1.0, 2.0], "candidates": ["a|b", "a"]}), tmp_path / "t.parquet")
    content = (tmp_path / "t.parquet").read_bytes()
    (tmp_path / "t.parquet").write_bytes(content[:keep])
    with pytest.raises(DataError, match=r"t\.parquet") as caught:
        Parquet(path=tmp_path / "t.parquet").load(HERE)
    assert "\n" not in str(caught.value)


TEXT = b'id,x,colour,candidates,label\n1,1.5,red,a|b,a\n2,?,blue,"[""a"", ""c""]",\n3,7,red,c,c\n'


@pytest.mark.filterwarnings("error")  # pyarrow reports an error in a callback as an ignored exception
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    places=st.lists(st.tuples(st.integers(0, len(TEXT)), st.binary(max_size=5), st.integers(0, 4)), max_size=4),
    cut=st.integers(0, len(TEXT)),
)
def test_no_damage_to_a_csv_file_ends_in_a_traceback(tmp_path, places, cut):
    content = bytearray(TEXT)
    for start, noise, gone in places:
        content[start : start + gone] = noise
    (tmp_path / "fuzz.csv").write_bytes(bytes(content[: len(content) - cut]))
    outcome = ""
    try:
        Csv(path=tmp_path / "fuzz.csv").load(HERE)
    except WslError as error:
        outcome = str(error)
    assert "Traceback" not in outcome
    assert "\n" not in outcome


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    places=st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=5)), min_size=1, max_size=4),
    cut=st.floats(0.5, 1),
)
def test_no_damage_to_a_parquet_file_ends_in_a_traceback(tmp_path, places, cut):
    path = tmp_path / "fuzz.parquet"
    pq.write_table(pa.table({"x": [1.0, None], "c": ["u", "v"], "candidates": [["a", "b"], ["a"]]}), path)
    damage(path, places, cut)
    assert loads_or_says_why(Parquet(path=path), HERE)


WEIGHED = "a,candidates,trust\n1,x|y,2\n2,y|z,0.5\n3,x,0\n"


def test_a_column_of_weights_is_no_feature_and_says_how_much_each_row_counts(tmp_path):
    data = csv_of(tmp_path, WEIGHED, weight_column="trust").load(HERE)
    assert data.weights.tolist() == [2.0, 0.5, 0.0]
    assert data.x.shape == (3, 1)
    assert {column.name: column.role for column in data.understood.columns}["trust"] == "weight"
    assert csv_of(tmp_path, WEIGHED).load(HERE).weights is None


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("-1", r"row 1, column 'trust': a weight is a number, 0 or more, not -1"),
        ("", r"row 1, column 'trust': a weight is a number, 0 or more, not None"),
        ("much", r"row 1, column 'trust': a weight is a number, 0 or more"),
    ],
)
def test_what_is_no_weight_is_named_by_row(tmp_path, value, says):
    with pytest.raises(DataError, match=says):
        csv_of(tmp_path, WEIGHED.replace("x|y,2", f"x|y,{value}"), weight_column="trust").load(HERE)
    with pytest.raises(DataError, match=r"there is no column 'trusted'.* Did you mean 'trust'"):
        csv_of(tmp_path, WEIGHED, weight_column="trusted").load(HERE)


@pytest.mark.parametrize("kind", [Csv, Parquet])
def test_weights_survive_being_written_under_a_name_or_are_refused(tmp_path, kind):
    data = csv_of(tmp_path, WEIGHED, weight_column="trust").load(HERE)
    again = kind(path=tmp_path / f"again.{kind.name}", weight_column="trust")
    again.write(data, HERE)
    assert torch.equal(again.load(HERE).weights, data.weights)
    for name in (None, "a"):
        with pytest.raises(ConfigError, match="has weights: name a column for them"):
            kind(path=tmp_path / f"lost.{kind.name}", weight_column=name).write(data, HERE)
    assert not (tmp_path / f"lost.{kind.name}").exists()
