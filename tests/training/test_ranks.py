"""Data-parallel training: a run does not change when it is spread over ranks, whatever trains and wherever it goes."""

from __future__ import annotations

import copy
import signal
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch
from rank_processes import assert_same_state, on_ranks
from torch import nn

from wsl_toolkit.components import Backbone, Estimator
from wsl_toolkit.data.dataset import Data
from wsl_toolkit.data.problem import Problem, make_problem
from wsl_toolkit.errors import ConfigError, DataError, InterruptedRunError
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.system.signals import StopRequest
from wsl_toolkit.training import risk as risk_module
from wsl_toolkit.training.build import make_trainer
from wsl_toolkit.training.config import Training
from wsl_toolkit.training.distributed import Ranks, ranks_asked_for
from wsl_toolkit.training.distributed.loop import check_spreads, wants_whole_batches
from wsl_toolkit.training.engine import EpochRecord
from wsl_toolkit.training.jobs import JobListener, TrainingJob
from wsl_toolkit.training.train import train
from wsl_toolkit.training.trainer import Trainer

N, FEATURES, CLASSES = 331, 6, 5
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
METHODS = ["ppl", "proden", "cc", "lw", "pcpl", "cl", "cl-nn", "cl-ga", "supervised"]
DRAWS_NOTHING = {"true_labels", "epoch"}
"""What a method may need and still be the same on any number of ranks."""


@attrs.frozen(kw_only=True)
class TwoLayers(Backbone):
    """Two linear layers, and batch norm between them if asked for."""

    name = "two-layers"
    norm: bool = False

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        between = [nn.BatchNorm1d(8)] if self.norm else []
        return nn.Sequential(nn.Linear(input_shape[0], 8), *between, nn.ReLU(), nn.Linear(8, num_classes))


NETWORKS = {"two-layers": TwoLayers(), "normed": TwoLayers(norm=True)}


def small_problem(generator: str = "mcl", seed: int = 0) -> Problem:
    rng = torch.Generator().manual_seed(7)
    centres = 2 * torch.randn(CLASSES, FEATURES, generator=rng)
    y = torch.randint(CLASSES, (N,), generator=rng)
    data = Data(name="blobs", x=centres[y] + torch.randn(N, FEATURES, generator=rng), y=y, num_classes=CLASSES)
    made = load_plugins().registry.create("generator", generator, {})
    return make_problem(data, made, seed=seed, validation=0.15, test=0.2)


def trainer(
    estimator: str, ranks: Ranks | None = None, backbone: str = "linear", batch_size: int = 16, optimizer: str = "sgd"
) -> Trainer:
    registry = load_plugins().registry
    training = Training(epochs=9, batch_size=batch_size, optimizer=optimizer, lr=0.02, device="cpu")
    method = registry.create("estimator", estimator, {})
    network = NETWORKS.get(backbone) or registry.create("backbone", backbone, {})
    return make_trainer(small_problem(), method, network, training, 0, ranks)


def trained(ranks: Ranks | None, epochs: int, *arguments: Any) -> tuple[dict[str, Any], list[dict[str, float]]]:
    """The whole state after some epochs, and the metrics of each."""
    torch.set_num_threads(1)
    made = trainer(arguments[0], ranks, *arguments[1:])
    records = [record.metrics for record in made.epochs(epochs)]
    return made.state_dict(), records


@pytest.mark.parametrize("method", ["ppl", "proden", "cl-nn"])
def test_two_ranks_take_the_steps_of_one_process(method: str, tmp_path: Path) -> None:
    alone, records = trained(None, 2, method)
    (spread, spread_records), (_, other_records) = on_ranks(2, tmp_path, trained, 2, method)
    assert_same_state(spread, alone, **CLOSE)
    for one, other, follower in zip(records, spread_records, other_records, strict=True):
        assert other == pytest.approx(one, rel=1e-4, abs=1e-5)
        assert set(follower) == {"train/risk"}, "only rank 0 measures"
        assert follower["train/risk"] == other["train/risk"]


def every_method(ranks: Ranks | None) -> dict[str, dict[str, Any] | str]:
    """The state after an epoch of every installed method, or why it is refused."""
    torch.set_num_threads(1)
    found: dict[str, dict[str, Any] | str] = {}
    for name in load_plugins().registry.names("estimator"):
        try:
            found[name], _ = trained(ranks, 1, name, "two-layers")
        except ConfigError as error:
            found[name] = str(error)
    return found


