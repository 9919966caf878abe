"""Tests of real data are skipped with the command that runs them, or required; and they must say what they need."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

TESTS = """
import os
import pytest

@pytest.mark.data("MNIST")
def test_of_what_is_there(data_dir):
    assert (data_dir / "MNIST").is_dir()
    assert "WSL_DATA_DIR" not in os.environ

@pytest.mark.data("MNIST", "pll/lost.mat")
def test_of_what_is_missing(data_dir):
    assert False
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Run the tests above beside a copy of our conftest, with WSL_DATA_DIR as given."""
    shutil.copy(Path(__file__).parent / "conftest.py", pytester.path)
    pytester.makeini("[pytest]\nmarkers = data(*names): needs files\n")
    (pytester.path / "some data" / "MNIST").mkdir(parents=True)

    def run(*options: str, data_dir: str | None, tests: str = TESTS) -> pytest.RunResult:
        if data_dir:
            monkeypatch.setenv("WSL_DATA_DIR", str(pytester.path / data_dir))
        pytester.makepyfile(test_it=tests)
        return pytester.runpytest_inprocess("-ra", "-p", "no:cacheprovider", *options)

    return run


def test_without_a_data_directory_they_are_skipped_with_the_command(run):
    done = run(data_dir=None)
    done.assert_outcomes(skipped=2)
    done.stdout.fnmatch_lines("*: MNIST is real data: run WSL_DATA_DIR=<the folder that holds MNIST> make test")


def test_with_one_those_run_whose_files_are_there(run):
    done = run(data_dir="some data")
    done.assert_outcomes(passed=1, skipped=1)
    done.stdout.fnmatch_lines("*: pll/lost.mat is not below WSL_DATA_DIR=*some data: run WSL_DATA_DIR=<*> make test")


def test_where_data_is_required_a_missing_file_fails(run):
    done = run("--require-data", data_dir="some data")
    done.assert_outcomes(passed=1, errors=1)
    done.stdout.fnmatch_lines("pll/lost.mat is not below*")


def test_a_test_that_uses_real_data_must_say_so(run):
    done = run(data_dir="some data", tests="def test_quietly(data_dir):\n    pass\n")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines("*::test_quietly uses data_dir: mark it, e.g. with @pytest.mark.data*")
