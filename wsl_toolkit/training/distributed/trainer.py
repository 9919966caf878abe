"""A trainer on several ranks, whose saved state is that of a single process: any number of ranks can go on with it."""

from __future__ import annotations

import hashlib
from typing import Any

import attrs
import torch
from torch import Tensor, nn

from wsl_toolkit.data.inputs import Inputs, StreamedInputs
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.labels.storage import ragged_positions
from wsl_toolkit.training.distributed.loop import ParallelLoop, check_spreads
from wsl_toolkit.training.distributed.ranks import Ranks
from wsl_toolkit.training.engine import predict
from wsl_toolkit.training.evaluation import LogitEvaluation
from wsl_toolkit.training.risk import Risk
from wsl_toolkit.training.trainer import Trainer


class ParallelTrainer(Trainer):
    """One rank's part of a trainer; all ranks must call its methods together.

    `whole` are all candidate sets, of which the risk holds this rank's; orders of examples are global.
    """

    def __init__(self, *, ranks: Ranks, whole: CandidateSets, evaluate: LogitEvaluation, **parts: Any) -> None:
        check_spreads(parts["risk"].estimator)
        super().__init__(evaluate=PartedEvaluation(inner=evaluate, ranks=ranks), **parts)
        self.ranks = ranks
        self.processes = ranks.count
        if "unlabelled" in self.risk.estimator.needs:
            self.visited = torch.arange(len(whole), device=whole.sizes.device)
        else:
            self.visited = whole.labelled()
        self._count = len(whole)
        self._offsets = torch.nn.functional.pad(whole.sizes.cpu().cumsum(0), (1, 0))
        for tensor in self.model.state_dict().values():
            ranks.share(tensor)
        self._loop: ParallelLoop = ParallelLoop(
            ranks=ranks,
            model=self.model,
            risk=self.risk,
            inputs=self.inputs,
            optimizer=self.optimizer,
            batch_size=self.batch_size,
            plan=self.plan,
        )

    def end_epoch(self) -> None:
        """Count the epoch; batch norm's statistics, of which each rank has its own, become their mean."""
        for buffer in self.model.buffers():
            if buffer.is_floating_point():
                self.ranks.add(buffer).div_(self.ranks.count)
            else:
                self.ranks.share(buffer)
        super().end_epoch()

    # -------------------------------------------------------------- saving

    def state_dict(self) -> dict[str, Any]:
        """Return, on rank 0, what a single process would: the state rows of all examples in their order."""
        state = super().state_dict()
        for name in self.risk.row_names:
            key = f"row_{name}"
            own = self.risk.get_buffer(key)
            places = self._places(name)
            whole = None
            if self.ranks.leads:
                whole = torch.empty(sum(map(len, places)), *own.shape[1:], dtype=own.dtype)
            self.ranks.collect(own, places, whole)
            state["risk"][key] = whole if whole is not None else own
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to a moment that rank 0 has; what the others give is ignored."""
        own_risk = self.risk.state_dict()
        rows = {f"row_{name}": name for name in self.risk.row_names}
        saved = state.get("risk", {})
        told = None
        if self.ranks.leads:
            told = {**state, "risk": {key: value for key, value in saved.items() if key not in rows}}
        state = dict(self.ranks.tell(told))
        risk = dict(state["risk"])
        for key, name in rows.items():
            whole = saved[key].cpu() if self.ranks.leads else None
            risk[key] = self.ranks.deal(own_risk[key], self._places(name), whole)
        super().load_state_dict({**state, "risk": risk})
        if not self.ranks.leads:  # dropout and the like must not draw the same on every rank
            self._global_rng = _own_stream(self._global_rng, self.ranks.rank)

    def _places(self, name: str) -> list[Tensor]:
        """Return where each rank's rows of some state lie among those of all examples."""
        rows = [self.ranks.rows_of(rank, self._count) for rank in range(self.ranks.count)]
        if name not in self.risk.compact_names:
            return rows
        return [ragged_positions(self._offsets, own)[0] for own in rows]


@attrs.frozen(kw_only=True, eq=False)
class PartedEvaluation:
    """An evaluation to which each rank gives the logits of its own part; rank 0 alone measures."""

    inner: LogitEvaluation
    ranks: Ranks

    def __call__(self, model: nn.Module, risk: Risk) -> dict[str, Tensor]:
        """Return the metrics on rank 0, and nothing on the others."""
        logits = {}
        for name, inputs in self.inner.inputs.items():
            count = len(inputs)
            own = predict(model, own_rows(inputs, self.ranks))
            places = [self.ranks.rows_of(rank, count) for rank in range(self.ranks.count)]
            whole = torch.empty(count, *own.shape[1:], dtype=own.dtype) if self.ranks.leads else None
            self.ranks.collect(own, places, whole)
            if whole is not None:
                logits[name] = whole.to(own.device)
        return self.inner.score(logits, risk) if self.ranks.leads else {}


def own_rows(inputs: Tensor | Inputs, ranks: Ranks) -> Tensor | StreamedInputs:
    """Return a rank's part of some inputs: a view of those in memory, the places of those in a file."""
    if isinstance(inputs, Tensor):
        return inputs[ranks.rows(len(inputs))]
    assert isinstance(inputs, StreamedInputs)
    return inputs.take(ranks.rows_of(ranks.rank, len(inputs)))


def own_sets(candidates: CandidateSets, ranks: Ranks) -> CandidateSets:
    """Return a rank's part of the candidate sets."""
    return candidates.take(ranks.rows_of(ranks.rank, len(candidates)))


def _own_stream(state: Tensor, rank: int) -> Tensor:
    """Return the state of a generator that follows from another's and differs from rank to rank."""
    digest = hashlib.sha256(state.numpy().tobytes() + f"rank {rank}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1).get_state()
