"""Fixtures that all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Small tensors are faster on one thread, and parallel test processes do not fight over cores."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Where the real data lies: WSL_DATA_DIR, or shared/data beside the checkout."""
    root = Path(os.environ.get("WSL_DATA_DIR") or Path(__file__).parents[2] / "shared" / "data")
    assert root.is_dir(), f"real data is needed at {root}: set WSL_DATA_DIR to a directory that holds MNIST/ and pll/"
    return root
