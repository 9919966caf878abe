"""What is decided about devices; where there is none here, a stand-in or its facts take its place."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from small_problems import estimator, inputs_and_candidates
from torch import Tensor, nn

from wsl_toolkit.data.problem import make_problem
from wsl_toolkit.errors import ConfigError
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.training.build import make_trainer
from wsl_toolkit.training.config import Training
from wsl_toolkit.training.devices import (
    WORKSPACE,
    DeviceStream,
    Facts,
    choose_device,
    deterministic,
    device_memory,
    explained,
    flushing,
    gpus_for_workers,
    widest,
)
from wsl_toolkit.training.plan import base_plan
from wsl_toolkit.training.risk import Risk
from wsl_toolkit.training.trainer import Trainer


class Dice:
    """A device's generator: what `torch.cuda` offers of one, and draws from it."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(0)

    def get_rng_state(self, *which: object) -> Tensor:
        return self.generator.get_state()

    def set_rng_state(self, state: Tensor, *which: object) -> None:
        self.generator.set_state(state)


class Noisy(nn.Module):
    """A network whose dropout is drawn by the device."""

    def __init__(self, dice: Dice) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 5)
        self.dice = dice

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            x = x * (torch.rand(x.shape, generator=self.dice.generator) < 0.8)
        return self.layer(x)


def made(dice: Dice, seed: int) -> Trainer:
    """Return a trainer on the stand-in, whose stream begins at a seed as `make_trainer` lets it begin."""
    x, candidates = inputs_and_candidates()
    torch.manual_seed(seed)
    model = Noisy(dice)
    trainer = Trainer(
        model=model,
        risk=Risk(estimator("cc"), candidates),
        inputs=x,
        optimizer=torch.optim.SGD(model.parameters(), 0.05),
        scheduler=None,
        batch_size=32,
        shuffle=torch.Generator().manual_seed(seed),
        evaluate=lambda model, risk: {},
    )
    dice.generator.manual_seed(seed)
    trainer._device_rng = DeviceStream(torch.device("cuda", 0), dice)
    return trainer


def weights(trainer: Trainer) -> Tensor:
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


def test_trainers_that_take_turns_on_a_device_train_as_if_alone() -> None:
    alone = []
    for seed in (1, 2):
        trainer = made(Dice(), seed)
        for _ in range(3):
            trainer.train_epoch()
        alone.append(weights(trainer))
    dice = Dice()
    together = [made(dice, seed) for seed in (1, 2)]
    before = dice.get_rng_state()
    for _ in range(3):
        for trainer in together:
            trainer.train_epoch()
    assert all(torch.equal(weights(one), other) for one, other in zip(together, alone, strict=True))
    assert torch.equal(dice.get_rng_state(), before), "whoever else draws from the device is not disturbed"


def test_a_resumed_trainer_goes_on_with_the_devices_draws() -> None:
    whole = made(Dice(), 1)
    whole.train_epoch()
    saved = copy.deepcopy(whole.state_dict())
    whole.train_epoch()
    resumed = made(Dice(), 7)
    resumed.load_state_dict(saved)
    resumed.train_epoch()
    assert torch.equal(weights(resumed), weights(whole))


def test_the_cpu_has_no_second_stream_and_anothers_is_not_taken() -> None:
    cpu = DeviceStream(torch.device("cpu"))
    assert cpu.state_dict() == {}
    cpu.load_state_dict({"kind": "cuda", "state": torch.zeros(3)})
    assert cpu.state_dict() == {}
    dice = Dice()
    gpu = DeviceStream(torch.device("cuda", 0), dice)
    kept = gpu.state_dict()["state"]
    gpu.load_state_dict({"kind": "mps", "state": torch.zeros(3)})
    gpu.load_state_dict({})
    assert torch.equal(gpu.state_dict()["state"], kept)


def test_the_right_one_of_several_devices_is_asked() -> None:
    asked: list[tuple[object, ...]] = []

    class Listening(Dice):
        def get_rng_state(self, *which: object) -> Tensor:
            asked.append(which)
            return super().get_rng_state()

    DeviceStream(torch.device("cuda", 1), Listening())
    DeviceStream(torch.device("mps"), Listening())
    assert asked == [(torch.device("cuda", 1),), ()]


def test_auto_takes_cuda_then_apples_device_then_the_processor() -> None:
    assert choose_device("auto", Facts(gpus=2, mps=True)).type == "cuda"
    assert choose_device("auto", Facts(mps=True)).type == "mps"
    assert choose_device("auto", Facts()).type == "cpu"
    assert choose_device("cpu", Facts(gpus=2)).type == "cpu"
    with pytest.raises(ConfigError, match="--device 'cuda:77' cannot be used here"):
        choose_device("cuda:77")


def test_local_workers_share_out_the_gpus_that_are_visible() -> None:
    three = Facts(gpus=3)
    assert gpus_for_workers("auto", three, {}) == ["0", "1", "2"]
    assert gpus_for_workers("cuda", three, {"CUDA_VISIBLE_DEVICES": "4, 5,GPU-77"}) == ["4", "5", "GPU-77"]
    assert gpus_for_workers("auto", Facts(), {"CUDA_VISIBLE_DEVICES": "0"}) == []  # named, and not there
    assert gpus_for_workers("auto", three, {"CUDA_VISIBLE_DEVICES": ""}) == []
    for named in ("cpu", "cuda:1", "mps"):
        assert gpus_for_workers(named, three, {}) == []


def test_apples_device_counts_in_float32_and_others_in_float64() -> None:
    assert widest(torch.device("mps")) == torch.float32
    assert widest(torch.device("cuda", 0)) == widest(torch.device("cpu")) == torch.float64


