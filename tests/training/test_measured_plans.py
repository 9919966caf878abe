"""Plans that are measured: nothing is changed by measuring, and what was chosen once is used from then on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch
from small_problems import estimator, inputs_and_candidates, network
from torch import nn

from wsl_toolkit.components import Backbone
from wsl_toolkit.data.dataset import Data
from wsl_toolkit.data.inputs import as_inputs
from wsl_toolkit.data.problem import Problem, make_problem
from wsl_toolkit.networks import Augmented
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.system.kept_choices import KeptChoices
from wsl_toolkit.training import calibration
from wsl_toolkit.training.calibration import Subject, chosen, clearly_fastest, using
from wsl_toolkit.training.checkpoints import Checkpoints
from wsl_toolkit.training.config import Training
from wsl_toolkit.training.plan import ExecutionPlan, base_plan, forward_operations
from wsl_toolkit.training.risk import Risk
from wsl_toolkit.training.train import JobListener, Trained, TrainingJob, train
from wsl_toolkit.training.trial_checkpoints import TrialCheckpoints


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two threads, and nothing too short to be measured."""
    monkeypatch.setattr(calibration, "WORTH_MEASURING", 0.0)
    monkeypatch.setattr(calibration, "RUN_SECONDS", 0.001)
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


class Told(KeptChoices):
    """Choices that were made already, whatever is asked for."""

    def __init__(self, **choice: Any) -> None:
        super().__init__()
        self.choice = choice

    def find(self, key: str) -> dict[str, Any] | None:
        return self.choice


def subject(model: nn.Module | None = None, method: str = "ppl", epochs: int = 1, **changes: Any) -> Subject:
    inputs, candidates = inputs_and_candidates(120)
    model = network("linear", 6, 5) if model is None else model
    risk = Risk(estimator(method), candidates)
    made = Subject(
        model=model,
        risk=risk,
        inputs=as_inputs(inputs),
        visited=risk.visited(),
        batch_size=16,
        operations=forward_operations(model, inputs),
        epochs=epochs,
    )
    return attrs.evolve(made, **changes)


@pytest.mark.usefixtures("measuring")
def test_what_was_measured_is_kept_and_another_process_uses_it(tmp_path: Path) -> None:
    plans = []
    for _ in range(2):
        with using(KeptChoices(tmp_path / "plans.json")):
            plans.append(chosen(ExecutionPlan(), subject()))
    assert [plan.source for plan in plans] == ["measured", "kept"]
    assert plans[0] == plans[1]
    assert plans[0].threads in (1, 2)


@pytest.mark.usefixtures("measuring")
@pytest.mark.parametrize(("kind", "method"), [("linear", "ppl"), ("dropout", "proden"), ("augmented", "pico")])
def test_measuring_changes_neither_model_nor_state_nor_random_streams(kind: str, method: str) -> None:
    plain = network("linear" if kind == "augmented" else kind, 6, 5)
    model = Augmented(plain, lambda inputs: inputs + torch.rand(()), 3) if kind == "augmented" else plain
    model = estimator(method).extend(model)
    about = subject(model, method)
    state = [value.clone() for value in (*model.state_dict().values(), *about.risk.buffers()) if torch.is_tensor(value)]
    stream, seen = torch.get_rng_state(), [m.batches for m in model.modules() if isinstance(m, Augmented)]
    with using(KeptChoices()):
        assert chosen(ExecutionPlan(), about).source == "measured"
    now = [value for value in (*model.state_dict().values(), *about.risk.buffers()) if torch.is_tensor(value)]
    assert all(torch.equal(one, other) for one, other in zip(state, now, strict=True))
    assert torch.equal(stream, torch.get_rng_state())
    assert seen == [m.batches for m in model.modules() if isinstance(m, Augmented)]
    assert torch.get_num_threads() == 2


def test_a_training_that_is_shorter_than_measuring_gets_one_thread() -> None:
    torch.set_num_threads(2)
    try:
        about = subject()
        assert about.work == 3 * 2 * 6 * 5 * len(about.visited) < calibration.WORTH_MEASURING
        with using(Told(threads=2, prefetch=False, chunk=0)):
            plan = chosen(ExecutionPlan(), about)
        assert (plan.threads, plan.prefetch, plan.source) == (1, True, "short")
    finally:
        torch.set_num_threads(1)


def test_where_torch_has_one_thread_there_is_nothing_to_measure() -> None:
    plan = chosen(ExecutionPlan(), subject(epochs=10**12))
    assert (plan.threads, plan.prefetch, plan.source) == (1, False, "short")


@pytest.mark.usefixtures("measuring")
def test_given_threads_and_recorded_ones_are_not_measured() -> None:
    with using(Told(threads=2, prefetch=False, chunk=32)):
        given = chosen(ExecutionPlan(), subject(), threads=1)
        assert (given.threads, given.chunk, given.source) == (1, 0, "given")
        recorded = chosen(ExecutionPlan(), subject(), threads=2, recorded={"threads": 1, "prefetch": True, "chunk": 48})
        assert recorded.choice() == {"threads": 1, "prefetch": True, "chunk": 48}
        assert recorded.source == "recorded"


@pytest.mark.usefixtures("measuring")
@pytest.mark.parametrize(
    "kept", [{}, {"threads": "2", "prefetch": False, "chunk": 0}, {"threads": 8, "prefetch": False, "chunk": 0}]
)
def test_a_kept_choice_that_is_none_is_measured_again(kept: dict[str, Any]) -> None:
    with using(Told(**kept)):
        assert chosen(ExecutionPlan(), subject()).source == "measured"


