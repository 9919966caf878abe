"""A fitted model in one file: safetensors weights, and JSON in its header that says how to use them. No pickle.

The file holds the network's weights, what the preprocessing learned, the class names and the table's columns, so
that raw rows are all that a user of the model needs; and a checksum of all that, so that damage is noticed.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import torch
from torch import Tensor, nn

from wsl_toolkit.components import Backbone, Estimator
from wsl_toolkit.data.dataset import Data, Scaler, transform_inputs
from wsl_toolkit.data.table_schema import TableSchema, TableTransform
from wsl_toolkit.errors import ConfigError, DataError, WslError, one_line
from wsl_toolkit.networks import plain
from wsl_toolkit.own_data import averaging, trees
from wsl_toolkit.own_data.fitted import Fitted
from wsl_toolkit.own_data.tree_ensemble import TreeEnsemble
from wsl_toolkit.plugins.code_identity import code_of, named_in, require
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.plugins.registry import Registry
from wsl_toolkit.system.files import write_atomically
from wsl_toolkit.system.json_files import parse_json
from wsl_toolkit.training.engine import predict
from wsl_toolkit.version import __version__

FORMAT = "wsl-model-1"
TEXT, CHECKSUM = "wsl", "sha256"
"""The entries of the file's header; models of the first release have no checksum."""
ROWS = 65_536
MOST_NUMBERS = 2**28
"""No example has more; a damaged header may say so."""


