"""What must not be possible: code from data, paths that escape, secrets in print, markup from names."""

from __future__ import annotations

import ast
import contextlib
import json
import socket
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner
from fault_tools import wsl, wsl_here
from hypothesis import given, settings
from hypothesis import strategies as st
from servers import Server

from wsl_toolkit.errors import ConfigError, WslError
from wsl_toolkit.runs.folder import RunFolder, find_folder
from wsl_toolkit.runs.tracking.store import Tracker, redact

ROOT = Path(__file__).parents[2]
SOURCES = sorted([*(ROOT / "wsl_toolkit").rglob("*.py"), *(ROOT / "plugins" / "wsl_builtins").rglob("*.py")])
FORBIDDEN = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "pickle.load",
    "pickle.loads",
    "os.system",
    "os.popen",
    "yaml.load",
}
FORBIDDEN |= {"marshal.loads", "shelve.open", "joblib.load", "extractall", "unpack_archive", "tempfile.mktemp"}


def calls(path: Path) -> list[tuple[str, ast.Call]]:
    """Every call in a file, by the dotted name that is called."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [(ast.unparse(node.func), node) for node in ast.walk(tree) if isinstance(node, ast.Call)]


def keyword(call: ast.Call, name: str) -> str | None:
    return next((ast.unparse(item.value) for item in call.keywords if item.arg == name), None)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_code_runs_from_data(path: Path) -> None:
    for name, call in calls(path):
        last = name.rpartition(".")[2]
        assert name not in FORBIDDEN, f"line {call.lineno}: {name}"
        assert last not in {"extractall", "unpack_archive"}, f"line {call.lineno}: {name}"
        if name == "torch.load":
            assert keyword(call, "weights_only") == "True", f"line {call.lineno}: torch.load"
        if name in ("np.load", "numpy.load"):
            assert keyword(call, "allow_pickle") == "False", f"line {call.lineno}: np.load"
        if name.startswith("subprocess."):
            assert keyword(call, "shell") in (None, "False"), f"line {call.lineno}: a shell"


SECRETS = [
    ("http://ann:s3cret@host:5000/x", "http://***@host:5000/x"),
    ("postgresql://ann:s3c@ret@host/db", "postgresql://***@host/db"),
    ("https://s3cret@host", "https://***@host"),
    ("postgresql://host/db?user=ann&password=s3cret&x=1", "postgresql://host/db?user=ann&password=***&x=1"),
    ("https://host/?access_token=s3cret#top", "https://host/?access_token=***#top"),
    ("cannot open 'mysql://ann:s3cret@host' today", "cannot open 'mysql://***@host' today"),
    ("sqlite:////tmp/a@b/mlflow.db", "sqlite:////tmp/a@b/mlflow.db"),
    ("http://ann:s3/c?r#e't@host/x", "http://***@host/x"),
    ('no "http://ann:s3 c"ret@host", no http://bob:80/et@b', 'no "http://***@host", no http://***@b'),
    ("http://host:5000/x is silent", "http://host:5000/x is silent"),
]


@pytest.mark.parametrize(("given_text", "shown"), SECRETS)
def test_secrets_in_addresses_are_never_shown(given_text: str, shown: str) -> None:
    assert redact(given_text) == shown


@settings(max_examples=200, deadline=None)
@given(
    st.text(st.characters(exclude_characters="\n", exclude_categories=["C"]), min_size=6).filter(
        lambda p: "://" not in p
    )
)
def test_no_password_survives_redaction(password: str) -> None:
    shown = redact(f"connecting to http://user:{password}@host:80/path failed")
    assert f"user:{password}" not in shown
    assert "@host:80/path failed" in shown


@pytest.mark.parametrize(
    "uri", ["http://ann:s3cret@127.0.0.1:1/", "postgresql://ann:s3cret@127.0.0.1:1/db", "http://ann:s3cret@[bad"]
)
def test_an_address_with_a_password_that_does_not_work_is_reported_without_it(uri: str, tmp_path: Path) -> None:
    with pytest.raises(WslError) as caught:
        Tracker(uri, "wsl-digits", tmp_path)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("name", ["../out", "/etc", "a/b", "..", "", ".hidden", "a\x00b", "x" * 200, "a b", "<script>"])
def test_no_run_name_escapes_its_folder(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        RunFolder(tmp_path / "home", name)
    with pytest.raises(ConfigError):
        find_folder(tmp_path / "home", name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["../secret.png", "/etc/secret.png", "sub/../../secret.png"])
def test_no_image_that_a_table_names_lies_outside_its_folder(name: str, tmp_path: Path) -> None:
    from PIL import Image

    from wsl_toolkit.cli import main

    folder = tmp_path / "photos"
    (folder / "sub").mkdir(parents=True)
    for path in (tmp_path / "secret.png", folder / "a.png"):
        Image.new("RGB", (4, 4)).save(path)
    (folder / "labels.csv").write_text(f"file,candidates\na.png,x|y\n{name},x\n")
    found = CliRunner().invoke(main, ["audit", str(folder)])
    assert found.exit_code == 2
    assert f"row 2, column 'file': '{name}' leads out of the folder" in " ".join(found.output.split())


def test_names_in_brackets_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    from wsl_toolkit.cli.run import _show
    from wsl_toolkit.runs.result import RunResult
    from wsl_toolkit.training.config import RunConfig

    name = "ppl | [/red] [link=http://evil] <script>alert(1)</script>"
    trial = {"seconds": 1.0}
    result = RunResult(
        name=name, config=RunConfig(), run_id="r", experiment=name, experiment_id="1", trials=(trial,), mean={},
        stderr={}, notes=(),
    )  # fmt: skip
    _show(result, "http://ann:s3cret@host")
    said = capsys.readouterr().out
    assert "[/red] [link=http://evil] <script>" in said
    assert "s3cret" not in said


def test_the_interface_listens_on_this_machine_only_and_says_how_to_do_otherwise() -> None:
    from wsl_toolkit.cli import main

    said = CliRunner().invoke(main, ["ui", "--help"]).output
    assert "[default: 127.0.0.1]" in " ".join(said.split())
    assert "--host 0.0.0.0" in said
    assert "anybody who reaches the port" in " ".join(said.split())


def test_what_installing_a_plugin_means_is_said_where_plugins_are_installed() -> None:
    from wsl_toolkit.cli import main

    said = " ".join(CliRunner().invoke(main, ["plugin", "--help"]).output.split())
    assert "its code runs with your rights" in said


def test_dependencies_are_audited_by_what_ci_runs() -> None:
    assert "make audit" in (ROOT / ".ci" / "run").read_text()
    assert ".ci/audit" in (ROOT / "Makefile").read_text()
    assert "pip_audit" in (ROOT / ".ci" / "audit").read_text()


def test_a_foreign_run_folder_does_not_choose_the_store_that_gets_the_users_token(tmp_path: Path) -> None:
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        uri = f"http://127.0.0.1:{listener.getsockname()[1]}"
        folder = RunFolder(tmp_path / "wsl-runs", "foreign")
        folder.note(started=1, status="KILLED", store=uri, experiment="wsl-digits")
        folder.write_config("epochs = 1\n")

        def hear() -> None:
            with contextlib.suppress(OSError):
                while True:
                    heard.append(listener.accept()[0].recv(100))

        threading.Thread(target=hear, daemon=True).start()
        said = wsl_here(tmp_path, "run", "--resume", "foreign", code=2, MLFLOW_TRACKING_TOKEN="s3cret")
    assert f"name that store if you trust it (--tracking-uri {uri})" in said
    assert heard == []


@pytest.mark.system
def test_the_json_of_a_run_on_a_server_is_json_and_shows_no_address(workspace: Path) -> None:
    server = Server(workspace, workspace / "wsl-runs" / "mlflow.db")
    server.start()
    try:
        uri = server.uri.replace("http://", "http://ann:s3cret@")
        arguments = ("--backbone", "linear", "--epochs", "1", "--quiet", "--json", "--tracking-uri", uri)
        said = wsl(workspace, "run", *arguments)
    finally:
        server.kill()
    assert json.loads(said)["experiment"] == "wsl-digits"
    assert "s3cret" not in said
