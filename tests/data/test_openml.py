"""Tables of openml.org, from a cache in the form in which scikit-learn keeps what it downloaded; no network."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
import sklearn.datasets._openml as sklearn_openml
import torch

from wsl_toolkit.data.formats.readers import OpenMl
from wsl_toolkit.errors import ConfigError, DataError

ARFF = """@RELATION flowers
@ATTRIBUTE length REAL
@ATTRIBUTE colour {red, '2', blue}
@ATTRIBUTE weight REAL
@ATTRIBUTE class {rose, tulip, iris}
@DATA
1.5,red,10.5,rose
2.5,'2',20,tulip
?,blue,30,iris
3.5,'2',40,rose
1.0,red,50,tulip
2.0,blue,60,iris
"""


def cached(root: Path, number: int, columns: dict[str, str], target: tuple[str, ...], arff: str = ARFF) -> None:
    """Write what scikit-learn finds where it downloaded a table before: three answers of the API, and the table."""
    file = f"data/v1/download/{number}/flowers.arff"
    table = arff.partition("@DATA\n")[2].splitlines()
    features = [
        {
            "index": str(place),
            "name": name,
            "data_type": kind,
            "is_target": str(name in target).lower(),
            "is_ignore": "false",
            "is_row_identifier": "false",
            "number_of_missing_values": str(int("?" in [row.split(",")[place] for row in table])),
        }
        for place, (name, kind) in enumerate(columns.items())
    ]
    about = {
        "id": str(number),
        "name": "flowers",
        "version": "1",
        "format": "ARFF",
        "status": "active",
        "description": "made by a test",
        "url": f"https://www.openml.org/{file}",
        "md5_checksum": hashlib.md5(arff.encode(), usedforsecurity=False).hexdigest(),
    }
    named = {"data": {"dataset": [{"did": number, "name": "flowers", "version": 1, "status": "active"}]}}
    answers = {
        f"api/v1/json/data/{number}": {"data_set_description": about},
        f"api/v1/json/data/features/{number}": {"data_features": {"feature": features}},
        f"api/v1/json/data/qualities/{number}": {
            "data_qualities": {"quality": [{"name": "NumberOfInstances", "value": str(float(len(table)))}]}
        },
        "api/v1/json/data/list/data_name/flowers/limit/2/status/active/": named,
    }
    for name, content in {**{key: json.dumps(value) for key, value in answers.items()}, file: arff}.items():
        path = root / "openml" / "openml.org" / f"{name}.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(content.encode()))


COLUMNS = {"length": "numeric", "colour": "nominal", "weight": "numeric", "class": "nominal"}


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(request: Any, *given: Any, **more: Any) -> Any:
        raise URLError("Name or service not known")

    monkeypatch.setattr(sklearn_openml, "urlopen", refuse)


@pytest.fixture
def flowers(tmp_path: Path) -> Path:
    cached(tmp_path, 4711, COLUMNS, ("class",))
    return tmp_path


@pytest.mark.parametrize("dataset", [OpenMl(id=4711), OpenMl(title="flowers")])
def test_a_table_that_was_downloaded_before_is_read_without_a_network(flowers: Path, dataset: OpenMl) -> None:
    data = dataset.load(flowers)
    assert data.class_names == ("iris", "rose", "tulip")
    assert data.y is not None
    assert data.y.tolist() == [1, 2, 0, 1, 2, 0]
    assert data.candidates is None
    assert data.understood is not None
    roles = {column.name: column.role for column in data.understood.columns}
    assert roles == {"length": "number", "colour": "category", "weight": "number", "class": "true label"}
    assert bool(torch.isnan(data.x[2, 0])), "a gap is a missing value"
    assert data.fit_inputs(torch.arange(6))(data.x).shape == (6, 5), "two numbers, and three colours one-hot"


def test_another_column_may_be_the_target(flowers: Path) -> None:
    assert OpenMl(id=4711, target="colour").load(flowers).class_names == ("2", "blue", "red")
    with pytest.raises(DataError, match=r"Target column 'length' has 1 missing"):
        OpenMl(id=4711, target="length").load(flowers)
    with pytest.raises(DataError, match="its target 'weight' is a number, not a class"):
        OpenMl(id=4711, target="weight").load(flowers)
    with pytest.raises(DataError, match=r"openml-4711: .*colours"):
        OpenMl(id=4711, target="colours").load(flowers)


def test_several_targets_are_to_be_chosen_from(tmp_path: Path) -> None:
    cached(tmp_path, 5, COLUMNS, ("class", "colour"))
    with pytest.raises(DataError, match=r"has several targets, .*: choose one"):
        OpenMl(id=5).load(tmp_path)


def test_without_a_network_a_table_that_is_not_there_is_one_line_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"openml-61: it is not in .*openml, and openml\.org cannot be reached \(.*known"
    ):
        OpenMl(id=61).load(tmp_path)


@pytest.mark.parametrize("given", [{}, {"id": 1, "title": "iris"}, {"id": 1, "version": 2}])
def test_an_id_or_a_title_is_given(given: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="openml: "):
        OpenMl(**given).load(tmp_path)


@pytest.mark.parametrize(
    ("answer", "content"),
    [
        ("api/v1/json/data/4711", '{"data_set_description": "x"}'),
        ("api/v1/json/data/features/4711", '{"data_features": {"feature": 5}}'),
        ("api/v1/json/data/qualities/4711", '{"data_qualities": null}'),
    ],
)
def test_what_was_downloaded_and_is_damaged_is_one_line_with_the_remedy(
    flowers: Path, answer: str, content: str
) -> None:
    (flowers / "openml" / "openml.org" / f"{answer}.gz").write_bytes(gzip.compress(content.encode()))
    with pytest.raises(DataError, match=r"openml-4711: .* \(if .*openml is damaged, move it away"):
        OpenMl(id=4711).load(flowers)
