"""Takes the screenshots of docs/images in a real browser: MLflow's interface, a study's report, an audit's page.

Run as `python docs/take_screenshots.py`. It needs Chromium and its driver (.ci/install-system installs them), trains
for about a minute, and starts `wsl ui` for as long as it takes.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from tests.browser.browser import chromium, see_text, wait_for  # noqa: E402

METHODS = ("ppl", "cc", "lw", "supervised")
WIDTH = 1400
PORT = 5390


def wsl(folder: Path, *arguments: str) -> str:
    """Run a command and return what it printed."""
    command = [sys.executable, "-m", "wsl_toolkit.cli", *arguments]
    print("$ wsl", *arguments, flush=True)
    return subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True, env=environment()).stdout


def environment() -> dict[str, str]:
    """Return the environment of the commands, which work elsewhere but use this checkout."""
    return {**os.environ, "PYTHONPATH": str(HERE.parent)}


@contextmanager
def interface(folder: Path) -> Iterator[str]:
    """Start `wsl ui`; give the link that it prints."""
    command = [sys.executable, "-u", "-m", "wsl_toolkit.cli", "ui", "--no-open", "--port", str(PORT)]
    command += ["--experiment", "wsl-digits"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True, env=environment()) as server:
        try:
            assert server.stdout is not None
            found = re.search(r"http://\S+", server.stdout.readline())
            assert found, "wsl ui printed no link"
            yield found[0]
        finally:
            server.terminate()


def shoot(browser: Any, name: str, height: int = 820) -> None:
    """Save what is seen, cut to a size that a page can show."""
    browser.set_window_size(WIDTH, height)
    wait_for(lambda: browser.execute_script("return document.readyState") == "complete", "the page")
    browser.execute_script("window.scrollTo(0, 0)")
    browser.save_screenshot(str(HERE / "images" / name))
    print(f"  {name}")


def main() -> None:
    """Train, then look."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        runs = {}
        for method in METHODS:
            told = wsl(folder, "run", "--estimator", method, "--trials", "2", "--epochs", "40", "--json", "--quiet")
            runs[method] = json.loads(told)
        wsl(folder, "study", "run", "paper-table-3", "--quick", "--alpha", "0.9", "--quiet")
        exec((HERE / "reference_examples.py").read_text(encoding="utf-8"), examples := {"__name__": "examples"})
        subprocess.run([sys.executable, "-c", examples["TABLE"]], cwd=folder, check=True)
        wsl(folder, "audit", "zoo.csv", "--html", "audit.html", "--quiet")
        with chromium() as browser:
            with interface(folder) as link:
                look_at_runs(browser, link, runs)
            report = folder / "wsl-runs" / "studies" / "paper-table-3-quick" / "report" / "report.html"
            for page, name, text in (
                (report, "report-page.png", "Test accuracy"),
                (folder / "audit.html", "audit-page.png", "zoo"),
            ):
                browser.get(page.as_uri())
                see_text(browser, text)
                shoot(browser, name, 1000)


def close_assistant(browser: Any) -> None:
    """Close the panel that MLflow opens on a first visit, over a quarter of the window; it stays closed."""
    cross = "document.querySelector('[data-component-id=\"mlflow.assistant.chat_panel.close\"]')"
    wait_for(lambda: browser.execute_script(f"const x = {cross}; x?.click(); return Boolean(x)"), "the assistant")
    wait_for(lambda: browser.execute_script(f"return !{cross}"), "the page without the assistant")


def look_at_runs(browser: Any, link: str, runs: dict[str, Any]) -> None:
    """Take the runs table, the page of a run, and one of its pictures."""
    browser.set_window_size(1700, 700)
    browser.get(link)
    see_text(browser, "test/accuracy_mean", "test/accuracy_stderr")
    for result in runs.values():
        see_text(browser, f"{result['mean']['test/accuracy']:.8f}"[:8])
    close_assistant(browser)
    browser.save_screenshot(str(HERE / "images" / "mlflow-runs.png"))
    print("  mlflow-runs.png")
    server = link.partition("/#/")[0]
    result = runs["ppl"]
    place = f"{server}/#/experiments/{result['experiment_id']}/runs/{result['run_id']}"
    browser.get(f"{place}?workflowType=machine_learning")
    see_text(browser, "generator.alpha", "test accuracy", "mcl-skewed")
    shoot(browser, "mlflow-run.png", 1000)
    browser.get(f"{place}/artifacts/figures/learning_curve.png?workflowType=machine_learning")
    script = "return [...document.images].some(i => i.naturalWidth > 600)"
    wait_for(lambda: browser.execute_script(script), "the learning curve")
    shoot(browser, "mlflow-figure.png", 900)


if __name__ == "__main__":
    main()
