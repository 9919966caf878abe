"""No damaged file gives a traceback or a hang: it is read, or refused with one clear error."""

from __future__ import annotations

import collections
import json
import os
import random
import warnings
from pathlib import Path

import pytest
from fault_tools import Started
from file_mutations import OPENML
from fuzz_targets import targets
from fuzzing import Target, try_case
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

NAMES = [
    "config",
    "study",
    "csv",
    "npz",
    "mat",
    "parquet",
    "candidate sets",
    "checkpoint",
    "matrix .csv",
    "matrix .npy",
]
NAMES += [
    "partitions",
    "records",
    "schema",
    "model",
    "model that is an average",
    "run.json",
    "process.json",
    "result.json",
    "plans.json",
    "a run's config.toml",
]
NAMES += ["study result", "a study's data.json", "a study's held-out.json", "a study's tasks/one.json"]
NAMES += ["a study's study.toml"]
NAMES += ["xlsx", "table of annotators", "file of classes", "npz with all arrays", "mat of version 7.3"]
NAMES += ["image", "labels of images", "kept images", "kept images, mapped", "idx images"]
NAMES += ["idx labels", "pickled votes", "pickled images"]
NAMES += [f"openml's {name}" for name in OPENML]
NAMES += ["rows to predict .csv", "rows to predict .xlsx", "rows to predict .npz"]
NAMES += ["weights .safetensors", "weights .pt", "kept features"]
NAMES += ["config of a frozen network", "config with weights and augmentation", "checkpoint to go on from"]
NAMES += ["study with every key", "a study's cells/*.json", "a study's rule.json", "a study's again.json"]
NAMES += ["a study's data.json with weights", "message of a SLURM job", "published numbers", "superclasses", "queries"]
NAMES += ["table of a reference model"]
NAMES += ["a plugin's pyproject.toml", "a model's MLmodel", "the store's database"]
ALL_CASES = 9000
CASES = int(os.environ.get("WSL_FUZZ_CASES", ALL_CASES))
"""Cases for each of the parsers in the long test: more than 200,000 in all, unless fewer are asked for."""
QUICK = 60
"""Cases in the short test; half as many for what is slower to read."""
SEED = 20261117
MEMORY = 3 * 2**30
"""What a process that reads damaged files may take beyond what it has when it begins, most of it addresses unused."""


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Target]:
    return {target.name: target for target in targets(tmp_path_factory.mktemp("samples"))}


def test_every_parser_is_fuzzed(known: dict[str, Target]) -> None:
    assert list(known) == NAMES
    assert ALL_CASES * len(NAMES) >= 200_000


@pytest.mark.parametrize("name", NAMES)
def test_sound_files_are_read(name: str, known: dict[str, Target], tmp_path: Path) -> None:
    for sample in known[name].samples:
        path = tmp_path / f"case{known[name].suffix}"
        path.write_bytes(sample)
        known[name].parse(path)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore")
def test_damaged_files_are_read_or_refused(name: str, known: dict[str, Target], tmp_path: Path) -> None:
    @settings(
        max_examples=QUICK if name in NAMES[:23] else QUICK // 2,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.randoms(use_true_random=False))
    def run(dice: random.Random) -> None:
        assert try_case(known[name], dice, tmp_path) in ("read", "refused")

    run()


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("run.json", (1741, 2500, 4589)),
        ("a study's tasks/one.json", (1093, 3471, 5888, 7439)),
        ("checkpoint to go on from", (176, 255)),
        ("a study's cells/*.json", (2127,)),
        ("the store's database", (2317,)),
        ("a plugin's pyproject.toml", (23,)),
    ],
)
def test_what_the_long_test_once_found_is_read_or_refused(
    name: str, numbers: tuple[int, ...], known: dict[str, Target], tmp_path: Path
) -> None:
    for number in numbers:
        assert try_case(known[name], random.Random(f"{SEED} {name} {number}"), tmp_path) in ("read", "refused")


def fuzz(names: list[str], seed: int, cases: int, output: str) -> None:
    """Try many cases of some parsers in a process of limited memory; write down what came of them."""
    import resource
    import tempfile

    warnings.simplefilter("ignore")
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 2**22
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
    found: dict[str, dict[str, int]] = {}
    failures = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "samples").mkdir()
        for target in targets(folder / "samples"):
            if target.name not in names:
                continue
            counts: collections.Counter[str] = collections.Counter()
            for number in range(cases):
                case = f"{seed} {target.name} {number}"
                try:
                    outcome = try_case(target, random.Random(case), folder)
                    counts[outcome] += 1
                    if outcome not in ("read", "refused"):
                        failures.append(f"{case}: {outcome}")
                except BaseException as error:
                    counts["failed"] += 1
                    failures.append(f"{case}: {type(error).__name__}: {error}"[:300])
            found[target.name] = dict(counts)
            Path(output).write_text(json.dumps({"counts": found, "failures": failures}, indent=1))


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_two_hundred_thousand_damaged_files_are_read_or_refused_in_bounded_memory(name: str, tmp_path: Path) -> None:
    output = tmp_path / "fuzz.json"
    assert Started(tmp_path, fuzz, [name], SEED, CASES, str(output)).wait(7000) == 0
    report = json.loads(output.read_text())
    print(json.dumps(report["counts"]))
    assert report["failures"] == []
    assert sum(report["counts"][name].values()) == CASES
