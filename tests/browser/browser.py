"""A real headless Chromium, and waiting for what a person would see."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1600,1000",
)


@contextmanager
def chromium() -> Iterator[Any]:
    """Open the installed browser; it is closed afterwards."""
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    assert binary, "Debian's chromium is needed: run .ci/install-system"
    assert driver, "Debian's chromium-driver is needed: run .ci/install-system"
    options = Options()
    options.page_load_strategy = "none"  # what must be seen is waited for; a resource that never ends must not block
    options.binary_location = binary
    for flag in FLAGS:
        options.add_argument(flag)
    browser = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield browser
    finally:
        browser.quit()


def wait_for(condition: Callable[[], Any], what: str, seconds: float = 60) -> Any:
    """Wait until a condition holds and return its value, or say what did not appear."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(WebDriverException):  # the page may be changing under our eyes
            if found := condition():
                return found
        time.sleep(0.25)
    raise AssertionError(f"{what} did not appear within {seconds:g} s")


def see_text(browser: Any, *texts: str) -> None:
    """Wait until the page shows all these texts."""
    for text in texts:
        wait_for(lambda text=text: text in browser.find_element("tag name", "body").text, f"the text {text!r}")


def close_assistant(browser: Any) -> None:
    """Close the panel that MLflow opens on a first visit, over a quarter of the window; it stays closed."""
    cross = "document.querySelector('[data-component-id=\"mlflow.assistant.chat_panel.close\"]')"
    wait_for(lambda: browser.execute_script(f"const x = {cross}; x?.click(); return Boolean(x)"), "the assistant")
    wait_for(lambda: browser.execute_script(f"return !{cross}"), "the page without the assistant")


def cut_headers(browser: Any) -> list[str]:
    """Return the headers of MLflow's runs table that are longer than their column."""
    script = """return [...document.querySelectorAll('.ag-header-cell')].filter(cell => {
        const room = cell.getBoundingClientRect();
        return [...cell.querySelectorAll('span')].some(text => text.getBoundingClientRect().right > room.right - 2);
    }).map(cell => cell.textContent.trim())"""
    return list(browser.execute_script(script))


def keep_screenshot(browser: Any, name: str) -> None:
    """Save a screenshot where WSL_SCREENSHOTS says, for the documentation."""
    folder = os.environ.get("WSL_SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        browser.save_screenshot(str(Path(folder) / name))
