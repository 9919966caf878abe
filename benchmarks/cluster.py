"""What it costs to leave one process: a study on Ray against local workers, and one run on two ranks against one.

`python -m benchmarks.cluster` measures (minutes on two quiet cores; it needs `wsl-toolkit[ray]`), prints, and
keeps its numbers in `cluster.json`, from which `benchmarks.scale_simulation` takes its constants.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import click

from benchmarks.harness import Row, Section, measure, ratio, spread

RESULTS = Path(__file__).with_name("cluster.json")
BATCH, FEATURES, CLASSES, NETWORK = 256, 784, 10, "mlp"


def sections(quick: bool) -> list[Section]:
    """Measure all."""
    return [*study_sections(quick), rank_section(quick)]


# ------------------------------------------------------------------ studies


def study_sections(quick: bool) -> list[Section]:
    """The same study by two local workers and by Ray with two cores, both warm; then one half of it on one core."""
    from wsl_toolkit.studies.executor import Cluster, LocalPool
    from wsl_toolkit.studies.ray_executor import RayExecutor
    from wsl_toolkit.studies.reading import read_study, restrict

    study = read_study("paper-table-3", quick=True)
    epochs = (4, 2) if quick else (12, 6)
    study = attrs.evolve(
        study,
        training={**study.training, "epochs": epochs[0]},
        search=attrs.evolve(study.search, epochs=epochs[1]),
    )
    whole, half = (restrict(study, [], alphas) for alphas in ([0.9, 0.8], [0.9]))
    with tempfile.TemporaryDirectory() as folder:
        local, ray = LocalPool(2), RayExecutor(Cluster(address="local"), 2)
        try:
            cases = {
                "local": _studying(whole, local, Path(folder)),
                "ray": _studying(whole, ray, Path(folder)),
                "ray, half the study on one core": _limited(ray, 1, _studying(half, ray, Path(folder))),
            }
            seconds = measure(cases, 1 if quick else 4)
        finally:
            local.close()
            ray.close()
    rows = (
        Row.of("study on Ray / with local workers", ratio(seconds, "ray", "local"), at_most=1.2),
        Row.of(
            "weak scaling, 1 to 2 cores: time on one / on two",
            ratio(seconds, "ray, half the study on one core", "ray"),
        ),
    )
    runs = sum(cell.study.trials + _points(cell) for cell in whole.cells())
    note = (
        f"`paper-table-3 --quick` in short ({epochs[0]} epochs, {epochs[1]} in a search), two settings, {runs} runs; "
        "executors started and warm, cases in turn, no tracking. Weak scaling: half of the study on one core against "
        "all of it on two."
    )
    details = {"seconds": seconds, "runs": runs}
    return [Section(title="A study on Ray", note=note, rows=rows, details=details)]


def _points(cell: Any) -> int:
    count = 1
    for values in cell.space.values():
        count *= len(values)
    return count


_NUMBERS = itertools.count()


def _studying(study: Any, executor: Any, home: Path) -> Callable[[], None]:
    """Return what runs a whole study from nothing, and leaves the executor as it was."""
    from wsl_toolkit.cli.study_progress import SilentStudy
    from wsl_toolkit.plugins.loading import load_plugins
    from wsl_toolkit.studies.driver import Driver, check_study
    from wsl_toolkit.studies.store import StudyFolder

    registry = load_plugins().registry

    def run() -> None:
        folder = StudyFolder(home / f"home-{next(_NUMBERS)}", study.name)
        folder.create()
        check_study(study, folder, registry, home)
        executor.prepare(study, registry)
        Driver(study, folder, registry, executor, SilentStudy(), None, data_dir=home).run()

    return run


def _limited(executor: Any, limit: int, run: Callable[[], None]) -> Callable[[], None]:
    def limited() -> None:
        before, executor.limit = executor.limit, limit
        try:
            run()
        finally:
            executor.limit = before

    return limited


# -------------------------------------------------------------------- ranks


def rank_section(quick: bool) -> Section:
    """Epochs in turn: of one process, of two apart, of two ranks with twice the data, and of a bare loop in DDP."""
    n, rounds = (2_560, 2) if quick else (25_600, 9)
    with tempfile.TemporaryDirectory() as folder:
        context = multiprocessing.get_context("spawn")
        ranks = [context.Process(target=_rank, args=(rank, folder, n, rounds)) for rank in range(2)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
        found = json.loads((Path(folder) / "found.json").read_text())
    seconds, steps = found["seconds"], n / BATCH

    def added(apart: str, together: str) -> dict[str, float]:
        return spread([1000 * (b - a) / steps for a, b in zip(seconds[apart], seconds[together], strict=True)])

    rows = (
        Row.of("weak scaling, 1 to 2 ranks: epoch of one / of two", ratio(seconds, "one", "two")),
        Row.of("two processes that send nothing: epoch of one alone / of both", ratio(seconds, "one", "apart")),
        Row.of("what being ranks adds to a step", added("apart", "two"), unit="ms"),
        Row.of("what torch's DDP adds to a step of a bare loop", added("bare apart", "DDP"), unit="ms"),
        Row.of("adding up all gradients once", spread([1000 * s for s in found["sum"]]), unit="ms"),
        Row.of("adding up one number", spread([1000 * s for s in found["small sum"]]), unit="ms"),
    )
    note = (
        f"`{NETWORK}` on {n:,} examples a rank, {BATCH} examples of a batch a rank, `ppl`, gloo on 127.0.0.1, one "
        "thread a rank; an epoch of each in turn. Two processes that send nothing show what the two cores take from "
        "each other. The bare loop is the same network with cross-entropy."
    )
    return Section(title="One run on two ranks", note=note, rows=rows, details=found)


def _rank(rank: int, folder: str, n: int, rounds: int) -> None:
    """Be one of two ranks; both also train for themselves, the first while the other waits, then both at once."""
    import torch
    import torch.distributed as dist

    from wsl_toolkit.training.distributed import Ranks

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    alone, together = _trainer(n, BATCH, None), _trainer(2 * n, 2 * BATCH, Ranks(rank, 2))
    cases: dict[str, Callable[[], object]] = {
        "one": _epoch(alone) if rank == 0 else lambda: None,
        "apart": _epoch(alone),
        "two": _epoch(together),
        "bare apart": _bare_epoch(n, parallel=False),
        "DDP": _bare_epoch(n, parallel=True),
    }
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for turn in range(rounds + 1):
        for name, run in cases.items():
            dist.barrier()
            start = time.perf_counter()
            run()
            slower = torch.tensor([time.perf_counter() - start], dtype=torch.float64)
            dist.all_reduce(slower, op=dist.ReduceOp.MAX)
            if turn:
                seconds[name].append(float(slower))
    numbers = sum(parameter.numel() for parameter in together.model.parameters())
    found: dict[str, Any] = {"seconds": seconds, "parameters": numbers, "examples": n, "batch": BATCH}
    for name, size in (("sum", numbers), ("small sum", 1)):
        found[name] = _sums(torch.zeros(size))
    if rank == 0:
        (Path(folder) / "found.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def _epoch(trainer: Any) -> Callable[[], object]:
    return lambda: next(trainer.epochs(trainer.epoch + 1))


def _bare_epoch(n: int, parallel: bool) -> Callable[[], object]:
    """Return an epoch of the shortest loop that anybody writes, as a peer: on its own, or wrapped in torch's DDP."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    from benchmarks.problems import LR, MOMENTUM, WEIGHT_DECAY, Synthetic, backbone

    problem = Synthetic.draw(n, (FEATURES,), CLASSES)
    labels = torch.randint(CLASSES, (n,))
    model = backbone(NETWORK, problem)
    if parallel:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), LR, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)

    def run() -> None:
        for batch in torch.randperm(n).split(BATCH):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(problem.x[batch]), labels[batch]).backward()
            optimizer.step()

    return run


