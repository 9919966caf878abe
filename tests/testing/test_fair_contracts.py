"""Contracts are told what a class declares, count work instead of timing it, and call NaN by its name."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import torch
from contract_cases import Plain, average_loss, loss_of, variant

from wsl_toolkit import Kind, param
from wsl_toolkit.testing import EstimatorContract
from wsl_toolkit.testing.common import not_finite, same_numbers, work_of
from wsl_toolkit.testing.declared import made_as_declared
from wsl_toolkit.theory.minimiser import works_on_batches


def declared(**contract: Any) -> Any:
    return type(variant(Plain, contract=contract))


def test_a_contract_is_told_what_the_class_declares() -> None:
    contract = EstimatorContract()
    component = made_as_declared(declared(epochs=3, learning_rate=0.5), contract)
    assert isinstance(component, Plain)
    assert (contract.epochs, contract.learning_rate) == (3, 0.5)
    assert (EstimatorContract.epochs, EstimatorContract.learning_rate) == (12, 0.1)


def test_a_misspelt_setting_is_a_failure_that_says_so() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"contract names 'epoch'.*Did you mean 'epochs'"):
        made_as_declared(declared(epoch=3), EstimatorContract())


def test_a_parameter_without_a_default_is_declared_or_not_applicable() -> None:
    @attrs.frozen(kw_only=True)
    class Demanding(Plain):
        """It wants a rate."""

        rate: float = param(help="a rate", gt=0)

    with pytest.raises(pytest.skip.Exception, match="it has no default for rate"):
        made_as_declared(Demanding, EstimatorContract())
    assert made_as_declared(type(variant_of(Demanding, {"rate": 0.5})), EstimatorContract()).rate == 0.5
    with pytest.raises(pytest.fail.Exception, match="rate must be > 0"):
        made_as_declared(type(variant_of(Demanding, {"rate": -1})), EstimatorContract())


def variant_of(base: type, parameters: dict[str, Any]) -> Any:
    return type("Told", (base,), {"__doc__": "Told.", "contract": {"parameters": parameters}})(rate=1.0)


def test_work_is_counted_the_same_every_time_and_grows_with_a_loop() -> None:
    x = torch.ones(50)
    vectorised = work_of(lambda: (x * 2).sum())
    assert vectorised == work_of(lambda: (x * 2).sum())
    assert vectorised["tensor operations"] == 2

    def loop() -> Any:
        total = torch.zeros(())
        for value in x:
            total = total + value
        return total

    assert work_of(loop)["tensor operations"] > 50
    assert work_of(loop)["lines of Python"] > 100


def test_numbers_that_are_not_finite_have_names_and_nan_equals_nan() -> None:
    finite, infinite, nan = torch.ones(2), torch.tensor([1.0, torch.inf]), torch.tensor([torch.inf, torch.nan])
    assert [not_finite(each) for each in (finite, infinite, nan, torch.ones(2).bool())] == ["", "infinite", "NaN", ""]
    assert same_numbers(nan, nan.clone())
    assert not same_numbers(finite, infinite)


@pytest.mark.parametrize(
    ("objective", "is_mean"),
    [
        (lambda self, f, s, state: self.loss(f, s, state).mean(), True),
        (lambda self, f, s, state: self.loss(f, s, state).sum() / len(f), True),
        (lambda self, f, s, state: self.loss(f, s, state).abs().mean(), True),
        (lambda self, f, s, state: self.loss(f, s, state).sum(), False),
        (lambda self, f, s, state: self.loss(f, s, state).mean() + 1e-3 * f.mean().square(), False),
        (lambda self, f, s, state: self.loss(f, s, state).median(), False),
    ],
)
def test_an_objective_written_out_as_the_mean_is_the_mean(objective: Any, is_mean: bool) -> None:
    assert works_on_batches(variant(Plain, objective=objective)) is not is_mean
    assert not works_on_batches(Plain())


def test_an_objective_written_out_as_the_mean_has_the_same_verdict() -> None:
    contract = EstimatorContract()
    written = variant(Plain, objective=lambda self, f, s, state: self.loss(f, s, state).mean())
    contract.test_the_promise_is_proven_by_enumeration(written)
    with pytest.raises(AssertionError, match="its bias is"):
        contract.test_the_promise_is_proven_by_enumeration(variant(type(written), **loss_of(average_loss)))


def test_an_expected_loss_that_is_nan_is_called_so() -> None:
    nan = variant(Plain, loss=lambda self, f, s, state: Plain.loss(self, f, s, state) * torch.nan)
    with pytest.raises(AssertionError, match="its expected loss is NaN"):
        EstimatorContract().test_the_promise_is_proven_by_enumeration(nan)
    consistent = variant(type(nan), kind=Kind.CONSISTENT)
    with pytest.raises(Exception, match="is NaN"):
        EstimatorContract().test_the_promise_is_proven_by_enumeration(consistent)
    EstimatorContract().test_functions_are_pure(nan)
