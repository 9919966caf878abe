"""What may be seen by whom: candidate sets depend on seed and setting alone, and clean labels stay behind the wall."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
import torch

from wsl_toolkit import Setting
from wsl_toolkit.components import Estimator, Kind
from wsl_toolkit.data.dataset import Data
from wsl_toolkit.data.problem import Problem, make_problem, training_candidates
from wsl_toolkit.errors import ConfigError
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.plugins.loading import load_plugins


def digits(seed: int = 0, alpha: float = 0.7) -> Problem:
    registry = load_plugins().registry
    generator = registry.create("generator", "mcl-skewed", {"alpha": alpha})
    return make_problem(
        registry.create("dataset", "digits", {}).load(Path()), generator, seed=seed, validation=0.1, test=0.2
    )


def test_the_same_seed_gives_the_same_problem() -> None:
    one, two = digits(seed=3), digits(seed=3)
    assert one.train_candidates.content_hash == two.train_candidates.content_hash
    assert torch.equal(one.train_x, two.train_x)
    assert torch.equal(one.test_x, two.test_x)


def test_another_seed_gives_another_problem() -> None:
    assert digits(seed=3).train_candidates.content_hash != digits(seed=4).train_candidates.content_hash


def test_the_setting_changes_the_labels_and_not_the_split() -> None:
    assert torch.equal(digits(alpha=0.9).train_x, digits(alpha=0.7).train_x)


def test_parts_do_not_overlap_and_leave_nothing_out() -> None:
    problem = digits()
    assert len(problem.train_x) + len(problem.validation_x) + len(problem.test_x) == 1797
    assert len(problem.train_candidates) == len(problem.train_x)


def test_every_set_holds_its_true_label() -> None:
    problem = digits()
    assert problem.clean.train is not None
    assert bool(problem.train_candidates.mask().gather(1, problem.clean.train.unsqueeze(1)).all())


def test_only_an_estimator_that_declares_it_gets_true_labels() -> None:
    registry = load_plugins().registry
    problem = digits()
    for name in registry.names("estimator"):
        estimator = registry.create("estimator", name, {})
        sets = training_candidates(problem, estimator)
        if "true_labels" in estimator.needs:
            assert sets.mean_size == 1
        else:
            assert sets is problem.train_candidates
    declared = [n for n in registry.names("estimator") if "true_labels" in registry.get("estimator", n).needs]
    assert declared == ["supervised"]


@attrs.frozen(kw_only=True)
class NeedsLabels(Estimator):
    """An estimator that asks for true labels."""

    name = "needs-labels"
    assumption = Setting.ANY
    kind = Kind.UNBIASED
    needs = frozenset({"true_labels"})

    def loss(self, logits, candidates, state):  # type: ignore[no-untyped-def]
        return logits.sum(-1)


def test_true_labels_that_do_not_exist_are_asked_for_in_vain() -> None:
    sets = CandidateSets.from_sets([[0, 1], [1, 2], [0, 2]] * 10, num_classes=3)
    data = Data(name="own", x=torch.randn(30, 4), candidates=sets, num_classes=3)
    problem = make_problem(data, None, seed=0, validation=0.1, test=0.2)
    with pytest.raises(ConfigError, match="needs true labels"):
        training_candidates(problem, NeedsLabels())


def test_data_with_candidate_sets_of_its_own_keeps_them() -> None:
    sets = CandidateSets.from_sets([[0, 1], [1, 2], [0, 2]] * 10, num_classes=3)
    x = torch.arange(30.0).unsqueeze(1)
    problem = make_problem(
        Data(name="own", x=x, candidates=sets, num_classes=3, normalise="none"), None, seed=0, validation=0.1, test=0.2
    )
    rows = problem.train_x.flatten().long()
    assert torch.equal(problem.train_candidates.mask(), sets.mask(rows))


def test_data_without_sets_needs_a_generator() -> None:
    data = Data(name="own", x=torch.randn(30, 4), y=torch.arange(30) % 3, num_classes=3)
    with pytest.raises(ConfigError, match="choose a --generator"):
        make_problem(data, None, seed=0, validation=0.1, test=0.2)


def test_scaling_is_learned_from_the_training_part_alone() -> None:
    problem = digits()
    assert problem.train_x.mean().abs() < 1e-5
    assert abs(float(problem.train_x.std()) - 1) < 1e-3
    assert problem.test_x.mean().abs() > 1e-5
