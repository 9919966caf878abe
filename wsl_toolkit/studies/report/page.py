"""One HTML page that needs nothing but itself; everything that a user typed is escaped, and no script is in it."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape

from wsl_toolkit.studies.report.tables import Table

STYLE = """
body { font-family: system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #1a1a1a; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.92rem; }
th, td { padding: 0.3rem 0.7rem; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap; }
th { border-bottom: 2px solid #555; } .label { text-align: left; }
.note { color: #555; font-size: 0.88rem; max-width: 60rem; }
figure { margin: 1.5rem 0; } img { max-width: 100%; height: auto; }
@media (prefers-color-scheme: dark) { body { background: #16181c; color: #e8e8e8; } th, td { border-color: #444; }
  .note { color: #aaa; } img { background: #fff; } }
"""


def html_page(title: str, standing: str, tables: Sequence[Table], images: Mapping[str, bytes]) -> str:
    """Return the report as one page: tables, then figures as embedded pictures."""
    body = [f"<h1>{escape(title)}</h1>", f'<p class="note">{escape(standing)}</p>']
    body += [html_table(table) for table in tables]
    for name, image in images.items():
        data = base64.b64encode(image).decode()
        body.append(f'<figure><img alt="{escape(name)}" src="data:image/png;base64,{data}"></figure>')
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def html_table(table: Table) -> str:
    """Return one table in HTML."""
    classes = [' class="label"' if place < table.labels else "" for place in range(len(table.columns))]
    head = "".join(f"<th{kind}>{escape(column)}</th>" for kind, column in zip(classes, table.columns, strict=True))
    rows = []
    for row in table.rows:
        cells = (f"<b>{escape(entry.text)}</b>" if entry.bold else escape(entry.text) for entry in row)
        rows.append("".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(classes, cells, strict=True)))
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    return (
        f'<h2>{escape(table.title)}</h2><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{note}"
    )
