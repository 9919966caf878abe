"""Each check of a contract fails for a component that breaks it, and says why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch
from contract_cases import Coin, Made, Plain, Small, variant
from faulty import catalogue

from wsl_toolkit import Kind, Setting, param
from wsl_toolkit.testing import BackboneContract, DatasetContract, EstimatorContract, GeneratorContract
from wsl_toolkit.testing.distributions import NEXT_WIDER, random_distribution
from wsl_toolkit.theory.proofs import check_claim, check_normalised


def checks(contract: type) -> list[str]:
    return [name for name in dir(contract) if name.startswith("test_")]


def run(contract: type, component: Any, tmp_path: Path, only: str | None = None) -> dict[str, str]:
    """Return which checks fail, and why; one that does not apply says so by a skip, and has not failed."""
    failed = {}
    for name in [only] if only else checks(contract):
        check = getattr(contract(), name)
        wanted = check.__code__.co_varnames[2 : check.__code__.co_argcount]
        given = dict.fromkeys(wanted, tmp_path)
        try:
            check(component, **given)
        except pytest.skip.Exception:
            continue
        except (Exception, pytest.fail.Exception) as error:
            failed[name] = str(error)
    return failed


def does_not_apply(check: Callable[..., None], component: Any) -> str:
    """Return the reason why a check does not apply to a component."""
    with pytest.raises(pytest.skip.Exception) as skipped:
        check(component)
    return str(skipped.value).removeprefix("not applicable: ")


ROLES: list[tuple[type, type, str]] = [
    (GeneratorContract, Coin, "generator"),
    (EstimatorContract, Plain, "estimator"),
    (BackboneContract, Small, "backbone"),
    (DatasetContract, Made, "dataset"),
]


@pytest.mark.parametrize(("contract", "sound"), [role[:2] for role in ROLES])
def test_sound_components_pass_every_check(contract: type, sound: type, tmp_path: Path) -> None:
    assert run(contract, sound(), tmp_path) == {}


@pytest.mark.parametrize(("contract", "role"), [(contract, role) for contract, _, role in ROLES])
def test_every_check_of_every_contract_is_shown_to_fail(contract: type, role: str) -> None:
    """By the catalogue of faults; checks that all roles share are shown once, on generators."""
    shared = set(checks(GeneratorContract)) & set(checks(BackboneContract)) & set(checks(DatasetContract))
    shown = {f"test_{fault.check}" for fault in catalogue()[role]}
    missing = set(checks(contract)) - shown - shared - {"test_parameters_have_defaults"}
    assert not missing


def test_parameters_are_held_to_help_defaults_and_a_round_trip(tmp_path: Path) -> None:
    @attrs.frozen(kw_only=True)
    class Demanding(Coin):
        """It wants to be told."""

        rate: float = param(help="")

    failed = run(GeneratorContract, Demanding(rate=1.0), tmp_path)
    assert "has no help" in failed["test_every_parameter_says_what_it_means"]
    assert "rate" in failed["test_parameters_have_defaults"]

    @attrs.frozen(kw_only=True)
    class Hidden(Coin):
        """It has a field that is no parameter."""

        rate: float = 1.0

    failed = run(GeneratorContract, Hidden(rate=2.0), tmp_path)
    assert "built again" in failed["test_parameters_survive_a_configuration_file"]


@pytest.mark.parametrize(
    ("name", "attributes", "reason"),
    [
        ("an_examples_loss_does_not_depend_on_its_neighbours", {"needs": frozenset({"features"})}, "more than logits"),
        ("looking_back_is_pure_and_returns_state_that_was_declared", {}, "does not define after_epoch"),
        ("the_promise_is_proven_by_enumeration", {"kind": Kind.HEURISTIC}, "promises nothing"),
        ("the_assumption_is_the_widest", {"kind": Kind.CONSISTENT}, "it is classifier-consistent"),
        ("the_assumption_is_the_widest", {"assumption": Setting.ANY}, "no setting is wider than any"),
        ("it_learns", {"trains": False}, "does not train a model"),
        ("many_models_stack_under_vmap_or_it_says_that_they_do_not", {"stackable": False}, "cannot be stacked"),
    ],
)
def test_a_check_that_does_not_apply_to_an_estimator_says_why(name: str, attributes: dict, reason: str) -> None:
    assert reason in does_not_apply(getattr(EstimatorContract(), f"test_{name}"), variant(Plain, **attributes))


@pytest.mark.parametrize("check", ["test_probabilities_are_a_law", "test_samples_match_the_probabilities"])
def test_a_check_of_probabilities_does_not_apply_to_a_generator_without_them(check: str) -> None:
    silent = variant(Coin, probability=lambda self, sets, x, y, num_classes: None, setting=Setting.GENERAL)
    assert does_not_apply(getattr(GeneratorContract(), check), silent) == "it gives no probabilities"


@pytest.mark.parametrize("setting", list(NEXT_WIDER))
def test_the_distributions_on_which_promises_are_tried_lie_in_their_setting_and_in_no_smaller(setting: Setting) -> None:
    table = random_distribution(setting, 6, 4, torch.Generator().manual_seed(0))
    assert check_normalised(table).holds
    assert check_claim(table, setting).holds
    for inner in NEXT_WIDER:
        if setting.includes(inner) and inner is not setting:
            assert not check_claim(table, inner).holds
