"""Files that are whole but wrong: values exchanged, of other types, missing, twice, huge, or nested without end."""

from __future__ import annotations

import copy
import io
import json
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

RAW = {"@huge@": "9" * 5000, "@deep@": "[" * 3000 + "]" * 3000, "@far@": "1e999", "@nan@": "NaN", "@-inf@": "-Infinity"}
"""What Python cannot write itself, by what stands for it until a file is text."""
ALIENS: list[Any] = [
    None, True, False, 0, -1, 1, 3, 2**31, 2**63, -(2**70), 0.5, 1e308, "", "x", "0", "nan", "é😀", "../../x", "a\x00b",
    "x" * 5000, [], {}, [[]], [None], [1, "a"], {"": None}, {"name": {}}, [0] * 3000,
]  # fmt: skip


def alien(dice: random.Random) -> Any:
    return copy.deepcopy(dice.choice([*ALIENS, *RAW]))


def places(tree: Any) -> list[tuple[Any, Any]]:
    """Every container of a tree with each of its keys."""
    found, waiting = [], [tree]
    while waiting:
        each = waiting.pop()
        keys = list(each) if isinstance(each, dict) else range(len(each)) if isinstance(each, list) else ()
        found += [(each, key) for key in keys]
        waiting += [each[key] for key in keys if isinstance(each[key], dict | list)]
    return found


def mutated(dice: random.Random, tree: Any) -> Any:
    """A copy of a tree of dicts and lists with one to three things wrong with it."""
    tree = copy.deepcopy(tree)
    for _ in range(dice.choice([1, 1, 2, 3])):
        known = places(tree)
        if not known:
            return alien(dice)
        (holder, key), (other, place) = dice.choice(known), dice.choice(known)
        kind = dice.randrange(7)
        if kind <= 2:
            holder[key] = alien(dice)
        elif kind == 3:
            holder[key] = copy.deepcopy(other[place])
        elif kind == 4:
            del holder[key]
        elif kind == 5 and isinstance(holder, dict):
            holder[dice.choice(["", "name", "x" * 300, f"{key} ", "checksum", "format"])] = copy.deepcopy(holder[key])
        elif isinstance(holder, list):
            holder.insert(key, alien(dice))
    return tree


def raw(text: str) -> str:
    for name, real in RAW.items():
        text = text.replace(f'"{name}"', real)
    return text


def as_json(dice: random.Random, tree: Any) -> bytes:
    """A mutated tree as JSON, now and then with a key that is there twice."""
    text = raw(json.dumps(mutated(dice, tree)))
    if dice.random() < 0.1 and text.startswith('{"'):
        text = f'{{"twice": 1, "twice": 2, {text[1:]}'
    return text.encode("utf-8", "surrogatepass")


def sealed_json(dice: random.Random, tree: Any) -> bytes:
    """A mutated tree under its true checksum, so that the damage reaches whoever uses it."""
    from wsl_toolkit.system.json_files import sealed

    changed = mutated(dice, tree)
    if not isinstance(changed, dict) or dice.random() < 0.3:
        return as_json(dice, tree)
    text = sealed({key: value for key, value in changed.items() if key != "checksum"})
    return text.encode("utf-8", "surrogatepass")


def as_toml(dice: random.Random, tree: Any) -> bytes:
    import tomli_w

    def without_none(value: Any) -> Any:
        if isinstance(value, dict):
            return {str(k): without_none(v) for k, v in value.items() if v is not None}
        return [without_none(v) for v in value if v is not None] if isinstance(value, list) else value

    changed = without_none(mutated(dice, tree))
    text = tomli_w.dumps(changed if isinstance(changed, dict) else {"x": changed})
    return raw(text).encode("utf-8", "surrogatepass")


NUMBERS = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?|\w+", re.IGNORECASE)
TOKENS = [
    "",
    "nan",
    "-inf",
    "1e999",
    "9" * 400,
    "-1",
    "0x10",
    "1_0",
    "٣",
    "[1, 2]",
    "{1}",
    '""',
    "=1+1",
    "x" * 9000,
    "|",
    " ",
]


def as_text(dice: random.Random, text: str) -> bytes:
    """A text with tokens or whole lines exchanged, dropped, or there twice."""
    for _ in range(dice.choice([1, 1, 2, 3])):
        tokens, lines = list(NUMBERS.finditer(text)), text.splitlines(keepends=True)
        kind = dice.randrange(4)
        if kind <= 1 and tokens:
            at = dice.choice(tokens)
            text = text[: at.start()] + dice.choice(TOKENS) + text[at.end() :]
        elif kind == 2 and lines:
            place = dice.randrange(len(lines))
            lines[place : place + 1] = lines[place : place + 1] * dice.choice([0, 2, 50])
            text = "".join(lines)
        elif lines:
            place = dice.randrange(len(lines))
            lines[place] = dice.choice([",", ";", "\t", "|"]).join(lines[place].rsplit(",", 1))
            text = "".join(lines)
    return text.encode("utf-8", "surrogatepass")


