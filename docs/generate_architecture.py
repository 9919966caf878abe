"""Draws docs/images/architecture.png and writes the table of imports in docs/architecture.md from the real imports.

Run as `python docs/generate_architecture.py`; a test compares the table with what the code imports.
"""

from __future__ import annotations

import ast
from pathlib import Path

from wsl_toolkit.system.figure_style import PALETTE, figure, save
from wsl_toolkit.system.files import write_atomically

HERE = Path(__file__).parent
PACKAGE = HERE.parent / "wsl_toolkit"
PAGE = HERE / "architecture.md"
PICTURE = HERE / "images" / "architecture.png"
START, END = "<!-- generated: imports -->", "<!-- end of generated -->"
COLUMNS = [
    ["system"],
    ["labels"],
    ["plugins"],
    ["data"],
    ["training"],
    ["theory", "runs"],
    ["own_data", "studies"],
    ["testing"],
    ["api"],
    ["cli"],
]
"""The rooms from left to right; the front door's files stand apart, because nearly all rooms import them."""


def imports() -> dict[str, set[str]]:
    """Return which rooms each room imports, inside functions too; imports for type checking alone do not count."""
    rooms = {room for column in COLUMNS for room in column}
    found: dict[str, set[str]] = {room: set() for column in COLUMNS for room in column}
    for room in rooms:
        for path in (PACKAGE / room).rglob("*.py"):
            found[room] |= _imported(path) & rooms - {room}
    return found


def _imported(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for node in ast.walk(block)
    }
    names = [
        node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and id(node) not in typing_only
    ]
    return {name.split(".")[1] for name in names if name.startswith("wsl_toolkit.")}


def table(found: dict[str, set[str]]) -> str:
    """Return the imports as a Markdown table."""
    order = [room for column in COLUMNS for room in column]
    lines = ["| room | files | imports |", "|---|---|---|"]
    for room in order:
        files = sum(1 for _ in (PACKAGE / room).rglob("*.py"))
        others = ", ".join(f"`{other}`" for other in order if other in found[room]) or "–"
        lines.append(f"| `{room}` | {files} | {others} |")
    return "\n".join(lines)


def page(found: dict[str, set[str]]) -> str:
    """Return the page with the table as it should be."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{table(found)}\n{END}{after}"


def draw(found: dict[str, set[str]]) -> None:
    """Draw the rooms down a staircase; a dot in a room's row stands below each room that it imports."""
    order = [room for column in COLUMNS for room in column]
    with figure(figsize=(8.6, 5.4)) as (canvas, axes):
        axes.set_axis_off()
        axes.set_xlim(-0.7, len(order) - 0.3)
        axes.set_ylim(len(order) - 0.4, -0.9)
        for row, room in enumerate(order):
            imported = [place for place, other in enumerate(order) if other in found[room]]
            if imported:
                axes.plot([min(imported), row], [row, row], color="0.85", linewidth=1.2, zorder=1)
                axes.scatter(imported, [row] * len(imported), s=46, color=PALETTE[0], zorder=2)
            axes.plot([row, row], [row, len(order) - 0.6], color="0.93", linewidth=1.2, zorder=0)
            axes.text(
                row,
                row,
                room,
                ha="center",
                va="center",
                fontsize="medium",
                bbox={"boxstyle": "round,pad=0.4", "facecolor": "white", "edgecolor": PALETTE[1], "linewidth": 1.4},
            )
        title = "Each room's row has a dot below every room that it imports: none lies to its right"
        axes.set_title(title, loc="left", fontsize="medium")
        save(canvas, PICTURE)


if __name__ == "__main__":
    read = imports()
    draw(read)
    write_atomically(PAGE, page(read))
    print(f"wrote {PICTURE.name} and {PAGE.name}")
