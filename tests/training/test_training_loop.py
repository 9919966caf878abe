"""The loop does what a plain loop would do, to the same bits every time, and can be stopped and resumed."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from small_problems import MakeTrainer, estimator, inputs_and_candidates, mapped_rows
from torch import Tensor, nn

from wsl_toolkit.data.inputs import StreamedInputs
from wsl_toolkit.errors import DivergedError
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.training import risk as risk_module
from wsl_toolkit.training.engine import batch_sizes, predict
from wsl_toolkit.training.plan import ExecutionPlan
from wsl_toolkit.training.trainer import Trainer


def everything(trainer: Trainer) -> dict[str, Any]:
    state = trainer.state_dict()
    return {key: state[key] for key in ("model", "risk", "shuffle", "epoch")}


def assert_same_bits(one: Any, other: Any) -> None:
    if isinstance(one, Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same_bits(one[key], other[key])
    else:
        assert one == other


def plain_epochs(trainer: Trainer, epochs: int) -> tuple[nn.Module, Tensor]:
    """Train like the trainer, written as simply as possible: one batch at a time, indexing everywhere."""
    model = copy.deepcopy(trainer.model)
    shuffle = torch.Generator()
    shuffle.set_state(trainer.shuffle.get_state())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    method = trainer.risk.estimator
    candidates = trainer.risk.candidates.mask()
    x = trainer.inputs.gather(torch.arange(len(candidates)))
    state = method.init_state(candidates)["confidence"]
    for _ in range(epochs):
        for index in torch.randperm(len(x), generator=shuffle).split(trainer.batch_size):
            logits = model(x[index])
            loss = (state[index] * -torch.log_softmax(logits, 1)).sum(1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if method.update_when == "after":
                statistics = copy.deepcopy(dict(model.named_buffers()))
                with torch.no_grad():
                    logits = model(x[index])
                for name, buffer in model.named_buffers():
                    buffer.copy_(statistics[name])
            p = torch.softmax(logits.detach(), 1) * candidates[index]
            state[index] = p / p.sum(1, keepdim=True)
    return model, state


@pytest.mark.parametrize("kind", ["linear", "mlp"])
@pytest.mark.parametrize("method", ["ppl", "proden"])
def test_the_loop_takes_the_steps_of_a_plain_one(make_trainer: MakeTrainer, method: str, kind: str) -> None:
    trainer = make_trainer(method, kind)
    model, confidence = plain_epochs(trainer, 3)
    list(trainer.epochs(3))
    for ours, plain in zip(trainer.model.state_dict().values(), model.state_dict().values(), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(trainer.risk.get_buffer("row_confidence"), confidence, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("method", "kind", "optimizer", "scheduler"),
    [
        ("ppl", "linear", "sgd", None),
        ("proden", "mlp", "sgd", "cosine"),
        ("lw", "dropout", "adam", "step"),
        ("cl-nn", "mlp", "rmsprop", None),
    ],
)
@pytest.mark.parametrize("compact", [False, True])
def test_stopping_and_resuming_gives_the_same_bits(
    make_trainer: MakeTrainer,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    kind: str,
    optimizer: str,
    scheduler: str | None,
    compact: bool,
) -> None:
    if compact:
        monkeypatch.setattr(risk_module, "DENSE_LIMIT", 1)
    options: dict[str, Any] = {"optimizer": optimizer, "scheduler": scheduler}
    whole = make_trainer(method, kind, **options)
    records = list(whole.epochs(6))
    first = make_trainer(method, kind, **options)
    first_records = list(first.epochs(3))
    saved = io.BytesIO()
    torch.save(first.state_dict(), saved)
    torch.manual_seed(12345)  # the world moves on between the two halves
    second = make_trainer(method, kind, seed=7, **options)
    saved.seek(0)
    second.load_state_dict(torch.load(saved, weights_only=True))
    second_records = list(second.epochs(6))
    assert_same_bits(everything(second), everything(whole))
    assert [r.metrics for r in records] == [r.metrics for r in first_records + second_records]


def test_the_same_plan_gives_the_same_bits(make_trainer: MakeTrainer) -> None:
    one, other = make_trainer("ppl", "mlp"), make_trainer("ppl", "mlp")
    list(one.epochs(3))
    list(other.epochs(3))
    assert_same_bits(everything(one), everything(other))


def test_a_saved_state_does_not_change_when_training_goes_on(make_trainer: MakeTrainer, tmp_path: Any) -> None:
    trainer = make_trainer("ppl", "mlp")
    list(trainer.epochs(1))
    torch.save(trainer.state_dict(), tmp_path / "a.pt")
    kept = torch.load(tmp_path / "a.pt", weights_only=True)
    list(trainer.epochs(2))
    trainer.load_state_dict(kept)
    assert_same_bits(everything(trainer), {key: kept[key] for key in everything(trainer)})


def test_a_compact_state_trains_like_a_dense_one(make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    dense = make_trainer("ppl", "mlp")
    monkeypatch.setattr(risk_module, "DENSE_LIMIT", 1)
    compact = make_trainer("ppl", "mlp")
    assert compact.risk.get_buffer("row_confidence").shape == (int(compact.risk.candidates.sizes.sum()),)
    list(dense.epochs(3))
    list(compact.epochs(3))
    assert_same_bits(dense.model.state_dict(), compact.model.state_dict())
    mask = dense.risk.candidates.mask()
    assert torch.equal(dense.risk.get_buffer("row_confidence")[mask], compact.risk.get_buffer("row_confidence"))


def test_confidences_stay_distributions_over_the_candidates(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer("ppl")
    list(trainer.epochs(3))
    confidence = trainer.risk.get_buffer("row_confidence")
    torch.testing.assert_close(confidence.sum(1), torch.ones(len(confidence)))
    assert not bool(confidence[~trainer.risk.candidates.mask()].any())
    assert not torch.equal(confidence, estimator("ppl").init_state(trainer.risk.candidates.mask())["confidence"])


def test_training_learns_the_true_classes_from_sets_alone(make_trainer: MakeTrainer) -> None:
    x, candidates = inputs_and_candidates(n=600)
    y = torch.randint(5, (600,), generator=torch.Generator().manual_seed(0))  # as the fixture drew them
    trainer = make_trainer("ppl", problem=(x, candidates))
    before = (predict(trainer.model, x).argmax(1) == y).float().mean()
    list(trainer.epochs(20))
    assert float((predict(trainer.model, x).argmax(1) == y).float().mean()) > max(0.85, float(before) + 0.2)


def test_a_loss_that_is_not_finite_ends_training_with_its_place(make_trainer: MakeTrainer) -> None:
    x, candidates = inputs_and_candidates()
    x[5] = torch.inf
    with pytest.raises(DivergedError, match=r"the loss became nan at step \d+ of epoch 1: .*lower --lr"):
        list(make_trainer("cc", problem=(x, candidates)).epochs(2))


def test_examples_with_full_sets_are_never_visited(make_trainer: MakeTrainer) -> None:
    x, candidates = inputs_and_candidates()
    mask = candidates.mask()
    mask[::7] = True
    x[::7] = torch.nan  # whoever reads one of these is found out
    trainer = make_trainer("ppl", problem=(x, CandidateSets.from_mask(mask)))
    list(trainer.epochs(3))
    assert all(bool(torch.isfinite(p).all()) for p in trainer.model.parameters())
    assert torch.equal(trainer.risk.get_buffer("row_confidence")[::7], torch.full_like(mask[::7] * 1.0, 1 / 5))


@pytest.mark.parametrize("n", [1, 2, 32, 33, 64, 65])
def test_no_batch_of_one_is_left_over(make_trainer: MakeTrainer, n: int) -> None:
    x, candidates = inputs_and_candidates()
    sizes = batch_sizes(n, 32)
    assert sum(sizes) == n
    assert n == 1 or min(sizes) > 1
    kind = "linear" if n == 1 else "mlp"  # batch norm cannot train on a single example at all
    trainer = make_trainer("ppl", kind, problem=(x[:n], candidates.take(torch.arange(n))))
    records = list(trainer.epochs(2))
    assert torch.isfinite(torch.tensor(records[-1].metrics["train/risk"]))


def test_a_leftover_example_is_trained_on_across_chunks(
    make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wsl_toolkit.data.inputs.CHUNK_CELLS", 64 * 6)
    x, candidates = inputs_and_candidates(n=129)
    small = make_trainer("ppl", "mlp", problem=(x, candidates))
    assert small.inputs.chunk_length(32) == 64
    list(small.epochs(2))
    monkeypatch.undo()
    large = make_trainer("ppl", "mlp", problem=(x, candidates))
    list(large.epochs(2))
    assert_same_bits(everything(small), everything(large))


def test_clean_labels_in_the_evaluation_cannot_reach_training(make_trainer: MakeTrainer) -> None:
    x, candidates = inputs_and_candidates()
    trainers = []
    for shift in (0, 1):
        y = (torch.randint(5, (203,), generator=torch.Generator().manual_seed(0)) + shift) % 5

        def evaluate(model: nn.Module, risk: Any, y: Tensor = y) -> dict[str, Tensor]:
            return {"test/accuracy": (predict(model, x).argmax(1) == y).float().mean()}

        trainers.append(make_trainer("ppl", "mlp", problem=(x, candidates), evaluate=evaluate))
    scores = [list(trainer.epochs(4))[-1].metrics["test/accuracy"] for trainer in trainers]
    assert scores[0] > scores[1] + 0.3
    assert_same_bits(everything(trainers[0]), everything(trainers[1]))


def test_a_second_pass_leaves_running_statistics_alone(make_trainer: MakeTrainer) -> None:
    # With a learning rate of nothing both see the same activations, and only one of them passes twice.
    once = make_trainer("proden", "mlp", lr=0.0)
    twice = make_trainer("ppl", "mlp", lr=0.0)
    list(once.epochs(2))
    list(twice.epochs(2))
    assert_same_bits(once.model.state_dict(), twice.model.state_dict())


def test_an_epoch_record_weighs_batches_by_their_size(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer("cc", lr=0.0, batch_size=32)
    expected = trainer.risk.estimator.loss(
        trainer.model(trainer.inputs.gather(torch.arange(203))), trainer.risk.candidates.mask(), {}
    ).mean()
    assert next(trainer.epochs(1)).metrics["train/risk"] == pytest.approx(float(expected.detach()), rel=1e-5)


def test_inputs_on_disk_train_like_inputs_in_memory(make_trainer: MakeTrainer, tmp_path: Any) -> None:
    x, candidates = inputs_and_candidates()
    mapped = make_trainer("ppl", "dropout", problem=(StreamedInputs(mapped_rows(tmp_path / "x.npy", x)), candidates))
    in_memory = make_trainer("ppl", "dropout", problem=(x, candidates))
    list(mapped.epochs(2))
    list(in_memory.epochs(2))
    assert_same_bits(everything(mapped), everything(in_memory))
    assert torch.equal(predict(mapped.model, mapped.inputs), predict(in_memory.model, x))


def test_a_plan_limits_threads_only_while_it_trains(make_trainer: MakeTrainer) -> None:
    seen = []
    before = torch.get_num_threads()

    class Spy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(torch.get_num_threads())
            return x

    trainer = make_trainer("ppl", plan=ExecutionPlan(threads=2))
    trainer.model.append(Spy())  # type: ignore[operator]
    list(trainer.epochs(1))
    assert set(seen) == {2}
    assert torch.get_num_threads() == before
