"""Every fault of the catalogue is caught by its contract and by loading or a run, or says why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
from contract_cases import Coin, Made, Plain, Small
from faulty import Fault, catalogue
from test_contracts_catch import run as run_contract

from wsl_toolkit.data.loading import load_data
from wsl_toolkit.data.problem import make_problem
from wsl_toolkit.errors import PluginError, WslError, one_line
from wsl_toolkit.parameters import construct, parameters_of
from wsl_toolkit.plugins.attribution import attributed
from wsl_toolkit.plugins.class_checks import suspicions
from wsl_toolkit.plugins.registry import Owner, Registry
from wsl_toolkit.testing import BackboneContract, DatasetContract, EstimatorContract, GeneratorContract
from wsl_toolkit.training.config import Training
from wsl_toolkit.training.train import TrainingJob, train

SOUND: dict[str, type] = {"estimator": Plain, "generator": Coin, "backbone": Small, "dataset": Made}
CONTRACTS: dict[str, type] = {
    "estimator": EstimatorContract,
    "generator": GeneratorContract,
    "backbone": BackboneContract,
    "dataset": DatasetContract,
}
AT_LEAST = {"estimator": 45, "generator": 20, "backbone": 10, "dataset": 10}
CASES = [
    pytest.param(role, fault, id=f"{role}: {fault.what}") for role, found in catalogue().items() for fault in found
]


def faulty_class(role: str, fault: Fault) -> Any:
    """Return the sound component's class with the fault in it."""
    made = type("Faulty", (SOUND[role],), {"__doc__": "A faulty one.", **fault.attributes})
    return attrs.frozen(kw_only=True)(made) if fault.decorate else made


def registered(role: str, cls: Any) -> Registry:
    """Register a class as a third party's."""
    registry = Registry()
    registry.add_all([(role, cls)], Owner("wsl-faulty", "1.2", "faulty"))
    return registry


def said_by_a_run(role: str, cls: Any, tmp_path: Path) -> str:
    """Return what a short run with a component says in the end, or nothing."""
    registry = registered(role, cls)
    try:
        with attributed(registry, role, cls.name):
            parts = {each: sound() for each, sound in SOUND.items()}
            parts[role] = registry.create(role, cls.name, {})
            data = load_data(parts["dataset"], tmp_path)
            problem = make_problem(data, parts["generator"], seed=0, validation=0.1, test=0.2)
            training = Training(epochs=2, batch_size=16, lr=0.1, device="cpu")
            job = TrainingJob(
                problem=problem, estimator=parts["estimator"], backbone=parts["backbone"], training=training, seed=0
            )
            train([job])
    except Exception as error:
        return str(error) if isinstance(error, WslError) else f"not attributed: {one_line(error)}"
    return ""


@pytest.mark.parametrize(("role", "fault"), CASES)
def test_a_fault_is_caught_by_check_and_by_run_or_says_why_not(role: str, fault: Fault, tmp_path: Path) -> None:
    cls = faulty_class(role, fault)
    if fault.load:
        with pytest.raises(PluginError) as refused:
            registered(role, cls)
        assert fault.load in str(refused.value)
        return
    warned = " ".join(suspicions(cls))
    assert fault.warns in warned
    assert bool(fault.warns) == bool(warned)
    if fault.check:
        required = {each.name: 1.0 for each in parameters_of(cls).values() if each.required}
        failed = run_contract(CONTRACTS[role], construct(cls, required), tmp_path, only=f"test_{fault.check}")
        assert fault.says in failed[f"test_{fault.check}"]
    said = said_by_a_run(role, cls, tmp_path)
    if fault.run:
        assert fault.run in said
        assert "wsl-faulty 1.2" in said or "is required" in said
    else:
        assert not said
        assert fault.why or fault.warns
    assert (fault.check and (fault.run or fault.warns)) or fault.warns or fault.why


@pytest.mark.parametrize("role", SOUND)
def test_the_catalogue_is_long_enough_and_the_sound_components_run(role: str, tmp_path: Path) -> None:
    assert len({fault.what for fault in catalogue()[role]}) == len(catalogue()[role]) >= AT_LEAST[role]
    assert not suspicions(SOUND[role])
    assert said_by_a_run(role, SOUND[role], tmp_path) == ""
