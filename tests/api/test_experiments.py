"""Experiments from Python: the command line's bits, checks and messages; runs that either side goes on with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar, get_type_hints

import attrs
import click
import numpy as np
import pytest
import torch
from torch import Tensor

import wsl_toolkit as wsl
from wsl_toolkit.api import train as api_train
from wsl_toolkit.cli import main
from wsl_toolkit.cli.progress import Silent
from wsl_toolkit.errors import ConfigError, DataError, InterruptedRunError, PluginError, WslError
from wsl_toolkit.parameters import parameters_of
from wsl_toolkit.training.config import Training

pytestmark = pytest.mark.usefixtures("small_pictures")

GENERATOR = {"name": "mcl-skewed", "alpha": 0.7}
FLAGS = ["--dataset", "digits", "--generator", "mcl-skewed", "--generator-alpha", "0.7"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_database_in: Any) -> Path:
    fresh_database_in(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return tmp_path


@pytest.fixture(scope="module")
def digits() -> wsl.Data:
    return wsl.load_data("digits")


def small() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(4, size=160)
    return rng.normal(size=(160, 5)) + 2 * np.eye(4, 5)[y], y


def command(*arguments: str) -> dict[str, Any]:
    """Run a command in this process and return what it prints as JSON."""
    from click.testing import CliRunner

    done = CliRunner().invoke(main, [*arguments, "--json", "--quiet"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    return found


def weights(result: wsl.Result) -> list[Tensor]:
    return list(result.model.state_dict().values())


def values(result: wsl.Result) -> list[list[float]]:
    frame = result.history.drop(columns="seconds")
    return [[float(value) for value in row] for row in frame.to_numpy()]


def same_bits(one: wsl.Result, other: wsl.Result) -> bool:
    return values(one) == values(other) and all(
        torch.equal(a, b) for a, b in zip(weights(one), weights(other), strict=True)
    )


# ----------------------------------------------------------------------------------------- the same as the command line


def test_command_and_python_give_the_same_bits(here: Path, digits: wsl.Data) -> None:
    told = command("run", *FLAGS, "--estimator", "lw", "--epochs", "3", "--lr", "0.1", "--seed", "5")
    from_command = wsl.load_run(told["run_id"])
    plain = wsl.train("digits", estimator="lw", generator=GENERATOR, epochs=3, lr=0.1, seed=5)
    tracked = wsl.train(digits, estimator="lw", generator=GENERATOR, epochs=3, lr=0.1, seed=5, track=True)
    assert same_bits(plain, from_command)
    assert same_bits(plain, tracked)
    assert plain.config == tracked.config == from_command.config
    assert told["mean"] == pytest.approx(plain.metrics, rel=0)
    assert plain.run_id is None
    assert plain.candidates == tracked.candidates == from_command.candidates
    assert list(wsl.runs()["run_id"]) == [tracked.run_id, told["run_id"]]
    assert wsl.runs().set_index("run_id").loc[tracked.run_id, "test/accuracy"] == plain.metrics["test/accuracy"]


def test_several_trials_have_the_bits_of_the_command_s(here: Path, digits: wsl.Data) -> None:
    told = command("run", *FLAGS, "--estimator", "ppl", "--epochs", "2", "--trials", "2")
    plain = wsl.train(digits, estimator="ppl", generator=GENERATOR, epochs=2, trials=2)
    loaded = wsl.load_run(told["run_id"])
    assert values(plain) == values(loaded)
    assert list(plain.history["seed"]) == [0, 0, 1, 1]
    assert [trial.seed for trial in loaded.trials] == [0, 1]
    assert told["mean"] == pytest.approx(loaded.metrics, rel=0)
    assert told["stderr"] == pytest.approx(plain.stderr, rel=0)
    assert len(wsl.runs()) == 1
    assert set(wsl.runs(trials=True)["parent"].dropna()) == {told["run_id"]}


def interrupt_at(epoch: int, listener: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Ctrl-C pressed when an epoch has ended."""

    def heard(self: Any, record: Any, trial: int = 1) -> None:
        if record.epoch == epoch:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(listener, "epoch", heard)


