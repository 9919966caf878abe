"""Raw rows as numbers and back, and preprocessing that equals scikit-learn's."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch import nn

from wsl_toolkit.data import dataset as data_module
from wsl_toolkit.data.dataset import Data, Scaler, split, transform_inputs
from wsl_toolkit.data.table_schema import Column, TableSchema, TableTransform
from wsl_toolkit.errors import DataError
from wsl_toolkit.labels.candidate_sets import CandidateSets

TABLE = pa.table(
    {
        "age": [31.5, None, 40.0, 22.0],
        "animal": ["cat", "dog", "NA", "éléphant d'Asie"],
        "married": [True, False, None, True],
        "zip": [1234, 99, 1234, 5],
    }
)


def test_numbers_stay_categories_become_codes_and_missing_is_nan():
    schema = TableSchema.infer(TABLE, categorical=["zip"])
    assert schema.columns == (
        Column("age"),
        Column("animal", ("cat", "dog", "éléphant d'Asie")),
        Column("married"),
        Column("zip", ("1234", "5", "99")),
    )
    expected = [[31.5, 0, 1, 0], [np.nan, 1, 0, 2], [40, np.nan, np.nan, 0], [22, 2, 1, 1]]
    np.testing.assert_array_equal(schema.encode(TABLE).numpy(), expected)


def test_decoding_undoes_encoding():
    schema = TableSchema.infer(TABLE, categorical=["zip"])
    decoded = schema.decode(schema.encode(TABLE))
    assert decoded["animal"].to_pylist() == ["cat", "dog", None, "éléphant d'Asie"]
    assert decoded["age"].to_pylist() == [31.5, None, 40.0, 22.0]
    assert decoded["zip"].to_pylist() == ["1234", "99", "1234", "5"]


def test_rows_may_bring_their_columns_in_any_order_with_others_among_them():
    schema = TableSchema.infer(TABLE.select(["age", "animal"]))
    shuffled = TABLE.select(["married", "animal", "zip", "age"])
    assert torch.equal(schema.encode(shuffled).nan_to_num(-9), schema.encode(TABLE).nan_to_num(-9))


def test_a_schema_survives_json_and_nonsense_does_not_become_one():
    schema = TableSchema.infer(TABLE, missing=["NA", "-"])
    assert TableSchema.from_json(schema.to_json()) == schema
    for text in ("", "{}", "[1]", '{"columns": [{}], "missing": []}', '{"columns": 3, "missing": []}'):
        with pytest.raises(DataError, match="not the schema of a table"):
            TableSchema.from_json(text)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.array([1.0, float("inf"), 2.0]), "row 2, column 'v': the value is infinite"),
        (pa.array(["1", "x", "3"]), "row 2, column 'v': 'x' is not a number"),
        (pa.array([[1], [2], [3]]), "must hold numbers"),
    ],
)
def test_values_that_are_no_numbers_are_refused_by_row_and_column(column, words):
    with pytest.raises(DataError, match=words):
        TableSchema((Column("v"),)).encode(pa.table({"v": column}))


def test_a_missing_column_is_named_with_its_likely_misspelling():
    with pytest.raises(DataError, match=r"column 'animal' is missing\. Did you mean 'anmial'"):
        TableSchema((Column("animal"),)).encode(pa.table({"anmial": [1]}))


def test_columns_that_are_neither_numbers_nor_text_are_refused_with_a_remedy():
    with pytest.raises(DataError, match=r"column 'when' holds time32.* leave it out"):
        TableSchema.infer(pa.table({"when": pa.array([0], pa.time32("s"))}))


def test_free_text_is_no_category():
    with pytest.raises(DataError, match=r"column 'note' has 30 different texts.*at most 20"):
        TableSchema.infer(pa.table({"note": [f"note {i}" for i in range(30)]}), most_categories=20)


# ------------------------------------------------------------ preprocessing

cell = st.one_of(st.none(), st.floats(-1e6, 1e6, width=32))
kind = st.sampled_from([None, "red", "green", "blue"])


def scikit_learn(numeric: list[int], categorical: list[int]) -> ColumnTransformer:
    numbers = make_pipeline(SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler())
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    return ColumnTransformer([("numbers", numbers, numeric), ("categories", encoder, categorical)])


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(cell, cell, kind, kind), min_size=2, max_size=30), st.integers(1, 29))
def test_the_transformation_is_scikit_learns_fitted_on_the_training_rows(rows, train):
    names = ["a", "b", "c", "d"]
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    types = [pa.float64(), pa.float64(), pa.string(), pa.string()]
    table = pa.table({name: pa.array(columns[name], t) for name, t in zip(names, types, strict=True)})
    schema = TableSchema.infer(table)
    x = schema.encode(table)
    fitted = x[: min(train, len(x))]
    theirs = scikit_learn([0, 1], [2, 3]).fit(fitted.numpy()).transform(x.numpy())
    ours = schema.fit(fitted)(x)
    assert ours.dtype == torch.float32
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-5, atol=1e-5)


def test_columns_learned_in_blocks_are_learned_alike(monkeypatch):
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(50, 9)))
    x[rng.random((50, 9)) < 0.2] = float("nan")
    schema = TableSchema(tuple(Column(f"c{j}") for j in range(9)))
    whole = schema.fit(x)(x)
    monkeypatch.setattr(data_module, "CHUNK_CELLS", 100)
    torch.testing.assert_close(schema.fit(x)(x), whole)


def test_a_table_of_numbers_is_scaled_to_the_same_bits_as_a_matrix():
    # So that a .mat file and its CSV export train the same model.
    x = torch.randn(200, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 50 + 3
    schema = TableSchema(tuple(Column(f"c{j}") for j in range(7)))
    assert torch.equal(schema.fit(x)(x), Scaler.fit(x, "per-feature")(x))


def test_what_is_in_the_test_part_changes_nothing_that_is_learned():
    schema = TableSchema((Column("n"), Column("c", ("x", "y", "z"))))
    x = torch.tensor([[1.0, 0], [3, 1], [float("nan"), 0], [5, 1]], dtype=torch.float64).repeat(5, 1)
    other = x.clone()
    data = [
        Data(name="t", x=v, y=torch.arange(20) % 2, num_classes=2, normalise=schema, candidates=None)
        for v in (x, other)
    ]
    parts = split(data[0], 0.2, 0.2, torch.Generator().manual_seed(0))
    other[parts.test] = torch.tensor([1e9, 2], dtype=torch.float64)
    other[parts.validation] = torch.tensor([-1e9, 2], dtype=torch.float64)
    first, second = (d.fit_inputs(parts.train) for d in data)
    assert first.state_dict().keys() == second.state_dict().keys()
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name]), name
    assert transform_inputs(second, other, parts.test).shape[1] == 3
    assert not transform_inputs(second, other, parts.test)[:, 1:].any()  # category z was not in the training part


def test_a_column_without_a_single_value_does_no_harm():
    schema = TableSchema((Column("empty"), Column("c", ())))
    x = torch.full((4, 2), float("nan"), dtype=torch.float64)
    assert torch.equal(schema.fit(x)(x), torch.tensor([[0.0, 1.0]]).repeat(4, 1))


def test_numbers_too_large_for_a_mean_are_named_by_column():
    x = torch.tensor([[1e308, 0], [-1e308, 1], [1e308, 2]], dtype=torch.float64)
    with pytest.raises(DataError, match="column 'big' has values too large"):
        TableSchema((Column("big"), Column("small"))).fit(x)


def test_missing_values_pass_the_door_of_data_and_infinite_ones_do_not():
    schema = TableSchema((Column("n"),))
    sets = CandidateSets.from_sets([[0], [1], [0, 1]], 3)
    x = torch.tensor([[1.0], [float("nan")], [2.0]], dtype=torch.float64)
    assert Data(name="t", x=x, candidates=sets, num_classes=3, normalise=schema).input_shape == (1,)
    x[2] = float("-inf")
    with pytest.raises(DataError, match="example 2 has an infinite value in column 'n'"):
        Data(name="t", x=x, candidates=sets, num_classes=3, normalise=schema)


def test_a_model_carries_its_preprocessing_through_export():
    schema = TableSchema((Column("n"), Column("c", ("x", "y"))))
    x = torch.tensor([[1.0, 0], [3, 1], [float("nan"), float("nan")], [5, 1]], dtype=torch.float64)
    transform = schema.fit(x)
    width = transform(x).shape[1]
    model = nn.Sequential(transform, nn.Linear(width, 3)).eval()
    exported = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim("n")},))
    torch.testing.assert_close(exported.module()(x[:3]), model(x[:3]))
    assert isinstance(transform, TableTransform)


def test_tensors_of_a_fitted_transform_own_their_memory():
    """Torch's archive of a network warns of tensors that are parts of one."""
    transform = TableSchema((Column("a"), Column("b")), ("",)).fit(torch.rand(20, 2, dtype=torch.float64))
    for tensor in transform.buffers():
        assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
