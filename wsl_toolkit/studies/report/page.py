"""One HTML page that needs nothing but itself: tables that can be sorted and filtered, and figures.

Everything that a user typed is escaped. The page's own script and style are named by their hashes in its content
policy, so that a browser runs nothing else, and fetches nothing.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources

from wsl_toolkit.studies.report.tables import Entry, Table

FEW_ROWS = 3
"""A table of no more rows than this needs no box to filter them."""
STYLE = """
body { font-family: system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #1a1a1a; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.92rem; }
th, td { padding: 0.3rem 0.7rem; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap; }
th { border-bottom: 2px solid #555; } .label { text-align: left; }
td.long { white-space: normal; max-width: 40rem; }
th button { all: unset; cursor: pointer; font-weight: 600; } th button:focus-visible { outline: 2px solid #0072b2; }
th[aria-sort=descending] button::after { content: " ▾"; } th[aria-sort=ascending] button::after { content: " ▴"; }
tbody tr:hover, .marked { background: #eef4fb; } td[title] { cursor: help; }
input { font: inherit; font-size: 0.9rem; margin: 0 0 0.5rem; padding: 0.2rem 0.4rem; width: 16rem; }
.note { color: #555; font-size: 0.88rem; max-width: 60rem; }
figure { margin: 1.5rem 0; } img { max-width: 100%; height: auto; }
@media (prefers-color-scheme: dark) { body { background: #16181c; color: #e8e8e8; } th, td { border-color: #444; }
  tbody tr:hover, .marked { background: #24303c; } .note { color: #aaa; } img { background: #fff; } }
"""


@functools.cache
def script() -> str:
    """Return the page's script."""
    return (resources.files("wsl_toolkit") / "studies" / "report" / "page.js").read_text(encoding="utf-8")


def content_hash(text: str) -> str:
    """Return the hash by which a content policy allows a script or a style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def html_page(title: str, standing: str, tables: Sequence[Table], images: Mapping[str, bytes]) -> str:
    """Return the report as one page: tables, then figures as embedded pictures."""
    body = [f"<h1>{escape(title)}</h1>", f'<p class="note">{escape(standing)}</p>']
    body += [html_table(table) for table in tables]
    for name, image in images.items():
        data = base64.b64encode(image).decode()
        body.append(f'<figure><img alt="{escape(name)}" src="data:image/png;base64,{data}"></figure>')
    policy = (
        f"default-src 'none'; script-src {content_hash(script())}; style-src {content_hash(STYLE)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>\n"
        + "\n".join(body)
        + f"\n<script>{script()}</script></body></html>\n"
    )


def html_table(table: Table) -> str:
    """Return one table in HTML: headings are buttons that sort by them, a box filters, a number's title says more."""
    head = "".join(
        f'<th scope="col"{_kind(table, place)}><button type="button">{escape(column)}</button></th>'
        for place, column in enumerate(table.columns)
    )
    body = "".join(
        f"<tr>{''.join(_cell(entry, _kind(table, place)) for place, entry in enumerate(row))}</tr>"
        for row in table.rows
    )
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    box = '<input type="search" placeholder="filter rows" aria-label="filter rows" hidden>'
    return (
        f"<section><h2>{escape(table.title)}</h2>{box if len(table.rows) > FEW_ROWS else ''}"
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{note}</section>'
    )


def _kind(table: Table, place: int) -> str:
    long = place > 0 and place < table.labels and any(len(row[place].text) > 60 for row in table.rows)
    return ' class="label long"' if long else ' class="label"' if place < table.labels else ""


def _cell(entry: Entry, kind: str) -> str:
    text = f"<b>{escape(entry.text)}</b>" if entry.bold else escape(entry.text)
    more = ""
    if entry.value is not None:
        parts = [f"{entry.value:.6g}"]
        parts += [f"standard error {entry.stderr:.3g}"] if entry.stderr is not None else []
        parts += [f"{entry.trials} trial{'s' if entry.trials > 1 else ''}"] if entry.trials else []
        more = f' data-value="{entry.value!r}" title="{escape("; ".join(parts))}"'
    return f"<td{kind}{more}>{text}</td>"
