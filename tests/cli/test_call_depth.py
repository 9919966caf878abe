"""A stranger who follows `wsl run` to the gradient passes few functions of ours."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch

from wsl_toolkit.cli import main

MOST = 6


class _ReachedError(Exception):
    """The gradient was reached."""


@pytest.mark.usefixtures("fresh_database")
@pytest.mark.parametrize(
    ("backbone", "owner", "function"), [("mlp", torch.Tensor, "backward"), ("linear", torch, "mm")]
)
def test_from_the_command_to_the_gradient_there_are_few_frames(
    backbone: str, owner: Any, function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []

    def gradient(*args: Any, **kwargs: Any) -> None:
        modules = ((frame.frame.f_globals.get("__name__", ""), frame.function) for frame in inspect.stack())
        found.extend(f"{module}.{name}" for module, name in modules if module.startswith("wsl_toolkit"))
        raise _ReachedError

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(owner, function, gradient)
    monkeypatch.setenv("WSL_TRACEBACK", "1")
    with pytest.raises(_ReachedError):
        main(["run", "--epochs", "1", "--quiet", "--backbone", backbone], standalone_mode=False)
    if backbone == "linear":  # whose gradient is a function of ours
        assert found.pop(0) == "wsl_toolkit.training.linear.write"
    assert found[0] == "wsl_toolkit.training.engine.step"
    assert "wsl_toolkit.training.train.train" in found
    assert "wsl_toolkit.runs.runner.run" in found
    assert found.index("wsl_toolkit.cli.run.run") + 1 <= MOST, found
