"""Figure 3 of the paper for any generator: its sizes beside those of uniform sets, and who joins whom."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from wsl_toolkit.system import figure_style
from wsl_toolkit.theory.generator_profile import GeneratorProfile


def draw_profile(profile: GeneratorProfile, path: Path) -> None:
    """Draw a generator to a file."""
    figure_style.save(profile_figure(profile), path, dpi=figure_style.STYLE["savefig.dpi"])


def profile_figure(profile: GeneratorProfile) -> Any:
    """Return the law of |s| against PCPL's, and P(z in s | y) as a matrix."""
    with figure_style.figure(figsize=(9.6, 4.0), ncols=2, width_ratios=(1.35, 1)) as (canvas, (left, right)):
        _draw_sizes(left, profile)
        _draw_joining(canvas, right, profile)
        canvas.suptitle(_title(profile), x=0.01, ha="left", weight="bold", fontsize=11)
    return canvas


def _title(profile: GeneratorProfile) -> str:
    values = ", ".join(f"{name}={value}" for name, value in profile.parameters.items() if value is not None)
    region = profile.proof.region if profile.proof else profile.declared
    name = f"{profile.generator}({values})" if values else profile.generator
    return f"{name} at K = {profile.num_classes}: {region}"


def _draw_sizes(axes: Any, profile: GeneratorProfile) -> None:
    num_classes = profile.num_classes
    sizes = list(range(1, num_classes))
    axes.bar(
        sizes,
        profile.sizes[1:num_classes].tolist(),
        color=figure_style.PALETTE[5],
        width=0.8,
        label=profile.generator,
    )
    axes.plot(
        sizes,
        uniform_sizes(num_classes),
        color=figure_style.PALETTE[1],
        marker="o" if num_classes <= 30 else "",
        markersize=4,
        label="PCPL (uniform sets)",
    )
    mean = profile.mean_size.value
    axes.axvline(mean, color=figure_style.PALETTE[6], linestyle="--", linewidth=1.2, label=f"E|s| = {mean:.2f}")
    axes.set(xlabel="size of the candidate set |s|", ylabel="probability", xlim=(0.4, num_classes - 0.4))
    axes.set_ylim(0, None)
    axes.grid(visible=False, axis="x")
    if num_classes <= 20:
        axes.set_xticks(sizes)
    axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=3, fontsize=9, columnspacing=1.2, handlelength=1.6)


def uniform_sizes(num_classes: int) -> list[float]:
    """Return P(|s| = k) of PCPL for k = 1..K-1: binom(K-1, k-1) / (2^(K-1) - 1) (Proposition 2)."""
    total = 2 ** (num_classes - 1) - 1
    return [math.comb(num_classes - 1, size - 1) / total for size in range(1, num_classes)]


def _draw_joining(canvas: Any, axes: Any, profile: GeneratorProfile) -> None:
    image = axes.imshow(profile.cooccurrence.numpy(), cmap="Blues", vmin=0, vmax=1)
    axes.set(xlabel="class z", ylabel="true class y", title="P(z ∈ s | y)")
    axes.title.set_fontsize(10)
    axes.grid(visible=False)
    if profile.num_classes <= 20:
        axes.set_xticks(range(profile.num_classes))
        axes.set_yticks(range(profile.num_classes))
    bar = canvas.colorbar(image, ax=axes, shrink=0.85)
    bar.outline.set_visible(False)