KINDS = ["bool", "int8", "uint8", "int64", "uint64", "float16", "float32", "float64", "complex64", "U4", "S3"]


def array(dice: random.Random, values: np.ndarray) -> np.ndarray:
    """An array of another type or shape, or with other values."""
    kind = dice.randrange(6)
    with np.errstate(all="ignore"):
        if kind == 0 and values.dtype.kind in "biufc":
            return values.astype(dice.choice(KINDS))
        if kind == 1:
            return values.reshape(-1) if values.ndim > 1 else values[None]
        if kind == 2:
            return values[: dice.randrange(len(values) + 1)] if values.ndim else values
        if kind == 3 and values.dtype.kind == "f" and values.size:
            changed = values.copy()
            changed.flat[dice.randrange(values.size)] = dice.choice([np.nan, np.inf, -1e308, 0.5])
            return changed
        if kind == 4 and values.dtype.kind in "iu" and values.size:
            changed = values.astype(np.int64)
            changed.flat[dice.randrange(values.size)] = dice.choice([-1, 2**40, 2**62, 7])
            return changed
    return np.concatenate([values, values]) if values.ndim else np.zeros((3, 0))


def arrays(dice: random.Random, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Some arrays with one of them changed, gone, or under another's name."""
    changed, name = dict(values), dice.choice(list(values))
    kind = dice.randrange(4)
    if kind == 0:
        del changed[name]
    elif kind == 1:
        changed[dice.choice([*values, "other"])] = values[name]
    else:
        changed[name] = array(dice, np.asarray(values[name]))
    return changed


def as_npz(dice: random.Random, values: dict[str, np.ndarray]) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays(dice, values))
    return file.getvalue()


def as_npy(dice: random.Random, values: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array(dice, values))
    return file.getvalue()


def as_mat(dice: random.Random, values: dict[str, np.ndarray]) -> bytes:
    from scipy.io import savemat

    file = io.BytesIO()
    savemat(file, arrays(dice, values))
    return file.getvalue()


def as_parquet(dice: random.Random, table: Any) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    name = dice.choice(table.column_names)
    place = table.column_names.index(name)
    size = table.num_rows
    columns: list[Any] = [
        pa.nulls(size), pa.array([{"a": 1}] * size), pa.array([[[1]]] * size), pa.array([2**62] * size),
        pa.array([float("nan")] * size), pa.array([True] * size), pa.array(["x" * 3000] * size),
        pa.array([b"\xff"] * size),
    ]  # fmt: skip
    kind = dice.randrange(4)
    if kind == 0:
        table = table.drop_columns([name])
    elif kind == 1:
        table = table.rename_columns([dice.choice(table.column_names) if n == name else n for n in table.column_names])
    else:
        table = table.set_column(place, name, dice.choice(columns))
    file = io.BytesIO()
    pq.write_table(table, file)
    return file.getvalue()


def tensors(dice: random.Random, values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    found = arrays(dice, {name: value.numpy() for name, value in values.items()})
    fits = {k: v for k, v in found.items() if v.dtype.kind in "biuf"}
    return {name: torch.from_numpy(np.ascontiguousarray(value).copy()) for name, value in fits.items()}


def as_safetensors(
    dice: random.Random,
    values: dict[str, torch.Tensor],
    meta: dict[str, str],
    seal: Callable[[dict[str, str], dict[str, torch.Tensor]], dict[str, str]] = lambda meta, _: meta,
) -> bytes:
    """Tensors or header changed; `seal` puts the checksum right, so that the damage reaches whoever uses them."""
    from safetensors.torch import save

    changed = tensors(dice, values) if dice.random() < 0.5 else values
    header = dict(meta)
    if dice.random() < 0.7:
        name = dice.choice(list(header))
        try:
            header[name] = as_json(dice, json.loads(header[name])).decode("utf-8", "replace")
        except ValueError:
            header[name] = dice.choice(["", "x", "0", "-1", "9" * 30, "null", "[]", "sparse", "packed", "dense"])
    if dice.random() < 0.7:
        header = seal(header, changed)
    return save(changed, metadata=header)


def as_checkpoint(dice: random.Random, tree: Any) -> bytes:
    file = io.BytesIO()
    torch.save(mutated(dice, tree), file)
    return file.getvalue()