def test_every_installed_method_that_draws_nothing_is_the_same_on_two_ranks_and_the_others_run_or_are_refused(
    tmp_path: Path,
) -> None:
    registry = load_plugins().registry
    alone = every_method(None)
    spread, _ = on_ranks(2, tmp_path, every_method)
    for name, state in spread.items():
        estimator = registry.create("estimator", name, {})
        whole_draws = wants_whole_batches(estimator) and estimator.needs_that_do_not("splits")
        if estimator.looks_back() or estimator.reports() or whole_draws:
            assert "cannot be trained on several ranks" in state, name
        elif estimator.needs <= DRAWS_NOTHING:
            assert_same_state(state, alone[name], rtol=1e-3, atol=1e-4)
        else:
            assert isinstance(state, dict), f"{name}: {state}"
    assert sum(isinstance(state, dict) for state in spread.values()) >= 25


def test_any_number_of_ranks_gives_the_same_run_even_where_some_have_no_example_of_a_batch(tmp_path: Path) -> None:
    for count, method in ((3, "ppl"), (5, "cl-nn")):
        alone, _ = trained(None, 1, method, "linear", 4)
        (spread, _), *_ = on_ranks(count, tmp_path, trained, 1, method, "linear", 4)
        assert_same_state(spread, alone, **CLOSE)


def test_adaptive_optimisers_and_deeper_networks_agree_too(tmp_path: Path) -> None:
    alone, _ = trained(None, 2, "ppl", "two-layers", 16, "rmsprop")
    (spread, _), _ = on_ranks(2, tmp_path, trained, 2, "ppl", "two-layers", 16, "rmsprop")
    assert_same_state(spread, alone, rtol=1e-3, atol=1e-4)


def cycled(ranks: Ranks | None) -> dict[str, Any]:
    """The state after two epochs of a schedule that is stepped after each batch."""
    torch.set_num_threads(1)
    options = {"every": "step", "momentum": "cycled"}
    training = Training(
        epochs=3,
        batch_size=16,
        optimizer="sgd",
        lr=0.05,
        scheduler="one-cycle",
        scheduler_options=options,
        device="cpu",
    )
    registry = load_plugins().registry
    method, network = registry.create("estimator", "ppl", {}), registry.create("backbone", "linear", {})
    made = make_trainer(small_problem(), method, network, training, 0, ranks)
    list(made.epochs(2))
    assert made.scheduler is not None
    return {**made.state_dict(), "steps": made.scheduler.last_epoch, "rate": made.optimizer.param_groups[0]["lr"]}


def test_a_schedule_by_steps_is_the_same_on_two_ranks(tmp_path: Path) -> None:
    alone = cycled(None)
    spread, follower = on_ranks(2, tmp_path, cycled)
    assert alone["steps"] > 2
    for state in (spread, follower):
        assert (state["steps"], state["rate"]) == (alone["steps"], alone["rate"])
    assert_same_state(spread, alone, **CLOSE)


def broken_off(ranks: Ranks | None, after: int, who: int) -> dict[str, Any]:
    """The state of a run that one rank was asked to stop in the middle of its second epoch."""
    made = trainer("ppl", ranks)
    steps = 0

    def stop() -> bool:
        nonlocal steps
        steps += 1
        return steps >= after and (ranks is None or ranks.rank == who)

    made.stop = stop
    assert len(list(made.epochs(3))) == 1
    assert made.step > 0
    return made.state_dict()


class AskedBetweenEpochs(JobListener):
    """Asks for a stop when the second epoch has ended, on the rank that listens."""

    def __init__(self, stop: StopRequest) -> None:
        self.stop = stop

    def on_epoch_end(self, record: EpochRecord) -> None:
        if record.epoch == 2:
            self.stop.signal = signal.SIGTERM


class AskedWhileAgreeing(Ranks):
    """Ranks of which one gets a signal while all of them find out whether one has come."""

    def __init__(self, ranks: Ranks, stop: StopRequest, who: int) -> None:
        super().__init__(ranks.rank, ranks.count)
        self.stop = stop
        self.rounds = 0 if ranks.rank == who else None

    def largest(self, number: int) -> int:
        found = super().largest(number)
        if self.rounds is not None:
            self.rounds += 1
            if self.rounds == 3:
                self.stop.signal = signal.SIGTERM
        return found


def asked_while_agreeing(ranks: Ranks, who: int) -> str:
    """What ends a training that one rank alone was asked to stop before its third epoch, when it had just answered."""
    stop = StopRequest()
    return ended_by(AskedWhileAgreeing(ranks, stop, who), stop, JobListener())


def asked_between_epochs(ranks: Ranks, who: int) -> str:
    """What ends a training that one rank alone was asked to stop between two epochs."""
    stop = StopRequest()
    return ended_by(ranks, stop, AskedBetweenEpochs(stop) if ranks.rank == who else JobListener())


