"""Images that memory is too small for: decoded once into a file, which is mapped and read as it is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from wsl_toolkit.data.formats import decoded_images
from wsl_toolkit.data.formats import images as image_files
from wsl_toolkit.data.formats.readers import ImageFolder
from wsl_toolkit.data.inputs import StreamedInputs
from wsl_toolkit.data.mapped import is_mapped, let_go, map_bytes
from wsl_toolkit.data.problem import Problem, make_problem
from wsl_toolkit.errors import ConfigError, DataError
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.system.memory import budget, free_memory
from wsl_toolkit.training import train as training
from wsl_toolkit.training.build import make_trainer
from wsl_toolkit.training.config import Training

REGISTRY = load_plugins().registry


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WSL_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = torch.Generator().manual_seed(0)
    for label in ("cat", "dog", "owl"):
        (tmp_path / "zoo" / label).mkdir(parents=True)
        for number in range(20):
            pixels = torch.randint(256, (16, 16, 3), dtype=torch.uint8, generator=rng)
            Image.fromarray(pixels.numpy()).save(tmp_path / "zoo" / label / f"{number:02}.png")
    return tmp_path / "zoo"


def little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WSL_MEMORY", "100KB")


def read(folder: Path) -> Any:
    return ImageFolder(path=folder, size=16).load(Path())


def problem_of(data: Any) -> Problem:
    return make_problem(data, REGISTRY.create("generator", "mcl-skewed", {}), seed=0, validation=0.2, test=0.2)


def test_with_little_memory_a_folder_is_a_mapped_file_of_the_same_images(
    folder: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    in_memory = read(folder)
    little(monkeypatch)
    known = read(folder)  # the file of the first reading
    for path in cache.iterdir():
        path.unlink()
    monkeypatch.setattr(image_files, "BLOCK", 7)
    fresh = read(folder)
    assert not is_mapped(in_memory.x)
    for mapped in (known, fresh):
        assert is_mapped(mapped.x)
        assert torch.equal(mapped.x, in_memory.x)
        assert mapped.digest() == in_memory.digest()
    monkeypatch.delenv("WSL_MEMORY")
    assert torch.equal(read(folder).x, in_memory.x)  # the file that was written block by block


def test_a_run_streams_a_mapped_folder_to_the_same_bits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job: dict[str, Any] = {
        "estimator": REGISTRY.create("estimator", "ppl", {}),
        "backbone": REGISTRY.create("backbone", "lenet", {}),
        "training": Training(epochs=2, batch_size=16, augmentation="weak"),
        "seed": 0,
    }
    reference = training.train([training.TrainingJob(problem=problem_of(read(folder)), **job)])[0]
    little(monkeypatch)
    problem = problem_of(read(folder))
    assert isinstance(problem.train_x, StreamedInputs)
    assert not problem.train_x.in_memory
    notes: list[str] = []
    streamed = training.train([training.TrainingJob(problem=problem, **job)], note=notes.append)[0]
    assert [record.metrics for record in streamed.records] == [record.metrics for record in reference.records]
    for mine, other in zip(streamed.model.state_dict().values(), reference.model.state_dict().values(), strict=True):
        assert torch.equal(mine, other)
    assert any("stay in a file" in text for text in notes)


def test_a_streamed_epoch_broken_off_goes_on_to_the_same_bits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    little(monkeypatch)
    problem = problem_of(read(folder))

    def trainer() -> Any:
        parts = (REGISTRY.create("estimator", "ppl", {}), REGISTRY.create("backbone", "lenet", {}))
        return make_trainer(problem, *parts, Training(batch_size=8, augmentation="weak"), 0)

    through = trainer()
    list(through.epochs(1))
    first = trainer()
    asked = iter([False, True])
    assert first.train_epoch(lambda: next(asked, True)) is None
    second = trainer()
    second.load_state_dict(first.state_dict())
    list(second.epochs(1))
    for mine, other in zip(second.model.state_dict().values(), through.model.state_dict().values(), strict=True):
        assert mine == other if isinstance(mine, int) else torch.equal(mine, other)


def test_a_damaged_file_is_decoded_anew(folder: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    little(monkeypatch)
    wanted = read(folder).x.clone()
    (path,) = cache.iterdir()
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(bytes(content))
    assert torch.equal(read(folder).x, wanted)
    path.write_bytes(b"no file of tensors")
    assert torch.equal(read(folder).x, wanted)


def test_a_file_is_what_safetensors_reads(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    images = torch.arange(60, dtype=torch.uint8).view(5, 3, 2, 2)
    decoded_images.save_in_blocks(tmp_path / "x.safetensors", (5, 3, 2, 2), images.split(2))
    assert torch.equal(load_file(tmp_path / "x.safetensors")["images"], images)
    assert decoded_images.load(tmp_path / "x.safetensors", (5, 3, 2, 1)) is None


def test_a_disk_that_is_too_small_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    little(monkeypatch)
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(decoded_images.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(DataError, match=r"60 decoded images do not fit.*choose another place \(WSL_CACHE_DIR\)"):
        read(folder)
    assert list(cache.iterdir()) == []


def test_letting_go_of_a_mapped_tensor_changes_nothing_of_it(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(bytes(range(200)))
    x = map_bytes(tmp_path / "bytes", 8, (12, 16))
    before = x.clone()
    let_go(x)
    assert torch.equal(x, before)
    assert x[0, 0] == 8
    let_go(before)  # a tensor that is no file
    assert not is_mapped(before)


def test_a_budget_lowers_what_is_free_and_says_what_it_cannot_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert free_memory() > 10**6
    for text, size in (("1MB", 10**6), ("2.5 kb", 2500), ("999TB", None)):
        monkeypatch.setenv("WSL_MEMORY", text)
        assert free_memory() == size if size else free_memory() < 999 * 10**12
    assert budget("WSL_NOT_SET", 7) == 7
    for wrong in ("much", "-1GB", "8", "8GBs"):
        monkeypatch.setenv("WSL_MEMORY", wrong)
        with pytest.raises(ConfigError, match=r"WSL_MEMORY=.*write 8GB"):
            free_memory()
