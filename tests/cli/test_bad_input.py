"""A user's mistake gets one clear line, a non-zero exit, no traceback, and records nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from wsl_toolkit.cli import main

MISTAKES = {
    "a misspelt command": (["rnu"], "Did you mean 'run'"),
    "a misspelt option": (["run", "--epoch", "3"], "--epochs"),
    "an estimator without its option": (["run", "ppl"], "Did you mean '--estimator ppl'?"),
    "a generator without its option": (["verify", "mcl-skewed"], "Did you mean '--generator mcl-skewed'?"),
    "an argument that is nobody's name": (["verify", "ppll"], "unexpected extra argument (ppll)"),
    "no epochs": (["run", "--epochs", "0"], "must be >= 1"),
    "a word for a number": (["run", "--lr", "fast"], "must be a number, not 'fast'"),
    "an infinite learning rate": (["run", "--lr", "inf"], "finite"),
    "a negative weight decay": (["run", "--weight-decay", "-1"], "must be >= 0"),
    "everything held out": (["run", "--validation", "1"], "< 1"),
    "an unknown generator": (["run", "--generator", "mcl-skewd"], "Did you mean 'mcl-skewed'"),
    "an unknown estimator": (["run", "--estimator", "zzz"], "Installed:"),
    "a parameter out of range": (["run", "--generator", "mcl-skewed", "--generator-alpha", "0"], "must be > 0"),
    "a parameter of another component": (["run", "--generator", "cl", "--generator-alpha", "1"], "--generator-alpha"),
    "a missing config": (["run", "--config", "nowhere.toml"], "no configuration file nowhere.toml"),
    "a config that is no TOML": (["run", "--config", "broken.toml"], "broken.toml is not valid TOML"),
    "a config that is not text": (["run", "--config", "binary.toml"], "binary.toml cannot be read"),
    "an unknown key": (["run", "--config", "key.toml"], "unknown key 'epoch'. Did you mean 'epochs'"),
    "an unknown parameter in a config": (["run", "--config", "parameter.toml"], "Did you mean 'alpha'"),
    "missing data": (["run", "--dataset", "mnist", "--data-dir", "nowhere"], "nowhere"),
    "a device that is not there": (["run", "--device", "cuda:99"], "--device 'cuda:99' cannot be used"),
    "a device that does not exist": (["run", "--device", "abacus"], "--device 'abacus' cannot be used"),
    "an unknown optimiser": (["run", "--optimizer", "sdg"], "Did you mean 'sgd'"),
    "an unknown schedule": (["run", "--scheduler", "cosin"], "Did you mean 'cosine'"),
    "a tag without a value": (["run", "--tag", "lonely"], "key=value"),
    "a server that refuses": (["run", "--tracking-uri", "http://127.0.0.1:9"], "no tracking server answers"),
    "a store of no known kind": (["run", "--tracking-uri", "abc://x"], "cannot be used"),
    "a UI without runs": (["ui", "--no-open"], "no runs here yet"),
    "an unknown role": (["show", "wizard", "x"], "wizard"),
    "an unknown component to show": (["show", "backbone", "liner"], "Did you mean 'linear'"),
}


@pytest.fixture
def empty_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "broken.toml").write_text("epochs = [")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00\x01")
    (tmp_path / "key.toml").write_text("epoch = 3")
    (tmp_path / "parameter.toml").write_text('[generator]\nname = "mcl-skewed"\nalph = 1')
    return tmp_path


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.timeout(60)
def test_a_mistake_gets_one_clear_line(mistake: str, empty_place: Path) -> None:
    arguments, expected = MISTAKES[mistake]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code != 0
    errors = [line for line in result.stderr.splitlines() if line.startswith("Error:")]
    assert len(errors) == 1, result.stderr
    assert expected in errors[0]
    assert "Traceback" not in result.output
    assert "defect" not in result.output
    assert not (empty_place / "wsl-runs" / "runs").exists(), "a mistake must not leave a run behind"


def test_a_silent_server_is_given_up_in_bounded_time(empty_place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that accepts and never answers; the wait is shortened so that the test is."""
    import socket

    from wsl_toolkit.runs.tracking import store as tracking

    monkeypatch.setattr(tracking, "REACH_SECONDS", 0.5)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        result = CliRunner().invoke(main, ["run", "--tracking-uri", f"http://127.0.0.1:{listener.getsockname()[1]}"])
    assert result.exit_code == 3
    assert "no tracking server answers" in result.stderr


def test_a_password_in_a_tracking_uri_is_never_printed(empty_place: Path) -> None:
    result = CliRunner().invoke(main, ["run", "--tracking-uri", "http://me:secret@127.0.0.1:9"])
    assert result.exit_code == 3
    assert "secret" not in result.output


def test_a_directory_that_cannot_be_written_is_named(empty_place: Path) -> None:
    """A file stands where the folder should be: true for root as well, whom permissions do not stop."""
    (empty_place / "wsl-runs").write_text("in the way")
    result = CliRunner().invoke(main, ["run", "--epochs", "1"])
    assert result.exit_code == 3
    assert "wsl-runs cannot be written" in result.stderr
