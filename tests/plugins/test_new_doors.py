"""A plugin with a metric, a transform, an optimiser, a schedule and a callback, installed, run and studied."""

from __future__ import annotations

import importlib
import json
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from doc_blocks import blocks
from plugin_environments import ROOT, Environment, tiny_wheel

from wsl_toolkit.components import Component
from wsl_toolkit.data.problem import make_problem
from wsl_toolkit.errors import PluginError
from wsl_toolkit.plugins.attribution import attributed
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.plugins.registry import Owner
from wsl_toolkit.testing.small_training import MeanLoss, small_training
from wsl_toolkit.training.metrics import Measured, plugin_metrics
from wsl_toolkit.training.optimisers import make_optimizer, options_class
from wsl_toolkit.training.schedules import make_scheduler

KINDS = ("transform", "metric", "optimizer", "scheduler", "callback")
NAMES = ("most-frequent", "candidate-mass", "sign-descent", "inverse-power", "until-it-settles")


def example(kind: str) -> str:
    """The plugin on the page of a hook."""
    (page,) = [
        block.text
        for block in blocks(ROOT / "docs" / "plugin-authors" / "hooks" / f"wsl_register_{kind}s.md")
        if block.language == "python"
    ]
    return page


@pytest.fixture(scope="module")
def doors(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    wheels = tmp_path_factory.mktemp("doors")
    environment.install(*(tiny_wheel(wheels, f"wsl-door-{kind}", example(kind)) for kind in KINDS))
    yield environment
    environment.uninstall(*(f"wsl-door-{kind}" for kind in KINDS))


SHORT = ["--epochs", "4", "--validation", "0.2", "--backbone", "linear"]
ALL = [
    *("--transform", "most-frequent", "--transform-most", "2"),
    *("--optimizer", "sign-descent", "--optimizer-dead-zone", "0.0001", "--lr", "0.001"),
    *("--scheduler", "inverse-power", "--scheduler-power", "1"),
    *("--callback", "until-it-settles", "--callback-until-it-settles-tolerance", "1000"),
    *("--monitor", "validation/candidate_mass", "--keep", "best"),
]


def read(outcome: Any) -> Any:
    assert outcome.code == 0, outcome.stdout + outcome.stderr
    return json.loads(outcome.stdout)


def test_what_plugins_add_is_listed_configured_run_and_recorded(doors: Environment, tmp_path: Path) -> None:
    plugins, listed, shown, dry, ran = doors.session(
        ["plugins", "--json"],
        ["list", "--json"],
        ["show", "transform", "most-frequent", "--json"],
        ["run", *SHORT, *ALL, "--dry-run"],
        ["run", *SHORT, *ALL, "--json"],
        cwd=tmp_path,
    )
    assert [each["warnings"] for each in read(plugins) if "door" in each["distribution"]] == [[]] * len(KINDS)
    found = read(listed)
    assert [name in found[kind] for kind, name in zip(KINDS, NAMES, strict=True)] == [True] * len(KINDS)
    assert read(shown)["parameters"][0]["name"] == "most"
    assert tomllib.loads(dry.stdout)["callbacks"] == [{"name": "until-it-settles", "tolerance": 1000.0}]
    assert tomllib.loads(dry.stdout)["transform"] == {"name": "most-frequent", "most": 2}
    result = read(ran)
    metrics = result["trials"][0]["metrics"]
    assert result["trials"][0]["epochs"] == 2, "the callback ends it after the second epoch"
    assert 0 < metrics["validation/candidate_mass"] < 1
    assert metrics["candidates/mean_size_before"] > result["trials"][0]["candidates"]["mean_size"]
    assert 0 < metrics["candidates/true_label_kept"] < 1
    folder = tmp_path / "wsl-runs" / "runs" / result["run_id"]
    records = [json.loads(line)["metrics"] for line in (folder / "records.jsonl").read_text().splitlines()]
    assert "until-it-settles/change" in records[1]
    facts = json.loads((folder / "run.json").read_text())
    assert facts["params"]["transform.most"] == 2
    assert facts["params"]["callback.until-it-settles.tolerance"] == 1000
    for kind in ("transform", "callback", "optimizer", "scheduler"):
        assert facts["tags"][f"wsl.provenance.{kind}"].startswith(f"wsl-door-{kind} 1.2"), facts["tags"]


STUDY = """
name = "doors"
trials = 2

[training]
epochs = 3
validation = 0.2
optimizer = { name = "sign-descent", dead_zone = 0.0 }
callbacks = ["until-it-settles"]

[search.space]
lr = [0.001, 0.01]

[selection]
rule = "candidate-mass"

[[settings]]
dataset = "digits"
generator = "mcl-skewed"
backbone = "linear"

[[methods]]
estimator = "ppl"

[[methods]]
estimator = "ppl"
transform = { name = "most-frequent", most = 2 }
"""


@pytest.mark.system
def test_a_study_selects_by_a_plugins_metric_and_compares_with_a_transform(doors: Environment, tmp_path: Path) -> None:
    (tmp_path / "doors.toml").write_text(STUDY)
    (done,) = doors.session(["study", "run", "doors.toml", "--quiet"], cwd=tmp_path)
    assert done.code == 0, done.stdout + done.stderr
    results = [json.loads(path.read_text()) for path in (tmp_path / "wsl-runs" / "jobs").glob("*.json")]
    trials = [each for each in results if "history" in each and each["job"]["purpose"] == "trial"]
    assert len(trials) == 4
    assert all("validation/candidate_mass" in each["history"] for each in trials)
    assert all("until-it-settles/change" in each["history"] for each in trials)
    changed = [each for each in trials if "transform" in each["job"]["config"]]
    assert len(changed) == 2
    assert all(each["history"]["candidates/mean_size_before"][0] > each["mean_size"] for each in changed)
    searched = [each for each in results if "history" in each and each["job"]["purpose"] == "selection"]
    assert not [name for each in searched for name in each["history"] if name == "candidates/true_label_kept"]


# ------------------------------------------------------------------------ what goes wrong, without an installation


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., type[Component]]]:
    """Register a page's example, with something in it exchanged, as a component of an installed distribution."""
    entries = load_plugins().registry._entries
    added: list[tuple[str, str]] = []

    def add(kind: str, before: str = "", after: str = "") -> type[Component]:
        source = example(kind)
        assert before in source
        (tmp_path / f"wsl_door_{kind}.py").write_text(source.replace(before, after) if before else source)
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, f"wsl_door_{kind}", raising=False)
        (cls,) = getattr(importlib.import_module(f"wsl_door_{kind}"), f"wsl_register_{kind}s")()
        load_plugins().registry.add_all([(kind, cls)], Owner(f"wsl-door-{kind}", "1.2", "door"))
        added.append((kind, cls.name))
        return cls

    yield add
    for kind, name in added:
        del entries[kind][name]


