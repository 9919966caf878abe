"""Tables as Markdown and as LaTeX; what users typed is escaped in both."""

from __future__ import annotations

import re
from collections.abc import Sequence

from wsl_toolkit.studies.report.tables import Entry, Table

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "α": r"$\alpha$",
    "–": "--",
}


def markdown(title: str, standing: str, tables: Sequence[Table], figures: Sequence[str] = ()) -> str:
    """Return the whole report in Markdown."""
    parts = [f"# {escape_markdown(title)}", escape_markdown(standing)]
    for table in tables:
        parts += [f"## {escape_markdown(table.title)}", markdown_table(table)]
        if table.note:
            parts.append(escape_markdown(table.note))
    parts += [f"![{name}]({name}.png)" for name in figures]
    return "\n\n".join(parts) + "\n"


def markdown_table(table: Table) -> str:
    """Return one table in Markdown."""
    marks = [":---" if place < table.labels else "---:" for place in range(len(table.columns))]
    lines = [_pipes([escape_markdown(column) for column in table.columns]), _pipes(marks)]
    lines += [_pipes([_markdown_entry(entry) for entry in row]) for row in table.rows]
    return "\n".join(lines)


def _pipes(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_entry(entry: Entry) -> str:
    text = escape_markdown(entry.text)
    return f"**{text}**" if entry.bold else text


def escape_markdown(text: str) -> str:
    """Return text that Markdown shows as it is."""
    text = re.sub(r"([\\`*_\[\]|#])", r"\\\1", " ".join(text.split()))
    return text.replace("<", "&lt;").replace(">", "&gt;")


def latex(title: str, standing: str, tables: Sequence[Table]) -> str:
    """Return the tables in LaTeX, for a paper that loads booktabs."""
    parts = [f"% {' '.join(title.split())}", f"% {standing}", *(latex_table(table) for table in tables)]
    return "\n\n".join(parts) + "\n"


def latex_table(table: Table) -> str:
    """Return one table in LaTeX."""
    align = "l" * table.labels + "r" * (len(table.columns) - table.labels)
    lines = [r"\begin{table}", r"  \centering", rf"  \caption{{{escape_latex(f'{table.title}. {table.note}')}}}"]
    lines += [rf"  \begin{{tabular}}{{{align}}}", r"    \toprule"]
    lines += [f"    {' & '.join(escape_latex(column) for column in table.columns)} \\\\", r"    \midrule"]
    for row in table.rows:
        cells = [rf"\textbf{{{escape_latex(e.text)}}}" if e.bold else escape_latex(e.text) for e in row]
        lines.append(f"    {' & '.join(cells)} \\\\")
    return "\n".join([*lines, r"    \bottomrule", r"  \end{tabular}", r"\end{table}"])


def escape_latex(text: str) -> str:
    """Return text that LaTeX shows as it is."""
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))
