from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wsl_toolkit.errors import ConfigError, UnknownComponentError
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.system.toml_files import read_toml
from wsl_toolkit.training.config import RunConfig, Training, from_dict, merge


def test_a_resolved_configuration_reads_back_as_itself(tmp_path: Path) -> None:
    registry = load_plugins().registry
    config = from_dict({"epochs": 7, "generator": {"name": "mcl-skewed", "alpha": 0.9}}, "test").resolved(registry)
    file = tmp_path / "config.toml"
    file.write_text(config.to_toml(), encoding="utf-8")
    assert from_dict(read_toml(file), str(file)).resolved(registry) == config


@given(
    epochs=st.integers(1, 1000),
    lr=st.floats(1e-6, 10),
    alpha=st.floats(0.01, 5),
    seed=st.integers(0, 2**31),
)
def test_any_accepted_values_survive_the_file(epochs: int, lr: float, alpha: float, seed: int) -> None:
    import tomllib

    values = {"epochs": epochs, "lr": lr, "seed": seed, "generator": {"name": "mcl-skewed", "alpha": alpha}}
    config = from_dict(values, "test")
    assert from_dict(tomllib.loads(config.to_toml()), "test") == config


def test_resolving_writes_out_every_parameter() -> None:
    flat = RunConfig().resolved(load_plugins().registry).flat()
    assert flat["generator.name"] == "mcl-skewed"
    assert flat["generator.alpha"] == 0.7
    assert {"epochs", "lr", "seed", "estimator.name", "dataset.name", "backbone.name"} <= set(flat)


def test_flags_override_the_file() -> None:
    base = from_dict({"lr": 0.5, "generator": {"name": "mcl-skewed", "alpha": 0.9}}, "file")
    merged = merge(base, {"lr": 0.25}, {"generator": ("mcl-skewed", {"alpha": 0.8})})
    assert merged.training.lr == 0.25
    assert merged.components["generator"] == ("mcl-skewed", {"alpha": 0.8})


def test_naming_another_component_drops_the_parameters_of_the_old_one() -> None:
    base = from_dict({"generator": {"name": "mcl-skewed", "alpha": 0.9}}, "file")
    assert merge(base, {}, {"generator": ("cl", {})}).components["generator"] == ("cl", {})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epoch": 3}, "unknown key 'epoch'. Did you mean 'epochs'"),
        ({"epochs": 0}, "epochs must be >= 1, not 0"),
        ({"epochs": 2.5}, "epochs must be a whole number, not 2.5"),
        ({"epochs": True}, "epochs must be int, not True"),
        ({"lr": "fast"}, "lr must be a number, not 'fast'"),
        ({"lr": float("nan")}, "lr must be a finite number"),
        ({"generator": {"alpha": 1}}, "[generator] needs a name"),
        ({"generator": 3}, "[generator] needs a name"),
    ],
)
def test_a_wrong_file_says_what_and_where(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_dict(values, "my.toml")
    assert message in str(caught.value)
    assert "my.toml" in str(caught.value) or "Training" in str(caught.value)


def test_an_unknown_component_parameter_is_an_error() -> None:
    config = from_dict({"generator": {"name": "mcl-skewed", "alph": 1}}, "my.toml")
    with pytest.raises(ConfigError, match=r"unknown parameter 'alph'\. Did you mean 'alpha'"):
        config.resolved(load_plugins().registry)


def test_an_unknown_component_gets_the_nearest_names() -> None:
    config = from_dict({"estimator": "pplx"}, "my.toml")
    with pytest.raises(UnknownComponentError, match=r"no estimator is named 'pplx'\. Did you mean 'ppl'"):
        config.resolved(load_plugins().registry)


def test_defaults_are_valid() -> None:
    assert Training().epochs >= 1


def test_an_optimiser_and_a_schedule_may_be_tables_with_options() -> None:
    values = {"epochs": 8, "optimizer": {"name": "sgd", "nesterov": True}, "scheduler": {"name": "step", "gamma": 0.5}}
    config = from_dict(values, "my.toml")
    assert (config.training.optimizer, config.training.optimizer_options) == ("sgd", {"nesterov": True})
    assert (config.training.scheduler, config.training.scheduler_options) == ("step", {"gamma": 0.5})
    again = from_dict(config.to_dict(), "again")
    assert again == config
    assert config.flat()["optimizer.nesterov"] is True
    assert config.flat()["scheduler"] == "step"


def test_naming_another_optimiser_drops_the_options_of_the_one_that_it_replaces() -> None:
    base = from_dict({"optimizer": {"name": "sgd", "nesterov": True}}, "my.toml")
    assert merge(base, {"lr": 0.1}, {}).training.optimizer_options == {"nesterov": True}
    assert merge(base, {"optimizer": "adam"}, {}).training.optimizer_options == {}


def test_settings_without_options_are_written_as_before() -> None:
    values = RunConfig().to_dict()
    assert (values["optimizer"], values["scheduler"]) == ("sgd", "none")
    assert not [key for key in values if key.endswith("_options")]


def test_a_checkpoint_of_release_0_1_knows_its_configuration_and_another_setting_is_another_one() -> None:
    """These are the training keys that 0.1 wrote, in its order."""
    first = ["epochs", "batch_size", "lr", "weight_decay", "momentum", "optimizer", "scheduler"]
    then = ["seed", "trials", "validation", "test", "device", "precision", "on_nan"]
    assert list(tomllib.loads(RunConfig().identity())) == [*first, *then]
    for changed in ({"patience": 3}, {"keep": "best"}, {"warmup_epochs": 1}, {"monitor": "validation/risk"}):
        assert from_dict(changed, "my.toml").identity() != RunConfig().identity()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = " + "[" * 5000 + "]" * 5000, "is nested too deep: a configuration file needs no more than 16 levels"),
        ("epochs = " + "9" * 5000, "holds an integer of more than 64 bits"),
        ("epochs = 99999999999999999999", "holds an integer of more than 64 bits"),
        ("# " + "x" * 2**21, "is larger than 1024 kB: that is not a configuration file"),
    ],
)
def test_a_file_without_end_is_one_clear_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "my.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_toml(path)
