"""A model as a file for other programs: an ONNX graph, torch's own exported graph, or safetensors.

A graph holds everything from raw inputs on: preprocessing, network, temperature and softmax. It takes any number of
examples, names no device, and holds no path of the machine that made it. Before it is handed out it is run on made-up
inputs, and has to predict what the model predicts.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import torch
from torch import Tensor, nn

from wsl_toolkit.data.dataset import Scaler
from wsl_toolkit.data.table_schema import TableTransform
from wsl_toolkit.errors import ConfigError, WslError, one_line
from wsl_toolkit.own_data.averaging import Average
from wsl_toolkit.own_data.model_file import Model
from wsl_toolkit.own_data.tree_ensemble import TreeEnsemble, UnrolledTrees
from wsl_toolkit.plugins.registry import Registry
from wsl_toolkit.system.files import replacing, write_atomically
from wsl_toolkit.version import __version__

FORMATS = {"onnx": ".onnx", "torch-export": ".pt2", "safetensors": ".safetensors"}
"""The formats, and how the names of their files end."""
FORMAT = "wsl-export-1"
INPUTS, LOGITS, PROBABILITIES = "inputs", "logits", "probabilities"
METADATA, METADATA_FILE = "wsl", "wsl.json"
"""Where a graph keeps what it takes and gives: an entry of ONNX's metadata, a file in torch's archive."""
DESCRIBED = ("estimator", "backbone", "averaged")
"""What is told of how the model came about."""
TRACED, TRIED = 3, 7
"""A graph is made from so many examples, and tried on so many others: a number that it took for a constant shows."""
TOLERANCE = 1e-3
"""Probabilities of a sound graph differ by rounding, far below this; of another function, by more."""


class Predictor(nn.Module):
    """Raw inputs [n, …] to calibrated logits and probabilities, both [n, K]."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.transform = model.transform
        self.network = unrolled(model.network)
        self.temperature = model.temperature

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits and probabilities."""
        logits = self.network(self.transform(inputs)) / self.temperature
        return logits, logits.softmax(1)


def unrolled(network: nn.Module) -> nn.Module:
    """Return a network that a graph can hold: trees, alone or in an average, without their loop."""
    if isinstance(network, Average):
        return Average([unrolled(member) for member in network.members], network.share, network.temperature)
    return UnrolledTrees(network) if isinstance(network, TreeEnsemble) else network


@attrs.frozen(kw_only=True)
class Exported:
    """What was written: the file's content as others read it, and how far it is from the model."""

    format: str
    facts: dict[str, Any]
    """Inputs, outputs, classes, and what the model is."""
    largest_difference: float
    """Between its probabilities and the model's, on made-up inputs."""


def choose_format(given: str | None, out: Path) -> str:
    """Return the format that was asked for, or the one that a file's name says; they must not contradict."""
    named = next((name for name, ending in FORMATS.items() if out.suffix == ending), None)
    if given is None and named is None:
        endings = ", ".join(f"{ending} ({name})" for name, ending in FORMATS.items())
        raise ConfigError(f"{out} does not say what to write: give --format, or a name that ends in {endings}")
    if given is not None and named not in (None, given):
        raise ConfigError(f"{out} is the name of a file of the format {named}, not {given}: choose another name")
    return str(given or named)


def check_installed(kind: str) -> None:
    """Refuse, before any work, a format whose packages are missing."""
    if kind != "onnx":
        return
    try:
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"--format onnx needs {error.name}, which is not installed: pip install 'wsl-toolkit[onnx]'"
        ) from None


def export(model: Model, kind: str, out: Path, registry: Registry) -> Exported:
    """Write a model in one of the `FORMATS`, atomically, once it has shown that it predicts what the model predicts."""
    check_installed(kind)
    tried = made_up(model, TRIED)
    if kind == "safetensors":
        content = model.to_bytes()
        with replacing(out) as temporary:
            temporary.write_bytes(content)
            difference = _difference(model, tried, Model.load(temporary, registry).probabilities(tried).numpy())
        return Exported(format=kind, facts=facts_of(model), largest_difference=difference)
    program = graph_of(model)
    text = json.dumps(facts_of(model), ensure_ascii=False)
    content = _onnx(program, text) if kind == "onnx" else _archive(program, text)
    found = _run_onnx(content, tried) if kind == "onnx" else _run_archive(content, tried)
    difference = _difference(model, tried, found)
    write_atomically(out, content)
    return Exported(format=kind, facts=facts_of(model), largest_difference=difference)


def facts_of(model: Model) -> dict[str, Any]:
    """Return what a program that has only the graph must know of it."""
    classes = list(model.class_names)
    kind = str(model.about.get("input_dtype", "float64"))
    made: dict[str, Any] = {role: model.about[role] for role in DESCRIBED if role in model.about}
    return {
        "format": FORMAT,
        "version": __version__,
        "inputs": {"name": INPUTS, "dtype": kind, "shape": ["batch", *model.input_shape]},
        "columns": None if model.schema is None else [attrs.asdict(column) for column in model.schema.columns],
        "outputs": [
            {"name": name, "dtype": "float32", "shape": ["batch", len(classes)]} for name in (LOGITS, PROBABILITIES)
        ],
        "classes": classes,
        "temperature": model.temperature,
        **made,
    }