def _sums(message: Any) -> list[float]:
    import torch.distributed as dist

    found = []
    for _ in range(30):
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(message)
        found.append(time.perf_counter() - start)
    return found


def _trainer(n: int, batch: int, ranks: Any) -> Any:
    import torch

    from benchmarks.problems import LR, MOMENTUM, WEIGHT_DECAY, Synthetic, backbone, estimator
    from wsl_toolkit.training.distributed.trainer import ParallelTrainer, own_rows, own_sets
    from wsl_toolkit.training.evaluation import LogitEvaluation
    from wsl_toolkit.training.optimisers import make_optimizer
    from wsl_toolkit.training.plan import ExecutionPlan
    from wsl_toolkit.training.risk import Risk
    from wsl_toolkit.training.trainer import Trainer

    problem = Synthetic.draw(n, (FEATURES,), CLASSES)
    model, method = backbone(NETWORK, problem), estimator("ppl")
    parts: dict[str, Any] = {
        "model": model,
        "optimizer": make_optimizer("sgd", model.parameters(), LR, WEIGHT_DECAY, MOMENTUM),
        "scheduler": None,
        "batch_size": batch,
        "shuffle": torch.Generator().manual_seed(0),
        "evaluate": LogitEvaluation(inputs={}, score=lambda logits, risk: {}),
        "plan": ExecutionPlan(threads=1),
    }
    if ranks is None:
        return Trainer(risk=Risk(method, problem.candidates), inputs=problem.x, **parts)
    risk = Risk(method, own_sets(problem.candidates, ranks), whole=problem.candidates)
    inputs = own_rows(problem.x, ranks)
    return ParallelTrainer(ranks=ranks, whole=problem.candidates, risk=risk, inputs=inputs, **parts)


@click.command()
@click.option("--quick", is_flag=True, help="Small sizes and few rounds: to see that everything runs.")
@click.option("--only", type=click.Choice(["study", "ranks"]), help="Measure one of the two.")
def main(quick: bool, only: str | None) -> None:
    """Measure, print, and keep the numbers unless they are quick ones."""
    from benchmarks import report

    facts = report.machine()
    chosen = {"study": study_sections, "ranks": lambda q: [rank_section(q)]}.get(only or "", sections)(quick)
    for section in chosen:
        click.echo(report.text(section) + "\n")
    if not quick:
        from wsl_toolkit.system.files import write_atomically

        known = json.loads(RESULTS.read_text(encoding="utf-8"))["sections"] if RESULTS.exists() else {}
        measured = {s.title: {**attrs.asdict(s), "machine": facts} for s in chosen}
        results = {"sections": {**known, **measured}}
        write_atomically(RESULTS, json.dumps(results, indent=1, ensure_ascii=False) + "\n")
        click.echo(f"Written: {RESULTS.name}")


if __name__ == "__main__":
    main()