def test_a_metric_that_reads_candidates_alone_may_select(
    registered: Callable[..., type[Component]],
) -> None:
    registered("metric")
    (blind,) = plugin_metrics(load_plugins().registry).values()
    assert (blind.name, blind.rule, blind.may_select) == ("validation/candidate_mass", "candidate-mass", True)


def test_a_metric_that_reads_clean_labels_has_no_rule(registered: Callable[..., type[Component]]) -> None:
    registered("metric", '= "candidates"\n', '= "clean labels"\n')
    (seeing,) = plugin_metrics(load_plugins().registry).values()
    assert (seeing.rule, seeing.may_select) == (None, False)
    assert "reads clean labels" in seeing.label


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ('= "candidates"\n', '= "everything"\n', "`reads` is one of candidates, clean labels, not 'everything'"),
        ('name: ClassVar[str] = "candidate-mass"', 'name: ClassVar[str] = "x"\n    part = "test"', "no candidate sets"),
        ("    label: ClassVar[str] =", "    _label: ClassVar[str] =", "does not declare `label`"),
    ],
)
def test_a_metric_that_declares_nonsense_is_quarantined(
    registered: Callable[..., type[Component]], before: str, after: str, says: str
) -> None:
    with pytest.raises(PluginError, match=says):
        registered("metric", before, after)


