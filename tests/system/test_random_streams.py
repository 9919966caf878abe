"""The global random streams of torch."""

from __future__ import annotations

import pytest
import torch

from wsl_toolkit.system.random_streams import global_streams, seed_torch


@pytest.mark.parametrize("seed", [0, 7, 2**63 - 1])
def test_a_seed_begins_the_same_stream_as_torchs_own_function(seed: int) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        theirs = global_streams()["torch"], torch.randn(5).tolist()
        torch.rand(3)
        seed_torch(seed)
        assert (global_streams()["torch"], torch.randn(5).tolist()) == theirs


def test_every_accelerator_is_seeded_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seeded: list[int] = []
    monkeypatch.setattr("torch.accelerator.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.manual_seed_all", seeded.append)
    with torch.random.fork_rng(devices=[]):
        seed_torch(5)
    assert seeded == [5]
