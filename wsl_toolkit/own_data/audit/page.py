"""The audit as one HTML file: figures inside it, nothing fetched, every text of the user's escaped."""

from __future__ import annotations

import base64
from html import escape
from typing import Any

from wsl_toolkit.own_data.audit import figures
from wsl_toolkit.own_data.audit.report import (
    NEXT,
    PAIRS,
    PEOPLE,
    Audit,
    next_rows,
    p_text,
    pair_rows,
    people_rows,
    summary_lines,
)
from wsl_toolkit.system.figure_style import png

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; width: 100%; }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid #8884; vertical-align: top; }
th { font-weight: 600; }
img { max-width: 100%; height: auto; background: #fff; }
.refuted { color: #b3400a; } .stands { color: #00754f; } .open { color: #777; }
li { margin: .3rem 0; }
"""

TONES = {"refuted": "refuted", "not refuted": "stands", "not testable": "open"}


def page(found: Audit) -> str:
    """Return the whole page."""
    sections = [
        f"<h1>Audit of {escape(found.name)}</h1>",
        _table(None, [(escape(k), escape(v)) for k, v in summary_lines(found).items()]),
        _notes(found),
        "<h2>Which assumptions hold</h2>",
        _table(
            ("setting", "meaning", "verdict"),
            [
                (escape(str(s)), escape(s.meaning), f'<span class="{TONES[v]}">{v}</span><br>{escape(why)}')
                for s, (v, why) in found.verdicts.items()
            ],
        ),
        "<h2>Tests</h2>",
        _table(
            ("setting", "question", "p-value", "finding"),
            [
                (
                    escape(str(c.setting)),
                    escape(c.question),
                    f'<span class="{TONES[c.verdict]}">{p_text(c.p_value)}</span>',
                    f"{escape(c.words)}<br><small>{escape(c.method)}</small>",
                )
                for c in found.checks
            ],
        ),
        *_annotators(found),
        "<h2>Estimators, best first</h2>",
        _table(
            ("estimator", "", "why"),
            [(escape(r.estimator), escape(r.fit), escape(r.why)) for r in found.recommendations],
        ),
        "<h2>Sizes of the sets</h2>",
        _image(figures.sizes_figure(found.counts), "how many sets have each size"),
        "<h2>Classes</h2>",
        _image(figures.classes_figure(found.counts), "how many sets hold each class"),
        "<h2>Company that candidates keep</h2>",
        _image(figures.companions_figure(found.counts), "share of the sets with one class that hold another"),
    ]
    body = "\n".join(sections)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Audit of {escape(found.name)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _annotators(found: Audit) -> list[str]:
    if found.annotators is None:
        return []
    parts = (
        ("Annotators", PEOPLE, people_rows(found.annotators)),
        ("How they agree", PAIRS, pair_rows(found.annotators)),
        ("To look at next", NEXT, next_rows(found.annotators)),
    )
    return [
        f"<h2>{title}</h2>" + _table(headings, [tuple(map(escape, row)) for row in rows])
        for title, headings, rows in parts
        if rows
    ]


def _notes(found: Audit) -> str:
    if not found.notes:
        return "<p>Nothing in these sets stands in the way of learning.</p>"
    return "<ul>" + "".join(f"<li>{escape(note)}</li>" for note in found.notes) + "</ul>"


def _table(headings: tuple[str, ...] | None, rows: list[tuple[str, ...]]) -> str:
    head = "".join(f"<th>{heading}</th>" for heading in headings) if headings else ""
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table>{f'<thead><tr>{head}</tr></thead>' if head else ''}<tbody>{body}</tbody></table>"


def _image(canvas: Any, alternative: str) -> str:
    data = base64.b64encode(png(canvas, metadata={"Software": None})).decode()
    return f'<img alt="{escape(alternative)}" src="data:image/png;base64,{data}">'