def test_the_command_goes_on_with_a_run_that_python_began(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = wsl.train("digits", estimator="proden", generator=GENERATOR, epochs=4)
    with monkeypatch.context() as patch:
        interrupt_at(2, api_train._Listener, patch)
        with pytest.raises(InterruptedRunError, match="at epoch 2"):
            wsl.train("digits", estimator="proden", generator=GENERATOR, epochs=4, track=True)
    (begun,) = wsl.runs()["run_id"]
    partly = wsl.load_run(begun)
    assert (partly.status, len(partly.history)) == ("KILLED", 2)
    assert command("run", "--resume", begun)["run_id"] == begun
    assert same_bits(wsl.load_run(begun), whole)


def test_python_goes_on_with_a_run_that_the_command_began(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = wsl.train("digits", estimator="proden", generator=GENERATOR, epochs=4)
    with monkeypatch.context() as patch:
        interrupt_at(2, Silent, patch)
        with pytest.raises(click.ClickException, match="stopped by Ctrl-C at epoch 2 of 4"):
            main(["run", *FLAGS, "--estimator", "proden", "--epochs", "4", "--quiet"], standalone_mode=False)
    (begun,) = wsl.runs()["run_id"]
    result = wsl.resume(begun)
    assert result.status == "FINISHED"
    assert same_bits(result, whole)
    with pytest.raises(ConfigError, match="is complete: there is nothing to resume"):
        wsl.resume(begun)


def test_data_that_was_given_as_an_object_is_resumed_from_python_alone(
    here: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    data = wsl.make_data(small()[0], y=small()[1], name="mine")
    with monkeypatch.context() as patch:
        interrupt_at(1, api_train._Listener, patch)
        with pytest.raises(InterruptedRunError):
            wsl.train(data, generator="mcl", epochs=2, track=True)
    assert "can be resumed from Python alone" in caplog.text
    table = wsl.runs()
    begun = table["run_id"][0]
    assert table["experiment"][0] == "wsl-mine"
    assert table["dataset.digest"][0] == data.digest()
    with pytest.raises(click.ClickException, match=r"go on from Python, with wsl_toolkit.resume\("):
        main(["run", "--resume", begun], standalone_mode=False)
    with pytest.raises(ConfigError, match="data that was given as a Python object"):
        wsl.resume(begun)
    other = wsl.make_data(small()[0] + 1, y=small()[1], name="mine")
    with pytest.raises(DataError, match="the data of mine changed since run"):
        wsl.resume(begun, data=other)
    result = wsl.resume(begun, data=data)
    assert same_bits(result, wsl.train(data, generator="mcl", epochs=2))
    loaded = wsl.load_run(begun)
    assert len(loaded.history) == 2
    with pytest.raises(DataError, match="given as a Python object, which cannot be loaded"):
        _ = loaded.model
    with pytest.raises(DataError, match="not the data that run"):
        _ = wsl.load_run(begun, data=other).model
    assert same_bits(wsl.load_run(begun, data=data), result)


# ---------------------------------------------------------------------------------------------------------- the result


def test_the_result_tells_all_of_it(digits: wsl.Data, tmp_path: Path) -> None:
    result = wsl.train(digits, estimator="ppl", generator=GENERATOR, epochs=2)
    assert list(result.history["epoch"]) == [1, 2]
    assert result.history["test/accuracy"].iloc[-1] == result.metrics["test/accuracy"]
    logits = result.model(digits.x[:7])
    assert logits.shape == (7, 10)
    assert torch.equal(logits, result.network(result.transform(digits.x[:7])))
    chosen = result.model(digits.x[result.examples])
    mask = result.candidates.mask()
    wanted = torch.softmax(chosen, 1) * mask
    assert torch.allclose(result.confidences, wanted / wanted.sum(1, keepdim=True), atol=1e-6)
    assert len(result.examples) == len(result.candidates) == len(result.confidences)
    assert digits.y is not None
    assert bool(mask[torch.arange(len(mask)), digits.y[result.examples]].all())
    assert result.config["estimator"]["name"] == "ppl"
    assert "alpha = 0.7" in result.to_toml()
    result.plot().savefig(tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 5000
    assert set(result.figures()) >= {"candidate_sizes", "reliability"}
    page = result._repr_html_()
    assert "test accuracy" in page
    assert f"{result.metrics['test/accuracy']:.4f}" in page
    assert "test accuracy" in repr(result)


def test_fifteen_lines_train_plot_and_compare_three_methods(tmp_path: Path, warm_python: Path) -> None:
    script = tmp_path / "three.py"
    script.write_text(
        """import wsl_toolkit as wsl

data = wsl.load_data("digits")
results = {
    name: wsl.train(data, estimator=name, generator={"name": "mcl-skewed", "alpha": 0.7}, epochs=2)
    for name in ("ppl", "cc", "lw")
}
print(results["ppl"].metrics["test/accuracy"])
results["ppl"].plot().savefig("ppl.png")
comparison = wsl.compare(results)
print(comparison.table()["test/accuracy"].round(3).to_dict())
comparison.plot("test/accuracy").savefig("three.png")
"""
    )
    assert len(script.read_text().splitlines()) <= 15
    done = subprocess.run([warm_python, script.name], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "{'ppl': 0." in done.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"three.py", "ppl.png", "three.png"}


def test_results_that_cannot_be_told_apart_need_labels(digits: wsl.Data) -> None:
    one = wsl.train(digits, epochs=1, batch_size=1000)
    with pytest.raises(ConfigError, match="give labels"):
        wsl.compare([one, one])
    assert list(wsl.compare([one]).table().index) == [one.name]
    with pytest.raises(ConfigError, match=r"no result has the metric 'test/acuracy'\. Did you mean 'test/accuracy'"):
        wsl.compare([one]).plot("test/acuracy")


# -------------------------------------------------------------------------------------------------- names and objects


@attrs.frozen(kw_only=True)
class Halved(wsl.Estimator):
    """The mean cross-entropy over candidates, scaled: an estimator that no plugin registers."""

    name: ClassVar[str] = "halved"
    assumption: ClassVar[wsl.Setting] = wsl.Setting.ANY
    kind: ClassVar[wsl.Kind] = wsl.Kind.HEURISTIC
    scale: float = wsl.param(0.5, help="a factor", gt=0)

    def loss(self, logits: Tensor, candidates: Tensor, state: wsl.State) -> Tensor:
        losses = -torch.log_softmax(logits, -1)
        return self.scale * (losses * candidates).sum(-1) / candidates.sum(-1)


def test_names_tables_and_objects_are_accepted_alike(here: Path) -> None:
    data = wsl.make_data(small()[0], y=small()[1])
    by_name = wsl.train(data, estimator="cc", generator={"name": "flip", "q": 0.2}, epochs=1)
    made = wsl.train(
        data,
        estimator=wsl.component("estimator", "cc"),
        generator=wsl.component("generator", "flip", q=0.2),
        backbone=wsl.component("backbone", "linear"),
        epochs=1,
    )
    assert same_bits(by_name, made)
    assert by_name.config == made.config
    own = wsl.train(data, estimator=Halved(scale=2.0), generator="mcl", epochs=1, track=True)
    assert own.config["estimator"] == {"name": "halved", "scale": 2.0}
    assert same_bits(own, wsl.train(data, estimator=Halved(scale=2.0), generator="mcl", epochs=1))
    assert same_bits(own, wsl.load_run(str(own.run_id), data=data, components=[Halved]))


def test_mistakes_have_the_command_line_s_messages(digits: wsl.Data) -> None:
    x, y = small()
    for call, says in (
        (lambda: wsl.train(digits, estimator="pll"), "no estimator is named 'pll'"),
        (lambda: wsl.train(digits, epochs=0), "epochs must be >= 1"),
        (lambda: wsl.train(digits, epoch=3), "unknown parameter 'epoch'. Did you mean 'epochs'"),  # type: ignore[call-arg]
        (lambda: wsl.train(digits, optimizer="sgdd"), "sgdd"),
        (lambda: wsl.train(digits, monitor="test/accuracy"), "let clean labels choose the model"),
        (lambda: wsl.train(digits, generator={"name": "mcl-skewed", "alfa": 1}), "unknown parameter 'alfa'"),
        (lambda: wsl.train((x, y)), "has no candidate sets of its own: choose a generator"),
        (lambda: wsl.train(3), "data is a Data"),  # type: ignore[arg-type]
        (lambda: wsl.load_data("digts"), "no dataset is named 'digts'. Did you mean 'digits'"),
        (lambda: wsl.load_data("birds.cvs"), "no installed dataset reads 'birds.cvs'"),
        (lambda: wsl.load_run("nothing"), "there is no run 'nothing'"),
        (lambda: wsl.draw("mcl", wsl.make_data(x, [{0, 1}] * 160)), "has no true labels to draw"),
        (lambda: wsl.make_data(x), "give candidate sets, true labels"),
        (lambda: wsl.risk(wsl.component("estimator", "cc"), [{0}], lr=1), "is configured already"),
    ):
        with pytest.raises(WslError) as caught:
            call()
        assert says in str(caught.value)


def test_arrays_are_data() -> None:
    x, y = small()
    sets = wsl.draw("mcl", (x, y), seed=3)
    assert sets == wsl.draw("mcl", (x, y), seed=3)
    assert sets != wsl.draw("mcl", (x, y), seed=4)
    assert bool(sets.mask()[torch.arange(160), torch.from_numpy(y)].all())
    own = wsl.train((x, sets), epochs=1)
    assert "generator" not in own.config
    assert "test/accuracy" not in own.metrics
    judged = wsl.train(wsl.make_data(x, y=y).with_candidates(sets), epochs=1)
    assert "test/accuracy" in judged.metrics
    names = np.array(["ant", "bee", "cat", "dog"])
    named = wsl.make_data(x, ["|".join(names[row]) for row in sets.mask().numpy()], y=names[y])
    assert named.class_names == ("ant", "bee", "cat", "dog")
    assert named.candidates is not None
    assert torch.equal(named.candidates.mask(), sets.mask())
    assert named.y is not None
    assert named.y.tolist() == y.tolist()
    by_number = wsl.make_data(x, named.candidates, y=y)
    assert by_number.y is not None
    assert by_number.y.tolist() == y.tolist()
    with pytest.raises(WslError, match=r"out of range|must be"):
        wsl.make_data(x, named.candidates, y=y + 1)


def test_the_typed_settings_are_those_of_a_training() -> None:
    hints = get_type_hints(api_train.Settings)
    assert list(hints) == list(parameters_of(Training))
    for name, parameter in parameters_of(Training).items():
        assert parameter.type == hints[name] or parameter.type in hints[name].__args__, name


# ----------------------------------------------------------------------------------------------------------- callbacks


class StopAt(wsl.Callback):
    """Ends a training, and counts."""

    def __init__(self, epoch: int = 2) -> None:
        self.epoch = epoch
        self.seen: list[set[str]] = []

    def on_epoch_end(self, record: Any) -> bool:
        self.seen.append(set(record.metrics))
        record.log("doubled", 2 * record.epoch)
        return bool(record.epoch == self.epoch)


class Broken(wsl.Callback):
    def on_epoch_end(self, record: Any) -> None:
        raise ZeroDivisionError("oh")


@pytest.mark.parametrize("track", [False, True])
def test_callbacks_hear_log_and_stop(track: bool, here: Path) -> None:
    data = wsl.make_data(small()[0], y=small()[1])
    callback = StopAt()
    result = wsl.train(data, generator="mcl", epochs=9, callbacks=[callback], track=track)
    assert list(result.history["doubled"]) == [2, 4]
    assert all("test/accuracy" not in names and "train/risk" in names for names in callback.seen)
    assert "test/accuracy" in result.history
    with pytest.raises(PluginError, match=r"callback 'Broken' failed in on_epoch_end.*ZeroDivisionError"):
        wsl.train(data, generator="mcl", epochs=9, callbacks=[Broken()], track=track)


def test_several_trials_need_a_callback_each() -> None:
    data = wsl.make_data(small()[0], y=small()[1])
    with pytest.raises(ConfigError, match="2 trials need 2 callbacks: give the class StopAt"):
        wsl.train(data, generator="mcl", epochs=2, trials=2, callbacks=[StopAt()])
    result = wsl.train(data, generator="mcl", epochs=4, trials=2, callbacks=[lambda: StopAt(3)])
    assert list(result.history["epoch"]) == [1, 2, 3, 1, 2, 3]


# ------------------------------------------------------------------------------------------------------------- imports


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = (
        "import sys, wsl_toolkit as wsl\nassert 'train' in wsl.__all__\n"
        "heavy = {'torch', 'mlflow', 'numpy', 'pandas', 'matplotlib', 'sklearn', 'attrs'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_table_of_runs_works_before_and_after_the_room_is_imported(here: Path) -> None:
    code = (
        "import wsl_toolkit as wsl\nassert len(wsl.runs()) == 0\n"
        "from wsl_toolkit.runs.folder import RunFolder\nassert len(wsl.runs()) == 0\n"
        "import wsl_toolkit.runs.listing\nassert wsl.runs.listing.runs().empty\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=here)
    assert done.returncode == 0, done.stderr


def test_every_public_name_is_there() -> None:
    assert all(getattr(wsl, name) is not None for name in wsl.__all__)
