"""Every shell block and Python block in README and docs works as printed.

All of them are parsed here: an option that is gone, a component that was renamed or a study that cannot be read fails
within seconds. All but those listed in blocks.toml are also carried out, in order, in one directory for each page.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
from doc_pages import (
    HOW,
    ROOT,
    SHELLS,
    Block,
    Exception_,
    blocks,
    data_of,
    exception_of,
    exceptions,
    pages,
    without_redirection,
)

from wsl_toolkit.cli import main

WITH_CODE = [page for page in pages() if any(block.language in (*SHELLS, "python", "toml") for block in blocks(page))]
REFERENCE = [page for page in WITH_CODE if page.startswith("docs/reference/")]
SAMPLED = [
    f"docs/reference/{name}.md"
    for name in ("generators/query", "estimators/cc", "datasets/csv", "datasets/image-folder")
]
BUNDLED = [page for page in REFERENCE if not data_of(page)]
LONG = [page for page in WITH_CODE if any(e.page == page and e.how == "long" for e in exceptions())]
QUICK = ["README.md"]
"""Carried out by `make test`; the others, which train for minutes, by `make test-system`."""
REST = [page for page in WITH_CODE if page not in (*QUICK, *REFERENCE)]
TOOLS = {"wsl", "make", "python", "pip", "mlflow", "curl", "cd", "for", "eval", "export", "exec", "ray", "torchrun"}


# ------------------------------------------------------------------------------------------------ parsed, all of them


def parse(words: list[str]) -> None:
    """Let click read a command line to its end, without doing what it says."""
    context: click.Context = main.make_context("wsl", list(words))
    command: click.Command = main
    rest = list(words)
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None, words
        command = found
        with contextlib.suppress(click.exceptions.Exit):  # which is what --help is
            context = command.make_context(name, list(rest), parent=context)
        if "--help" in rest:
            return


@pytest.mark.parametrize("page", WITH_CODE)
def test_every_block_can_be_parsed(page: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.chdir(ROOT)
    if any(found.page == page and found.begins == "*" for found in exceptions()):
        return  # another test carries the whole page out, in an environment that knows the page's own components
    for block in blocks(page):
        if block.language == "python" and not block.text.startswith("# replace in: "):
            ast.parse(block.text, block.place)
        elif block.language == "toml":
            check_toml(tomllib.loads(block.text), block)
        elif block.language in SHELLS:
            for words in block.commands():
                check_command(without_redirection(words), block)


def check_toml(values: dict, block: Block) -> None:
    """A description of a study, or part of one, must be read as one."""
    from wsl_toolkit.studies.parsing import from_dict
    from wsl_toolkit.studies.reading import find_values

    whole = values if "settings" in values else {**find_values("paper-table-3")[0], **values}
    from_dict({key: value for key, value in whole.items() if key not in ("quick", "base")}, block.place)


def check_command(words: list[str], block: Block) -> None:
    tool = words[0]
    assert tool in TOOLS or "=" in tool or tool.startswith("^"), f"{block.place}: what is {tool!r}?"
    if tool == "wsl":
        if any("…" in word for word in words):
            return
        try:
            parse(words[1:])
        except Exception as error:
            raise AssertionError(f"{block.place}: {' '.join(words)}: {error}") from error
        if words[1:3] == ["study", "run"]:
            from wsl_toolkit.studies.reading import read_study

            with contextlib.suppress(FileNotFoundError):
                if Path(words[3]).suffix != ".toml" or Path(words[3]).is_file():
                    read_study(words[3], quick="--quick" in words)
    elif tool == "make":
        done = subprocess.run(["make", "--dry-run", *words[1:]], capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == 0, f"{block.place}: {done.stderr}"
    elif words[:2] == ["python", "-m"] and words[2].startswith("benchmarks"):
        module = ROOT / words[2].replace(".", "/")
        assert module.is_dir() or module.with_suffix(".py").is_file(), block.place


def test_every_exception_is_about_a_block_that_exists_and_says_why() -> None:
    for found in exceptions():
        matching = [b for b in blocks(found.page) if found.begins == "*" or b.text.startswith(found.begins)]
        assert matching, f"blocks.toml: {found.page} has no block that begins {found.begins!r}"
        assert found.how in HOW
        assert len(found.why) > 15, f"{found.page}: say why"
        if found.how == "elsewhere":
            file, _, name = found.test.partition("::")
            assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), f"there is no {found.test}"
        if found.how == "served":
            assert found.says, "say what the server prints when it is up"


def test_every_block_has_a_language_that_somebody_understands() -> None:
    for page in pages():
        for block in blocks(page):
            assert block.language in (*SHELLS, "python", "toml", "text", "bibtex") or block.language.startswith("{"), (
                f"{block.place} has the language {block.language!r}"
            )


# --------------------------------------------------------------------------------------------------------- carried out


@pytest.fixture(scope="session")
def binaries(warm_python: Path) -> Path:
    return warm_python.parent / "bin"


class Reader:
    """Somebody who does what a page says, from top to bottom, in a directory of their own."""

    def __init__(self, folder: Path, binaries: Path, data_dir: Path | None = None) -> None:
        self.folder = folder
        if data_dir is not None:
            (folder / "data").symlink_to(data_dir)  # the default of --data-dir, so that messages name it as printed
        self.names: dict = {"__name__": "__main__"}
        self.servers: list[subprocess.Popen] = []
        own = Path(sys.executable).parent
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("WSL_", "MLFLOW_", "PYTEST_"))}
        self.real = {
            **kept,
            "PATH": f"{own}:{kept['PATH']}",
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "120",
            "PYTHONPATH": str(ROOT),
        }
        self.env = {**self.real, "PATH": f"{binaries}:{self.real['PATH']}"}

    def follow(
        self, page: str, *, long: bool = False, languages: tuple[str, ...] = ("python", "toml", *SHELLS)
    ) -> None:
        """Do what a page says: all of it, unless blocks.toml says otherwise or only some languages are wanted."""
        try:
            for block in blocks(page):
                found = exception_of(block)
                if block.language not in languages:
                    continue
                if found is None or (long and found.how == "long"):
                    self.do(block)
                elif found.how == "served":
                    self.start(block, found)
        finally:
            for server in reversed(self.servers):
                # The whole group, for a server may be a child of the command; not SIGINT, which a process that was
                # started in the background of a script ignores.
                os.killpg(server.pid, signal.SIGTERM)
                server.wait(timeout=60)
                assert server.stdout is not None
                server.stdout.close()

    def do(self, block: Block) -> None:
        if block.file is not None:
            path = self.folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text.partition("\n")[2])
        elif block.language == "python":
            self.run_python(block)
        elif block.language in SHELLS:
            for step in block.steps():
                done = subprocess.run(
                    ["bash", "-euo", "pipefail", "-c", step.command],
                    cwd=self.folder,
                    env=self.env,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    timeout=3000,
                )
                assert done.returncode == step.exit_code, f"{block.place}: {step.command}\n{done.stdout}"
                assert step.missing(done.stdout) == [], f"{block.place}: {step.command}\n{done.stdout}"

    def run_python(self, block: Block) -> None:
        """Run a block in this process, where everything is imported; its names last until the page ends."""
        before = Path.cwd()
        os.chdir(self.folder)
        sys.path.insert(0, str(self.folder))
        try:
            with contextlib.redirect_stdout(io.StringIO()) as said:
                exec(compile(block.text, block.place, "exec", dont_inherit=True), self.names)
        finally:
            sys.path.remove(str(self.folder))
            os.chdir(before)
        for line in re.findall(r"^print\(.*\)  # (.+)$", block.text, re.M):
            pattern = ".*".join(re.escape(part) for part in line.split("…"))
            assert re.search(pattern, said.getvalue()), f"{block.place} shows {line!r}, but printed {said.getvalue()!r}"

    def start(self, block: Block, found: Exception_) -> None:
        """Start a server; wait for what it says when it is up, then do what else the block says."""
        (first, *others) = block.steps() if block.language == "console" else [None]
        command, _, rest = (first.command if first else block.text).partition("\n")
        server = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=self.folder,
            env=self.real,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.servers.append(server)
        assert server.stdout is not None
        said = ""
        for line in server.stdout:
            said += line
            if found.says in line:
                break
        else:
            raise AssertionError(f"{block.place}: {command} ended with\n{said}")
        if rest.strip():
            self.do(Block(block.page, block.line, "sh", rest))
        assert not others, "a server's block has one prompt"


@pytest.fixture
def reader(tmp_path: Path, binaries: Path, request: pytest.FixtureRequest) -> Reader:
    """A reader who has real data only if the test says that it needs some."""
    needs_data = request.node.get_closest_marker("data") is not None
    return Reader(tmp_path, binaries, request.getfixturevalue("data_dir") if needs_data else None)


def needing(data: tuple[str, ...], page: str) -> Any:
    """A page as a parameter, marked with the real data that its blocks read."""
    return pytest.param(page, marks=[pytest.mark.data(*data)] if data else [])


@pytest.mark.parametrize("page", QUICK)
def test_the_front_page_works_as_printed(page: str, reader: Reader) -> None:
    reader.follow(page)


@pytest.mark.system
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("page", [needing(data_of(page), page) for page in REST])
def test_the_page_works_as_printed(page: str, reader: Reader) -> None:
    reader.follow(page)


@pytest.mark.system
@pytest.mark.timeout(3000)
def test_the_examples_of_the_reference_work_as_printed(reader: Reader) -> None:
    """The Python of every page, and the commands of one page for each role: all in one directory, with one database."""
    for page in BUNDLED:
        reader.follow(page, languages=("python", *SHELLS) if page in SAMPLED else ("python",))


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_every_command_of_the_reference_works_as_printed(reader: Reader) -> None:
    for page in BUNDLED:
        reader.follow(page)


@pytest.mark.system
@pytest.mark.parametrize("page", [needing(data_of(page), page) for page in REFERENCE if page not in BUNDLED])
def test_the_example_on_real_data_works_as_printed(page: str, reader: Reader) -> None:
    reader.follow(page)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("page", [needing(data_of(page, long=True), page) for page in LONG])
def test_the_page_works_as_printed_with_what_takes_long(page: str, reader: Reader) -> None:
    reader.follow(page, long=True)


def test_the_reader_notices_what_is_not_as_printed(tmp_path: Path, binaries: Path) -> None:
    """A test of the tests: a wrong output, a wrong exit code and a wrong print are all found."""
    reader = Reader(tmp_path, binaries)
    good = "$ wsl list estimator\nestimators\nppl …\n$ wsl show estimator pqr\nError: …\n"
    reader.do(Block("x.md", 1, "console", good))
    for language, text in (
        ("console", "$ wsl list estimator\nno such line\n"),
        ("console", "$ wsl show estimator pqr\n"),
        ("sh", "wsl show estimator pqr\n"),
        ("python", "print(1 + 1)  # 3\n"),
    ):
        with pytest.raises(AssertionError):
            reader.do(Block("x.md", 1, language, text))


def test_parsing_notices_an_option_that_is_gone() -> None:
    for text in ("wsl run --estimatr ppl\n", "wsl run --estimator pqr\n", "wsl rnu\n", "make no-such-target\n"):
        block = Block("x.md", 1, "sh", text)
        (words,) = block.commands()
        with pytest.raises(AssertionError):
            check_command(words, block)


def test_bash_is_there() -> None:
    assert shutil.which("bash"), "the blocks are run by bash"
