"""Wrong labels join where a reference model finds them plausible: ambiguity that depends on the instance.

Xu, Qiao, Geng, Zhang. Instance-Dependent Partial Label Learning. NeurIPS 2021. As in later benchmarks, the chances are
scaled by their mean over the wrong labels, rather than by their maximum, so that `rate` sets the average ambiguity.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from wsl_builtins.generators import reference as references
from wsl_builtins.generators.sampling import draw_joining, joining_probability
from wsl_toolkit import Generator, Setting, param
from wsl_toolkit.errors import ConfigError

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@attrs.frozen(kw_only=True)
class FlipInstance(Generator):
    """Label j joins with a probability from a reference model's p(j|x): p_j / mean of the wrong p's × rate, at most 1.

    The reference is a linear softmax model trained on the labelled data on the spot, or predictions from a file, one
    row for each example. Full sets are redrawn.
    """

    name: ClassVar[str] = "flip-instance"
    setting: ClassVar[Setting] = Setting.GENERAL
    citation: ClassVar[str] = "Xu, Qiao, Geng, Zhang (NeurIPS 2021)"

    rate: float = param(0.4, help="average joining probability of a wrong label, before clipping", gt=0, lt=1)
    reference: Path | None = param(
        None, help="file (.npy, .csv) of logits or probabilities, one row for each example; not given: train a model"
    )
    epochs: int = param(5, help="training epochs of the reference model", ge=1)
    model: Any = attrs.field(default=None, eq=False, repr=False)

    def prepare(self, x: Tensor, y: Tensor, num_classes: int, rng: torch.Generator) -> FlipInstance:
        """Train the reference model, or bind the given predictions to the examples."""
        model: references.LinearReference | references.TableReference
        if self.reference is None:
            model = references.train_linear(x, y, num_classes, self.epochs, rng)
        else:
            model = references.TableReference.of(x, references.read_table(self.reference, len(x), num_classes))
        return attrs.evolve(self, model=model)

    def joining(self, x: Tensor, y: Tensor, num_classes: int) -> Tensor:
        """Return min(1, rate · p_j / mean_{k≠y} p_k) for every label, float64 [n, K]; that of y means nothing."""
        import torch

        if self.model is None:
            raise ConfigError("flip-instance: call prepare(x, y, num_classes, rng) first, or sample()")
        # p_j over the sum of the wrong p's is a softmax over the wrong labels: no division of tiny numbers.
        logits = self.model.logits(x).to(y.device).scatter(1, y.unsqueeze(1), -torch.inf)
        return (torch.softmax(logits, dim=1) * (num_classes - 1) * self.rate).clamp(max=1)

    def draw(self, x: Tensor, y: Tensor, num_classes: int, rng: torch.Generator) -> Tensor:
        return draw_joining(y, self.joining(x, y, num_classes), rng)

    def probability(self, sets: Tensor, x: Tensor, y: Tensor, num_classes: int) -> Tensor:
        return joining_probability(sets, y, self.joining(x, y, num_classes))
