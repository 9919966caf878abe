"""Each trainer has a random stream of its own on its device; the device is a stand-in here, all else is real."""

from __future__ import annotations

import copy

import torch
from small_problems import estimator, inputs_and_candidates
from torch import Tensor, nn

from wsl_toolkit.training.devices import DeviceStream
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
