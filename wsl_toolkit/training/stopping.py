"""When a training ends before its last epoch, and which epoch's model is kept."""

from __future__ import annotations

import math
from typing import Any

import attrs
from torch import Tensor, nn

from wsl_toolkit.errors import ConfigError
from wsl_toolkit.training.config import Training
from wsl_toolkit.training.engine import EpochRecord
from wsl_toolkit.training.metrics import Measure, monitored


@attrs.define(eq=False)
class BestEpoch:
    """The best epoch so far by the monitored metric, and its model where that one is to be kept.

    Of equal epochs the first counts, so that waiting for an improvement means a real one.
    """

    metric: Measure
    patience: int
    keeps_model: bool
    epoch: int = 0
    value: float = math.nan
    model: dict[str, Tensor] | None = None

    @classmethod
    def of(cls, training: Training) -> BestEpoch | None:
        """Return what a training asks for: nothing, unless it may stop early or keeps its best epoch."""
        keeps = training.keep == "best"
        if not keeps and training.patience == 0:
            return None
        return cls(metric=monitored(training.monitor), patience=training.patience, keeps_model=keeps)

    def see(self, record: EpochRecord, model: nn.Module) -> None:
        """Take an epoch's record; remember its model if it is the best so far."""
        if self.metric.name not in record.metrics:
            raise ConfigError(
                f"{self.metric.name} is not measured in this run, so it cannot be monitored: hold out a part with "
                "--validation, or choose another --monitor"
            )
        value = record.metrics[self.metric.name]
        if self.epoch == 0 or self.metric.sign * (value - self.value) > 0 or math.isnan(self.value):
            self.epoch, self.value = record.epoch, value
            if self.keeps_model:
                self.model = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}

    def is_exhausted(self, epoch: int) -> bool:
        """Return whether the last improvement lies `patience` epochs back."""
        return self.patience > 0 and epoch - self.epoch >= self.patience

    def restore_model(self, model: nn.Module) -> None:
        """Give a model the weights of the best epoch, if they were to be kept."""
        if self.model is not None:
            model.load_state_dict(self.model)

    def state_dict(self) -> dict[str, Any]:
        """Return what is known so far, for a checkpoint."""
        return {"epoch": self.epoch, "value": self.value, "model": self.model}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to a saved moment."""
        self.epoch, self.value, self.model = state["epoch"], state["value"], state["model"]