@pytest.mark.usefixtures("measuring")
def test_a_network_that_fails_leaves_its_error_to_training() -> None:
    class Fails(nn.Linear):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            if self.training:
                raise RuntimeError("not today")
            return super().forward(inputs)

    plan = chosen(ExecutionPlan(), subject(Fails(6, 5)))
    assert plan.source == "failed"


def test_other_machines_shapes_and_shares_of_the_cores_have_other_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    base, about = ExecutionPlan(), subject()
    keys = [
        about.key(base, 2),
        about.key(base, 1),
        about.key(attrs.evolve(base, autocast=True), 2),
        attrs.evolve(about, batch_size=32).key(base, 2),
        attrs.evolve(about, models=36).key(base, 2),
        subject(network("dropout", 6, 5)).key(base, 2),
        subject(method="proden").key(base, 2),
    ]
    monkeypatch.setattr(calibration, "machine", lambda: ("another", "processor", 64))
    keys.append(about.key(base, 2))
    assert len(set(keys)) == len(keys)
    monkeypatch.undo()
    assert subject(epochs=7).key(base, 2) == keys[0], "how long it is trained does not change what is fastest"


def test_ties_go_to_the_first_which_has_the_fewest_threads() -> None:
    assert clearly_fastest([1.0, 0.96, 1.1]) == 0
    assert clearly_fastest([1.0, 0.9, 0.88]) == 1
    assert clearly_fastest([1.0, 0.9, 0.8]) == 2
    assert clearly_fastest([1.0]) == 0


def problem(seed: int = 0) -> Problem:
    inputs, candidates = inputs_and_candidates(240)
    data = Data(name="made", x=inputs, y=candidates.mask().int().argmax(1), num_classes=5, normalise="none")
    return make_problem(
        data, load_plugins().registry.create("generator", "mcl-skewed", {}), seed=seed, validation=0.1, test=0.1
    )


class Stops(JobListener):
    """Asks for a stop after an epoch."""

    def __init__(self, stop: Any, after: int) -> None:
        self.stop, self.after = stop, after

    def on_epoch_end(self, record: Any) -> None:
        if record.epoch == self.after:
            self.stop.signal = 15


def job(folder: Path | None, lr: float = 0.1, **facts: Any) -> TrainingJob:
    backbone: Backbone = load_plugins().registry.create("backbone", "mlp", {"widths": (8,)})
    files = None if folder is None else Checkpoints(folder, every=1)
    return TrainingJob(
        problem=problem(),
        estimator=estimator("ppl"),
        backbone=backbone,
        training=Training(epochs=4, batch_size=16, device="cpu", lr=lr),
        seed=0,
        checkpoints=lambda _: TrialCheckpoints(files),
        **facts,
    )


def weights(trained: Trained) -> list[torch.Tensor]:
    return list(trained.model.state_dict().values())


@pytest.mark.usefixtures("measuring")
@pytest.mark.parametrize("rates", [(0.1,), (0.1, 0.2)])
def test_a_resumed_training_has_the_plan_and_the_bits_of_its_beginning(
    tmp_path: Path, rates: tuple[float, ...]
) -> None:
    from wsl_toolkit.errors import InterruptedRunError
    from wsl_toolkit.system.signals import StopRequest

    first, other = Told(threads=2, prefetch=False, chunk=32), Told(threads=1, prefetch=True, chunk=64)
    whole = train([job(None, lr) for lr in rates], choices=first)
    assert all(each.plan["threads"] == 2 and each.plan["chunk"] == 32 for each in whole)
    assert all(each.plan["source"] == "kept" and each.stacked == len(rates) for each in whole)
    stop = StopRequest()
    jobs = [job(tmp_path / str(lr), lr, listener=Stops(stop, 2)) for lr in rates]
    with pytest.raises(InterruptedRunError):
        train(jobs, stop=stop, choices=first)
    resumed = train([job(tmp_path / str(lr), lr) for lr in rates], choices=other)
    for one, again in zip(whole, resumed, strict=True):
        assert {**again.plan, "source": ""} == {**one.plan, "source": ""}
        assert again.plan["source"] == "recorded"
        assert len(again.records) == 4
        assert all(torch.equal(a, b) for a, b in zip(weights(one), weights(again), strict=True))


@pytest.mark.usefixtures("measuring")
def test_a_model_that_is_left_over_of_a_stack_goes_on_with_the_plan_of_the_stack() -> None:
    class Ends(JobListener):
        def on_epoch_end(self, record: Any) -> bool:
            return True

    told = Told(threads=2, prefetch=False, chunk=32)
    one, other = train([job(None, 0.1, listener=Ends()), job(None, 0.2)], choices=told)
    assert len(one.records) == 1
    assert len(other.records) == 4
    assert other.plan["chunk"] == 32
    assert other.plan["threads"] == 2


@pytest.mark.usefixtures("measuring")
def test_threads_of_a_configuration_are_used_and_recorded() -> None:
    made = job(None)
    made = attrs.evolve(made, training=attrs.evolve(made.training, threads=2))
    (trained,) = train([made], choices=Told(threads=1, prefetch=True, chunk=32))
    assert (trained.plan["threads"], trained.plan["chunk"], trained.plan["source"]) == (2, 0, "given")


def test_a_gpu_is_left_alone() -> None:
    plan = attrs.evolve(ExecutionPlan(), device="cuda")
    assert chosen(plan, subject()) is plan
    assert base_plan(network("linear", 6, 5), torch.rand(2, 6)).threads is None
