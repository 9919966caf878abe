"""The one label type: candidate sets, how people write them, and how they lie in memory."""

from __future__ import annotations

from wsl_toolkit.labels.candidate_sets import CandidateSets

__all__ = ["CandidateSets"]
