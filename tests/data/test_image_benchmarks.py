"""Image benchmarks from small files made in the original formats; MNIST and Fashion-MNIST from the real ones too."""

from __future__ import annotations

import functools
import gzip
import hashlib
import http.server
import pickle
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_files import IDX_FILES, make_cifar, make_idx_files
from torchvision import datasets as tv

from wsl_builtins.datasets.torchvision_sets import Cifar10, Cifar100, FashionMnist, Kmnist, Mnist
from wsl_toolkit.cli import main
from wsl_toolkit.errors import DataError, WslError


@pytest.mark.parametrize(
    ("dataset", "first_labels"),
    [
        pytest.param(Mnist(), [5, 0, 4, 1, 9], marks=pytest.mark.data("MNIST"), id="mnist"),
        pytest.param(FashionMnist(), [9, 0, 0, 3, 0], marks=pytest.mark.data("FashionMNIST"), id="fashion"),
    ],
)
def test_the_real_files_hold_the_published_benchmark(data_dir, dataset, first_labels):
    data = dataset.load(data_dir)
    assert data.x.shape == (60_000, 1, 28, 28)
    assert data.test_x.shape == (10_000, 1, 28, 28)
    assert data.x.dtype == torch.uint8
    assert data.y[:5].tolist() == first_labels
    assert torch.bincount(data.test_y, minlength=10).sum() == 10_000
    assert len(data.class_names) == data.num_classes == 10
    assert data.candidates is None


@pytest.mark.data("MNIST")
def test_mnist_has_the_mean_and_deviation_that_everybody_quotes(data_dir):
    data = Mnist().load(data_dir)
    scaler = data.fit_inputs(torch.arange(len(data.x)))
    assert float(scaler.shift) == pytest.approx(0.1307, abs=5e-5)
    assert float(scaler.spread) == pytest.approx(0.3081, abs=5e-5)


@pytest.fixture
def made_mnist(tmp_path):
    make_idx_files(tmp_path / "MNIST" / "raw")
    return tmp_path


def test_a_part_of_a_benchmark_is_its_first_examples_and_the_whole_test_part(made_mnist):
    whole, part = Mnist().load(made_mnist), Mnist(examples=6).load(made_mnist)
    assert torch.equal(part.x, whole.x[:6])
    assert torch.equal(part.y, whole.y[:6])
    assert torch.equal(part.test_x, whole.test_x)
    assert torch.equal(part.test_y, whole.test_y)
    assert part.digest() != whole.digest()
    with pytest.raises(DataError, match="mnist has 20 training examples, not 21"):
        Mnist(examples=21).load(made_mnist)


@pytest.mark.parametrize(
    ("dataset", "first_class"), [(Mnist(), "0 - zero"), (FashionMnist(), "T-shirt/top"), (Kmnist(), "o")]
)
def test_mnist_and_its_successors_are_read_from_their_original_format(tmp_path, dataset, first_class):
    made = make_idx_files(tmp_path / dataset.folder)
    data = dataset.load(tmp_path)
    assert np.array_equal(data.x[:, 0].numpy(), made["train-images-idx3-ubyte"])
    assert np.array_equal(data.y.numpy(), made["train-labels-idx1-ubyte"])
    assert np.array_equal(data.test_x[:, 0].numpy(), made["t10k-images-idx3-ubyte"])
    assert np.array_equal(data.test_y.numpy(), made["t10k-labels-idx1-ubyte"])
    assert data.x.dtype == torch.uint8
    assert data.class_names[0] == first_class
    assert data.candidates is None


def test_images_are_scaled_by_the_mean_and_deviation_of_all_their_pixels(made_mnist):
    data = Mnist().load(made_mnist)
    scaler = data.fit_inputs(torch.arange(len(data.x)))
    pixels = data.x.double() / 255
    assert float(scaler.shift) == pytest.approx(float(pixels.mean()), abs=1e-6)
    assert float(scaler.spread) == pytest.approx(float(pixels.std(correction=0)), abs=1e-6)


@pytest.mark.parametrize(
    ("dataset", "source", "classes"), [(Cifar10(), tv.CIFAR10, 10), (Cifar100(), tv.CIFAR100, 100)]
)
def test_cifar_is_read_from_its_original_format(tmp_path, monkeypatch, dataset, source, classes):
    made = make_cifar(tmp_path, source, monkeypatch, classes)
    data = dataset.load(tmp_path)
    parts = [made[name] for name, _ in source.train_list]
    assert np.array_equal(data.x.numpy(), np.concatenate(parts).reshape(-1, 3, 32, 32))
    assert data.x.dtype == torch.uint8
    assert data.x.is_contiguous()
    assert data.test_y.tolist() == list(range(classes))
    assert data.class_names == tuple(f"class {j}" for j in range(classes))


