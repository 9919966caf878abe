"""Plans and inputs: how training runs changes its speed, not its result."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
import torch
from small_problems import estimator, inputs_and_candidates, mapped_rows
from torch import nn

from wsl_toolkit.data.inputs import Inputs, StreamedInputs, TensorInputs
from wsl_toolkit.training.engine import predict
from wsl_toolkit.training.optimisers import make_optimizer
from wsl_toolkit.training.plan import ExecutionPlan, base_plan, forward_operations
from wsl_toolkit.training.risk import Risk
from wsl_toolkit.training.trainer import Trainer


def images(n: int = 64) -> torch.Tensor:
    return torch.rand(n, 3, 8, 8, generator=torch.Generator().manual_seed(3))


def convolutional(k: int = 5) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(32, k),
    )  # fmt: skip


def train_images(plan: ExecutionPlan, inputs: Inputs | None = None, epochs: int = 3) -> Trainer:
    _, candidates = inputs_and_candidates(n=64)
    model = convolutional()
    trainer = Trainer(
        model=model,
        risk=Risk(estimator("ppl"), candidates),
        inputs=images() if inputs is None else inputs,
        optimizer=make_optimizer("sgd", model.parameters(), 0.05, 1e-3),
        scheduler=None,
        batch_size=16,
        shuffle=torch.Generator().manual_seed(1),
        evaluate=lambda model, risk: {},
        plan=plan,
    )
    trainer.records = list(trainer.epochs(epochs))  # type: ignore[attr-defined]
    return trainer


def test_channels_last_changes_the_layout_and_not_the_result() -> None:
    plain, last = train_images(ExecutionPlan()), train_images(ExecutionPlan(channels_last=True))
    assert last.inputs.gather(torch.arange(4)).is_contiguous(memory_format=torch.channels_last)
    for one, other in zip(plain.model.state_dict().values(), last.model.state_dict().values(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_autocast_is_close_to_full_precision_and_keeps_state_in_it() -> None:
    plain, half = train_images(ExecutionPlan()), train_images(ExecutionPlan(autocast=True))
    assert half.risk.get_buffer("row_confidence").dtype == torch.float32
    assert all(p.dtype == torch.float32 for p in half.model.parameters())
    logits = [predict(trainer.model, images()) for trainer in (plain, half)]
    assert not torch.equal(*logits)
    torch.testing.assert_close(*logits, rtol=0.1, atol=0.05)


def test_operations_are_counted_layer_by_layer() -> None:
    assert forward_operations(nn.Linear(784, 10), torch.rand(2, 784)) == 2 * 784 * 10
    conv = nn.Conv2d(3, 8, 3, padding=1)
    assert forward_operations(conv, images(2)) == 2 * 8 * 8 * 8 * 27


def test_counting_operations_leaves_the_model_as_it_was() -> None:
    model = convolutional().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    forward_operations(model, images())
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())


def test_gathering_ahead_changes_no_bit_and_a_pass_that_breaks_off_leaves_no_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TensorInputs, "chunk_length", lambda self, batch_size: 16)
    plain, ahead = train_images(ExecutionPlan()), train_images(ExecutionPlan(prefetch=True))
    for one, other in zip(plain.model.state_dict().values(), ahead.model.state_dict().values(), strict=True):
        assert torch.equal(one, other)
    threads = threading.active_count()
    assert ahead.train_epoch(lambda: True) is None
    assert ahead.step == 1
    assert threading.active_count() == threads


def test_only_convolutional_networks_on_images_go_channels_last() -> None:
    assert base_plan(convolutional(), images()).channels_last
    assert not base_plan(nn.Sequential(nn.Flatten(), nn.Linear(192, 5)), images()).channels_last


def test_a_plan_is_saved_as_plain_values() -> None:
    plan = base_plan(convolutional(), images(), autocast=True)
    assert ExecutionPlan(**plan.as_dict()) == plan


@pytest.mark.parametrize("ahead", [False, True])
def test_chunks_are_what_indexing_gives(ahead: bool) -> None:
    for channels_last in (False, True):
        inputs = TensorInputs(images(), channels_last)
        indices = torch.randperm(64).split([20, 20, 20, 4])
        for index, chunk in zip(indices, inputs.chunks(indices, ahead=ahead), strict=True):
            time.sleep(0.01)  # in which the next is gathered, elsewhere
            assert torch.equal(chunk, images()[index])
            assert torch.equal(inputs.gather(index), images()[index])


@pytest.mark.parametrize("workers", [0, 1])
def test_streamed_inputs_are_transformed_rows_of_the_file(tmp_path: Path, workers: int) -> None:
    raw = (255 * images()).to(torch.uint8)
    path = tmp_path / "x.npy"
    inputs = StreamedInputs(mapped_rows(path, raw), scaled, workers=workers)
    assert (len(inputs), inputs.shape) == (64, (3, 8, 8))
    indices = torch.randperm(64).split(20)
    for index, chunk in zip(indices, inputs.chunks(indices), strict=True):
        assert torch.equal(chunk, scaled(raw)[index])
    assert torch.equal(inputs.gather(torch.tensor([5, 2, 5])), scaled(raw)[[5, 2, 5]])


def test_a_part_of_the_rows_is_streamed_in_its_own_order(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    rows = mapped_rows(path, images())
    part = torch.tensor([9, 3, 40, 41])
    inputs = StreamedInputs(rows, index=part, workers=0)
    assert len(inputs) == 4
    assert torch.equal(inputs.gather(torch.tensor([2, 0])), images()[[40, 9]])
    assert torch.equal(next(inputs.chunks([torch.tensor([3, 1])])), images()[[41, 3]])
    assert inputs.nbytes < images().nbytes
    assert inputs.same_as(inputs.to("cpu"))
    assert not inputs.same_as(StreamedInputs(rows, index=part.flip(0)))


def scaled(rows: torch.Tensor) -> torch.Tensor:
    return rows.float() / 255


def test_streamed_images_train_like_images_in_memory(tmp_path: Path) -> None:
    plain = train_images(ExecutionPlan())
    streamed = train_images(ExecutionPlan(), StreamedInputs(mapped_rows(tmp_path / "x.npy", images())))
    for one, other in zip(plain.model.state_dict().values(), streamed.model.state_dict().values(), strict=True):
        assert torch.equal(one, other)
