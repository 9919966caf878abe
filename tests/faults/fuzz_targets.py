"""Every parser that is fuzzed."""

from __future__ import annotations

from pathlib import Path

import fuzz_data_files
import fuzz_network_files
import fuzz_own_files
import fuzz_study_files
import fuzz_user_files
from fuzzing import Target


def targets(folder: Path) -> list[Target]:
    """Every parser of a file, users' and the toolkit's own, with sound files for it, which are made in a folder."""
    kinds = (fuzz_user_files, fuzz_own_files, fuzz_data_files, fuzz_network_files, fuzz_study_files)
    return [target for kind in kinds for target in kind.targets(folder)]
