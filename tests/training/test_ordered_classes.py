"""Classes that are ordered numbers, such as ages: mean absolute error and accuracy within 3 and 5, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.io import savemat

import wsl_toolkit as wsl
from wsl_builtins.datasets import community
from wsl_toolkit.data.dataset import Data
from wsl_toolkit.errors import DataError
from wsl_toolkit.testing.small_training import MeanLoss
from wsl_toolkit.training.formulas import absolute_errors
from wsl_toolkit.training.metrics import METRICS, Measured

NAMES = ("test/mean_absolute_error", "test/within_3", "test/within_5")


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(-1, 9), st.integers(0, 9)), min_size=1).filter(lambda ps: any(a >= 0 for a, _ in ps))
)
def test_the_metrics_are_what_their_names_say(pairs: list[tuple[int, int]]) -> None:
    values = torch.tensor([0.0, 1, 2, 4, 8, 9, 15, 16, 30, 70])
    labels = torch.tensor([label for label, _ in pairs])
    logits = torch.nn.functional.one_hot(torch.tensor([guess for _, guess in pairs]), 10).float()
    part = Measured(logits=logits, estimator=MeanLoss(), shared={}, labels=labels, class_values=values)
    errors = [abs(float(values[label] - values[guess])) for label, guess in pairs if label >= 0]
    expected = [sum(errors) / len(errors), *(sum(e <= d for e in errors) / len(errors) for d in (3, 5))]
    for name, wanted in zip(NAMES, expected, strict=True):
        compute = METRICS[name].compute
        assert compute is not None
        found = compute(part)
        assert found is not None
        assert float(found) == pytest.approx(wanted, rel=1e-5)
        assert compute(attrs.evolve(part, class_values=None)) is None
        assert not METRICS[name].may_select, "clean labels choose no model"
    assert absolute_errors(logits, labels, values).tolist() == errors


def ages(n: int = 120) -> dict[str, Any]:
    rng = torch.Generator().manual_seed(0)
    y = torch.arange(n) % 12
    target = torch.nn.functional.one_hot(y, 12)
    near = torch.nn.functional.one_hot((y + 1) % 12, 12)
    x = y[:, None] + torch.randn(n, 4, generator=rng)
    return {
        "data": x.double().numpy(),
        "partial_target": (target | near).T.double().numpy(),
        "target": target.T.double().numpy(),
    }


def test_fg_net_says_that_its_classes_are_years_and_a_run_measures_them(tmp_path: Path) -> None:
    savemat(tmp_path / "FG-NET.mat", ages())
    with pytest.warns(UserWarning, match="may not be the published table"):
        data = wsl.load_data("fg-net", data_dir=tmp_path)
    assert data.class_values == tuple(map(float, range(12)))
    found = wsl.train(data, estimator="cc", epochs=2).metrics
    assert set(NAMES) <= set(found)
    assert found["test/accuracy"] <= found["test/within_3"] <= found["test/within_5"]
    plain = wsl.train(attrs.evolve(data, class_values=None), estimator="cc", epochs=2).metrics
    assert not set(NAMES) & set(plain)
    assert plain["test/accuracy"] == found["test/accuracy"]


def test_the_most_frequent_ages_keep_their_numbers() -> None:
    y = torch.tensor([2, 2, 2, 5, 5, 0])
    sets = wsl.CandidateSets.from_labels(y, 6)
    data = Data(
        name="a", x=torch.zeros(6, 1), y=y, candidates=sets, num_classes=6, class_values=(10.0, 20, 30, 40, 50, 60)
    )
    assert community.most_frequent(data, 0.8).class_values == (30, 60)
    for wrong in ((1.0, 2.0), (1.0, 2, 3, 4, 5, float("nan"))):
        with pytest.raises(DataError, match="class_values must be 6 finite numbers"):
            attrs.evolve(data, class_values=wrong)
