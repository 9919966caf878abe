"""What the tests of generators share: every built-in at its default and at two other named parameter values."""

from __future__ import annotations

from wsl_toolkit import Setting
from wsl_toolkit.plugins.loading import load_plugins

CASES: list[tuple[str, dict, Setting]] = [
    ("cl", {}, Setting.CL),
    ("mcl", {}, Setting.MCL),
    ("mcl", {"sizes": (1.0,)}, Setting.CL),
    ("mcl", {"sizes": (0.25, 0.75)}, Setting.MCL),
    ("mcl-skewed", {}, Setting.MCL),
    ("mcl-skewed", {"alpha": 0.9}, Setting.MCL),
    ("mcl-skewed", {"alpha": 3.0}, Setting.MCL),
    ("pcpl", {}, Setting.PCPL),
    ("pcpl-symmetric", {}, Setting.MCL),
    ("partition", {}, Setting.CMM),
    ("partition", {"partitions": "0 1|2-{last}"}, Setting.CMM),
    ("partition", {"partitions": "0|1-{last}; 0-1|2-{last}", "weights": (1.0, 3.0)}, Setting.CMM),
    ("query", {}, Setting.CMM),
    ("query", {"queries": "uniform"}, Setting.PCPL),
    ("query", {"queries": "0; 0 1", "weights": (0.9, 0.1)}, Setting.CMM),
    ("proper-instance", {}, Setting.PPL),
    ("proper-instance", {"alpha_low": 0.1, "alpha_high": 2.0}, Setting.PPL),
    ("proper-instance", {"alpha_low": 0.7, "alpha_high": 0.7}, Setting.MCL),
    ("flip", {}, Setting.MCL),
    ("flip", {"q": 0.5}, Setting.PCPL),
    ("flip", {"q": 0.9}, Setting.MCL),
    ("flip", {"q": 0.0}, Setting.MCL),
    ("annotators", {}, Setting.MCL),
    ("annotators", {"abilities": (0.6, 0.2, 0.9, 0.4, 1.0), "combine": "vote"}, Setting.MCL),
    ("annotators", {"abilities": (0.3,) * 6}, Setting.MCL),
    ("flip-superclass", {}, Setting.CMM),
    ("flip-superclass", {"q": 0.2, "groups": "0 {last}|1-{before_last}"}, Setting.CMM),
    ("flip-superclass", {"q": 1.0}, Setting.CMM),
    ("cl-biased", {}, Setting.GENERAL),
    ("cl-biased", {"matrix": "uniform"}, Setting.CL),
    ("cl-biased", {"ratio": 3.0}, Setting.GENERAL),
    ("flip-class", {}, Setting.GENERAL),
    ("flip-class", {"matrix": "uniform", "rate": 0.3}, Setting.MCL),
    ("flip-class", {"matrix": "decay", "rate": 0.9}, Setting.GENERAL),
    ("flip-class", {"matrix": "pair", "rate": 1.0}, Setting.GENERAL),
    ("flip-instance", {}, Setting.GENERAL),
    ("flip-instance", {"rate": 0.9}, Setting.GENERAL),
    ("flip-instance", {"rate": 0.1, "epochs": 1}, Setting.GENERAL),
    ("flip-instance", {"rate": 0.5, "scale": "mean-all"}, Setting.GENERAL),
    ("flip-instance", {"rate": 1.0, "scale": "max"}, Setting.GENERAL),
    ("noisy", {}, Setting.ANY),
    ("noisy", {"eta": 0.0, "wraps": "pcpl"}, Setting.PCPL),
    ("noisy", {"eta": 1.0, "wraps": "flip-class"}, Setting.ANY),
    ("noisy", {"eta": 0.3, "wraps": "mcl", "options": "sizes=0.5,0.5"}, Setting.ANY),
]
"""Name, parameters ('{last}' is the last class, '{before_last}' that before it), smallest region for K = 3, 4, 5."""


def create(name, num_classes=4, **values):
    """Return a configured built-in."""
    named = {"last": num_classes - 1, "before_last": num_classes - 2}
    filled = {k: v.format(**named) if isinstance(v, str) else v for k, v in values.items()}
    return load_plugins().registry.create("generator", name, filled)


def case_id(case) -> str:
    """Name a case for pytest."""
    name, values, _ = case
    return " ".join([name, *(f"{k}={v}" for k, v in values.items())])
