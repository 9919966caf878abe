"""`wsl inspect`: the page, its JSON and its figures, and the map with everybody's generators on it."""

from __future__ import annotations

import json
import sys
from importlib.metadata import EntryPoint
from typing import ClassVar

import attrs
import pytest
from click.testing import CliRunner
from generator_cases import create

from wsl_toolkit import Generator, Setting, hookimpl, param
from wsl_toolkit.cli import main
from wsl_toolkit.cli.inspect import named_generator
from wsl_toolkit.errors import TheoryError
from wsl_toolkit.plugins import loading
from wsl_toolkit.theory.figures.settings_map import draw_map
from wsl_toolkit.theory.survey import survey


@attrs.frozen(kw_only=True)
class Crowd(Generator):
    """A third party's generator without probabilities, whose parameter has the name of one of our options."""

    name: ClassVar[str] = "crowd"
    setting: ClassVar[Setting] = Setting.GENERAL
    seed: int = param(3, help="of the crowd")

    def draw(self, x, y, num_classes, rng):
        return create("cl").draw(x, y, num_classes, rng)


@attrs.frozen(kw_only=True)
class Boaster(Crowd):
    """Declares a smaller region than it lies in."""

    name: ClassVar[str] = "boaster"
    setting: ClassVar[Setting] = Setting.PCPL


@attrs.frozen(kw_only=True)
class Faulty(Crowd):
    """Raises when it draws."""

    name: ClassVar[str] = "faulty"

    def draw(self, x, y, num_classes, rng):
        raise RuntimeError("no crowd today")


@hookimpl
def wsl_register_generators():
    """Register the three above."""
    return [Crowd, Boaster, Faulty]


@pytest.fixture
def with_third_party(monkeypatch):
    """Load this module as a plugin beside the built-ins, by the ordinary way."""
    monkeypatch.setitem(sys.modules, "crowd_plugin", sys.modules[__name__])
    third = EntryPoint("crowd", "crowd_plugin", "wsl_toolkit")
    ours = EntryPoint("builtins", "wsl_builtins", "wsl_toolkit")
    loaded = loading.load([ours, third])
    assert [record.failure for record in loaded.records] == [None, None]
    monkeypatch.setattr("wsl_toolkit.cli.inspect.load_plugins", lambda: loaded)
    return loaded.registry


def run(*args):
    result = CliRunner().invoke(main, ["inspect", *map(str, args)], env={"COLUMNS": "200"})
    assert not isinstance(result.exception, Exception) or result.exit_code != 1, result.exception
    return result


def test_the_page_shows_setting_proof_sizes_constants_and_examples():
    result = run("mcl-skewed", "--classes", 10, "--alpha", 0.9)
    assert result.exit_code == 0
    assert "MCL, proven by enumeration of all 1,022 sets" in result.output
    assert "E|s| = 5.6920 (exact), sampled 5.7" in result.output
    assert "no   PCPL" in result.output
    assert "0.0181382" in result.output  # C of the sets of nine
    assert "Ambiguity degree  0.5213 (exact)" in result.output
    assert result.output.count("s = {") == 10


@pytest.mark.parametrize(("alpha", "mean"), [(0.9, 5.69), (0.8, 6.40), (0.7, 7.05)])
def test_json_has_table_2(alpha, mean):
    facts = json.loads(run("mcl-skewed", "--classes", 10, "--alpha", alpha, "--json").output)
    assert round(facts["mean_size"]["value"], 2) == mean
    assert facts["mean_size"]["exact"] is True
    assert abs(facts["sampled_mean_size"]["value"] - facts["mean_size"]["value"]) < 0.08
    assert facts["proof"]["region"] == "MCL"
    assert facts["proof"]["regions"] == ["CMM", "MCL", "PPL", "any", "general"]
    assert sum(facts["sizes"].values()) == pytest.approx(1)
    assert len(facts["examples"]) == 10


def test_pair_is_shown_improper_with_its_witness():
    result = run("flip-class", "--classes", 4, "--matrix", "pair")
    assert "general, proven by enumeration" in result.output
    assert "no   PPL         p({0,1} | x0, y=0) = 0.5 but p({0,1} | x0, y=1) = 0" in result.output
    assert "There is no C(x, s)" in result.output
    facts = json.loads(run("flip-class", "--classes", 4, "--json").output)
    verdict = next(v for v in facts["proof"]["verdicts"] if v["claim"] == "PPL")
    assert verdict["witness"] == [
        {"x": 0, "s": [0, 1], "y": 0, "p": 0.5},
        {"x": 0, "s": [0, 1], "y": 1, "p": 0.0},
    ]


