"""The partial-label community's .mat files: `data` n×d, `partial_target` and `target` K×n or n×K, sparse or dense.

How the files are read is in `wsl_toolkit.data.formats.mat_files`; what their variables mean is here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from wsl_toolkit import Dataset, param
from wsl_toolkit.data.formats.paths import locate, reading
from wsl_toolkit.errors import ConfigError, DataError
from wsl_toolkit.system.files import replacing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from wsl_toolkit import CandidateSets, Data

VARIABLES = ("data", "partial_target", "target", "class_names", "ids", "layout")
LAYOUTS = ("auto", "classes-by-examples", "examples-by-classes")
CHUNK_CELLS = 2**24
MOST_CLASSES = 2**20


@attrs.frozen(kw_only=True)
class Mat(Dataset):
    """A .mat file of partial labels: data n×d, partial_target and target K×n or n×K; v5 to v7.3.

    Labels lie K×n in the community's files; n×K is known by its shape, unless K = n. `target` may be left out, or be
    all 0 for an example whose true label is unknown. Cell arrays of strings `class_names` (K) and `ids` (n) are read
    and written where there are any. Version 7.3 needs h5py: pip install 'wsl-toolkit[mat]'.
    """

    name: ClassVar[str] = "mat"
    suffixes: ClassVar[tuple[str, ...]] = (".mat",)

    path: Path = param(help="the .mat file, from here or below the data directory")
    normalise: str = param(
        "per-feature",
        help="features to mean 0 and deviation 1, to 0..1 (min-max), or as they are, by the training part's statistics",
        choices=("per-feature", "min-max", "none"),
    )

    layout: str = param(
        "auto",
        help="how the labels lie: a row a class, a row an example, or as their shape says",
        choices=LAYOUTS,
    )

    def load(self, data_dir: Path) -> Data:
        from wsl_toolkit.data.formats.mat_files import read_variables, to_dense

        path = locate(self.path, data_dir)
        with reading(path, "a .mat file"):
            variables = read_variables(path, VARIABLES)
            if "data" in variables:
                variables["data"] = to_dense(variables["data"], "data", path)
            return to_data(variables, path.stem, self.normalise, self.layout)

    def write(self, data: Data, data_dir: Path) -> None:
        from scipy.io import savemat

        variables = from_data(data)
        with replacing(self.path) as temporary, temporary.open("wb") as file:
            savemat(file, variables, do_compression=True)


# ----------------------------------------------------------------- variables


def to_data(variables: dict[str, Any], name: str, normalise: Any, layout: str = "auto") -> Data:
    """Check the variables' shapes and values, and turn them into data."""
    import torch

    from wsl_toolkit import Data

    features = _matrix(variables, "data", required=True)
    n = features.shape[0]
    noted = (_texts(variables, "layout", 1) or ("auto",))[0] if layout == "auto" else layout
    layout = noted if noted in LAYOUTS else "auto"
    partial, target = (_class_matrix(variables, key, n, layout) for key in ("partial_target", "target"))
    if partial is None and target is None:
        raise DataError("it holds neither partial_target nor target: there are no labels in it")
    known = partial if partial is not None else target
    num_classes = known.shape[0]
    if partial is not None and target is not None and partial.shape != target.shape:
        raise DataError(f"partial_target is {_by(partial)} and target {_by(target)}: they must have the same classes")
    class_names = _texts(variables, "class_names", num_classes)
    labels = None if target is None else _labels(target)
    complete = labels is not None and bool((labels >= 0).all())
    return Data(
        name=name,
        x=torch.from_numpy(features.astype("float64", order="C")),
        y=labels if complete else None,
        known_y=None if complete else labels,
        candidates=None if partial is None else _candidates(partial, class_names),
        num_classes=num_classes,
        class_names=class_names,
        normalise=normalise,
        ids=_texts(variables, "ids", n),
    )


def _by(matrix: Any) -> str:
    return "×".join(str(side) for side in matrix.shape)


def _matrix(variables: dict[str, Any], key: str, *, required: bool = False) -> Any:
    if key not in variables:
        if required:
            raise DataError(f"it has no variable {key!r}; the layout is data n×d, partial_target and target K×n")
        return None
    matrix = variables[key]
    if getattr(matrix, "ndim", 0) != 2 or matrix.dtype.kind not in "biuf":
        raise DataError(f"variable {key!r} is not a matrix of real numbers")
    return matrix


