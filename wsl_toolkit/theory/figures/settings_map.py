"""Figure 1 of the paper: the regions of the map, nested, with every generator in the region where it lies by proof."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from wsl_toolkit.settings import Setting
from wsl_toolkit.system import figure_style
from wsl_toolkit.theory.survey import Placement

WIDTH = 760.0
"""All lengths are in points, 1/72 inch."""
PAD, HEADER, PILL, GAP = 14.0, 24.0, 22.0, 8.0
NAME_SIZE, TITLE_SIZE, LAW_SIZE, NOTE_SIZE = 10.0, 11.5, 10.5, 8.5
INK = "#1b1f24"
THIRD_PARTY = figure_style.PALETTE[1]

NAMES = {
    Setting.ANY: "",
    Setting.GENERAL: "partial labels",
    Setting.PPL: "proper partial labels",
    Setting.CMM: "conditional multinomial",
    Setting.MCL: "multiple complementary labels",
    Setting.PCPL: "uniform sets",
    Setting.CL: "complementary label",
}
LAWS = {
    Setting.ANY: "the true label may be missing",
    Setting.GENERAL: r"$p(s\,|\,x,y)$ may depend on which candidate is true",
    Setting.PPL: r"$p(s\,|\,x,y)=C(x,s)$",
    Setting.CMM: r"$p(s\,|\,x,y)=C(s)$",
    Setting.MCL: r"$p(s\,|\,x,y)=Q_{|s|}\,/\,\binom{K-1}{|s|-1}$",
    Setting.PCPL: r"$1\,/\,(2^{K-1}-1)$",
    Setting.CL: r"$1\,/\,(K-1)$,  $|s|=K-1$",
}
FILLS = {
    Setting.ANY: "#f6f6f4",
    Setting.GENERAL: "#fdf1e3",
    Setting.PPL: "#eaf3f9",
    Setting.CMM: "#d5e7f3",
    Setting.MCL: "#bcd9ec",
    Setting.PCPL: "#9fc9e4",
    Setting.CL: "#9fc9e4",
}
INNER: dict[Setting, tuple[Setting, ...]] = {
    Setting.ANY: (Setting.GENERAL,),
    Setting.GENERAL: (Setting.PPL,),
    Setting.PPL: (Setting.CMM,),
    Setting.CMM: (Setting.MCL,),
    Setting.MCL: (Setting.PCPL, Setting.CL),
}


@attrs.frozen
class Pill:
    """A generator's name in its frame, with its owner where that is not us and there is room."""

    placement: Placement
    text: str
    width: float


@attrs.frozen
class Region:
    """A region's box: its lines of pills, and the boxes inside it, side by side."""

    setting: Setting
    width: float
    lines: tuple[tuple[Pill, ...], ...]
    inner: tuple[Region, ...]

    @property
    def height(self) -> float:
        """Header, pills, and the highest of the boxes inside."""
        pills = len(self.lines) * (PILL + GAP)
        inside = max((region.height for region in self.inner), default=0.0)
        return PAD + HEADER + pills + (inside + GAP if self.inner else 0.0) + PAD - GAP


def draw_map(placements: Sequence[Placement], num_classes: int, path: Path) -> None:
    """Draw the map to a file; generators that could not be placed are listed below it."""
    from matplotlib.font_manager import FontProperties

    font = FontProperties(size=NAME_SIZE)
    outermost = _layout(Setting.ANY, WIDTH - 2 * PAD, placements, font)
    unplaced = [placement for placement in placements if placement.region is None]
    top, notes = 44.0, 26.0 + 14.0 * len(unplaced)
    height = top + outermost.height + notes
    with figure_style.figure(figsize=(WIDTH / 72, height / 72)) as (canvas, axes):
        canvas.set_layout_engine("none")
        axes.set_position((0, 0, 1, 1))
        axes.set(xlim=(0, WIDTH), ylim=(height, 0))
        axes.axis("off")
        axes.text(PAD, 24, f"Where every generator lies, at K = {num_classes}", fontsize=14, weight="bold", color=INK)
        _draw_region(axes, outermost, PAD, top - 8)
        _draw_notes(axes, placements, unplaced, top - 8 + outermost.height + 18)
        figure_style.save(canvas, path)


def _layout(setting: Setting, width: float, placements: Sequence[Placement], font: Any) -> Region:
    """Arrange a region and those inside it, from the given width."""
    names = INNER.get(setting, ())
    inner_width = (width - 2 * PAD - GAP * (len(names) - 1)) / max(len(names), 1)
    inner = tuple(_layout(name, inner_width, placements, font) for name in names)
    pills = [_pill(placement, width - 2 * PAD, font) for placement in placements if placement.region is setting]
    lines: list[tuple[Pill, ...]] = []
    line: list[Pill] = []
    for pill in pills:
        if line and sum(p.width + GAP for p in (*line, pill)) - GAP > width - 2 * PAD:
            lines.append(tuple(line))
            line = []
        line.append(pill)
    if line:
        lines.append(tuple(line))
    return Region(setting, width, tuple(lines), inner)