def graph_of(model: Model) -> torch.export.ExportedProgram:
    """Return the graph from raw inputs to logits and probabilities, for any number of examples, on no device."""
    predictor, inputs = Predictor(model).cpu().eval(), (made_up(model, TRACED),)
    shapes = ({0: torch.export.Dim("batch")},)
    with _quiet():
        try:
            return _anonymous(torch.export.export(predictor, inputs, dynamic_shapes=shapes))
        except Exception as error:  # whatever a plugin's network does that no graph can hold
            reason = one_line(error)[:300]
        # The slower way reads the source, and so understands a len(x) where the other takes it for a constant.
        with contextlib.suppress(Exception):
            return _anonymous(torch.export.export(predictor, inputs, dynamic_shapes=shapes, strict=True))
    raise ConfigError(
        f"the network {model.about['backbone']['name']} cannot be written as a graph ({reason}): "
        "--format safetensors writes its weights"
    )


def _anonymous(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Remove what the graph says of where it was made: assertions that inputs are on its device, paths of sources."""
    graph = program.graph_module.graph
    for node in list(graph.nodes):
        node.meta.pop("stack_trace", None)
        if node.target is torch.ops.aten._assert_tensor_metadata.default:
            graph.erase_node(node)
    program.graph_module.recompile()
    return program


# ------------------------------------------------------------------ formats


def _archive(program: torch.export.ExportedProgram, text: str) -> bytes:
    content = io.BytesIO()
    for name, value in program.state_dict.items():
        if (
            not value.numel()
        ):  # in a file of weights it may begin where another does, which torch takes for shared memory
            program.state_dict[name] = value.new_empty(value.shape)
    torch.export.save(program, content, extra_files={METADATA_FILE: text})
    return content.getvalue()


def _run_archive(content: bytes, inputs: Tensor) -> np.ndarray:
    with torch.no_grad():
        probabilities: Tensor = torch.export.load(io.BytesIO(content)).module()(inputs)[1]
    return probabilities.numpy()


def _onnx(program: torch.export.ExportedProgram, text: str) -> bytes:
    try:
        with _quiet():
            made = torch.onnx.export(
                program,
                dynamo=True,
                input_names=[INPUTS],
                output_names=[LOGITS, PROBABILITIES],
                verbose=False,
            )
            assert made is not None
            proto = made.model_proto
    except Exception as error:  # an operation that ONNX does not have
        raise ConfigError(
            f"ONNX cannot hold this network ({one_line(error)[:300]}): --format torch-export may"
        ) from None
    for node in (*proto.graph.node, *(inner for function in proto.functions for inner in function.node)):
        del node.metadata_props[:]
        node.doc_string = ""
    proto.metadata_props.add(key=METADATA, value=text)
    content: bytes = proto.SerializeToString()
    return content


def _run_onnx(content: bytes, inputs: Tensor) -> np.ndarray:
    import onnxruntime

    try:
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        (found,) = session.run([PROBABILITIES], {INPUTS: inputs.numpy()})
    except Exception as error:  # its own classes, which are no part of its documentation
        raise ConfigError(f"onnxruntime refuses the exported graph ({one_line(error)[:300]})") from None
    return np.asarray(found)


# -------------------------------------------------------------------- trial


def made_up(model: Model, count: int) -> Tensor:
    """Return inputs that are nobody's, of the model's type and about the size of those that it learned from."""
    rng = torch.Generator().manual_seed(count)
    shape = (count, *model.input_shape)
    kind = torch.from_numpy(np.zeros(0, model.about.get("input_dtype", "float64"))).dtype
    if kind == torch.uint8:
        return torch.randint(256, shape, generator=rng, dtype=kind)
    drawn = torch.randn(shape, generator=rng, dtype=torch.float64)
    transform = model.transform
    if isinstance(transform, Scaler):
        drawn = transform.shift + transform.spread * drawn
    if isinstance(transform, TableTransform):
        drawn[:, transform.numeric] = transform.shift + transform.spread * drawn[:, transform.numeric]
        if len(transform.code):  # categories that it knows, and one that it does not
            categorical = transform.source.unique()
            codes = torch.randint(int(transform.code.max()) + 2, (count, len(categorical)), generator=rng)
            drawn[:, categorical] = codes.double()
        drawn[torch.rand(shape, generator=rng) < 0.2] = torch.nan
    return drawn.to(kind)


def _difference(model: Model, inputs: Tensor, found: np.ndarray) -> float:
    """Return how far probabilities are from the model's own; refuse what is another function."""
    wanted = model.probabilities(inputs).numpy()
    difference = float(np.abs(found - wanted).max()) if found.shape == wanted.shape else np.inf
    if not difference <= TOLERANCE:  # NaN is no agreement either
        raise WslError(
            f"the exported model does not predict what the model predicts (probabilities differ by {difference:.2g} on "
            "made-up inputs), so that it was not written: its network may depend on something that is not in its inputs"
        )
    return difference


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave out exporters' advice to programmers, which no user of theirs can heed."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings(action="ignore"):
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
