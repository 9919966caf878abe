"""Wrong labels join where a reference model finds them plausible: ambiguity that depends on the instance.

Xu, Qiao, Geng, Zhang. Instance-Dependent Partial Label Learning. NeurIPS 2021. The paper divides the chances of the
wrong labels by their maximum; its code, and those that follow it, then by their mean over all K entries, that of y
being zero. Here they are divided by their mean over the K-1 wrong labels, so that `rate` is the average chance to join,
unless `scale` says otherwise.
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
    row for each example. Full sets are redrawn. With `scale` = mean-all the mean is over all K entries, that of y
    counted as zero, so that labels join K/(K-1) times as often; with max, the likeliest wrong label joins with the
    rate.
    """

    name: ClassVar[str] = "flip-instance"
    setting: ClassVar[Setting] = Setting.GENERAL
    citation: ClassVar[str] = "Xu, Qiao, Geng, Zhang (NeurIPS 2021)"

    rate: float = param(
        0.4, help="joining probability of a wrong label whose chance is the scale, before clipping", gt=0, le=1
    )
    scale: str = param(
        "mean-wrong",
        help="what the wrong labels' chances are divided by: their mean, that over all K entries, or their maximum",
        choices=("mean-wrong", "mean-all", "max"),
    )
    reference: Path | None = param(
        None, help="file (.npy, .csv) of logits or probabilities, one row for each example; not given: train a model"
    )
    epochs: int = param(5, help="training epochs of the reference model", ge=1)
    model: Any = attrs.field(default=None, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if self.rate == 1 and self.scale != "max":
            raise ConfigError("flip-instance: rate must be > 0, < 1, not 1, unless scale is max")

    def check_classes(self, num_classes: int) -> None:
        super().check_classes(num_classes)
        if self.scale == "mean-all" and self.rate * num_classes / (num_classes - 1) >= 1:
            raise ConfigError(
                f"flip-instance: with scale mean-all and {num_classes} classes, rate must be below "
                f"{(num_classes - 1) / num_classes:g}, not {self.rate:g}: labels that are all alike would all join"
            )

    def prepare(self, x: Tensor, y: Tensor, num_classes: int, rng: torch.Generator) -> FlipInstance:
        """Train the reference model, or bind the given predictions to the examples."""
        model: references.LinearReference | references.TableReference
        if self.reference is None:
            model = references.train_linear(x, y, num_classes, self.epochs, rng)
        else:
            model = references.TableReference.of(x, references.read_table(self.reference, len(x), num_classes))
        return attrs.evolve(self, model=model)

    def joining(self, x: Tensor, y: Tensor, num_classes: int) -> Tensor:
        """Return min(1, rate · p_j / scale) for every label, float64 [n, K]; that of y means nothing."""
        import torch

        if self.model is None:
            raise ConfigError("flip-instance: call prepare(x, y, num_classes, rng) first, or sample()")
        logits = self.model.logits(x).to(y.device).scatter(1, y.unsqueeze(1), -torch.inf)
        if self.scale == "max":
            joins: Tensor = (logits - logits.amax(1, keepdim=True)).exp() * self.rate
            self._check_some_stay_out(joins.scatter(1, y.unsqueeze(1), 1.0))
            return joins
        # p_j over the sum of the wrong p's is a softmax over the wrong labels: no division of tiny numbers.
        counted = num_classes if self.scale == "mean-all" else num_classes - 1
        return (torch.softmax(logits, dim=1) * counted * self.rate).clamp(max=1)

    def _check_some_stay_out(self, joins: Tensor) -> None:
        alike = joins.eq(1).all(1).nonzero().flatten()
        if len(alike):
            raise ConfigError(
                f"flip-instance: the reference finds all wrong labels of example {int(alike[0])} alike, so that with "
                "rate 1 only the full set could be drawn; lower the rate"
            )

    def draw(self, x: Tensor, y: Tensor, num_classes: int, rng: torch.Generator) -> Tensor:
        return draw_joining(y, self.joining(x, y, num_classes), rng)

    def probability(self, sets: Tensor, x: Tensor, y: Tensor, num_classes: int) -> Tensor:
        return joining_probability(sets, y, self.joining(x, y, num_classes))
