"""How many threads, whether to gather ahead, how long a chunk: measured on real steps, once for a machine and a shape.

Bits depend on threads and chunks. So what was measured is kept, and whoever trains the same shape on the same machine
uses it; a training that is resumed uses what its checkpoint says.
"""

from __future__ import annotations

import copy
import hashlib
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import attrs
import torch
from torch import Tensor, nn

from wsl_toolkit.components import State
from wsl_toolkit.data.inputs import Inputs
from wsl_toolkit.system.kept_choices import KeptChoices
from wsl_toolkit.training.distributed.ranks import Ranks
from wsl_toolkit.training.engine import Loop
from wsl_toolkit.training.optimisers import make_optimizer
from wsl_toolkit.training.plan import ExecutionPlan
from wsl_toolkit.training.risk import LiveRisk

WORTH_MEASURING = 2e10
"""Floating-point operations of a whole training: one core does about so many while a plan is measured."""

RUN_SECONDS, ROUNDS = 0.03, 3
CLEARLY = 0.95
"""A plan with more threads or shorter chunks is chosen if it takes less than this share of the time."""

MOST_THREADS = 2**16
MOST_EXAMPLES = 2**40

_memory = KeptChoices()
_in_use: ContextVar[KeptChoices | None] = ContextVar("choices", default=None)


@contextmanager
def using(choices: KeptChoices | None) -> Iterator[None]:
    """Inside, plans that were measured are kept there; None: where they are kept already, at first in memory."""
    token = _in_use.set(choices or _in_use.get())
    try:
        yield
    finally:
        _in_use.reset(token)


@attrs.frozen(kw_only=True, eq=False)
class Subject:
    """What is about to be trained, and how much of it."""

    model: nn.Module
    risk: LiveRisk
    inputs: Inputs
    visited: Tensor
    """An order of the examples, [n], or of each model's, [n, M]."""
    batch_size: int
    operations: float
    """Of one example's forward pass."""
    epochs: int
    models: int = 1
    loop: type[Loop] = Loop

    @property
    def work(self) -> float:
        """Floating-point operations of the whole training; a backward pass takes two forward ones."""
        return 3 * self.operations * self.models * len(self.visited) * self.epochs

    def key(self, base: ExecutionPlan, most: int) -> str:
        """Return what tells this machine and shape from others."""
        estimator = self.risk.estimator
        facts = (
            machine(), most, torch.__version__, base, repr(self.model), type(self.inputs).__name__, self.inputs.shape,
            [tuple(parameter.shape) for parameter in self.model.parameters()], self.batch_size, self.models,
            self.visited.ndim, self.loop.__name__, type(estimator).__qualname__, estimator.update_when,
        )  # fmt: skip
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]


def machine() -> tuple[str, str, int]:
    """Return what tells this machine from others: the kind of processor, and how many cores there are."""
    name = platform.processor()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    except OSError:
        pass  # another system than Linux
    return platform.machine(), name, os.cpu_count() or 1


def chosen(
    base: ExecutionPlan,
    subject: Subject,
    *,
    threads: int = 0,
    recorded: Mapping[str, Any] | None = None,
    ranks: Ranks | None = None,
) -> ExecutionPlan:
    """Return a plan with threads, gathering ahead and chunks: given, recorded by a checkpoint, kept, or measured.

    A training that is shorter than measuring gets one thread. Of several ranks the first one chooses for all.
    """
    if torch.device(base.device).type != "cpu":
        return base
    if ranks is not None:
        own = _chosen(base, subject, threads, recorded) if ranks.leads else base
        return _with(base, ranks.tell({**own.choice(), "source": own.source}))
    return _chosen(base, subject, threads, recorded)


def _chosen(base: ExecutionPlan, subject: Subject, threads: int, recorded: Mapping[str, Any] | None) -> ExecutionPlan:
    # Never more than torch's present setting: whoever shares the machine among processes has lowered it.
    most = torch.get_num_threads()
    if recorded is not None and _is_choice(recorded):
        return _with(base, {**recorded, "source": "recorded"})
    if threads:
        return _with(base, {"threads": threads, "prefetch": threads < most, "chunk": 0, "source": "given"})
    short = _with(base, {"threads": 1, "prefetch": most > 1, "chunk": 0, "source": "short"})
    if most == 1 or subject.work < WORTH_MEASURING:
        return short
    choices, key = _in_use.get() or _memory, subject.key(base, most)
    kept = choices.find(key)
    if kept is not None and _is_choice(kept) and kept["threads"] <= most:
        return _with(base, {**kept, "source": "kept"})
    try:
        measured = _measured(base, subject, most).choice()
    except Exception:  # whatever a plugin's network or estimator does: training itself says it better
        return attrs.evolve(short, source="failed")
    found = choices.keep(key, {**measured, "about": subject_in_words(subject, most)})
    if not _is_choice(found) or all(found[name] == value for name, value in measured.items()):
        return _with(base, {**measured, "source": "measured"})
    return _with(base, {**found, "source": "kept"})  # another process was faster


