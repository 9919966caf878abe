"""A study's HTML page as a person uses it: sorted, filtered and pointed at, offline and under its own policy."""

from __future__ import annotations

from pathlib import Path

import pytest

from wsl_toolkit.studies.report.page import html_page
from wsl_toolkit.studies.report.tables import Entry, Table

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("browser")]

NUMBERS = {"CC": 9.5, "LW": 100.25, "<b>PPL</b>": 20.0, "average": None}


def test_a_page_is_sorted_filtered_and_pointed_at(tmp_path: Path) -> None:
    from tests.browser.browser import chromium, wait_for

    rows = tuple(
        (Entry(name), Entry("–" if value is None else f"{value:.1f}", value=value)) for name, value in NUMBERS.items()
    )
    table = Table(key="made", title="Made", columns=("method", "accuracy"), rows=rows)
    page = tmp_path / "report.html"
    page.write_text(html_page("A page", "made for a test", [table], {}), encoding="utf-8")
    with chromium() as browser:
        browser.get(page.as_uri())
        box = wait_for(lambda: browser.find_element("css selector", "input:not([hidden])"), "the filter")

        def shown() -> list[str]:
            found = browser.find_elements("css selector", "tbody tr")
            return [row.find_element("css selector", "td").text for row in found if row.is_displayed()]

        _, accuracy = browser.find_elements("css selector", "th button")
        accuracy.click()
        assert shown() == ["LW", "<b>PPL</b>", "CC", "average"]
        accuracy.click()
        assert shown() == ["CC", "<b>PPL</b>", "LW", "average"]
        box.send_keys("ppl")
        assert shown() == ["<b>PPL</b>"]
        cell = browser.find_element("css selector", "td[data-value='20.0']")
        assert cell.get_attribute("title") == "20"
        refused = [entry for entry in browser.get_log("browser") if "Content Security Policy" in entry["message"]]
        assert refused == []
