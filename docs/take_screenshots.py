"""Takes the screenshots of docs/images in a real browser: MLflow's interface, a study's report, an audit's page.

Run as `python docs/take_screenshots.py`. It needs Chromium and its driver (.ci/install-system installs them), trains
for about a minute, and starts `wsl ui` for as long as it takes.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from tests.browser.browser import chromium, close_assistant, cut_headers, see_text, wait_for  # noqa: E402
from wsl_toolkit.plugins.loading import load_plugins  # noqa: E402
from wsl_toolkit.studies.driver import study_states  # noqa: E402
from wsl_toolkit.studies.store import StudyFolder  # noqa: E402

METHODS = ("ppl", "cc", "lw", "supervised")
WIDTH, TABLE_WIDTH = 1400, 1900
PORT = 5390
CELLS = "from tags where key = 'wsl.key' and value like 'cell:%'"
STUDY = """
name = "four-settings"
title = "Four ways to draw candidate sets"
trials = 5

[training]
epochs = 60
batch_size = 64
validation = 0.1

[search]
strategy = "grid"
epochs = 15

[search.space]
lr = [1e-2, 1e-1]
weight_decay = [1e-4, 1e-2]

[[settings]]
dataset = "digits"
generator = [
  { name = "mcl-skewed", alpha = 0.9 },
  { name = "mcl-skewed", alpha = 0.7 },
  { name = "flip", q = 0.3 },
  { name = "pcpl" },
]
backbone = "linear"

[[methods]]
estimator = "ppl"

[[methods]]
estimator = "cc"

[[methods]]
estimator = "lw"
"""


def wsl(folder: Path, *arguments: str) -> str:
    """Run a command and return what it printed."""
    command = [sys.executable, "-m", "wsl_toolkit.cli", *arguments]
    print("$ wsl", *arguments, flush=True)
    return subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True, env=environment()).stdout


def environment() -> dict[str, str]:
    """Return the environment of the commands, which work elsewhere but use this checkout."""
    return {**os.environ, "PYTHONPATH": str(HERE.parent)}


def run_half(folder: Path, study: str) -> None:
    """Run a study until the interface shows some of its cells' numbers, then stop it as Ctrl-C does."""
    command = [sys.executable, "-m", "wsl_toolkit.cli", "study", "run", f"{study}.toml", "--jobs", "1", "--quiet"]
    print("$ wsl", *command[3:], "... Ctrl-C", flush=True)
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL, env=environment()) as process:
        while process.poll() is None and not is_half_done(folder, study):
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
    assert is_half_done(folder, study), "the study ended before it could be stopped: give it more epochs"


def is_half_done(folder: Path, study: str) -> bool:
    """Return whether the store has the numbers of half of a study's cells, and some cells are not complete."""
    described, database = StudyFolder(folder / "wsl-runs", study), folder / "wsl-runs" / "mlflow.db"
    if not described.exists or not database.exists():
        return False
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as store:
        (cells,) = store.execute(f"select count(*) {CELLS}").fetchone()
        shown_cells = f"key = 'trials' and value > 0 and run_uuid in (select run_uuid {CELLS})"
        (shown,) = store.execute(f"select count(*) from latest_metrics where {shown_cells}").fetchone()
    if 2 * shown < cells or not shown:
        return False
    states = study_states(described.read_study(), described, load_plugins().registry)
    return not all(state.done for state in states)


@contextmanager
def interface(folder: Path, experiment: str) -> Iterator[str]:
    """Start `wsl ui`; give the link that it prints."""
    command = [sys.executable, "-u", "-m", "wsl_toolkit.cli", "ui", "--no-open", "--port", str(PORT)]
    command += ["--experiment", experiment]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True, env=environment()) as server:
        try:
            assert server.stdout is not None
            found = re.search(r"http://\S+", server.stdout.readline())
            assert found, "wsl ui printed no link"
            yield found[0]
        finally:
            server.terminate()


def shoot(browser: Any, name: str, height: int = 820, first: str = "body") -> None:
    """Save what is seen from an element on, cut to a size that a page can show."""
    browser.set_window_size(WIDTH, height)
    wait_for(lambda: browser.execute_script("return document.readyState") == "complete", "the page")
    browser.execute_script(f"document.querySelector({first!r}).scrollIntoView()")
    browser.save_screenshot(str(HERE / "images" / name))
    print(f"  {name}")


def main() -> None:
    """Train, then look."""
    with tempfile.TemporaryDirectory() as scratch, chromium() as browser:
        folder = Path(scratch)
        (folder / "four-settings.toml").write_text(STUDY, encoding="utf-8")
        run_half(folder, "four-settings")
        with interface(folder, "wsl-study-four-settings") as link:
            look_at_table(browser, link, "mlflow-study.png", "trials", "four-settings", "alpha", first=True)
        runs = {}
        for method in METHODS:
            told = wsl(folder, "run", "--estimator", method, "--trials", "2", "--epochs", "40", "--json", "--quiet")
            runs[method] = json.loads(told)
        with interface(folder, "wsl-digits") as link:
            numbers = [str(round(result["mean"]["test/accuracy"], 4)) for result in runs.values()]
            look_at_table(browser, link, "mlflow-runs.png", "accuracy SE", "alpha", *numbers)
            look_at_run(browser, link, runs["ppl"])
        wsl(folder, "study", "resume", "four-settings", "--quiet")
        exec((HERE / "reference_examples.py").read_text(encoding="utf-8"), examples := {"__name__": "examples"})
        subprocess.run([sys.executable, "-c", examples["TABLE"]], cwd=folder, check=True)
        wsl(folder, "audit", "zoo.csv", "--html", "audit.html", "--quiet")
        report = folder / "wsl-runs" / "studies" / "four-settings" / "report" / "report.html"
        for page, name, text in (
            (report, "report-page.png", "Test accuracy"),
            (folder / "audit.html", "audit-page.png", "zoo"),
        ):
            browser.get(page.as_uri())
            see_text(browser, text)
            shoot(browser, name, 1000)
            if page == report:
                shoot(browser, "report-panels.png", 1000, "figure")


def look_at_table(browser: Any, link: str, name: str, *texts: str, first: bool = False) -> None:
    """Take a table of runs; no header of it may be cut."""
    browser.set_window_size(TABLE_WIDTH, 800)
    browser.get(link)
    see_text(browser, *texts)
    if first:
        close_assistant(browser)
    cut = cut_headers(browser)
    assert not cut, f"headers are cut: {cut}"
    browser.save_screenshot(str(HERE / "images" / name))
    print(f"  {name}")


def look_at_run(browser: Any, link: str, result: dict[str, Any]) -> None:
    """Take the page of a run, and one of its pictures."""
    place = f"{link.partition('/#/')[0]}/#/experiments/{result['experiment_id']}/runs/{result['run_id']}"
    browser.get(f"{place}?workflowType=machine_learning")
    see_text(browser, "generator.alpha", "test accuracy", "mcl-skewed")
    shoot(browser, "mlflow-run.png", 1000)
    browser.get(f"{place}/artifacts/figures/learning_curve.png?workflowType=machine_learning")
    script = "return [...document.images].some(i => i.naturalWidth > 600)"
    wait_for(lambda: browser.execute_script(script), "the learning curve")
    shoot(browser, "mlflow-figure.png", 900)


if __name__ == "__main__":
    main()
