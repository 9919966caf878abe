"""Whoever opens a file in the toolkit or its built-ins is fuzzed, or is named here with the reason why not."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from test_fuzz import NAMES

ROOT = Path(__file__).parents[2]
READERS = {
    "read_text", "read_bytes", "read_json", "parse_json", "read_toml", "safe_open", "load_file", "load_workbook",
    "ZipFile", "fetch_openml", "Unpickler", "read_pickle", "read_table", "read_schema", "read_csv", "read_raw",
    "read_weights", "loadtxt", "loadmat", "json.load", "json.loads", "tomllib.load", "tomllib.loads", "torch.load",
    "np.load", "csv.reader", "csv.DictReader", "h5py.File", "Image.open", "sqlite3.connect", "pickle.load",
    "pickle.loads", "idx_problem",
}  # fmt: skip
"""Calls that read a file or what was in one."""

TABLES = ("csv", "parquet", "xlsx", "table of annotators", "file of classes")
RUN = ("run.json", "process.json", "result.json", "records")
FUZZED: dict[str, tuple[str, ...]] = {
    "wsl_toolkit/cli/predict.py": ("rows to predict .csv", "rows to predict .xlsx", "rows to predict .npz"),
    "wsl_toolkit/cli/run.py": ("config", "config of a frozen network", "config with weights and augmentation"),
    "wsl_toolkit/data/formats/images.py": ("image", "labels of images", "kept images"),
    "wsl_toolkit/data/formats/decoded_images.py": ("kept images", "kept images, mapped"),
    "wsl_toolkit/data/formats/mat_files.py": ("mat", "mat of version 7.3"),
    "wsl_toolkit/data/formats/npz_files.py": ("npz", "npz with all arrays"),
    "wsl_toolkit/data/formats/openml_tables.py": ("openml's api/v1/json/data/7",),
    "wsl_toolkit/data/formats/readers.py": TABLES,
    "wsl_toolkit/data/formats/set_text.py": TABLES,
    "wsl_toolkit/data/formats/spreadsheets.py": ("xlsx",),
    "wsl_toolkit/data/formats/table_files.py": TABLES,
    "wsl_toolkit/data/formats/table_rows.py": TABLES,
    "wsl_toolkit/data/formats/text_dialect.py": TABLES,
    "wsl_toolkit/data/table_schema.py": ("schema",),
    "wsl_toolkit/labels/candidate_sets.py": ("candidate sets",),
    "wsl_toolkit/networks.py": ("weights .safetensors", "weights .pt"),
    "wsl_toolkit/own_data/model_file.py": ("model",),
    "wsl_toolkit/own_data/raw_rows.py": ("rows to predict .csv", "rows to predict .npz"),
    "wsl_toolkit/own_data/serving.py": ("a model's MLmodel", "model"),
    "wsl_toolkit/plugins/source_tree.py": ("a plugin's pyproject.toml",),
    "wsl_toolkit/runs/feature_cache.py": ("kept features",),
    "wsl_toolkit/runs/features.py": ("weights .safetensors",),
    "wsl_toolkit/runs/folder.py": RUN,
    "wsl_toolkit/runs/loading.py": ("a run's config.toml",),
    "wsl_toolkit/runs/runner.py": ("a run's config.toml",),
    "wsl_toolkit/runs/tracking/store.py": ("the store's database",),
    "wsl_toolkit/runs/tracking/database.py": ("the store's database",),
    "wsl_toolkit/studies/cell_records.py": ("a study's cells/*.json",),
    "wsl_toolkit/studies/jobs.py": ("study result",),
    "wsl_toolkit/studies/reading.py": ("study", "study with every key"),
    "wsl_toolkit/studies/report/against.py": ("published numbers",),
    "wsl_toolkit/studies/slurm_executor.py": ("message of a SLURM job",),
    "wsl_toolkit/studies/started_tasks.py": ("a study's tasks/one.json",),
    "wsl_toolkit/studies/store.py": (
        "a study's data.json",
        "a study's rule.json",
        "a study's again.json",
        "study result",
    ),
    "wsl_toolkit/system/kept_choices.py": ("plans.json",),
    "wsl_toolkit/training/checkpoints.py": ("checkpoint", "checkpoint to go on from"),
    "plugins/wsl_builtins/datasets/human.py": ("pickled votes", "pickled images"),
    "plugins/wsl_builtins/datasets/pickles.py": ("pickled votes", "pickled images"),
    "plugins/wsl_builtins/backbones/torchvision_models.py": ("weights .pt", "weights .safetensors"),
    "plugins/wsl_builtins/datasets/torchvision_sets.py": ("idx images", "idx labels"),
    "plugins/wsl_builtins/generators/cmm.py": ("partitions", "queries"),
    "plugins/wsl_builtins/generators/flip_instance.py": ("table of a reference model",),
    "plugins/wsl_builtins/generators/flip.py": ("superclasses",),
    "plugins/wsl_builtins/generators/matrices.py": ("matrix .csv", "matrix .npy"),
    "plugins/wsl_builtins/generators/set_text.py": ("partitions", "superclasses", "queries"),
}
"""By module: the names under which its files are fuzzed."""
OTHERS = {
    "wsl_toolkit/data/formats/table_writing.py": "what it wrote a line before",
    "wsl_toolkit/cli/plugin_check.py": "what a process said that it started itself",
    "wsl_toolkit/plugins/api_version.py": "a plugin's source, which is code of the user's choice",
    "wsl_toolkit/plugins/code_identity.py": "a plugin's source, which is code of the user's choice",
    "wsl_toolkit/plugins/scaffold.py": "a plugin's source, which is code of the user's choice",
    "wsl_toolkit/studies/report/page.py": "a file of the package",
    "wsl_toolkit/studies/report/paper.py": "a file of the package",
    "plugins/wsl_builtins/datasets/digits.py": "a file of scikit-learn",
    "wsl_toolkit/system/json_files.py": "how JSON is read, for all others",
    "wsl_toolkit/system/toml_files.py": "how TOML is read, for all others",
    "wsl_toolkit/system/memory.py": "the system's own files",
    "wsl_toolkit/system/processes.py": "the system's own files",
    "wsl_toolkit/training/calibration.py": "the system's own files",
    "wsl_toolkit/training/distributed/ranks.py": "what other ranks of the same run send",
    "wsl_toolkit/testing/estimators.py": "what the contract itself wrote a line before",
}
"""Modules that read something and are not fuzzed."""


LAST_NAMES = {name.rpartition(".")[2] for name in READERS}


def calls(path: Path) -> set[str]:
    """The readers that a module calls, by their last name, and by their last two."""
    found: set[str] = set()
    text = path.read_text(encoding="utf-8")
    if not any(name in text for name in LAST_NAMES):
        return found
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in LAST_NAMES:
            name = ast.unparse(node.func)
            found |= {name.rpartition(".")[2], ".".join(name.split(".")[-2:])}
    return found & READERS


MODULES = sorted((*(ROOT / "wsl_toolkit").rglob("*.py"), *(ROOT / "plugins" / "wsl_builtins").rglob("*.py")))


def test_every_module_that_reads_files_is_fuzzed_or_has_a_reason_not_to_be() -> None:
    reading = {str(path.relative_to(ROOT)) for path in MODULES if "templates" not in path.parts and calls(path)}
    assert len(reading) > 40
    neither = {module for module in reading if (module in FUZZED) == (module in OTHERS)}
    assert not neither, (
        f"add targets for what {sorted(neither)} read to tests/faults, or say in OTHERS why there is none"
    )


@pytest.mark.parametrize("module", FUZZED)
def test_what_a_module_reads_is_fuzzed_under_a_name_that_is_there(module: str) -> None:
    assert set(FUZZED[module]) <= set(NAMES)


def test_no_parser_is_fuzzed_for_a_module_that_is_gone() -> None:
    assert [name for name in (*FUZZED, *OTHERS) if not (ROOT / name).is_file()] == []
