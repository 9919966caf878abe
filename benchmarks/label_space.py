"""A thousand classes and a million examples: how much memory the labels take, and how much of a step."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.harness import Row, Section, measure, ratio
from benchmarks.problems import BATCH, Synthetic, backbone, estimator
from wsl_toolkit.labels import storage
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.training.optimisers import make_optimizer
from wsl_toolkit.training.risk import Risk

CLASSES, PER_SET = 1000, 10
METHODS = ("ppl", "proden", "rc")


def sections(quick: bool) -> list[Section]:
    """Memory, then the share of a step."""
    n = 100_000 if quick else 1_000_000
    sets = draw(n)
    return [memory(sets, n), share_of_a_step(sets, rounds=3 if quick else 7)]


def draw(n: int) -> CandidateSets:
    """Draw sets of ten classes, one from each tenth of the label space, in compact form from the start."""
    rng = torch.Generator().manual_seed(0)
    width = CLASSES // PER_SET
    classes = torch.randint(width, (n, PER_SET), generator=rng) + width * torch.arange(PER_SET)
    offsets = torch.arange(0, PER_SET * n + 1, PER_SET)
    return CandidateSets(storage.SparseStore(offsets, classes.flatten().to(torch.int16), CLASSES), CLASSES)


def memory(sets: CandidateSets, n: int) -> Section:
    """Count the bytes of labels and confidences."""
    labels = sets.nbytes + sets.sizes.nbytes
    rows = []
    for method in METHODS:
        risk = Risk(estimator(method), sets)
        total = (labels + sum(buffer.nbytes for buffer in risk.buffers())) / 1e6
        limit = 300 if n == 1_000_000 else None
        rows.append(Row(what=f"labels and confidences, {method}", median=total, unit="MB", at_most=limit))
    rows.append(Row(what="the same as dense float32 and bytes", median=n * CLASSES * 5 / 1e6, unit="MB"))
    note = f"{n:,} examples, {CLASSES} classes, {PER_SET} candidates each; stored as {sets.storage}."
    return Section(title="Large label spaces: memory", note=note, rows=tuple(rows))


def share_of_a_step(sets: CandidateSets, rounds: int) -> Section:
    """Time the label work of a batch and a whole step of ResNet-32 with as many classes."""
    problem = Synthetic(x=torch.rand(BATCH, 3, 32, 32), candidates=sets.take(torch.arange(BATCH)))
    model = backbone("resnet32", problem)
    optimizer = make_optimizer("sgd", model.parameters(), 0.1)
    risks = {method: Risk(estimator(method), sets) for method in METHODS}
    index = torch.randperm(len(sets), generator=torch.Generator().manual_seed(1))[:BATCH]
    logits = torch.randn(BATCH, CLASSES)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(problem.x), torch.zeros(BATCH, dtype=torch.long)).backward()
        optimizer.step()

    seconds = measure(
        {"step": step, **{m: lambda risk=risk: label_work(risk, index, logits) for m, risk in risks.items()}}, rounds
    )
    rows = [
        Row.of(f"loss and confidence update, {method}", ratio(seconds, method, "step", times=100), unit="%", at_most=15)
        for method in METHODS
    ]
    note = "Fetching sets and confidences, loss and its gradient, update, and writing back, of a step at batch 256."
    return Section(title="Large label spaces: share of a step", note=note, rows=tuple(rows), details=seconds)


def label_work(risk: Risk, index: Tensor, logits: Tensor) -> None:
    """Do everything in a step that is about labels."""
    mask, rows = risk.gather(index)
    leaf = logits.clone().requires_grad_()
    risk.estimator.objective(leaf, mask, rows).backward()
    risk.write_batch(risk.estimator.update(logits, mask, rows), rows)
    risk.scatter(index, mask, rows)
