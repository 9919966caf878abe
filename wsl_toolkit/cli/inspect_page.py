"""What `wsl inspect` prints: one generator's page, the map as a table, and both as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from wsl_toolkit.cli.console import console
from wsl_toolkit.plugins.registry import Entry
from wsl_toolkit.settings import Setting
from wsl_toolkit.theory.generator_profile import Constant, Estimate, GeneratorProfile
from wsl_toolkit.theory.proofs import NORMALISED, Proof, Verdict
from wsl_toolkit.theory.sampling_tests import SAMPLES
from wsl_toolkit.theory.survey import Placement

BAR = 30
"""Width of the longest bar."""
HOLDS = {
    NORMALISED: "the probabilities of each x and y sum to one",
    Setting.GENERAL: "the true label is always in s",
    Setting.PPL: "p(s|x,y) is the same for every y in s",
    Setting.CMM: "p(s|x,y) is the same for every x and every y in s",
    Setting.MCL: "p(s|x,y) is the same for every s of one size",
    Setting.PCPL: "p(s|x,y) is the same for every s that holds y",
    Setting.CL: "s leaves out one wrong label, each equally often",
    SAMPLES: "the draws follow the probabilities (chi-square over all sets)",
}
MOST_ROWS = 24
"""Sizes shown at most; beyond, only the likely ones."""


def show_profile(profile: GeneratorProfile, entry: Entry, figure: Path | None) -> None:
    """Print one generator's page."""
    out = console()
    out.print(f"[bold]{profile.generator}[/]  {escape(entry.cls.summary())}")
    values = ", ".join(f"{name} = {value}" for name, value in profile.parameters.items() if value is not None)
    out.print(escape(f"{profile.num_classes} classes{', ' + values if values else ''}; from {entry.owner}"))
    out.print()
    _show_proof(out, profile)
    _show_sizes(out, profile)
    degree = profile.ambiguity_degree
    out.print(
        f"[bold]Ambiguity degree[/]  {_estimate(degree)}: the likeliest wrong label of any class joins that often"
    )
    out.print()
    _show_examples(out, profile)
    if figure is not None:
        out.print(f"\nfigure: {escape(str(figure))}")


def _show_proof(out: Console, profile: GeneratorProfile) -> None:
    proof = profile.proof
    if proof is None:
        out.print(
            f"[bold]Setting[/]  {profile.declared} as declared; not proven: {profile.num_classes} classes are too"
        )
        out.print("many to enumerate, and its parameters do not fit fewer")
        out.print()
        return
    out.print(f"[bold]Setting[/]  [bold]{proof.region or 'none'}[/], {_how(proof, profile.num_classes)}")
    if proof.region is not None:
        out.print(f"         {escape(proof.region.meaning)}")
    if not proof.keeps_promise:
        out.print(f"         [bold red]it declares {proof.declared}, a promise it does not keep[/]")
    elif proof.region is not proof.declared:
        out.print(f"         it declares {proof.declared}, which must hold for all parameters")
    for verdict in proof.verdicts:
        out.print(f"  {_mark(verdict)}  {verdict.claim:<10}  {escape(_reason(verdict))}")
    if profile.samples is not None:
        out.print(f"  {_mark(profile.samples)}  {'samples':<10}  {escape(_reason(profile.samples))}")
    out.print()


def _how(proof: Proof, num_classes: int) -> str:
    at = f"{proof.num_instances} instances"
    if proof.num_classes != num_classes:
        at += f", at {proof.num_classes} classes ({num_classes} are too many to enumerate)"
    if proof.method == "sampling":
        return f"not refuted by a statistical test of draws at {at}"
    sets = f"all {2**proof.num_classes - 2:,} sets for each label"
    found = "proven" if proof.region is not None else "found"
    return f"{found} by enumeration of {sets}, at {at} and these parameters"


def _mark(verdict: Verdict) -> str:
    return "[green]yes[/]" if verdict.holds else "[red]no[/] "


def _reason(verdict: Verdict) -> str:
    parts = [str(verdict.witness) if verdict.witness else HOLDS[verdict.claim]]
    if verdict.p_value is not None:
        parts.append(f"p-value {verdict.p_value:.3g}")
    if verdict.note:
        parts.append(verdict.note)
    return "; ".join(parts)


def _show_sizes(out: Console, profile: GeneratorProfile) -> None:
    sampled = profile.sampled_mean_size
    beside = f", sampled {sampled.value:.4f} ± {sampled.error:.4f}" if profile.mean_size.exact else ""
    out.print(f"[bold]Sizes[/]  E|s| = {_estimate(profile.mean_size)}{beside}")
    constants = {row.size: row for row in profile.constants or ()}
    heading = f"  |s|  {'P(|s|)':<{BAR + 8}}"
    out.print(f"{heading}  {'C(x, s)':<24}  positive for" if constants else heading.rstrip())
    probabilities = profile.sizes.tolist()
    rows = sorted(sorted(range(1, profile.num_classes), key=lambda size: -probabilities[size])[:MOST_ROWS])
    for size in rows:
        bar = "█" * round(BAR * probabilities[size] / max(probabilities))
        row = constants.get(size)
        out.print(f"  {size:>3}  {probabilities[size]:.4f}  {bar:<{BAR}}  {_constant(row) if row else ''}".rstrip())
    if len(rows) < profile.num_classes - 1:
        out.print(f"(the {len(rows)} likeliest of {profile.num_classes - 1} sizes)")
    if profile.proof is not None and not constants and Setting.PPL not in profile.proof.regions:
        out.print("There is no C(x, s): which candidate is true matters (see PPL above).")
    out.print()


