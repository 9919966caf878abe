"""PiCO keeps the estimators' contract, and each of its parts is what a slow, literal transcription gives."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from wsl_pico import Pico
from wsl_pico.estimator import pseudo_label

from wsl_toolkit import CandidateSets, State
from wsl_toolkit.networks import run
from wsl_toolkit.testing import EstimatorContract

K, B, WIDTH, QUEUE = 4, 6, 5, 11


class TestPico(EstimatorContract):
    @pytest.fixture(params=[0, 1], ids=["no warm-up", "one epoch of warm-up"])
    def component(self, request: pytest.FixtureRequest) -> Pico:
        return Pico(queue=256, width=16, ramp=20, warm_up=request.param)


@pytest.fixture
def pico() -> Pico:
    return Pico(queue=QUEUE, width=WIDTH, warm_up=2, ramp=10, prototype_decay=0.9)


@pytest.fixture
def batch(pico: Pico) -> tuple[Tensor, Tensor, State]:
    """Logits, candidates and a state in which seven of the queue's places are filled."""
    rng = torch.Generator().manual_seed(0)
    candidates = torch.rand(B, K, generator=rng) < 0.5
    candidates[:, 0] |= ~candidates.any(1)
    state = {
        **pico.init_state(candidates),
        **pico.init_shared(CandidateSets.from_mask(candidates)),
        "features": torch.randn(B, WIDTH, generator=rng),
        "momentum_features": torch.randn(B, WIDTH, generator=rng),
        "epoch": torch.tensor(5.0),
        "prototypes": nn.functional.normalize(torch.randn(K, WIDTH, generator=rng), dim=1),
        "place": torch.tensor(7),
    }
    state["keys"][:7] = nn.functional.normalize(torch.randn(7, WIDTH, generator=rng), dim=1)
    state["key_labels"][:7] = torch.randint(K, (7,), generator=rng)
    return torch.randn(B, K, generator=rng), candidates, state


def length_one(v: list[float]) -> list[float]:
    norm = math.sqrt(sum(a * a for a in v))
    return [a / norm for a in v]


def dot(u: list[float], v: list[float]) -> float:
    return sum(a * b for a, b in zip(u, v, strict=True))


def literal_contrast(pico: Pico, labels: list[int], state: State, warming: bool) -> list[float]:
    queries = [length_one(v) for v in state["features"].tolist()]
    keys = [length_one(v) for v in state["momentum_features"].tolist()]
    queue = [(k, y) for k, y in zip(state["keys"].tolist(), state["key_labels"].tolist(), strict=True) if y >= 0]
    losses = []
    for i, q in enumerate(queries):
        if warming:
            pool, positives = [keys[i], *(k for k, _ in queue)], [keys[i]]
        else:
            others = [(queries[j], labels[j]) for j in range(B) if j != i]
            everything = [*others, *zip(keys, labels, strict=True), *queue]
            pool, positives = [k for k, _ in everything], [k for k, y in everything if y == labels[i]]
        total = sum(math.exp(dot(q, k) / pico.temperature) for k in pool)
        terms = [math.log(math.exp(dot(q, k) / pico.temperature) / total) for k in positives]
        losses.append(-sum(terms) / len(terms))
    return losses


@pytest.mark.parametrize("epoch", [0.0, 5.0])
def test_the_loss_is_that_of_a_literal_transcription(
    pico: Pico, batch: tuple[Tensor, Tensor, State], epoch: float
) -> None:
    logits, candidates, state = batch
    state["epoch"] = torch.tensor(epoch)
    labels = pseudo_label(logits, candidates).tolist()
    contrast = literal_contrast(pico, labels, state, warming=epoch < 2)
    target = pico.update(logits, candidates, state)["target"]
    classification = [
        -sum(target[i, j].item() * torch.log_softmax(logits[i], 0)[j].item() for j in range(K)) for i in range(B)
    ]
    expected = torch.tensor([c + pico.weight * d for c, d in zip(classification, contrast, strict=True)])
    torch.testing.assert_close(pico.loss(logits, candidates, state), expected, rtol=1e-4, atol=1e-5)


def test_targets_move_towards_the_nearest_prototype_among_the_candidates(
    pico: Pico, batch: tuple[Tensor, Tensor, State]
) -> None:
    logits, candidates, state = batch
    moved = pico.update(logits, candidates, state)["target"]
    decay = 0.95 + (0.8 - 0.95) * 4 / 10  # set at the end of the fourth epoch, for the fifth
    for i in range(B):
        q = length_one(state["features"][i].tolist())
        inside = [j for j in range(K) if candidates[i, j]]
        nearest = max(inside, key=lambda j: dot(q, state["prototypes"][j].tolist()))
        for j in range(K):
            expected = decay * state["target"][i, j].item() + (1 - decay) * (j == nearest)
            assert moved[i, j].item() == pytest.approx(expected, abs=1e-6)
    state["epoch"] = torch.tensor(1.0)
    assert torch.equal(pico.update(logits, candidates, state)["target"], state["target"]), "not in the warm-up"


def test_prototypes_are_those_of_one_update_after_another(pico: Pico, batch: tuple[Tensor, Tensor, State]) -> None:
    logits, candidates, state = batch
    prototypes = [p.clone() for p in state["prototypes"]]
    queries = nn.functional.normalize(state["features"], dim=1)
    for q, label in zip(queries, pseudo_label(logits, candidates).tolist(), strict=True):
        prototypes[label] = 0.9 * prototypes[label] + 0.1 * q
    expected = nn.functional.normalize(torch.stack(prototypes), dim=1)
    torch.testing.assert_close(pico.update(logits, candidates, state)["prototypes"], expected)


def test_the_queue_takes_the_batch_and_forgets_the_oldest(pico: Pico, batch: tuple[Tensor, Tensor, State]) -> None:
    logits, candidates, state = batch
    new = pico.update(logits, candidates, state)
    keys = nn.functional.normalize(state["momentum_features"], dim=1)
    assert torch.equal(new["keys"][7:], keys[:4])
    assert torch.equal(new["keys"][:2], keys[4:])
    assert torch.equal(new["keys"][2:7], state["keys"][2:7])
    assert new["place"].item() == 2


def test_the_network_gets_a_projection_head_that_is_trained(pico: Pico) -> None:
    model = pico.extend(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, K)))
    logits, extras = run(model, torch.randn(B, 3))
    assert extras["features"].shape == extras["momentum_features"].shape == (B, WIDTH)
    candidates = torch.ones(B, K, dtype=torch.bool)
    candidates[:, 0] = False
    state = {**pico.init_state(candidates), **pico.init_shared(CandidateSets.from_mask(candidates)), **extras}
    pico.objective(logits, candidates, {**state, "epoch": torch.tensor(0.0)}).backward()
    trained = {name for name, p in model.named_parameters() if p.grad is not None}
    assert any(name.startswith("project") for name in trained)
    assert not any(name.startswith("slow") for name in trained)