def test_more_than_twelve_classes_are_shown_with_the_proof_at_twelve():
    result = run("mcl-skewed", "--classes", 30)
    assert result.exit_code == 0
    assert "at 12 classes (30 are too many to enumerate)" in result.output
    assert "the 24 likeliest of 29 sizes" in result.output


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_figures_are_written(tmp_path, suffix):
    path = tmp_path / f"one.{suffix}"
    assert run("query", "--classes", 4, "--figure", path).exit_code == 0
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix]
    assert path.read_bytes().startswith(start)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "name a GENERATOR"),
        (["cl", "--all"], "name a GENERATOR"),
        (["mcl-skewd"], "Did you mean 'mcl-skewed'"),
        (["mcl-skewed", "--alpha", 0], "must be > 0"),
        (["mcl-skewed", "--alpha", "much"], "must be a number"),
        (["mcl-skewed", "--classes", 2], "needs at least 3 classes, not 2"),
        (["mcl", "--sizes", "0.5,0.4"], "sizes must sum to 1, not to 0.9"),
        (["cl", "--figure", "map.gif"], "written as .png, .svg or .pdf"),
        (["cl", "--alpha", 0.5], "No such option"),
        (["--all", "--classes", 13], "at most 12 classes, not 13"),
    ],
)
def test_mistakes_are_one_clear_line(args, message):
    result = run(*args)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


def test_help_shows_the_options_of_the_generator_that_is_named():
    assert "--alpha FLOAT" in run("mcl-skewed", "--help").output
    assert "--alpha FLOAT" not in run("--help").output


@pytest.mark.parametrize(
    ("args", "name"),
    [
        (["mcl-skewed", "--alpha", "0.9"], "mcl-skewed"),
        (["--classes", "5", "--json", "cl"], "cl"),
        (["--classes=5", "cl"], "cl"),
        (["--alpha", "0.9", "mcl-skewed"], "mcl-skewed"),
        (["--figure", "cl", "pcpl"], "pcpl"),
        (["noisy", "--wraps", "cl"], "noisy"),
        (["nonsense", "--classes", "4"], "nonsense"),
        (["--all"], None),
    ],
)
def test_the_generator_is_found_among_the_arguments(args, name):
    assert named_generator(args, ["cl", "pcpl", "mcl-skewed", "noisy"]) == name


def test_the_map_lists_every_generator_in_its_region():
    facts = {row["generator"]: row for row in json.loads(run("--all", "--classes", 4, "--json").output)}
    regions = {name: row["region"] for name, row in facts.items() if row["owner"].startswith("wsl-toolkit")}
    assert regions == {
        "cl": "CL",
        "pcpl": "PCPL",
        "mcl": "MCL",
        "mcl-skewed": "MCL",
        "pcpl-symmetric": "MCL",
        "flip": "MCL",
        "annotators": "MCL",
        "flip-superclass": "CMM",
        "partition": "CMM",
        "query": "CMM",
        "proper-instance": "PPL",
        "cl-biased": "general",
        "flip-class": "general",
        "flip-instance": "general",
        "noisy": "any",
    }
    assert all(row["problem"] is None for row in facts.values())


def test_third_parties_generators_are_on_the_map_and_a_faulty_one_stops_no_other(with_third_party, tmp_path):
    path = tmp_path / "map.svg"
    result = run("--all", "--classes", 4, "--figure", path)
    assert result.exit_code == 0
    lines = {line.split()[1]: line for line in result.output.splitlines() if len(line.split()) > 2}
    assert lines["crowd"].startswith("CL ")
    assert "by a statistical test of its draws; from unknown" in lines["crowd"]
    assert lines["faulty"].startswith("? ")
    assert "no crowd today" in lines["faulty"]
    assert "declares PCPL, but" in lines["boaster"]
    assert lines["mcl-skewed"].startswith("MCL ")
    assert path.stat().st_size > 10_000
    draw_map(survey(with_third_party, 3), 3, tmp_path / "map.png")
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")


def test_a_third_partys_generator_is_inspected_with_prefixed_options_where_names_collide(with_third_party):
    result = run("crowd", "--classes", 4, "--seed", 1, "--generator-seed", 5)
    assert result.exit_code == 0
    assert "seed = 5" in result.output
    assert "not refuted by a statistical test" in result.output
    faulty = run("faulty", "--classes", 4)
    assert faulty.exit_code == 2
    assert "no crowd today" in faulty.output
    assert "Traceback" not in faulty.output


def test_the_map_is_not_drawn_beyond_twelve_classes(with_third_party):
    with pytest.raises(TheoryError, match="at most 12"):
        survey(with_third_party, 20)
