"""A run must know when an estimator's promise does not cover its generator."""

from __future__ import annotations

import pytest

from wsl_toolkit.components import Estimator, Generator
from wsl_toolkit.settings import Kind, Setting
from wsl_toolkit.training.assumptions import mismatch


def estimator(assumption: Setting, kind: Kind) -> type[Estimator]:
    return type("E", (Estimator,), {"name": "my-estimator", "assumption": assumption, "kind": kind})


def generator(setting: Setting) -> type[Generator]:
    return type("G", (Generator,), {"name": "my-generator", "setting": setting})


@pytest.mark.parametrize("setting", [Setting.CL, Setting.PCPL, Setting.MCL, Setting.CMM, Setting.PPL])
def test_a_promise_for_all_proper_settings_covers_each_of_them(setting):
    assert mismatch(estimator(Setting.PPL, Kind.UNBIASED), generator(setting)) is None


@pytest.mark.parametrize(
    ("assumption", "setting"),
    [
        (Setting.CL, Setting.MCL),
        (Setting.CL, Setting.PCPL),
        (Setting.PCPL, Setting.CL),
        (Setting.MCL, Setting.CMM),
        (Setting.PPL, Setting.GENERAL),
        (Setting.GENERAL, Setting.ANY),
    ],
)
def test_a_generator_outside_the_assumption_is_named_with_both_settings(assumption, setting):
    sentence = mismatch(estimator(assumption, Kind.CONSISTENT), generator(setting))
    assert sentence is not None
    for part in ("my-estimator", "classifier-consistent", str(assumption), "my-generator", str(setting)):
        assert part in sentence


def test_a_heuristic_promises_nothing_that_could_be_broken():
    assert mismatch(estimator(Setting.CL, Kind.HEURISTIC), generator(Setting.ANY)) is None
