"""The pictures of a run say what the numbers say, and read clean labels only where that is said."""

from __future__ import annotations

import io
import math
from pathlib import Path

import attrs
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from wsl_toolkit.data.dataset import Data
from wsl_toolkit.data.problem import Problem, make_problem
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.runs import trial_figures
from wsl_toolkit.runs.figures import Calibration, ambiguous_grid
from wsl_toolkit.system import figure_style
from wsl_toolkit.training.engine import EpochRecord
from wsl_toolkit.training.formulas import candidate_confidence, true_label_confidence


class FixedLogits(nn.Module):
    """Answers with the first K numbers of the input."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.num_classes = num_classes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1)[:, : self.num_classes]


def problem(shape: tuple[int, ...] = (6,), n: int = 60, *, known: bool = True) -> Problem:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, *shape, generator=generator)
    y = torch.randint(4, (n,), generator=generator)
    mask = torch.rand(n, 4, generator=generator) < 0.5
    mask[torch.arange(n), y] = True
    mask[mask.all(1), (y[mask.all(1)] + 1) % 4] = False
    data = Data(
        name="made",
        x=x,
        candidates=CandidateSets.from_mask(mask, ["cat", "dog", "owl", "$cow$"]),
        known_y=y if known else None,
        num_classes=4,
        class_names=("cat", "dog", "owl", "$cow$"),
    )
    return make_problem(data, None, seed=0, validation=0.2, test=0.2)


def record(epoch: int, **metrics: float) -> EpochRecord:
    return EpochRecord(epoch=epoch, metrics={"train/risk": 1.0, **metrics}, seconds=0.0)


RECORDS = [record(e, **{"validation/oracle_confidence": 0.3 + 0.1 * e}) for e in (1, 2, 3)]


def test_the_confidence_of_the_truth_is_the_mean_of_theorem_1() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 0.0, 5.0], [1.0, 1.0, 1.0]])
    mask = torch.tensor([[1, 1, 0], [1, 1, 1], [0, 1, 1]], dtype=torch.bool)
    labels = torch.tensor([0, 2, -1])
    by_hand = (math.e**2 / (math.e**2 + math.e) + math.e**5 / (math.e**5 + 2)) / 2
    assert float(true_label_confidence(logits, mask, labels)) == pytest.approx(by_hand, rel=1e-6)


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=50))
def test_bins_lose_nobody_and_the_error_is_the_weighted_gap(found: list[tuple[float, bool]]) -> None:
    probability = torch.tensor([p for p, _ in found], dtype=torch.float64)
    right = torch.tensor([r for _, r in found])
    result = Calibration.of(probability, right)
    assert sum(result.counts) == len(found)
    gaps = {}
    for p, r in found:
        gaps.setdefault(min(int(p * 10), 9), []).append((p, r))
    by_hand = sum(abs(sum(p for p, _ in b) - sum(r for _, r in b)) for b in gaps.values()) / len(found)
    assert result.error == pytest.approx(by_hand, abs=1e-9)


def test_probabilities_that_are_honest_have_no_calibration_error() -> None:
    right = torch.cat([torch.ones(75), torch.zeros(25)]).bool()
    assert Calibration.of(torch.full((100,), 0.75, dtype=torch.float64), right).error == pytest.approx(0)


def test_examples_without_a_known_label_do_not_count() -> None:
    logits = torch.tensor([[9.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
    assert sum(trial_figures.calibration(logits, torch.tensor([0, -1, 1])).counts) == 2


def test_the_most_ambiguous_are_those_whose_best_candidate_is_least_sure() -> None:
    made = problem()
    model = FixedLogits(4)
    found = trial_figures.most_ambiguous(model, made, count=5)
    mask = made.train_candidates.mask()
    confidence = candidate_confidence(model(torch.as_tensor(made.train_x)), mask).max(1).values
    several = mask.sum(1) > 1
    wanted = confidence[several].sort().values[:5]
    assert [example.confidences[0] for example in found] == pytest.approx(wanted.tolist())
    for example in found:
        assert set(example.names) == set(made.train_candidates.take(torch.tensor([example.index])).to_names()[0])
        assert sum(example.confidences) == pytest.approx(1)
        assert list(example.confidences) == sorted(example.confidences, reverse=True)


def test_images_are_shown_as_images_and_rows_are_not() -> None:
    assert trial_figures.as_picture(torch.rand(6)) is None
    assert trial_figures.as_picture(torch.rand(1, 8, 8)).shape == (8, 8)
    colour = trial_figures.as_picture(10 * torch.randn(3, 8, 8))
    assert colour.shape == (8, 8, 3)
    assert (colour.min(), colour.max()) == (0, 1)
    assert trial_figures.as_picture(torch.zeros(1, 4, 4)).max() == 0


@pytest.mark.parametrize("shape", [(6,), (1, 4, 4), (3, 4, 4)])
def test_a_trial_with_labels_has_all_its_pictures(shape: tuple[int, ...], tmp_path: Path) -> None:
    drawn = dict(trial_figures.trial_figures(FixedLogits(4), problem(shape), RECORDS, "ppl | $made$"))
    assert set(drawn) == {"candidate_sizes", "true_label_confidence", "reliability", "ambiguous"}
    for name, figure in drawn.items():
        figure_style.save(figure, tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").stat().st_size > 5000


def test_drawn_once_a_picture_has_the_bytes_of_savefig_which_draws_it_twice() -> None:
    for attempt in ("candidate_sizes", "true_label_confidence", "reliability", "ambiguous"):
        one, other = (
            dict(trial_figures.trial_figures(FixedLogits(4), problem((1, 4, 4)), RECORDS, "x"))[attempt]
            for _ in range(2)
        )
        buffer = io.BytesIO()
        other.savefig(buffer, format="png")
        assert figure_style.png(one) == buffer.getvalue()


def test_without_clean_labels_no_picture_pretends_to_know_them() -> None:
    made = problem(known=False)
    drawn = dict(trial_figures.trial_figures(FixedLogits(4), made, [record(1)], "x"))
    assert set(drawn) == {"candidate_sizes", "ambiguous"}


def test_a_problem_built_without_clean_labels_shows_the_same_to_the_eye_that_may_not_see_them() -> None:
    """The wall: the ambiguous examples do not depend on any true label."""
    made = problem()
    blind = attrs.evolve(made, clean=attrs.evolve(made.clean, train=None, validation=None, test=None))
    seen, unseen = (trial_figures.most_ambiguous(FixedLogits(4), p) for p in (made, blind))
    assert [e.index for e in seen] == [e.index for e in unseen]


def test_nobody_is_ambiguous_where_every_set_is_a_singleton() -> None:
    made = problem()
    single = CandidateSets.from_labels(made.clean.train, 4)
    assert trial_figures.most_ambiguous(FixedLogits(4), attrs.evolve(made, train_candidates=single)) == []


def test_a_grid_of_one_example_can_be_drawn() -> None:
    (example,) = trial_figures.most_ambiguous(FixedLogits(4), problem(), count=1)
    assert ambiguous_grid([example], "one")