def test_a_devices_budget_lowers_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    assert device_memory(cpu) > 10**6
    monkeypatch.setenv("WSL_DEVICE_MEMORY", "3KB")
    assert device_memory(cpu) == 3000


def test_deterministic_kernels_are_asked_for_inside_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(WORKSPACE, raising=False)
    with deterministic(False):
        assert not torch.are_deterministic_algorithms_enabled()
        assert WORKSPACE not in os.environ
    with deterministic(True):
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.backends.cudnn.benchmark
        assert os.environ[WORKSPACE] == ":4096:8"
    assert not torch.are_deterministic_algorithms_enabled()
    with pytest.raises(ZeroDivisionError), deterministic(True):
        _ = 1 / 0
    assert not torch.are_deterministic_algorithms_enabled()


def smallest() -> float:
    """1e-40, or 0 where this thread has no use for such numbers."""
    return float(torch.tensor(1e-20) * 1e-20)


def test_numbers_that_are_too_small_to_count_are_zero_inside_alone() -> None:
    assert smallest() > 0
    with flushing(True):
        assert smallest() == 0
        with flushing(False):
            assert smallest() == 0, "who asked for it outside still has it"
        assert smallest() == 0
    with flushing(False):
        assert smallest() > 0
    assert smallest() > 0


def test_a_step_on_a_processor_does_not_wade_through_such_numbers() -> None:
    seen: list[float] = []

    class Looks(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            seen.append(smallest())
            return super().forward(inputs)

    model = Looks(4, 3)
    plan = base_plan(model, torch.rand(8, 4))
    seen.clear()
    inputs, candidates = inputs_and_candidates(8, 4, 3)
    made = Trainer(
        model=model,
        risk=Risk(estimator("cc"), candidates),
        inputs=inputs,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        scheduler=None,
        batch_size=4,
        shuffle=torch.Generator(),
        evaluate=lambda model, risk: {},
        plan=plan,
    )
    made.train_epoch()
    assert seen == [0.0, 0.0]
    assert smallest() > 0
    assert made.plan.as_dict()["flush_denormals"] is True


def test_what_a_device_cannot_do_is_said_with_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"no float64.*--device cpu"), explained():
        raise TypeError("Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64.")
    message = (
        "put_ does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms(True)'"
    )
    with pytest.raises(ConfigError, match=r"--deterministic: .*leave it out"), explained():
        raise RuntimeError(message)
    with pytest.raises(RuntimeError, match="another"), explained():
        raise RuntimeError("another")


REGISTRY = load_plugins().registry


def digits_trainer(**settings: Any) -> Trainer:
    data = REGISTRY.create("dataset", "digits", {}).load(Path())
    generator = REGISTRY.create("generator", "mcl-skewed", {})
    problem = make_problem(data, generator, seed=0, validation=0.1, test=0.2, subset=400)
    parts = (REGISTRY.create("estimator", "ppl", {}), REGISTRY.create("backbone", "mlp", {"widths": (16,)}))
    return make_trainer(problem, *parts, Training(batch_size=32, **settings), 0)


def last_risk(trainer: Trainer, epochs: int = 3) -> float:
    return [record.metrics["train/risk"] for record in trainer.epochs(epochs)][-1]


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_float16_learns_as_float32_does(optimizer: str) -> None:
    lr = {"sgd": 0.05, "adam": 0.003}[optimizer]
    half, full = (digits_trainer(precision=name, optimizer=optimizer, lr=lr) for name in ("float16", "float32"))
    assert half.plan.half == "float16"
    assert last_risk(half) == pytest.approx(last_risk(full), rel=0.1)
    assert all(p.dtype == torch.float32 for p in half.model.parameters())


def test_a_step_whose_float16_gradients_overflow_is_left_out_and_the_scale_falls() -> None:
    trainer = digits_trainer(precision="float16")
    scaler = trainer._loop.scaler
    assert scaler is not None
    scaler.load_state_dict({**scaler.state_dict(), "scale": 2.0**120})
    before = weights(trainer).clone()
    asked = iter([True])
    trainer.train_epoch(lambda: next(asked, True))
    assert torch.equal(weights(trainer), before)
    assert scaler.get_scale() == 2.0**119


def test_the_scale_of_float16_is_part_of_a_checkpoint() -> None:
    through = digits_trainer(precision="float16")
    through.train_epoch()
    scaler = through._loop.scaler
    assert scaler is not None
    scaler.load_state_dict({**scaler.state_dict(), "scale": 1024.0})
    resumed = digits_trainer(precision="float16")
    resumed.load_state_dict(copy.deepcopy(through.state_dict()))
    assert resumed._loop.scaler is not None
    assert resumed._loop.scaler.get_scale() == 1024.0
    for trainer in (through, resumed):
        trainer.train_epoch()
    assert torch.equal(weights(through), weights(resumed))
    plain = digits_trainer()  # a checkpoint of float16 says nothing to float32, nor an old one to float16
    plain.load_state_dict(digits_trainer().state_dict() | {"scaler": scaler.state_dict()})
    old = digits_trainer(precision="float16")
    old.load_state_dict({name: value for name, value in old.state_dict().items() if name != "scaler"})


def test_a_deterministic_run_has_the_bits_of_another_on_a_processor() -> None:
    assert last_risk(digits_trainer(deterministic=True), 1) == last_risk(digits_trainer(), 1)


@pytest.mark.system
def test_a_compiled_network_learns_the_same_numbers() -> None:
    compiled = digits_trainer(compile=True)
    assert compiled.plan.compile
    assert last_risk(compiled, 2) == pytest.approx(last_risk(digits_trainer(), 2), rel=1e-4)
