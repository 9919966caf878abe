"""What a shell offers after Tab: components, studies and runs; quick, because somebody waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from wsl_toolkit.plugins.loading import load_plugins

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

HOME = Path("wsl-runs")
"""Looked into by name alone: importing the modules that own these folders would import torch."""


def component_names(role: str) -> Completer:
    """Return a completer for the installed components of a role, each with its summary."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        registry = load_plugins().registry
        names = (name for name in registry.names(role) if name.startswith(incomplete))
        return [CompletionItem(name, help=registry.entry(role, name).cls.summary()) for name in names]

    return complete


def names_of_role(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a component of the role that was typed before it."""
    role = ctx.params.get("role")
    return component_names(role)(ctx, param, incomplete) if role else []


def started_studies(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the studies that were started in this directory."""
    return _items((path.parent.name for path in (HOME / "studies").glob("*/study.toml")), incomplete)


def study_files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the studies that come with the toolkit and its plugins and, below them, files."""
    from wsl_toolkit.studies.reading import study_files as installed

    return [*_items(installed(), incomplete), CompletionItem(incomplete, type="file")]


def run_folders(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the runs of this directory that have no result yet, which are those that can be resumed."""
    open_runs = (
        path.parent.name for path in (HOME / "runs").glob("*/run.json") if not (path.parent / "result.json").exists()
    )
    return _items(open_runs, incomplete)


def ended_runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the runs of this directory that have a result and, below them, files."""
    ended = (path.parent.name for path in (HOME / "runs").glob("*/result.json"))
    return [*_items(ended, incomplete), CompletionItem(incomplete, type="file")]


def _items(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]
