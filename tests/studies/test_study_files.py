"""Studies come with the toolkit and with plugins, by a folder in their package."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from wsl_toolkit.errors import ConfigError
from wsl_toolkit.plugins.loading import PluginRecord, load_plugins
from wsl_toolkit.studies import reading
from wsl_toolkit.studies.parsing import from_dict
from wsl_toolkit.studies.reading import builtin_studies, find_values, make_quick, read_study, study_files

MINIMAL = """
name = "{name}"
[[settings]]
dataset = "digits"
generator = "mcl-skewed"
backbone = "linear"
[[methods]]
estimator = "ppl"
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plugin package with a folder of studies, as if it were installed; return that folder."""
    folder = tmp_path / "studied_plugin" / "studies"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    record = PluginRecord(name="mine", distribution="wsl-mine", version="1.0", target="studied_plugin")
    of_one_file = PluginRecord(name="small", distribution="wsl-small", version="1.0", target="tomllib:nothing")
    broken = attrs.evolve(record, target="no_such_package", failure="it fails")
    found = load_plugins()
    monkeypatch.setattr(
        reading, "load_plugins", lambda: attrs.evolve(found, records=(*found.records, record, of_one_file, broken))
    )
    return folder


def test_a_plugins_studies_are_found_by_name(plugin: Path) -> None:
    (plugin / "my-study.toml").write_text(MINIMAL.format(name="my-study"))
    assert study_files()["my-study"] == plugin / "my-study.toml"
    assert read_study("my-study").methods[0].label == "ppl"
    assert "real-world" in study_files()


def test_a_name_that_is_taken_is_told_apart_by_its_distribution(plugin: Path) -> None:
    (plugin / "real-world.toml").write_text(MINIMAL.format(name="their-real-world"))
    assert read_study("real-world").name == "real-world"
    assert read_study("wsl-mine:real-world").name == "their-real-world"


def test_a_plugins_study_can_be_a_base(plugin: Path, tmp_path: Path) -> None:
    (plugin / "my-study.toml").write_text(MINIMAL.format(name="my-study"))
    own = tmp_path / "own.toml"
    own.write_text('base = "my-study"\nname = "own"\ntrials = 4\n')
    assert (read_study(str(own)).name, read_study(str(own)).trials) == ("own", 4)
    own.write_text('base = "my-studdy"\nname = "own"\n')
    with pytest.raises(ConfigError, match="base must be a built-in study"):
        read_study(str(own))


def test_a_file_can_be_a_base_and_have_one(tmp_path: Path) -> None:
    (tmp_path / "whole.toml").write_text(MINIMAL.format(name="whole"))
    (tmp_path / "more.toml").write_text('base = "whole.toml"\nname = "more"\ntrials = 4\n')
    (tmp_path / "longer.toml").write_text('base = "more.toml"\nname = "longer"\ntraining = { epochs = 7 }\n')
    study = read_study(str(tmp_path / "longer.toml"))
    assert (study.name, study.trials, study.training["epochs"]) == ("longer", 4, 7)
    assert study.methods == read_study(str(tmp_path / "whole.toml")).methods


@pytest.mark.parametrize(
    ("base", "message"),
    [
        ("own.toml", "base 'own.toml' leads back to itself"),
        ("other.toml", "leads back"),
        ("gone.toml", "there is no study file"),
    ],
)
def test_a_base_that_leads_nowhere_is_refused(tmp_path: Path, base: str, message: str) -> None:
    (tmp_path / "own.toml").write_text(f'base = "{base}"\nname = "own"\n')
    (tmp_path / "other.toml").write_text('base = "own.toml"\n')
    with pytest.raises(ConfigError, match=message):
        read_study(str(tmp_path / "own.toml"))


def test_a_broken_file_of_a_plugin_hurts_nobody_else(plugin: Path) -> None:
    (plugin / "bad.toml").write_text("name = ")
    assert read_study("real-world").name == "real-world"
    with pytest.raises(ConfigError, match=r"bad\.toml"):
        read_study("bad")


def test_the_leaderboard_comes_with_the_methods_and_not_with_the_core() -> None:
    file = study_files()["leaderboard"]
    assert file.parent.parent.name == "wsl_methods"
    study = read_study("leaderboard")
    assert {setting.data_label for setting in study.settings} >= {"lost", "MSRCv2", "BirdSong"}
    assert [cell.trials for cell in study.cells()].count(10) == 3 * len(study.methods)
    other = read_study("leaderboard-aa")
    assert (study.selection.rule, other.selection.rule) == ("covering-rate", "approximated-accuracy")
    assert (other.settings, other.methods, other.search) == (study.settings, study.methods, study.search)
    assert "leaderboard" in builtin_studies()


def test_published_conformal_is_the_protocol_of_its_source() -> None:
    study = read_study("published-conformal")
    assert [setting.data_label for setting in study.settings] == [
        "lost",
        "MSRCv2",
        "BirdSong",
        "mnist",
        "fashion-mnist",
    ]
    assert (study.trials, study.search.space) == (5, {})
    for cell in study.cells():
        training = {**study.training, **cell.setting.training, **cell.method.training}
        assert (training["epochs"], training["weight_decay"], training["validation"]) == (200, 1e-4, 0.0)
        images = cell.setting.generator is not None
        assert training["batch_size"] == (256 if images else 16)
        assert cell.setting.backbone == ("mlp", {"widths": [300, 300, 300], "norm": "after"})
        if images:
            assert cell.setting.generator == ("flip-instance", {"rate": 0.8, "scale": "mean-all"})
        else:
            assert cell.setting.dataset[1] == {"normalise": "min-max", "coverage": 0.99}
            assert training["test"] == 0.2
        if cell.method.label != "CAVL":
            assert (training["optimizer"], training["lr"]) == ("adam", 0.01)
            assert training["scheduler"] == {"name": "one-cycle", "every": "step", "momentum": "cycled"}


def test_published_valen_is_the_protocol_of_its_source() -> None:
    study = read_study("published-valen")
    assert [setting.dataset[0] for setting in study.settings] == ["mnist", "fashion-mnist"]
    assert all(setting.generator == ("flip", {"q": 0.5}) for setting in study.settings)
    assert (study.training["epochs"], study.training["batch_size"], study.trials) == (500, 256, 5)
    assert [method.label for method in study.methods] == ["VALEN", "PRODEN", "RC", "CC", "GA"]


@pytest.mark.parametrize("name", ["published-conformal", "published-valen"])
def test_published_studies_are_tried_in_small_on_bundled_data(name: str) -> None:
    small = from_dict(make_quick(find_values(name)[0], keep_datasets=False), name)
    assert {setting.dataset[0] for setting in small.settings} == {"digits"}
    assert small.training["epochs"] <= 12
    assert [method.label for method in small.methods] == [method.label for method in read_study(name).methods]


def test_a_setting_may_have_fewer_trials_and_shorter_searches() -> None:
    values = {
        "name": "mixed",
        "trials": 5,
        "search": {"epochs": 20},
        "training": {"epochs": 50},
        "settings": [
            {"dataset": "digits", "generator": "mcl-skewed", "backbone": "linear"},
            {
                "dataset": "digits",
                "generator": "flip",
                "backbone": "linear",
                "trials": 2,
                "training": {"epochs": 10},
            },
        ],
        "methods": ["ppl"],
    }
    study = reading.from_dict(values, "test")
    assert [(len(cell.seeds), cell.search_epochs) for cell in study.cells()] == [(5, 20), (2, 10)]
    assert study.trials_words == "2 to 5 trials"
    assert reading.from_dict(study.to_dict(), "again") == study
    values["settings"][1]["trials"] = 0  # type: ignore[index]
    with pytest.raises(ConfigError, match="trials must be >= 1, not 0"):
        reading.from_dict(values, "test")