@pytest.mark.parametrize("dataset", [Mnist(), FashionMnist(), Kmnist(), Cifar10(), Cifar100()], ids=lambda d: d.name)
def test_absent_files_are_one_line_with_both_remedies(tmp_path, dataset):
    with pytest.raises(DataError) as caught:
        dataset.load(tmp_path)
    message = str(caught.value)
    assert str(tmp_path / dataset.folder) in message
    assert "--data-dir" in message
    assert "--dataset-download" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: path.unlink(), "t10k-labels-idx1-ubyte is missing"),
        (lambda path: path.write_bytes(path.read_bytes()[:-3]), "has 13 bytes instead of 16"),
        (lambda path: path.write_bytes(b"\x00\x00"), "has only 2 bytes"),
        (lambda path: path.write_bytes(b"<html>not found</html>"), "is not an idx file"),
        (lambda path: path.write_bytes(path.read_bytes() + b"x"), "has 17 bytes instead of 16"),
    ],
    ids=["missing", "truncated", "header cut", "a web page", "too long"],
)
def test_a_broken_idx_file_is_named(tmp_path, damage, words):
    make_idx_files(tmp_path / "KMNIST" / "raw")
    damage(tmp_path / "KMNIST" / "raw" / "t10k-labels-idx1-ubyte")
    with pytest.raises(DataError, match=words) as caught:
        Kmnist().load(tmp_path)
    assert "--dataset-download" in str(caught.value)


def test_a_truncated_file_is_named_with_the_bytes_that_it_should_have(made_mnist):
    images = made_mnist / "MNIST" / "raw" / "train-images-idx3-ubyte"
    images.write_bytes(images.read_bytes()[:1000])
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte has 1,000 bytes instead of 15,696"):
        Mnist().load(made_mnist)


@pytest.mark.data("MNIST")
def test_a_truncated_copy_of_the_real_mnist_is_named(tmp_path, data_dir):
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for file in (data_dir / "MNIST" / "raw").iterdir():
        shutil.copyfile(file, raw / file.name)
    images = raw / "train-images-idx3-ubyte"
    with images.open("r+b") as file:
        file.truncate(1_000_000)
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte has 1,000,000 bytes instead of 47,040,016"):
        Mnist().load(tmp_path)


def test_a_cifar_file_that_fails_its_checksum_is_never_unpickled(tmp_path, monkeypatch):
    make_cifar(tmp_path, tv.CIFAR10, monkeypatch, 10)
    harm = tmp_path / "harm"

    class Harmful:
        def __reduce__(self):
            return Path.touch, (harm,)

    (tmp_path / "cifar-10-batches-py" / "data_batch_3").write_bytes(pickle.dumps(Harmful()))
    with pytest.raises(DataError, match="data_batch_3 does not match its published checksum"):
        Cifar10().load(tmp_path)
    assert not harm.exists()


def test_a_missing_cifar_batch_is_named(tmp_path, monkeypatch):
    make_cifar(tmp_path, tv.CIFAR100, monkeypatch, 100)
    (tmp_path / "cifar-100-python" / "meta").unlink()
    with pytest.raises(DataError, match="meta is missing"):
        Cifar100().load(tmp_path)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from([f"{part}-{kind}-ubyte" for part in IDX_FILES for kind in ("images-idx3", "labels-idx1")]),
    start=st.integers(0, 40),
    noise=st.binary(max_size=24),
    cut=st.integers(0, 2000),
)
def test_no_damage_to_an_idx_file_ends_in_a_traceback(tmp_path_factory, name, start, noise, cut):
    root = tmp_path_factory.mktemp("fuzz")
    make_idx_files(root / "KMNIST" / "raw")
    path = root / "KMNIST" / "raw" / name
    content = bytearray(path.read_bytes())
    content[start : start + len(noise)] = noise
    path.write_bytes(bytes(content[: len(content) - cut]))
    outcome = "loaded"
    try:
        Kmnist().load(root)
    except WslError as error:
        outcome = str(error)
    shutil.rmtree(root)
    assert "\n" not in outcome


# ----------------------------------------------------------------- download


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    """A mirror of KMNIST on this machine, with torchvision expecting its checksums."""
    make_idx_files(tmp_path / "made")
    served = tmp_path / "mirror"
    served.mkdir()
    resources = []
    for file in sorted((tmp_path / "made").iterdir()):
        packed = gzip.compress(file.read_bytes())
        (served / f"{file.name}.gz").write_bytes(packed)
        resources.append((f"{file.name}.gz", hashlib.md5(packed).hexdigest()))
    handler = functools.partial(QuietHandler, directory=str(served))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(tv.KMNIST, "mirrors", [f"http://127.0.0.1:{server.server_port}/"])
        monkeypatch.setattr(tv.KMNIST, "resources", resources)
        yield served
        server.shutdown()


def test_a_download_is_checked_unpacked_and_then_found(tmp_path, mirror):
    root = tmp_path / "data"
    data = Kmnist(download=True).load(root)
    assert len(data.x) == 20
    assert {entry.name for entry in root.iterdir()} == {"KMNIST"}
    shutil.rmtree(mirror)
    assert Kmnist(download=True).load(root).digest() == data.digest()


def test_a_download_that_fails_its_checksum_leaves_nothing_behind(tmp_path, mirror):
    (mirror / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(b"something else"))
    with pytest.raises(DataError, match=r"kmnist could not be downloaded.*corrupted"):
        Kmnist(download=True).load(tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []


def test_no_network_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(tv.KMNIST, "mirrors", ["http://127.0.0.1:9/"])
    with pytest.raises(DataError, match="could not be downloaded") as caught:
        Kmnist(download=True).load(tmp_path)
    assert "\n" not in str(caught.value)
    assert "--data-dir" in str(caught.value)


@pytest.mark.parametrize(
    "spelling", [["--dataset-download"], ["--dataset-download", "yes"], ["--dataset-download=true"]]
)
def test_the_remedy_that_errors_name_is_an_option_that_works(tmp_path, mirror, spelling):
    arguments = ["run", "--dataset", "kmnist", *spelling, "--data-dir", str(tmp_path / "data"), "--dry-run"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert "download = true" in result.output
