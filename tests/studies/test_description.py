"""Descriptions: what they mean, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_study import SMALL

from wsl_toolkit.errors import ConfigError, WslError
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.studies.parsing import from_dict
from wsl_toolkit.studies.reading import builtin_studies, read_study, restrict
from wsl_toolkit.studies.search import grid

REPRODUCTION = Path(__file__).parents[2] / "docs" / "reproduction"
TWICE = {"dataset": "digits", "backbone": "linear"}
POWERS = [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1]


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", sorted(builtin_studies()))
def test_every_builtin_study_is_sound_and_survives_writing_and_reading(name: str, quick: bool) -> None:
    study = read_study(name, quick=quick)
    assert from_dict(study.to_dict(), "again") == study
    registry = load_plugins().registry
    for cell in study.cells():
        for point in grid(cell.space):
            cell.config(point, seed=0, epochs=None, registry=registry)


@pytest.mark.parametrize("path", sorted(REPRODUCTION.glob("*.toml")), ids=lambda path: path.name)
def test_every_study_of_the_reproduction_is_sound(path: Path) -> None:
    study = read_study(str(path))
    assert study.name == path.stem
    for cell in study.cells():
        cell.config(grid(cell.space)[0], seed=0, epochs=None, registry=load_plugins().registry)


@pytest.mark.parametrize(("number", "networks"), [(3, ("linear", "resnet32")), (4, ("mlp", "densenet22"))])
def test_the_paper_studies_follow_its_protocol(number: int, networks: tuple[str, str]) -> None:
    study = read_study(f"paper-table-{number}")
    assert {(s.dataset[0], s.backbone[0]) for s in study.settings} == {
        ("mnist", networks[0]),
        ("fashion-mnist", networks[0]),
        ("kmnist", networks[0]),
        ("cifar10", networks[1]),
    }
    assert {s.generator[1]["alpha"] for s in study.settings if s.generator} == {0.9, 0.8, 0.7}
    assert [m.estimator[0] for m in study.methods] == ["mcl-log", "ppl", "cc", "lw"]
    assert study.search.space == {"lr": POWERS, "weight_decay": POWERS}
    assert study.search.epochs == 50
    assert study.trials == 5
    wanted = {"epochs": 250, "batch_size": 256, "optimizer": "sgd", "momentum": 0.9, "validation": 0.1}
    assert study.training == wanted
    assert not study.selection.is_oracle


def test_lists_of_components_mean_all_combinations(small: dict[str, Any]) -> None:
    alphas = [{"name": "mcl-skewed", "alpha": a} for a in (0.9, 0.7)]
    small["settings"] = [{"dataset": "digits", "generator": alphas, "backbone": ["linear", "mlp"]}]
    study = from_dict(small, "test")
    assert [s.label for s in study.settings] == [
        "digits | mcl-skewed(alpha=0.9) | linear",
        "digits | mcl-skewed(alpha=0.9) | mlp",
        "digits | mcl-skewed(alpha=0.7) | linear",
        "digits | mcl-skewed(alpha=0.7) | mlp",
    ]
    assert len(list(study.cells())) == 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metods": []}, "Did you mean 'methods'"),
        ({"name": "../escape"}, "letters, digits"),
        ({"name": "a/b"}, "letters, digits"),
        ({"methods": []}, "no methods"),
        ({"settings": []}, "no settings"),
        ({"methods": ["ppl", "ppl"]}, "two methods are labelled 'ppl'"),
        ({"settings": [TWICE, TWICE]}, "two settings are labelled 'digits | linear'"),
        (
            {"settings": [{**TWICE, "label": "x"}, {"dataset": "mnist", "backbone": "mlp", "label": "x"}]},
            "two datasets are labelled 'x'",
        ),
        ({"trials": 0}, "trials must be >= 1"),
        ({"trials": "many"}, "trials must be a whole number"),
        ({"trials": "2"}, "trials must be a whole number, not the text '2'"),
        ({"settings": [{**TWICE, "trials": "2"}]}, "trials must be a whole number, not the text '2'"),
        ({"training": {"epochs": "3"}}, "epochs must be a whole number, not the text '3'"),
        ({"training": {"batch-size": "3"}}, "batch_size must be a whole number, not the text '3'"),
        ({"selection": {"per_trial": "yes"}}, "per_trial must be true or false, not the text 'yes'"),
        ({"search": {"epochs": "5"}}, "epochs must be a whole number, not the text '5'"),
        ({"search": {"space": {"lr": ["0.1"]}}}, "lr must be a number, not the text '0.1'"),
        ({"search": {"space": {"lr": [0.1, 0.2, 0.1]}}}, "lr lists 0.1 twice"),
        ({"search": {"space": {"learning_rat": [0.1]}}}, "is not a training setting that can be searched"),
        ({"search": {"space": {"seed": [1, 2]}}}, "'seed' is not a training setting that can be searched"),
        ({"search": {"epochs": 2, "space": {"epochs": [1, 2]}}}, "epochs are searched, and"),
        ({"search": {"strategy": "tpe", "space": {"lr": {"low": 2, "high": 1}}}}, "low must not exceed high"),
        ({"search": {"strategy": "tpe", "space": {"lr": {"low": 0, "high": 1, "log": True}}}}, "needs low > 0"),
        ({"search": {"strategy": "tpe", "space": {"lr": {"low": "a", "high": 1}}}}, "two finite numbers"),
        ({"methods": [{"estimator": "cc", "search": {"lr": 0.1}}]}, "lr must be a list"),
        (
            {"methods": [{"estimator": "cc", "training": {"lr": 0.1}}]},
            "method cc fixes lr, which the search overrides",
        ),
        (
            {"methods": [{"estimator": {"name": "lw", "leverage": 1}, "search": {"estimator.leverage": [1]}}]},
            "fixes estimator.leverage, which the search overrides",
        ),
        ({"settings": [{**TWICE, "training": {"lr": 0.1}}]}, "setting digits .* fixes lr, which the search overrides"),
        ({"training": {"epoch": 3}}, "Did you mean 'epochs'"),
        ({"training": {"seed": 3}}, "belongs at the top"),
        ({"selection": {"rule": "test-accuracy"}}, "must be one of"),
        ({"selection": {"folds": 0}}, "folds must be"),
        ({"search": {"space": {"lr": 0.1}}}, "lr must be a list"),
        ({"search": {"space": {"lr": []}}}, "lr must be a list"),
        ({"search": {"strategy": "tpe", "space": {"lr": {"low": 1}}}}, "low = …, high = …"),
        ({"search": {"prune": True}}, "a grid visits every point"),
        ({"settings": [{"dataset": "digits"}]}, "needs a backbone"),
        ({"settings": [{"dataset": 3, "backbone": "linear"}]}, "a dataset is a name"),
        ({"settings": "digits"}, "settings must be a list"),
        ({"methods": [{"label": "x"}]}, "needs an estimator"),
    ],
)
def test_a_mistake_in_a_description_is_named(small: dict[str, Any], change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_dict({**small, **change}, "test")


def test_a_value_that_a_method_fixes_may_be_searched_for_others(small: dict[str, Any]) -> None:
    small["search"] = {"space": {"weight_decay": [1e-4, 1e-2]}}
    fixed = {"estimator": "cc", "training": {"lr": 0.1}}
    small["methods"] = [fixed, {"estimator": "ppl", "search": {"lr": [0.1, 0.2]}}]
    first, second = from_dict(small, "test").cells()
    assert (list(first.space), list(second.space)) == (["weight_decay"], ["lr", "weight_decay"])
    assert first.config({}, seed=0, epochs=None, registry=load_plugins().registry).training.lr == 0.1


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=6,
    ),
    st.sampled_from(["settings", "methods", "training", "search", "selection", "trials", "name", "quick", "title"]),
)
def test_no_nonsense_gets_past_as_anything_but_a_clear_error(nonsense: Any, key: str) -> None:
    try:
        study = from_dict({**SMALL, key: nonsense}, "test")
    except WslError:
        return  # one line for the user; anything else fails this test
    assert from_dict(study.to_dict(), "again") == study


def test_a_searched_name_must_exist(small: dict[str, Any]) -> None:
    small["search"] = {"space": {"estimator.levrage": [0.0, 1.0]}}
    cell = next(from_dict(small, "test").cells())
    with pytest.raises(ConfigError, match="unknown parameter 'levrage'"):
        cell.config({"estimator.levrage": 1.0}, seed=0, epochs=None, registry=load_plugins().registry)


def test_a_python_file_can_describe_a_study(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from wsl_toolkit.studies import Method, Study, StudySetting\n"
        "study = Study(name='mine', settings=(StudySetting(dataset=('digits', {}), generator=('cl', {}),\n"
        "    backbone=('linear', {})),), methods=(Method(estimator=('cc', {}), label='CC'),))\n"
    )
    assert read_study(str(file)).name == "mine"
    file.write_text("study = 3")
    with pytest.raises(ConfigError, match="must define `study`"):
        read_study(str(file))
    file.write_text("1 / 0")
    with pytest.raises(ConfigError, match="ZeroDivisionError"):
        read_study(str(file))


def test_quick_and_epochs_make_a_study_of_another_name(tmp_path: Path) -> None:
    assert read_study("paper-table-3", quick=True).name == "paper-table-3-quick"
    assert read_study("paper-table-3", epochs=10).name == "paper-table-3-10-epochs"
    assert read_study("paper-table-3", epochs=10).search.epochs == 10
    assert {s.dataset[0] for s in read_study("paper-table-3", quick=True).settings} == {"digits"}
    assert "mnist" in {s.dataset[0] for s in read_study("paper-table-3", quick=True, datasets=["mnist"]).settings}


def test_restricting_keeps_what_was_asked_for_and_names_what_is_not_there() -> None:
    study = read_study("paper-table-3")
    kept = restrict(study, ["mnist"], [0.9], ["ppl"])
    assert [cell.label for cell in kept.cells()] == ["PPL | mnist | mcl-skewed(alpha=0.9) | linear"]
    with pytest.raises(ConfigError, match="Did you mean 'mnist'"):
        restrict(study, ["mnst"], [])
    with pytest.raises(ConfigError, match=r"α = 0\.5 is not among"):
        restrict(study, [], [0.5])
    with pytest.raises(ConfigError, match=r"no method 'pll'\. Did you mean 'ppl'\? It has MCL, PPL, CC, LW\."):
        restrict(study, [], [], ["pll"])


def test_an_unknown_study_gets_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'paper-table-3'"):
        read_study("paper-tabel-3")