def subject_in_words(subject: Subject, most: int) -> str:
    """Return what a choice was measured for, for people who look into the file."""
    shape = "x".join(map(str, subject.inputs.shape))
    kind = type(subject.risk.estimator).__name__
    return f"{kind}, {subject.models} model(s), inputs {shape}, batch {subject.batch_size}, up to {most} threads"


def _with(base: ExecutionPlan, choice: Mapping[str, Any]) -> ExecutionPlan:
    return attrs.evolve(base, **{name: choice[name] for name in ("threads", "prefetch", "chunk", "source")})


def _is_choice(value: Mapping[str, Any]) -> bool:
    threads, chunk = value.get("threads"), value.get("chunk")
    numbers = type(threads) is int and type(chunk) is int and type(value.get("prefetch")) is bool
    return numbers and 1 <= threads <= MOST_THREADS and 0 <= chunk <= MOST_EXAMPLES  # type: ignore[operator]


def _measured(base: ExecutionPlan, subject: Subject, most: int) -> ExecutionPlan:
    """Return the fastest of some plans; of those that are about as fast the one with the fewest threads."""
    counts = [1, *(2**power for power in range(1, most.bit_length()) if 2**power < most), most]
    plans = [
        attrs.evolve(base, threads=count, prefetch=ahead, chunk=0)
        for count in counts
        for ahead in ((False, True) if count < most else (False,))
    ]
    best = _fastest(plans, subject)
    length = subject.inputs.chunk_length(subject.batch_size)
    shorter = length // 4 // subject.batch_size * subject.batch_size
    if subject.loop is not Loop or not subject.batch_size <= shorter < len(subject.visited):
        return best
    return _fastest([best, attrs.evolve(best, chunk=shorter)], subject)


def _fastest(plans: Sequence[ExecutionPlan], subject: Subject) -> ExecutionPlan:
    """Run some steps under each plan in turn, several times; only a plan that is clearly faster displaces another."""
    model = copy.deepcopy(subject.model)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    loops = []
    for plan in plans:
        loop = subject.loop(
            model=model,
            risk=_Untouched(subject.risk),
            inputs=subject.inputs,
            optimizer=make_optimizer("sgd", trained, 1e-6),
            batch_size=subject.batch_size,
            plan=attrs.evolve(plan, compile=False),
        )
        loop.unchecked = False
        loops.append(loop)
    seconds = [float("inf")] * len(plans)
    with torch.random.fork_rng(devices=[]):
        _seconds_an_example(loops[0], subject.visited)  # pages and kernels that are used for the first time
        for _ in range(ROUNDS):
            for place, loop in enumerate(loops):
                seconds[place] = min(seconds[place], _seconds_an_example(loop, subject.visited))
    return plans[clearly_fastest(seconds)]


def clearly_fastest(seconds: Sequence[float]) -> int:
    """Return the place of the fastest; of those that are about as fast, the first."""
    best = 0
    for place, each in enumerate(seconds):
        if each < CLEARLY * seconds[best]:
            best = place
    return best


def _seconds_an_example(loop: Loop, visited: Tensor) -> float:
    began = time.perf_counter()
    losses = loop.run(visited, 0, stop=lambda: time.perf_counter() - began > RUN_SECONDS)
    return (time.perf_counter() - began) / max(1, losses.examples)


class _Untouched:
    """A risk that is looked at, and that no step changes."""

    def __init__(self, risk: LiveRisk) -> None:
        self._risk = risk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._risk, name)

    def shared(self) -> State:
        """Return a copy of the shared state."""
        return {name: value.clone() for name, value in self._risk.shared().items()}

    def scatter(self, index: Tensor, mask: Tensor, rows: State) -> None:
        """Forget state rows."""

    def write_batch(self, new: State, rows: State) -> None:
        """Take an update of rows into the batch's own."""
        for name, value in new.items():
            if name in rows:
                rows[name].copy_(value)