@attrs.frozen(kw_only=True, eq=False)
class Model:
    """A network with its preprocessing, its class names and the story of how it came about."""

    network: nn.Module
    transform: nn.Module
    class_names: tuple[str, ...]
    schema: TableSchema | None
    """The columns of a table; None where inputs are plain arrays."""
    input_shape: tuple[int, ...]
    """The shape of one raw example."""
    about: dict[str, Any]
    """Backbone, estimator, training, held-out report: what JSON can hold."""

    @property
    def temperature(self) -> float:
        """What logits are divided by before they become probabilities; models of the first release have none."""
        return float(self.about.get("temperature", 1.0))

    def probabilities(self, x: Tensor) -> Tensor:
        """Return p(y|x) of raw inputs, [n, K], chunk by chunk."""
        if tuple(x.shape[1:]) != self.input_shape:
            raise DataError(
                f"the model takes examples of shape {shape_text(self.input_shape)}, not {shape_text(x.shape[1:])}"
            )
        parts = [
            torch.softmax(predict(self.network, transform_inputs(self.transform, p)) / self.temperature, 1)
            for p in x.split(ROWS)
        ]
        return torch.cat(parts) if parts else torch.empty(0, len(self.class_names))

    def save(self, path: Path) -> None:
        """Write the model as one file, atomically."""
        write_atomically(path, self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return the model as the content of a safetensors file."""
        from safetensors.torch import save

        _check_transform(self.transform)
        tensors = {f"network.{name}": value for name, value in self.network.state_dict().items()}
        tensors |= {f"transform.{name}": value for name, value in self.transform.state_dict().items()}
        meta = {
            "format": FORMAT,
            "version": __version__,
            "transform": type(self.transform).__name__,
            "class_names": list(self.class_names),
            "schema": None if self.schema is None else self.schema.to_json(),
            "input_shape": list(self.input_shape),
            "about": self.about,
        }
        contiguous = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
        text = json.dumps(meta, ensure_ascii=False)
        content: bytes = save(contiguous, metadata={TEXT: text, CHECKSUM: checksum(text, contiguous)})
        return content

    @classmethod
    def load(cls, path: Path, registry: Registry) -> Model:
        """Read a model; its backbone must be installed. A truncated or foreign file is refused."""
        tensors, meta = _read(path)
        try:
            network_input = tuple(int(side) for side in meta["about"]["network_input"])
            backbone = dict(meta["about"]["backbone"])
            class_names = tuple(str(name) for name in meta["class_names"])
            schema = None if meta["schema"] is None else TableSchema.from_json(meta["schema"])
            input_shape = tuple(int(side) for side in meta["input_shape"])
            transform = _transform(meta["transform"], tensors)
            name = str(backbone["name"])
            provided = {key: str(text) for key, text in dict(meta["about"].get("code", {})).items()}
            members = [dict(each) for each in meta["about"]["backbones"]] if name == averaging.NAME else []
            if not math.isfinite(temperature := float(meta["about"].get("temperature", 1.0))) or temperature <= 0:
                raise ValueError(f"a temperature of {temperature}")
        except WslError as error:
            raise type(error)(f"{path} is not a complete model: {error}") from None
        except Exception as error:  # a damaged header can be wrong in every way
            raise DataError(f"{path} is not a complete model: {one_line(error)}") from None
        weights = {k.removeprefix("network."): v for k, v in tensors.items() if k.startswith("network.")}
        reader = _Networks(path=path, registry=registry, about=meta["about"], provided=provided)
        size = (network_input, len(class_names))
        averages = name == averaging.NAME
        network = reader.average(members, weights, *size) if averages else reader.one(backbone, weights, *size)
        _check_finite(path, transform.state_dict())
        model = cls(
            network=network.eval(),
            transform=transform,
            class_names=class_names,
            schema=schema,
            input_shape=input_shape,
            about=meta["about"],
        )
        _check_fits_together(path, model)
        return model


@attrs.frozen(kw_only=True)
class _Networks:
    """Builds the networks of a file."""

    path: Path
    registry: Registry
    about: dict[str, Any]
    provided: dict[str, str]
    """Which code the file was written with."""

    def one(
        self, backbone: dict[str, Any], weights: dict[str, Tensor], shape: tuple[int, ...], classes: int
    ) -> nn.Module:
        """Return a network, or trees, with its weights."""
        options = {key: value for key, value in backbone.items() if key != "name"}
        name = str(backbone.get("name"))
        code = {key: text for key, text in self.provided.items() if key == f"backbone {name}"}
        require(self.registry, code, f"model {self.path}")
        if name == trees.NAME:
            network = _trees(self.path, weights, shape, classes)
            _check_finite(self.path, network.state_dict())
            return network
        made = self.registry.create("backbone", name, options)
        built = _build(self.path, made, shape, classes)
        if set(weights) != set(built.state_dict()):
            built = _around(self.path, self.registry, self.about, lambda: made.build(shape, classes))
        network = _filled(self.path, built, weights)
        _check_finite(self.path, dict(network.named_parameters()))
        return network

    def average(
        self, backbones: list[dict[str, Any]], weights: dict[str, Tensor], shape: tuple[int, ...], classes: int
    ) -> nn.Module:
        """Return an average of networks; each one's weights are named after its place."""
        members = []
        for place, backbone in enumerate(backbones):
            start = f"members.{place}."
            own = {name.removeprefix(start): value for name, value in weights.items() if name.startswith(start)}
            members.append(self.one(backbone, own, shape, classes))
        places = {f"members.{place}" for place in range(len(members))} | {"share", "temperature"}
        try:
            if extra := sorted(name for name in weights if ".".join(name.split(".")[:2]) not in places):
                raise ValueError(f"{extra[0]!r} belongs to none of its models")
            return averaging.Average.load(members, weights.get("share"), weights.get("temperature"))
        except ValueError as error:
            raise DataError(f"{self.path} is not a complete model: {error}") from None


def _build(path: Path, backbone: Backbone, network_input: tuple[int, ...], num_classes: int) -> nn.Module:
    """Build the network of a model; the sizes in a damaged header may be impossible, or larger than any memory."""
    try:
        return backbone.build(network_input, num_classes)
    except WslError as error:
        raise type(error)(f"{path} is not a complete model: {error}") from None
    except Exception as error:
        raise DataError(f"{path} is not a complete model: {one_line(error)[:200]}") from None


def _around(path: Path, registry: Registry, about: dict[str, Any], build: Callable[[], nn.Module]) -> nn.Module:
    """Return what an estimator predicts with where that is not the backbone alone: two networks, say, or a decoder."""
    try:
        options = dict(about["estimator"])
        name = str(options.pop("name"))
        provided = {key: str(text) for key, text in dict(about.get("code", {})).items()}
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} is not a complete model: {one_line(error)}") from None
    require(registry, {key: text for key, text in provided.items() if key == f"estimator {name}"}, f"model {path}")
    estimator: Estimator = registry.create("estimator", name, options)
    return plain(estimator.extend_two(build) if "two_networks" in estimator.needs else estimator.extend(build()))


