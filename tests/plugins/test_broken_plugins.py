"""A broken plugin of every kind, really installed: each is named with its fault, and nothing else stops."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from broken_plugins import BROKEN
from plugin_environments import Environment, Outcome

from wsl_toolkit.plugins.loading import OWN_DISTRIBUTION, load_plugins

FAILING = {name: plugin.failure for name, plugin in BROKEN.items() if plugin.failure}
WARNED = {name: plugin.warning for name, plugin in BROKEN.items() if plugin.warning}
WORKING = [name for name, plugin in BROKEN.items() if not plugin.failure]


@pytest.fixture(scope="module")
def listed(broken_environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What `wsl plugins --json` says, by distribution; ours has two plugins, which go by their own names."""
    done = broken_environment.run("wsl", "plugins", "--json", cwd=tmp_path_factory.mktemp("plugins"))
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    records = json.loads(done.stdout)
    return {r["name"] if r["distribution"] == OWN_DISTRIBUTION else r["distribution"]: r for r in records}


@pytest.fixture(scope="module")
def components(broken_environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What `wsl list --json` says while all those plugins are installed."""
    done = broken_environment.run("wsl", "list", "--json", cwd=tmp_path_factory.mktemp("list"))
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("distribution", FAILING)
def test_a_plugin_that_cannot_be_loaded_is_set_aside_with_its_fault(
    listed: dict[str, dict[str, Any]], distribution: str
) -> None:
    record = listed[distribution]
    assert record["status"] == "failed"
    assert FAILING[distribution] in record["failure"]
    assert record["version"] == "1.2"
    assert record["components"] == {}


@pytest.mark.parametrize("distribution", WARNED)
def test_a_plugin_with_bad_manners_works_and_is_told_of(
    listed: dict[str, dict[str, Any]], components: dict[str, dict[str, Any]], distribution: str
) -> None:
    record = listed[distribution]
    assert record["status"] == "ok"
    assert any(WARNED[distribution] in warning for warning in record["warnings"])
    (name,) = record["components"]["generator"]
    assert components["generator"][name]["distribution"] == distribution


def test_every_built_in_and_every_sound_plugin_works_beside_all_broken_ones(
    listed: dict[str, dict[str, Any]], components: dict[str, dict[str, Any]]
) -> None:
    ours = [record for record in load_plugins().records if record.distribution == OWN_DISTRIBUTION]
    for record in ours:
        assert listed[record.name]["components"] == {role: list(names) for role, names in record.components.items()}
        for role, names in record.components.items():
            assert set(names) <= set(components[role])
            assert all(components[role][name]["distribution"] == OWN_DISTRIBUTION for name in names)
    assert {name for name in listed if listed[name]["status"] == "ok"} == {*(record.name for record in ours), *WORKING}
    assert components["generator"]["sound"]["distribution"] == "wsl-sound", "the first by name keeps it"


def wsl(environment: Environment, cwd: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    done = environment.run("wsl", *arguments, cwd=cwd, **env)
    assert "Traceback" not in done.stderr
    return done


def test_the_table_names_every_failure_and_warning(broken_environment: Environment, tmp_path: Path) -> None:
    done = wsl(broken_environment, tmp_path, "plugin", "list")
    assert done.returncode == 0
    for distribution, failure in FAILING.items():
        assert any(f"of {distribution} 1.2: " in line and failure in line for line in done.stdout.splitlines())
    assert "look at me" in done.stdout, "what a plugin printed is reported, not passed on"
    assert not done.stdout.startswith("look at me")


def test_listing_components_says_that_plugins_failed(broken_environment: Environment, tmp_path: Path) -> None:
    done = wsl(broken_environment, tmp_path, "list", "backbone")
    assert f"{len(FAILING)} plugins could not be loaded" in done.stderr
    assert "wsl plugins" in done.stderr


def test_a_missing_component_quotes_the_plugins_that_may_have_provided_it(
    broken_environment: Environment, tmp_path: Path
) -> None:
    done = wsl(broken_environment, tmp_path, "show", "estimator", "undeclared")
    assert done.returncode == 2
    assert "no estimator is named 'undeclared'" in done.stderr
    assert "Plugin wsl-undeclared:undeclared is not loaded and may provide it" in done.stderr


def test_strict_mode_stops_at_the_first_broken_plugin(broken_environment: Environment, tmp_path: Path) -> None:
    done = wsl(broken_environment, tmp_path, "list", WSL_STRICT_PLUGINS="1")
    assert done.returncode == 2
    assert "Error: plugin 'abstract' of wsl-abstract 1.2: estimator 'abstract' does not define loss" in done.stderr


def test_a_plugin_can_be_switched_off_by_entry_point_or_distribution(
    broken_environment: Environment, tmp_path: Path
) -> None:
    off = "sleeps, WSL_Prints, wsl-heavy:heavy, wsl-unheard"
    done = wsl(broken_environment, tmp_path, "plugins", "--json", WSL_DISABLE_PLUGINS=off)
    records = {record["distribution"]: record for record in json.loads(done.stdout)}
    disabled = {name for name, record in records.items() if record["status"] == "disabled"}
    assert disabled == {"wsl-sleeps", "wsl-prints", "wsl-heavy"}
    assert all(not records[name]["warnings"] for name in disabled), "a disabled plugin is not even imported"


def test_a_disabled_plugin_is_named_when_its_component_is_asked_for(
    broken_environment: Environment, tmp_path: Path
) -> None:
    done = wsl(broken_environment, tmp_path, "show", "generator", "sound", WSL_DISABLE_PLUGINS="sound,twin")
    assert "wsl-sound:sound is not loaded and may provide it: switched off by WSL_DISABLE_PLUGINS" in done.stderr


RUNS = {
    "sound": ["--generator", "sound"],
    "raises-in-draw": ["--generator", "raises-in-draw"],
    "empty-set": ["--generator", "empty-set"],
    "raises-in-loss": ["--estimator", "raises-in-loss"],
    "nan-loss": ["--estimator", "nan-loss"],
    "wrong-loss": ["--estimator", "wrong-loss"],
    "typo": ["--generator", "typo"],
    "sound-again": ["--generator", "sound"],
}


@pytest.fixture(scope="module")
def runs(
    broken_environment: Environment,
    tmp_path_factory: pytest.TempPathFactory,
    fresh_database_in: Callable[[Path], None],
) -> dict[str, Outcome]:
    """A short run with each plugin that fails only at work, between two runs with a sound one."""
    commands = [["run", "--epochs", "1", "--json", *arguments] for arguments in RUNS.values()]
    cwd = tmp_path_factory.mktemp("runs")
    fresh_database_in(cwd)
    outcomes = broken_environment.session(*commands, cwd=cwd)
    return dict(zip(RUNS, outcomes, strict=True))


@pytest.mark.parametrize(
    ("case", "code", "fault"),
    [
        (
            "raises-in-draw",
            2,
            "failed in generator 'raises-in-draw', at wsl_raises_in_draw.py:19: KeyError: 'no annotator'",
        ),
        ("empty-set", 2, "generator empty-set drew an empty set"),
        (
            "raises-in-loss",
            2,
            "failed in estimator 'raises-in-loss', at wsl_raises_in_loss.py:18: ValueError: bad batch",
        ),
        ("nan-loss", 4, "the loss became nan at step 1 of epoch 1: the logits were finite"),
        ("wrong-loss", 2, "estimator wrong-loss: loss must return one loss for each of"),
    ],
)
def test_a_plugin_that_fails_at_work_is_named_with_its_fault(
    runs: dict[str, Outcome], case: str, code: int, fault: str
) -> None:
    assert runs[case].code == code
    assert fault in runs[case].stderr
    assert f"plugin wsl-{case} 1.2" in runs[case].stderr
    assert "Traceback" not in runs[case].stderr


def test_a_sound_plugin_runs_before_and_after_all_that(runs: dict[str, Outcome]) -> None:
    first, last = runs["sound"], runs["sound-again"]
    assert (first.code, last.code) == (0, 0), first.stderr + last.stderr
    assert json.loads(first.stdout)["mean"] == json.loads(last.stdout)["mean"]


def test_a_run_with_a_component_that_looks_like_a_slip_says_so(runs: dict[str, Outcome]) -> None:
    assert runs["typo"].code == 0, runs["typo"].stderr
    assert "did you mean 'probability'?" in runs["typo"].stderr
    assert "did you mean" not in runs["sound"].stderr
