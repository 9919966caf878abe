"""The processes of a run, seen from one of them: who is who, and the few ways in which they speak to each other."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from wsl_toolkit.errors import ConfigError, DataError, ResourceError, one_line

PATIENCE = timedelta(minutes=30)
"""For so long a rank waits for the others, who may be reading data."""


class RankLostError(ResourceError):
    """Another rank died or cannot be reached."""


class Ranks:
    """All ranks of a run. Rank 0 leads: it alone reads and writes files and tracks; the others follow.

    Every method except the properties is one that all ranks must call, in the same order.
    """

    def __init__(self, rank: int, count: int) -> None:
        self.rank = rank
        self.count = count

    @property
    def leads(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0

    @property
    def stream(self) -> str:
        """What the name of this rank's own random stream ends with; rank 0 has the one that a single process has."""
        return f" on rank {self.rank}" if self.rank else ""

    def device(self, wanted: str) -> str:
        """Return this rank's device: of several GPUs on a machine each rank has its own."""
        if wanted in ("auto", "cuda") and torch.cuda.is_available():
            return f"cuda:{int(os.environ.get('LOCAL_RANK', '0'))}"
        return wanted

    def rows(self, n: int) -> slice:
        """Return which of n examples are this rank's: every `count`-th, so that sorted data is spread evenly."""
        return slice(self.rank, n, self.count)

    def rows_of(self, rank: int, n: int) -> Tensor:
        """Return which of n examples are another rank's."""
        return torch.arange(rank, n, self.count)

    # ------------------------------------------------------------ speaking

    def add(self, tensor: Tensor) -> Tensor:
        """Replace a tensor by its sum over all ranks."""
        with _reaching_all():
            dist.all_reduce(tensor)
        return tensor

    def largest(self, number: int) -> int:
        """Return the largest of all ranks' numbers."""
        found = torch.tensor([number])
        with _reaching_all():
            dist.all_reduce(found, dist.ReduceOp.MAX)
        return int(found)

    def tell(self, value: Any = None) -> Any:
        """Return what rank 0 says: plain values and tensors. What the others say is ignored."""
        with _reaching_all():
            if self.leads:
                file = io.BytesIO()
                torch.save(value, file)
                said = torch.frombuffer(bytearray(file.getbuffer()), dtype=torch.uint8)
                dist.broadcast(torch.tensor([len(said)]), src=0)
                dist.broadcast(said, src=0)
                return value
            length = torch.zeros(1, dtype=torch.int64)
            dist.broadcast(length, src=0)
            heard = torch.empty(int(length), dtype=torch.uint8)
            dist.broadcast(heard, src=0)
        return torch.load(io.BytesIO(heard.numpy().tobytes()), map_location="cpu", weights_only=True)

    def share(self, tensor: Tensor) -> None:
        """Overwrite a tensor with rank 0's."""
        with _reaching_all():
            dist.broadcast(tensor.detach(), src=0)

    def collect(self, own: Tensor, places: list[Tensor], out: Tensor | None) -> None:
        """Bring every rank's rows to `out` on rank 0, where `places[r]` are those of rank r; the others give None."""
        with _reaching_all():
            if out is None:
                _send(own, 0)
                return
            out[places[0]] = own.cpu()
            for rank in range(1, self.count):
                rows = torch.empty(len(places[rank]), *out.shape[1:], dtype=out.dtype)
                _receive(rows, rank)
                out[places[rank]] = rows

    def deal(self, own: Tensor, places: list[Tensor], whole: Tensor | None) -> Tensor:
        """Return this rank's rows of what rank 0 has: the reverse of `collect`; `own` says their shape."""
        with _reaching_all():
            if whole is None:
                rows = torch.empty_like(own, device="cpu", memory_format=torch.contiguous_format)
                _receive(rows, 0)
                return rows
            for rank in range(1, self.count):
                _send(whole[places[rank]], rank)
            return whole[places[0]]

    def agree(self, what: str, value: str) -> None:
        """Refuse to go on if some rank has another value than rank 0."""
        expected = self.tell(value)
        differs = torch.zeros(self.count, dtype=torch.int64)
        differs[self.rank] = value != expected
        others = self.add(differs).nonzero().flatten().tolist()
        if others:
            raise DataError(
                f"rank {', '.join(map(str, others))} has other {what} than rank 0: the same files and versions must be "
                "on every machine"
            )


def _send(tensor: Tensor, to: int) -> None:
    """Send a tensor's bytes, whatever its type; both sides know its shape, and leave an empty one out."""
    if tensor.numel():
        dist.send(tensor.cpu().contiguous().flatten().view(torch.uint8), dst=to)


def _receive(tensor: Tensor, sender: int) -> None:
    if tensor.numel():
        dist.recv(tensor.flatten().view(torch.uint8), src=sender)


@contextlib.contextmanager
def _reaching_all() -> Iterator[None]:
    """Say it plainly if another rank is gone."""
    try:
        yield
    except RuntimeError as error:
        if os.environ.get("WSL_TRACEBACK") == "1":
            raise
        raise RankLostError(
            f"another rank of this run is gone ({one_line(error)[:120]}); if it did not say why, it was killed. Start "
            "the run again with `wsl run --resume`, on as many ranks as you like"
        ) from None


def ranks_asked_for() -> int:
    """Return how many ranks the launcher started, by the environment that torchrun makes."""
    try:
        return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ and "MASTER_ADDR" in os.environ else 1
    except ValueError:
        raise ConfigError(f"WORLD_SIZE must be a whole number, not {os.environ['WORLD_SIZE']!r}") from None


@contextlib.contextmanager
def joined() -> Iterator[Ranks | None]:
    """Join the ranks that a launcher started, and leave them at the end; None if this process is alone."""
    if ranks_asked_for() < 2:
        yield None
        return
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    with _reaching_all():
        dist.init_process_group(backend, timeout=PATIENCE)
    try:
        yield Ranks(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()
