"""`wsl ui` as a person sees it: a real server, a real browser, real runs."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("browser")]

METHODS = ("ppl", "cc", "supervised")


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ui")


@pytest.fixture(scope="module")
def runs(workspace: Path) -> dict[str, Any]:
    """Three methods, two trials each."""
    results = {}
    for method in METHODS:
        command = [sys.executable, "-m", "wsl_toolkit.cli", "run", "--estimator", method, "--generator", "mcl-skewed"]
        command += ["--trials", "2", "--epochs", "40", "--json"]
        done = subprocess.run(command, cwd=workspace, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        results[method] = json.loads(done.stdout)
    return results


@pytest.fixture(scope="module")
def link(workspace: Path, runs: dict[str, Any]) -> Iterator[str]:
    """The link that `wsl ui` prints."""
    command = [sys.executable, "-u", "-m", "wsl_toolkit.cli", "ui", "--no-open", "--port", str(free_port())]
    # Ctrl-C is what ends it; a shell starts its background jobs, and all that they start, deaf to that.
    with subprocess.Popen(
        command, cwd=workspace, stdout=subprocess.PIPE, text=True, preexec_fn=_hear_interrupts
    ) as server:
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            found = re.search(r"http://\S+", line)
            assert found, f"no link in {line!r}"
            yield found[0]
        finally:
            server.send_signal(signal.SIGINT)
            assert server.wait(timeout=30) == 0


def free_port() -> int:
    """A port that nobody listens at: tests of this file may run in several processes, each with its own server."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _hear_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from tests.browser.browser import chromium

    with chromium() as opened:
        yield opened


def test_the_link_opens_a_table_that_says_which_method_did_how_well(
    browser: Any, link: str, runs: dict[str, Any]
) -> None:
    from tests.browser.browser import cut_headers, keep_screenshot, see_text

    browser.set_window_size(1900, 800)
    browser.get(link)
    see_text(browser, "accuracy SE", "alpha", "0.7", "mcl-skewed")
    for result in runs.values():
        see_text(browser, str(round(result["mean"]["test/accuracy"], 4)))
    assert cut_headers(browser) == []
    keep_screenshot(browser, "mlflow-runs.png")


def test_a_runs_page_shows_its_description_and_parameters(browser: Any, link: str, runs: dict[str, Any]) -> None:
    from tests.browser.browser import keep_screenshot, see_text

    browser.get(run_page(link, runs["ppl"]))
    see_text(browser, "generator.alpha", "test accuracy", "mcl-skewed")
    keep_screenshot(browser, "mlflow-run.png")


def test_a_trials_page_draws_its_metrics_against_epochs(browser: Any, link: str, runs: dict[str, Any]) -> None:
    from tests.browser.browser import keep_screenshot, see_text, wait_for

    browser.get(run_page(link, runs["ppl"], "/model-metrics", child_of(link, runs["ppl"])))
    wait_for(lambda: browser.find_elements("css selector", ".js-plotly-plot svg"), "a chart")
    see_text(browser, "test/accuracy")
    keep_screenshot(browser, "mlflow-metrics.png")


def test_the_learning_curve_is_shown_as_a_picture(browser: Any, link: str, runs: dict[str, Any]) -> None:
    from tests.browser.browser import keep_screenshot, wait_for

    browser.get(run_page(link, runs["ppl"], "/artifacts/figures/learning_curve.png"))

    def picture() -> bool:
        script = "return [...document.images].some(i => i.naturalWidth > 600)"
        return bool(browser.execute_script(script))

    wait_for(picture, "the learning-curve picture")
    keep_screenshot(browser, "mlflow-figure.png")


def run_page(link: str, result: dict[str, Any], tab: str = "", run_id: str | None = None) -> str:
    server = link.partition("/#/")[0]
    page = f"experiments/{result['experiment_id']}/runs/{run_id or result['run_id']}{tab}"
    return f"{server}/#/{page}?workflowType=machine_learning"


def child_of(link: str, result: dict[str, Any]) -> str:
    """Ask the server for one of the trials."""
    from wsl_toolkit.runs.tracking.library import import_mlflow

    client = import_mlflow().MlflowClient(tracking_uri=link.partition("/#/")[0])
    query = f"tags.`mlflow.parentRunId` = '{result['run_id']}'"
    return str(client.search_runs([result["experiment_id"]], query)[0].info.run_id)
