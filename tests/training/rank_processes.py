"""Real ranks, quick to start: forked processes that speak gloo to each other."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from wsl_toolkit.training.distributed import Ranks

PATIENCE = 120


def _be(rank: int, count: int, folder: Path, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meeting'}", rank=rank, world_size=count)
    found = work(Ranks(rank, count), *arguments)
    torch.save(found, folder / f"rank-{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


_MEETINGS = iter(range(10**6))


def on_ranks(count: int, folder: Path, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Let `count` processes do `work(ranks, …)` together; return what each of them returned."""
    own = folder / f"ranks-{next(_MEETINGS)}"
    own.mkdir()
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=_be, args=(rank, count, own, work, arguments)) for rank in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(PATIENCE)
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    assert codes == [0] * count, f"ranks ended with {codes}"
    return [torch.load(own / f"rank-{rank}.pt", weights_only=False) for rank in range(count)]


def numbers(state: Any, path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every tensor of nested values with its place."""
    if isinstance(state, torch.Tensor):
        yield path, state
    elif isinstance(state, dict):
        for key, value in state.items():
            yield from numbers(value, f"{path}/{key}")
    elif isinstance(state, list | tuple):
        for number, value in enumerate(state):
            yield from numbers(value, f"{path}/{number}")


def assert_same_state(one: Any, other: Any, **tolerance: float) -> None:
    """Compare two trainers' states: the same tensors, equal up to rounding; random streams exactly."""
    found, expected = dict(numbers(one)), dict(numbers(other))
    assert found.keys() == expected.keys()
    for place, value in expected.items():
        torch.testing.assert_close(found[place], value, msg=lambda text, place=place: f"{place}: {text}", **tolerance)
