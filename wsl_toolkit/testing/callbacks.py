"""The contract of a callback: it looks on and disturbs nothing, and logs the same every time, resumed or not."""

from __future__ import annotations

from pathlib import Path

import torch

from wsl_toolkit.components import Callback, Component
from wsl_toolkit.data.problem import Problem
from wsl_toolkit.errors import InterruptedRunError
from wsl_toolkit.parameters import construct, values_of
from wsl_toolkit.testing.common import ComponentContract, not_applicable
from wsl_toolkit.testing.small_training import StopsInTheMiddle, small_training
from wsl_toolkit.training.checkpoints import Checkpoints
from wsl_toolkit.training.train import Trained
from wsl_toolkit.training.trial_checkpoints import TrialCheckpoints


class CallbackContract(ComponentContract):
    """Give `component`."""

    def test_parameters_survive_a_configuration_file(self, component: Component) -> None:
        """A resolved configuration must build a callback with the same parameters again."""
        again = construct(type(component), values_of(component))
        assert values_of(again) == values_of(component), f"built again from its own parameters it is {again}"

    def test_training_is_not_disturbed(self, component: Callback) -> None:
        """The network is trained as without it, for as long as it lets it be trained."""
        watched = small_training(_fresh(component))
        alone = small_training(epochs=len(watched.records))
        for name, value in alone.model.state_dict().items():
            assert torch.equal(value, watched.model.state_dict()[name]), (
                f"{name} is trained otherwise than without the callback: it may look at the model, and no more"
            )

    def test_it_logs_the_same_every_time(self, component: Callback) -> None:
        """Equal trainings have equal records."""
        first, again = (_metrics(small_training(_fresh(component))) for _ in range(2))
        assert first == again, "two equal trainings have different records"

    def test_a_resumed_training_has_the_same_record(self, component: Callback, tmp_path: Path) -> None:
        """What it must remember is in its `state_dict`."""

        def checkpoints(problem: Problem) -> TrialCheckpoints:
            return TrialCheckpoints(Checkpoints(tmp_path / "checkpoints", every=1), {"job": "contract"})

        whole = _metrics(small_training(_fresh(component)))
        try:
            small_training(_fresh(component), checkpoints=checkpoints, stop=StopsInTheMiddle())
        except InterruptedRunError:
            resumed = _metrics(small_training(_fresh(component), checkpoints=checkpoints))
            assert resumed == whole, "after a resume it logs something else: keep its memory in `state_dict`"
            return
        not_applicable("it ends the training before it could be interrupted")


def _fresh(component: Callback) -> Callback:
    """Return a callback with the same parameters that has heard of no training."""
    return construct(type(component), values_of(component))


def _metrics(trained: Trained) -> list[dict[str, str]]:
    """Return the record of every epoch, written out, so that NaN equals NaN."""
    return [{name: repr(value) for name, value in record.metrics.items()} for record in trained.records]
