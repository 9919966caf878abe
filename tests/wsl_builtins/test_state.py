"""The state of estimators that hold confidences: how it starts, when it moves, and what it weighs."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from test_formulas import as_mask, make

from wsl_toolkit import CandidateSets
from wsl_toolkit.data.problem import Problem, make_problem
from wsl_toolkit.labels import storage
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.training.build import make_trainer
from wsl_toolkit.training.config import Training
from wsl_toolkit.training.formulas import candidate_confidence
from wsl_toolkit.training.risk import Risk

REGISTRY = load_plugins().registry
MASK = as_mask([{0}, {1, 2}, {0, 2, 3}], 4)


@pytest.mark.parametrize("name", ["ppl", "proden", "rc"])
def test_confidences_start_equal_over_the_candidates(name: str):
    start = make(name).init_state(MASK)["confidence"]
    assert torch.allclose(start, torch.tensor([[1, 0, 0, 0], [0, 0.5, 0.5, 0], [1 / 3, 0, 1 / 3, 1 / 3]]))


@pytest.mark.parametrize(("name", "key"), [("pcpl", "posterior"), ("lw", "weight")])
def test_weights_over_all_classes_start_at_one_over_k(name: str, key: str):
    assert torch.equal(make(name).init_state(MASK)[key], torch.full((3, 4), 0.25))


def test_lw_renormalises_on_the_set_and_on_its_complement_apart():
    logits = torch.tensor([[0.0, 1.0, 2.0, 3.0]] * 3)
    found = make("lw").update(logits, MASK, {})["weight"]
    p = torch.softmax(logits, -1)
    for i in range(3):
        for part in (MASK[i], ~MASK[i]):
            assert torch.allclose(found[i, part], p[i, part] / p[i, part].sum())


@pytest.fixture(scope="module")
def problem() -> Problem:
    data = REGISTRY.create("dataset", "digits", {}).load(Path())
    return make_problem(data, REGISTRY.create("generator", "mcl-skewed", {}), seed=0, validation=0.1, test=0.2)


@pytest.mark.parametrize(("name", "when"), [("proden", "before"), ("ppl", "after"), ("rc", "after")])
def test_confidences_come_from_the_logits_on_the_side_of_the_step_that_the_variant_names(
    problem: Problem, name: str, when: str
):
    training = Training(epochs=1, batch_size=len(problem.train_x), lr=0.5)
    trainer = make_trainer(problem, make(name), REGISTRY.create("backbone", "linear", {}), training, seed=0)
    before = copy.deepcopy(trainer.model)
    list(trainer.epochs(1))
    mask, rows = trainer.risk.gather(torch.arange(len(problem.train_x)))
    with torch.no_grad():
        sides = {
            "before": candidate_confidence(before(problem.train_x), mask),
            "after": candidate_confidence(trainer.model(problem.train_x), mask),
        }
    assert torch.allclose(rows["confidence"], sides[when], atol=1e-5)
    (other,) = {"before", "after"} - {when}
    assert not torch.allclose(rows["confidence"], sides[other], atol=1e-2)


@pytest.mark.parametrize("name", ["ppl", "proden", "rc"])
def test_with_many_classes_confidences_lie_on_the_candidates_only(name: str, monkeypatch: pytest.MonkeyPatch):
    for module in ("wsl_toolkit.training.risk.DENSE_LIMIT", "wsl_toolkit.labels.storage.DENSE_LIMIT"):
        monkeypatch.setattr(module, 1000)
    rng = torch.Generator().manual_seed(0)
    sets = CandidateSets.from_sets([torch.randperm(500, generator=rng)[:4].tolist() for _ in range(50)], 500)
    risk = Risk(make(name), sets)
    assert risk.state_dict()["row_confidence"].shape == (200,)
    index = torch.tensor([3, 49, 0])
    mask, rows = risk.gather(index)
    logits = torch.randn(3, 500, generator=rng)
    risk.write_batch(risk.estimator.update(logits, mask, rows), rows)
    risk.scatter(index, mask, rows)
    _, again = risk.gather(index)
    assert torch.allclose(again["confidence"], candidate_confidence(logits, mask))
    assert storage.DENSE_LIMIT == 1000
