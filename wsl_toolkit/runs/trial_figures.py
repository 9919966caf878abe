"""The pictures of one trial, made once at its end: what its labels were like and what the model makes of them.

Clean labels are read here as an evaluation reads them: after training, for a picture that says so, and by nothing that
selects or trains.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from wsl_toolkit.data.inputs import as_inputs
from wsl_toolkit.data.problem import Problem
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.runs.figures import (
    Ambiguous,
    Calibration,
    ambiguous_grid,
    confidence_curve,
    reliability_diagram,
    size_histogram,
)
from wsl_toolkit.training.engine import EpochRecord, predict
from wsl_toolkit.training.formulas import candidate_confidence

LOOKED_AT = 2000
"""The most ambiguous are sought among so many examples: a picture must not cost an epoch."""
SHOWN = 12

CONFIDENCE = "validation/oracle_confidence"


def trial_figures(
    model: nn.Module, problem: Problem, records: Sequence[EpochRecord], title: str
) -> Iterator[tuple[str, Any]]:
    """Yield the pictures of a trained model by file name; those that need labels which nobody has are left out."""
    sets = problem.train_candidates
    yield "candidate_sizes", size_histogram(sets.histogram(), sets.mean_size, title)
    if figure := confidence_figure([records], problem.validation_candidates, title):
        yield "true_label_confidence", figure
    test_y = problem.clean.test
    if test_y is not None and bool((test_y >= 0).any()):
        yield (
            "reliability",
            reliability_diagram(calibration(predict(model, problem.test_x.to(_device(model))), test_y), title),
        )
    examples = most_ambiguous(model, problem)
    if examples:
        looked = min(len(sets), LOOKED_AT)
        yield "ambiguous", ambiguous_grid(examples, f"{title}: the most ambiguous of {looked:,} training examples")


def confidence_figure(
    trials: Sequence[Sequence[EpochRecord]], candidates: CandidateSets | None, title: str
) -> Any | None:
    """Return the confidence of the true label over epochs, or None where no held-out label is known.

    With the held-out `candidates` of a trial, what uniform confidences would give is drawn too.
    """
    curves = [[record.metrics[CONFIDENCE] for record in records if CONFIDENCE in record.metrics] for records in trials]
    if not all(curves):
        return None
    uniform = float((1 / candidates.sizes.double()).mean()) if candidates is not None else None
    return confidence_curve(curves, uniform, title)


def calibration(logits: Tensor, labels: Tensor) -> Calibration:
    """Sort predictions by their probability; examples whose label is unknown do not count."""
    logits, labels = logits.cpu(), labels.cpu()
    known = labels >= 0
    probability, predicted = torch.softmax(logits[known].double(), dim=-1).max(dim=-1)
    return Calibration.of(probability, predicted == labels[known])


def most_ambiguous(model: nn.Module, problem: Problem, count: int = SHOWN) -> list[Ambiguous]:
    """Return the training examples whose likeliest candidate is the least sure; singletons and full sets are none."""
    sets = problem.train_candidates
    index = torch.linspace(0, len(sets) - 1, min(len(sets), LOOKED_AT)).long()
    mask = sets.mask(index).cpu()
    size = mask.sum(1)
    index, mask = (part[(size > 1) & (size < sets.num_classes)] for part in (index, mask))
    if not len(index):
        return []
    inputs = as_inputs(problem.train_x).gather(index).float().cpu()
    confidence = candidate_confidence(predict(model, inputs.to(_device(model))).cpu().float(), mask)
    least = confidence.max(1).values.argsort(stable=True)[:count].tolist()
    names = sets.class_names or tuple(str(label) for label in range(sets.num_classes))
    found = []
    for place in least:
        order = confidence[place].argsort(descending=True, stable=True)[: int(mask[place].sum())].tolist()
        found.append(
            Ambiguous(
                index=int(index[place]),
                image=as_picture(inputs[place]),
                names=tuple(names[label] for label in order),
                confidences=tuple(confidence[place][order].tolist()),
            )
        )
    return found


def _device(model: nn.Module) -> torch.device:
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


def as_picture(example: Tensor) -> Tensor | None:
    """Return an input as [H, W] or [H, W, 3] between 0 and 1 if it is an image, whatever its scale was."""
    if example.ndim != 3 or example.shape[0] not in (1, 3):
        return None
    low, high = example.min(), example.max()
    picture = (example - low) / (high - low).clamp(min=1e-12)
    return picture[0] if len(picture) == 1 else picture.permute(1, 2, 0)