def _constant(row: Constant) -> str:
    same = row.high - row.low <= 1e-9 * row.high
    value = f"{row.high:.6g}" if same else f"{row.low:.6g} to {row.high:.6g}"
    return f"{value:<24}  {row.possible} of {row.sets}"


def _show_examples(out: Console, profile: GeneratorProfile) -> None:
    out.print(f"[bold]{len(profile.examples)} sets[/]")
    for y, candidates in profile.examples:
        text = " ".join(map(str, candidates))
        out.print(f"  y = {y:<3} s = {{{escape(textwrap.shorten(text, 90, placeholder=' …'))}}}")


def _estimate(estimate: Estimate) -> str:
    return (
        f"{estimate.value:.4f} (exact)" if estimate.exact else f"{estimate.value:.4f} ± {estimate.error:.4f} (sampled)"
    )


def show_map(placements: Sequence[Placement], num_classes: int, figure: Path | None) -> None:
    """Print every generator's place, from the narrowest region to the widest."""
    out = console()
    enumerated = {p.proof.num_instances for p in placements if p.proof is not None and p.proof.method == "enumeration"}
    at = f" at {enumerated.pop()} instances" if len(enumerated) == 1 else ""
    sets = f"all {2**num_classes - 2:,} sets for each label{at}"
    out.print(f"{num_classes} classes, default parameters; proven by enumeration of {sets} unless it says otherwise")
    out.print()
    order = {setting: position for position, setting in enumerate([*Setting, None])}
    width = max(len(placement.generator) for placement in placements)
    for placement in sorted(placements, key=lambda p: (order[p.region], p.generator)):
        notes = [
            f"[red]{escape(placement.problem)}[/]" if placement.problem else escape(_next_smaller(placement.proof))
        ]
        if placement.proof is not None and placement.proof.method == "sampling":
            notes.append("by a statistical test of its draws")
        if placement.third_party:
            notes.append(f"from {escape(placement.owner)}")
        told = "; ".join(filter(None, notes))
        region = str(placement.region or "?")
        out.print(f"[bold]{region:<8}[/] {placement.generator:<{width}}  {told}".rstrip())
    if figure is not None:
        out.print(f"\nfigure: {escape(str(figure))}")


def _next_smaller(proof: Proof | None) -> str:
    """Return the witness against the next smaller region, where there is one."""
    if proof is None or proof.region is None:
        return ""
    below = {Setting.ANY: Setting.GENERAL, Setting.GENERAL: Setting.PPL, Setting.PPL: Setting.CMM}
    below |= {Setting.CMM: Setting.MCL, Setting.MCL: Setting.PCPL}
    if proof.region not in below:
        return ""
    claim = below[proof.region]
    return f"not {claim}: {proof.verdict(claim).witness}"


def profile_as_json(profile: GeneratorProfile) -> dict[str, Any]:
    """Return a profile as plain values."""
    return {
        "generator": profile.generator,
        "parameters": profile.parameters,
        "classes": profile.num_classes,
        "declared": str(profile.declared),
        "proof": proof_as_json(profile.proof) if profile.proof else None,
        "samples": verdict_as_json(profile.samples) if profile.samples else None,
        "mean_size": _estimate_as_json(profile.mean_size),
        "sampled_mean_size": _estimate_as_json(profile.sampled_mean_size),
        "sizes": {str(size): float(profile.sizes[size]) for size in range(1, profile.num_classes)},
        "ambiguity_degree": _estimate_as_json(profile.ambiguity_degree),
        "constants": None
        if profile.constants is None
        else [
            {"size": row.size, "low": row.low, "high": row.high, "possible_sets": row.possible, "sets": row.sets}
            for row in profile.constants
        ],
        "cooccurrence": profile.cooccurrence.tolist(),
        "examples": [{"y": y, "s": list(candidates)} for y, candidates in profile.examples],
    }


def placement_as_json(placement: Placement) -> dict[str, Any]:
    """Return a generator's place as plain values."""
    return {
        "generator": placement.generator,
        "owner": placement.owner,
        "declared": str(placement.declared),
        "region": str(placement.region) if placement.region else None,
        "problem": placement.problem,
        "proof": proof_as_json(placement.proof) if placement.proof else None,
    }


def proof_as_json(proof: Proof) -> dict[str, Any]:
    """Return a proof as plain values."""
    return {
        "region": str(proof.region) if proof.region else None,
        "regions": sorted(str(setting) for setting in proof.regions),
        "method": proof.method,
        "classes": proof.num_classes,
        "instances": proof.num_instances,
        "keeps_promise": proof.keeps_promise,
        "verdicts": [verdict_as_json(verdict) for verdict in proof.verdicts],
    }


def verdict_as_json(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as plain values; an infinite deviation becomes null, which JSON has."""
    cells = [c for c in (verdict.witness.cell, verdict.witness.other) if c] if verdict.witness else []
    return {
        "claim": str(verdict.claim),
        "holds": verdict.holds,
        "deviation": verdict.deviation if verdict.deviation < float("inf") else None,
        "p_value": verdict.p_value,
        "witness": [{"x": cell.x, "s": list(cell.s), "y": cell.y, "p": cell.p} for cell in cells] or None,
        "why": str(verdict.witness) if verdict.witness else verdict.note,
    }


def _estimate_as_json(estimate: Estimate) -> dict[str, Any]:
    return {"value": estimate.value, "standard_error": estimate.error, "exact": estimate.exact}