def _check_fits_together(path: Path, model: Model) -> None:
    """Predict one example of zeros: columns, preprocessing and network that do not fit each other cannot."""
    try:
        if not 0 < math.prod(model.input_shape) <= MOST_NUMBERS or min(model.input_shape) < 1:
            raise ValueError(f"no example has the shape {shape_text(model.input_shape)}")
        kind = model.about.get("input_dtype", "float64")
        found = model.probabilities(torch.from_numpy(np.zeros((1, *model.input_shape), dtype=kind)))
        if tuple(found.shape) != (1, len(model.class_names)) or not bool(torch.isfinite(found).all()):
            raise ValueError("what it predicts is not a probability of each class")
    except Exception as error:  # a forged file can fail anywhere in the network
        raise DataError(f"{path} is not a complete model: {one_line(error)[:200]}") from None


def _filled(path: Path, network: nn.Module, weights: dict[str, Tensor]) -> nn.Module:
    """Return the network with its weights."""
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"{path} does not fit its own backbone (another version of it?): {reason}") from None
    return network


def _trees(path: Path, arrays: dict[str, Tensor], network_input: tuple[int, ...], num_classes: int) -> nn.Module:
    """Return the trees of a model."""
    try:
        return TreeEnsemble.load(arrays, math.prod(network_input), num_classes)
    except ValueError as error:
        raise DataError(f"{path} is not a complete model: {error}") from None


def _check_finite(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Refuse weights that can predict nothing."""
    for name, value in weights.items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise DataError(f"{path} is damaged: {name!r} holds NaN or infinity, which predicts nothing; fit it again")


def checksum(text: str, tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of a model's JSON and of every tensor's name, type, shape and bytes."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"\0{name}\0{value.dtype}\0{tuple(value.shape)}\0".encode())
        if value.numel():  # what is empty has no bytes, and no strides to view it by
            digest.update(value.reshape(-1).contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def model_from(fitted: Fitted, data: Data, about: dict[str, Any]) -> Model:
    """Return the model that a fit came to."""
    _check_transform(fitted.transform)
    return assembled(fitted.network, fitted.transform, data, about)


def assembled(network: nn.Module, transform: nn.Module, data: Data, about: dict[str, Any]) -> Model:
    """Return a model from a network, what prepares its inputs, and the data whose classes and columns it knows."""
    network_input = list(transform_inputs(transform, data.x[:1]).shape[1:])
    registry = load_plugins().registry
    code = code_of(registry, named_in(about, registry))
    return Model(
        network=network.cpu().eval(),
        transform=transform,
        class_names=class_names_of(data),
        schema=data.normalise if isinstance(data.normalise, TableSchema) else None,
        input_shape=data.input_shape,
        about={**about, "data": data.name, "network_input": network_input, "code": code},
    )


def _check_transform(transform: nn.Module) -> None:
    if type(transform) not in (Scaler, TableTransform):
        raise ConfigError(
            f"the preprocessing {type(transform).__name__} cannot be saved without a pickle: "
            "use a dataset that is scaled, or a table"
        )


def class_names_of(data: Data) -> tuple[str, ...]:
    """Return the class names, or numbers where there are none."""
    own = data.candidates.class_names if data.candidates is not None else None
    return data.class_names or own or tuple(str(j) for j in range(data.num_classes))


def shape_text(shape: Any) -> str:
    """Return a shape as people write it."""
    return " × ".join(str(side) for side in shape) or "one number"


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise DataError(f"there is no model at {path}") from None
    except (SafetensorError, OSError, struct.error) as error:
        raise DataError(f"{path} is not a readable model (truncated?): {error}") from None
    text = header.get(TEXT, "{}")
    if set(header) - {TEXT} and TEXT in header and header.get(CHECKSUM) != checksum(text, tensors):
        raise DataError(f"{path} is damaged: its content does not match its checksum; copy or fit it again")
    try:
        meta = parse_json(text)
    except ValueError as error:
        raise DataError(f"{path} is not a readable model: its header is damaged ({one_line(error)})") from None
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise DataError(f"{path} is a safetensors file, but not a model that `wsl fit` wrote")
    return tensors, meta


def _transform(kind: str, tensors: dict[str, Tensor]) -> nn.Module:
    learned = {name.removeprefix("transform."): t for name, t in tensors.items() if name.startswith("transform.")}
    if kind == "Scaler":
        return Scaler(learned["shift"], learned["spread"])
    if kind == "TableTransform":
        return TableTransform(
            numeric=learned["numeric"],
            fill=learned["fill"],
            shift=learned["shift"],
            spread=learned["spread"],
            categorical=(learned["source"], learned["code"]),
        )
    raise ValueError(f"unknown preprocessing {kind!r}")
