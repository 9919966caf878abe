"""The two example plugins, built, installed by pip beside the toolkit's own wheel, used, and uninstalled again."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from plugin_environments import ROOT, Environment, Outcome, build_wheels

EXAMPLES = {"wsl-crowd": ("generator", "crowd"), "wsl-pico": ("estimator", "pico-lite")}

COMMANDS = {
    "list": ["list", "--json"],
    "plugins": ["plugins", "--json"],
    "inspect": ["inspect", "--all", "--classes", "4", "--json"],
    "verify": ["verify", "--estimator", "ppl", "--estimator", "mcl", "--estimator", "pico-lite", "--json"],
    "crowd": ["run", "--generator", "crowd", "--generator-abilities", "0.8,0.6", "--epochs", "12", "--json"],
    "pico": [
        "run",
        "--estimator",
        "pico-lite",
        "--backbone",
        "mlp",
        "--backbone-widths",
        "64",
        "--epochs",
        "3",
        "--json",
    ],
    "pico-again": [
        "run",
        "--estimator",
        "pico-lite",
        "--backbone",
        "mlp",
        "--backbone-widths",
        "64",
        "--epochs",
        "3",
        "--json",
    ],
    "help": ["run", "--generator", "crowd", "--help"],
}


@attrs.frozen
class Life:
    """What the commands said while the plugins were installed, and afterwards."""

    during: dict[str, Outcome]
    after: list[Outcome]

    def json(self, command: str) -> Any:
        assert self.during[command].code == 0, self.during[command].stderr
        return json.loads(self.during[command].stdout)


@pytest.fixture(scope="module")
def life(
    environment: Environment, tmp_path_factory: pytest.TempPathFactory, fresh_database_in: Callable[[Path], None]
) -> Life:
    """Build, install, use, uninstall."""
    cwd = tmp_path_factory.mktemp("examples")
    fresh_database_in(cwd)
    environment.install(*build_wheels(cwd / "dist", *(ROOT / "examples" / name for name in EXAMPLES)))
    try:
        during = dict(zip(COMMANDS, environment.session(*COMMANDS.values(), cwd=cwd), strict=True))
    finally:
        environment.uninstall(*EXAMPLES)
    after = environment.session(["list", "--json"], ["plugins", "--json"], ["show", "estimator", "pico-lite"], cwd=cwd)
    return Life(during, after)


@pytest.mark.parametrize("distribution", EXAMPLES)
def test_an_example_is_listed_as_its_own_distributions(life: Life, distribution: str) -> None:
    role, name = EXAMPLES[distribution]
    assert life.json("list")[role][name]["distribution"] == distribution
    record = next(record for record in life.json("plugins") if record["distribution"] == distribution)
    assert record["components"] == {role: [name]}
    assert record["warnings"] == []


def test_the_crowds_setting_is_proven_on_the_map_with_all_others(life: Life) -> None:
    pages = {page["generator"]: page for page in life.json("inspect")}
    assert pages["crowd"]["owner"] == "wsl-crowd 0.1.0"
    assert (pages["crowd"]["declared"], pages["crowd"]["region"]) == ("MCL", "MCL")
    assert pages["crowd"]["proof"]["keeps_promise"]
    assert "mcl-skewed" in pages


def test_estimators_for_mcl_are_verified_unbiased_on_the_crowd_and_pico_is_not_judged(life: Life) -> None:
    cells = {(cell["estimator"], cell["generator"]): cell for cell in life.json("verify")["cells"]}
    assert cells["ppl", "crowd"]["verdict"] == cells["mcl", "crowd"]["verdict"] == "unbiased"
    assert cells["pico-lite", "crowd"]["verdict"] == "n/a"
    assert cells["pico-lite", "mcl-skewed"]["verdict"] == "n/a"


def test_a_third_partys_setting_trains_through_wsl_run(life: Life) -> None:
    result = life.json("crowd")
    assert result["mean"]["test/accuracy"] > 0.85
    assert 1 < result["mean"]["candidates/mean_size"] < 2


def test_a_method_with_state_a_second_view_and_a_momentum_copy_trains_through_wsl_run(life: Life) -> None:
    assert life.json("pico")["mean"]["test/accuracy"] > 0.5
    assert life.json("pico")["mean"] == life.json("pico-again")["mean"], "the same seed gives the same numbers"


def test_a_plugins_parameters_are_options_of_wsl_run(life: Life) -> None:
    text = " ".join(life.during["help"].stdout.split())
    assert "--generator-abilities" in text
    assert "each annotator's probability of naming the true class" in text


def test_after_uninstalling_nothing_of_them_is_left(life: Life) -> None:
    components, plugins, shown = life.after
    for distribution, (role, name) in EXAMPLES.items():
        assert name not in json.loads(components.stdout)[role]
        assert distribution not in plugins.stdout
    assert shown.code == 2
    assert "no estimator is named 'pico-lite'" in shown.stderr


def test_no_file_of_the_toolkit_names_the_examples() -> None:
    names = re.compile(r"wsl[-_](crowd|pico)")
    sources = [*(ROOT / "wsl_toolkit").rglob("*.py"), *(ROOT / "plugins").rglob("*.py")]
    assert len(sources) > 50
    assert [str(path) for path in sources if names.search(path.read_text())] == []


def test_the_examples_pass_their_own_tests(environment: Environment, tmp_path: Path) -> None:
    folders = [ROOT / "examples" / name for name in EXAMPLES]
    done = environment.run(
        "python", "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "--import-mode=importlib", "-c", "/dev/null",
        *(str(folder / "tests") for folder in folders),
        cwd=tmp_path,
        PYTHONPATH=":".join(str(folder / "src") for folder in folders),
        PYTHONDONTWRITEBYTECODE="1",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert not [
        line for line in done.stdout.splitlines() if line.startswith("SKIPPED") and "not applicable" not in line
    ]