def _class_matrix(variables: dict[str, Any], key: str, n: int, layout: str) -> Any:
    """Return a K×n matrix of 0 and 1, checked, from one that lies K×n or n×K."""
    matrix = _matrix(variables, key)
    if matrix is None:
        return None
    if layout == "auto" and matrix.shape == (n, n):
        raise DataError(
            f"variable {key!r} is {n}×{n} and data has {n} rows: its rows may be classes or examples; say which with "
            "--dataset-layout classes-by-examples or examples-by-classes"
        )
    if layout == "examples-by-classes" or (layout == "auto" and matrix.shape[0] == n):
        matrix = matrix.T
    if matrix.shape[1] != n:
        wanted = {"auto": f"K×{n} or {n}×K", "classes-by-examples": f"K×{n}", "examples-by-classes": f"{n}×K"}[layout]
        shape = _by(matrix.T if layout == "examples-by-classes" else matrix)
        raise DataError(f"variable {key!r} is {shape}, but data has {n} rows: it must be {wanted}")
    if not 2 <= matrix.shape[0] <= MOST_CLASSES:
        raise DataError(f"variable {key!r} is {_by(matrix)}, K×n: K must be from 2 to {MOST_CLASSES:,}")
    for start, block in _columns(matrix):
        wrong = ((block != 0) & (block != 1)).nonzero()
        if len(wrong[0]):
            j, i = int(wrong[0][0]), int(wrong[1][0])
            raise DataError(
                f"variable {key!r} holds {block[j, i]} at class {j}, example {start + i}: only 0 or 1 may be"
            )
    return matrix


def _columns(matrix: Any) -> Iterator[tuple[int, Any]]:
    """Yield blocks of columns, dense, so that a large sparse matrix is never dense as a whole."""
    step = max(1, CHUNK_CELLS // matrix.shape[0])
    columns = matrix.tocsc() if hasattr(matrix, "tocsc") else matrix
    for start in range(0, matrix.shape[1], step):
        block = columns[:, start : start + step]
        yield start, block.toarray() if hasattr(block, "toarray") else block


def _candidates(partial: Any, class_names: tuple[str, ...] | None) -> CandidateSets:
    import torch

    from wsl_toolkit import CandidateSets

    masks = (torch.from_numpy((block != 0).T.copy()) for _, block in _columns(partial))
    return CandidateSets.from_chunks(masks, partial.shape[1], partial.shape[0], class_names)


def _labels(target: Any) -> Tensor:
    """Return the class of each column, -1 for one of zeros."""
    import torch

    parts = []
    for start, block in _columns(target):
        marks = torch.from_numpy((block != 0).T.copy())
        several = (marks.sum(1) > 1).nonzero().flatten()
        if len(several):
            raise DataError(f"variable 'target' gives example {start + int(several[0])} more than one true label")
        parts.append(torch.where(marks.any(1), marks.int().argmax(1), -1))
    return torch.cat(parts)


def _texts(variables: dict[str, Any], key: str, count: int) -> tuple[str, ...] | None:
    import numpy as np

    if key not in variables:
        return None
    cells = np.asarray(variables[key], dtype=object).ravel()
    texts = tuple("".join(map(str, np.asarray(cell).ravel())) for cell in cells)
    if len(texts) != count:
        raise DataError(f"variable {key!r} has {len(texts)} entries instead of {count}")
    return texts


def from_data(data: Data) -> dict[str, Any]:
    """Return the variables of a .mat file, or say what of the data it could not hold."""
    import numpy as np
    import torch
    from scipy.sparse import csc_matrix, vstack

    if data.x.ndim != 2 or data.test_x is not None:
        what = "images" if data.x.ndim != 2 else "a test part"
        raise ConfigError(f"{data.name}: a .mat file in the community's layout cannot hold {what}: use npz")
    if data.annotators:
        raise ConfigError(f"{data.name}: a .mat file cannot hold what each annotator said: leave them out first")
    if not isinstance(data.normalise, str):
        columns = getattr(data.normalise, "columns", ())
        if any(column.categories is not None for column in columns) or bool(torch.isnan(data.x).any()):
            raise ConfigError(f"{data.name}: a .mat file holds no categories and no missing values: use csv or parquet")
    if data.weights is not None:
        raise ConfigError(f"{data.name}: a .mat file in the community's layout cannot hold weights: use npz")
    variables: dict[str, Any] = {"data": data.x.numpy()}
    if data.candidates is not None:
        step = max(1, CHUNK_CELLS // data.num_classes)
        masks = (data.candidates.mask(slice(i, i + step)) for i in range(0, len(data.x), step))
        variables["partial_target"] = vstack([csc_matrix(mask.numpy(), dtype=np.float64) for mask in masks]).T.tocsc()
    labels = data.y if data.y is not None else data.known_y
    if labels is not None:
        known = (labels >= 0).nonzero().flatten().numpy()
        entries = (np.ones(len(known)), (labels.numpy()[known], known))
        variables["target"] = csc_matrix(entries, shape=(data.num_classes, len(data.x)))
    square = (LAYOUTS[1],) if len(data.x) == data.num_classes else None  # where the shape would not tell
    for key, texts in (("class_names", data.class_names), ("ids", data.ids), ("layout", square)):
        if texts is not None:
            variables[key] = np.array(texts, dtype=object)
    return variables
