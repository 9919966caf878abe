"""What plugins may import: a change of anything listed here needs a line in the changelog, which a test demands."""

from __future__ import annotations

PUBLIC_MODULES: dict[str, tuple[str, ...] | None] = {
    "wsl_toolkit": None,
    "wsl_toolkit.augmentation": None,
    "wsl_toolkit.components": ("NEEDS",),
    "wsl_toolkit.errors": None,
    "wsl_toolkit.system.files": None,
    "wsl_toolkit.data.formats.mat_files": ("read_variables", "to_dense"),
    "wsl_toolkit.data.formats.npz_files": ("read_arrays",),
    "wsl_toolkit.data.formats.paths": ("locate", "reading"),
    "wsl_toolkit.data.formats.readers": ("Csv", "ImageFolder", "OpenMl", "Parquet", "Xlsx"),
    "wsl_toolkit.hookspecs": None,
    "wsl_toolkit.labels.array_sets": ("candidate_matrix",),
    "wsl_toolkit.losses": None,
    "wsl_toolkit.networks": None,
    "wsl_toolkit.plugins": ("load_plugins",),
    "wsl_toolkit.testing": None,
    "wsl_toolkit.training.callbacks": ("Epoch", "TrainingStart"),
    "wsl_toolkit.training.jobs": ("Trained",),
    "wsl_toolkit.training.metrics": ("Measured",),
}
"""Modules and their public names; None stands for the module's `__all__`, or all that it defines where it has none."""
