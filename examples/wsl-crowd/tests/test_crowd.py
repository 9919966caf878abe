"""The crowd keeps the generators' contract, and its law is that of a literal sum over all answers."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from wsl_crowd import Crowd

from wsl_toolkit.errors import WslError
from wsl_toolkit.testing import GeneratorContract


class TestCrowd(GeneratorContract):
    @pytest.fixture(params=[(0.9, 0.7, 0.5), (0.6,), (0.2, 0.9, 0.5, 0.4, 0.7)], ids=str)
    def component(self, request: pytest.FixtureRequest) -> Crowd:
        return Crowd(abilities=request.param)


def test_the_law_is_that_of_a_sum_over_all_answers() -> None:
    crowd, num_classes, y = Crowd(abilities=(0.9, 0.6, 0.3, 0.5)), 4, 2
    literal: dict[frozenset[int], float] = {}
    for answers in itertools.product(range(num_classes), repeat=4):
        chances = zip(crowd.abilities, answers, strict=True)
        p = math.prod(a if answer == y else (1 - a) / (num_classes - 1) for a, answer in chances)
        s = frozenset(answers)
        if y in s and len(s) < num_classes:
            literal[s] = literal.get(s, 0.0) + p
    total = sum(literal.values())
    for s, p in literal.items():
        mask = torch.tensor([[j in s for j in range(num_classes)]])
        assert crowd.constant(mask, torch.zeros(1, 2), num_classes).item() == pytest.approx(p / total, abs=1e-12)


def test_able_annotators_leave_little_doubt() -> None:
    y = torch.arange(10).repeat(50)
    sizes = [
        Crowd(abilities=(a,) * 3).sample(torch.zeros(500, 1), y, 10, torch.Generator().manual_seed(0)).mean_size
        for a in (0.99, 0.7, 0.3)
    ]
    assert sizes == sorted(sizes)
    assert sizes[0] < 1.1


def test_a_crowd_of_nobody_is_refused() -> None:
    with pytest.raises(WslError, match="at least one annotator"):
        Crowd(abilities=()).check_classes(4)
