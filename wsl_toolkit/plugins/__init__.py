"""Plugins: find, load, register, attribute failures, scaffold and check."""

from __future__ import annotations

from wsl_toolkit.plugins.loading import load_plugins

__all__ = ["load_plugins"]