def _pill(placement: Placement, room: float, font: Any) -> Pill:
    name = placement.generator
    for text in (f"{name}  ({placement.owner})" if placement.third_party else name, name, f"{name[:24]}…"):
        pill = Pill(placement, text, _text_width(text, font) + 20)
        if pill.width <= room:
            break
    return pill


def _text_width(text: str, font: Any) -> float:
    from matplotlib.textpath import TextPath

    return float(TextPath((0, 0), text, prop=font).get_extents().width)


def _draw_region(axes: Any, region: Region, left: float, top: float, height: float | None = None) -> None:
    """Draw a box with its header, its pills and its inner boxes, all equally high; y grows downwards."""
    dashed = region.setting is Setting.ANY
    fill = FILLS[region.setting]
    _frame(axes, left, top, region.width, height or region.height, radius=14, fill=fill, dashed=dashed)
    _draw_header(axes, region, left + PAD, left + region.width - PAD, top + PAD + 8)
    y = top + PAD + HEADER
    for line in region.lines:
        x = left + PAD
        for pill in line:
            _draw_pill(axes, pill, x, y)
            x += pill.width + GAP
        y += PILL + GAP
    x = left + PAD
    tallest = max((inner.height for inner in region.inner), default=0.0)
    for inner in region.inner:
        _draw_region(axes, inner, x, y, tallest)
        x += inner.width + GAP


def _draw_header(axes: Any, region: Region, left: float, right: float, baseline: float) -> None:
    from matplotlib.font_manager import FontProperties

    title = str(region.setting)
    axes.text(left, baseline, title, fontsize=TITLE_SIZE, weight="bold", color=INK)
    after = left + _text_width(title, FontProperties(size=TITLE_SIZE, weight="bold")) + 10
    axes.text(after, baseline, NAMES[region.setting], fontsize=NAME_SIZE, color=INK, alpha=0.7)
    axes.text(right, baseline, LAWS[region.setting], fontsize=LAW_SIZE, color=INK, ha="right", alpha=0.85)


def _draw_pill(axes: Any, pill: Pill, left: float, top: float) -> None:
    placement = pill.placement
    edge = THIRD_PARTY if placement.third_party else "#4a5560"
    by_test = placement.proof is not None and placement.proof.method == "sampling"
    _frame(axes, left, top, pill.width, PILL, radius=PILL / 2, fill="white", edge=edge, dashed=by_test)
    axes.text(
        left + pill.width / 2,
        top + PILL / 2,
        pill.text,
        fontsize=NAME_SIZE,
        ha="center",
        va="center_baseline",
        color=figure_style.PALETTE[1] if placement.problem else INK,
    )


def _frame(
    axes: Any,
    left: float,
    top: float,
    width: float,
    height: float,
    *,
    radius: float,
    fill: str,
    edge: str = "#7d8a96",
    dashed: bool = False,
) -> None:
    from matplotlib.patches import FancyBboxPatch

    axes.add_patch(
        FancyBboxPatch(
            (left + radius, top + radius),
            width - 2 * radius,
            height - 2 * radius,
            boxstyle=f"round,pad={radius},rounding_size={radius}",
            facecolor=fill,
            edgecolor=edge,
            linewidth=1.0,
            linestyle=(0, (4, 2)) if dashed else "-",
        )
    )


def _draw_notes(axes: Any, placements: Sequence[Placement], unplaced: Sequence[Placement], y: float) -> None:
    """Say how the places were found, and what could not be placed."""
    words = ["with default parameters; proven by enumeration of all sets"]
    if any(p.proof is not None and p.proof.method == "sampling" for p in placements):
        words.append("dashed: by a statistical test of draws")
    if any(p.third_party for p in placements):
        words.append("orange frame: a third party's")
    words.append("CL and PCPL meet only at K = 2")
    axes.text(PAD, y, ";  ".join(words), fontsize=NOTE_SIZE, color=INK, alpha=0.75)
    for line, placement in enumerate(unplaced, start=1):
        reason = str(placement.problem)
        text = f"{placement.generator} could not be placed: {reason[:110]}{'…' if len(reason) > 110 else ''}"
        axes.text(PAD, y + 14 * line, text, fontsize=NOTE_SIZE, color=THIRD_PARTY)