def ended_by(ranks: Ranks, stop: StopRequest, listener: JobListener) -> str:
    """What ends a training."""
    registry = load_plugins().registry
    job = TrainingJob(
        problem=small_problem(),
        estimator=registry.create("estimator", "ppl", {}),
        backbone=registry.create("backbone", "linear", {}),
        training=Training(epochs=5, batch_size=16, device="cpu"),
        seed=0,
        listener=listener,
    )
    try:
        train([job], stop=stop, ranks=ranks)
    except InterruptedRunError as error:
        return str(error)
    return "came to its end"


@pytest.mark.parametrize("who", [0, 1])
def test_ranks_that_hear_of_a_stop_at_different_moments_stop_together(who: int, tmp_path: Path) -> None:
    said = on_ranks(2, tmp_path, asked_between_epochs, who)
    assert said == ["stopped by SIGTERM at epoch 2 of 5"] * 2
    # The third round comes after two epochs; the first step of the next one carries the wish to all.
    said = on_ranks(2, tmp_path, asked_while_agreeing, who)
    assert said == ["stopped by SIGTERM at epoch 2, step 1 of 5"] * 2


def gone_on(ranks: Ranks | None, state: dict[str, Any]) -> dict[str, Any]:
    made = trainer("ppl", ranks)
    made.load_state_dict(state if ranks is None or ranks.leads else {})
    list(made.epochs(3))
    return made.state_dict()


@pytest.mark.parametrize("compact", [False, True])
def test_a_state_saved_on_two_ranks_goes_on_on_one_and_on_four(
    compact: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if compact:  # as where classes are many: rows on the candidates only
        monkeypatch.setattr(risk_module, "DENSE_LIMIT", 10)
    expected, _ = trained(None, 3, "ppl")
    saved, _ = on_ranks(2, tmp_path, broken_off, 25, 1)
    assert saved["under_way"] is not None
    assert_same_state(gone_on(None, copy.deepcopy(saved)), expected, **CLOSE)
    state, *_ = on_ranks(4, tmp_path, gone_on, saved)
    assert_same_state(state, expected, **CLOSE)


def shares(ranks: Ranks) -> tuple[int, int, list[int]]:
    made = trainer("ppl", ranks)
    chunks = made._loop.cut(made.next_order())
    visited = torch.cat([chunk.index for chunk in chunks])
    return len(made.risk.candidates), len(made.inputs), visited.tolist()


def test_each_rank_holds_its_own_examples_and_visits_no_others(tmp_path: Path) -> None:
    found = on_ranks(3, tmp_path, shares)
    total = len(small_problem().train_candidates)
    assert sum(rows for rows, _, _ in found) == total
    for rank, (rows, inputs, visited) in enumerate(found):
        assert rows == inputs == len(range(rank, total, 3))
        assert sorted(visited) == list(range(rows))


def normed(ranks: Ranks) -> dict[str, Any]:
    made = trainer("ppl", ranks, "normed", 4)
    list(made.epochs(2))
    return made.model.state_dict()


def test_with_batch_norm_ranks_end_with_the_same_network(tmp_path: Path) -> None:
    one, *others = on_ranks(3, tmp_path, normed)
    for other in others:
        assert_same_state(other, one, rtol=0, atol=0)
    assert all(torch.isfinite(value).all() for value in one.values())


def other_sets(ranks: Ranks) -> str:
    problem = small_problem("mcl" if ranks.leads else "cl")
    registry = load_plugins().registry
    method, network = registry.create("estimator", "cc", {}), registry.create("backbone", "linear", {})
    try:
        make_trainer(problem, method, network, Training(device="cpu"), 0, ranks)
    except DataError as error:
        return str(error)
    return ""


def test_ranks_with_other_candidate_sets_are_named_and_refused_everywhere(tmp_path: Path) -> None:
    for said in on_ranks(3, tmp_path, other_sets):
        assert said.startswith("rank 1, 2 has other candidate sets than rank 0")


def test_methods_that_look_at_whole_batches_are_known_by_what_they_define() -> None:
    registry = load_plugins().registry
    wanting = {name for name in METHODS if wants_whole_batches(registry.create("estimator", name, {}))}
    assert wanting == {"cl-nn", "cl-ga"}


def test_a_method_that_several_ranks_would_compute_otherwise_is_refused() -> None:
    class LooksBack(type(load_plugins().registry.create("estimator", "cc", {}))):  # type: ignore[misc]
        name = "looks-back"

        def after_epoch(self, candidates: Any, state: Any) -> Any:
            return {}

    with pytest.raises(ConfigError, match="looks-back cannot be trained on several ranks: it looks at all examples"):
        check_spreads(LooksBack())
    assert isinstance(LooksBack(), Estimator)


def test_a_process_that_no_launcher_started_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    assert ranks_asked_for() == 1
    monkeypatch.setenv("WORLD_SIZE", "many")
    assert ranks_asked_for() == 1, "a variable that some other tool left behind means nothing"
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    with pytest.raises(ConfigError, match="WORLD_SIZE"):
        ranks_asked_for()