def test_a_metric_with_the_name_of_one_of_ours_is_refused(registered: Callable[..., type[Component]]) -> None:
    registered("metric", '"candidate-mass"', '"covering-rate"')
    with pytest.raises(PluginError, match=r"wsl-door-metric 1\.2 has the name of one of the toolkit's own"):
        plugin_metrics(load_plugins().registry)


def measure() -> None:
    (metric,) = plugin_metrics(load_plugins().registry).values()
    sets = torch.tensor([[True, True, False], [True, False, False]])
    part = Measured(logits=torch.zeros(2, 3), estimator=MeanLoss(), shared={}, rows=torch.arange(2), sets=sets)
    assert metric.compute is not None
    metric.compute(part)


def transform() -> None:
    registry = load_plugins().registry
    data = registry.create("dataset", "digits", {}).load(Path("none"))
    with attributed(registry, "transform", "most-frequent"):
        make_problem(
            data,
            registry.create("generator", "mcl-skewed", {}),
            seed=0,
            validation=0.1,
            test=0.2,
            transform=registry.create("transform", "most-frequent", {}),
        )


def optimize() -> None:
    make_optimizer("sign-descent", [torch.nn.Parameter(torch.zeros(2))], 0.1)


def schedule() -> None:
    make_scheduler("inverse-power", torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=0.1), 3)


def call_back() -> None:
    small_training(load_plugins().registry.create("callback", "until-it-settles", {}))


@pytest.mark.parametrize(
    ("kind", "use", "before", "after", "says"),
    [
        ("metric", measure, "return (part.known", "raise KeyError('gone')  # (", "metric 'candidate-mass'"),
        ("metric", measure, ".mean()", "", "must return a number"),
        (
            "transform",
            transform,
            "return CandidateSets.from_mask(mask & kept, candidates.class_names)",
            "return mask",
            "must return CandidateSets",
        ),
        ("transform", transform, "counts = ", "counts = 1 / 0 #", "ZeroDivisionError"),
        ("optimizer", optimize, "return Signs(", "return (", "must return a torch.optim.Optimizer"),
        ("scheduler", schedule, "return LambdaLR(", "return (", "must return torch's LRScheduler"),
        ("callback", call_back, "risk = record", "1 / 0  #", "failed in on_epoch_end, at wsl_door_callback.py"),
    ],
)
def test_what_fails_is_said_with_the_plugins_name(
    registered: Callable[..., type[Component]], kind: str, use: Callable[[], None], before: str, after: str, says: str
) -> None:
    options_class.cache_clear()
    registered(kind, before, after)
    with pytest.raises(PluginError, match=says) as caught:
        use()
    assert f"wsl-door-{kind} 1.2" in str(caught.value)


def test_a_transform_changes_the_training_part_alone_and_what_it_did_is_measured(
    registered: Callable[..., type[Component]], tmp_path: Path
) -> None:
    registered("transform")
    registry = load_plugins().registry
    data = registry.create("dataset", "digits", {}).load(tmp_path)
    given = {"seed": 0, "validation": 0.2, "test": 0.2}
    generator = registry.create("generator", "mcl-skewed", {})
    before = make_problem(data, generator, **given)
    after = make_problem(data, generator, **given, transform=registry.create("transform", "most-frequent", {"most": 2}))
    assert before.change is None
    assert after.change is not None
    assert after.change.size_before == before.train_candidates.mean_size > after.train_candidates.mean_size
    assert int(after.train_candidates.sizes.max()) == 2
    assert before.validation_candidates == after.validation_candidates
    labels = before.clean.train
    assert labels is not None
    kept = after.train_candidates.mask().gather(1, labels[:, None]).double().mean()
    assert after.change.true_label_kept == pytest.approx(float(kept))
    blind = make_problem(
        data, generator, **given, clean=(), transform=registry.create("transform", "most-frequent", {"most": 2})
    )
    assert blind.change is not None
    assert blind.change.true_label_kept is None
    assert blind.train_candidates == after.train_candidates
