"""Folders of images: classes by folder, official parts, the cache, and files that are no images."""

from __future__ import annotations

import logging
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from wsl_toolkit.data.formats import images
from wsl_toolkit.data.formats.readers import ImageFolder
from wsl_toolkit.errors import DataError

HERE = Path()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WSL_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def paint(path: Path, colour: tuple[int, int, int] = (255, 0, 0), size: tuple[int, int] = (8, 8)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "zoo"
    for name, colour in (("cat", (255, 0, 0)), ("dog noir", (0, 255, 0)), ("éléphant", (0, 0, 255))):
        for i in range(3):
            paint(root / name / f"{i}.png", colour)
    return root


def test_folders_are_classes_and_files_are_examples(folder):
    data = ImageFolder(path=folder, size=4).load(HERE)
    assert data.class_names == ("cat", "dog noir", "éléphant")
    assert data.y.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert data.x.shape == (9, 3, 4, 4)
    assert data.x.dtype == torch.uint8
    assert data.x[0].flatten(1).unique(dim=1).flatten().tolist() == [255, 0, 0]
    assert data.ids[3] == "dog noir/0.png"
    assert data.test_x is None
    assert data.candidates is None


def test_a_train_and_a_test_folder_are_official_parts(tmp_path):
    for part, count in (("train", 3), ("test", 2)):
        for name in ("cat", "dog"):
            for i in range(count):
                paint(tmp_path / "zoo" / part / name / f"{i}.png")
    data = ImageFolder(path=tmp_path / "zoo", size=8).load(HERE)
    assert (len(data.x), len(data.test_x)) == (6, 4)
    assert data.test_y.tolist() == [0, 0, 1, 1]


def test_a_class_may_be_called_train(tmp_path):
    paint(tmp_path / "rail" / "train" / "0.png")
    paint(tmp_path / "rail" / "bus" / "0.png")
    assert ImageFolder(path=tmp_path / "rail").load(HERE).class_names == ("bus", "train")


def test_photographs_in_jpeg_are_read_as_their_decoder_gives_them(tmp_path):
    rng = np.random.default_rng(0)
    for part, name in (("train", "ship"), ("train", "truck"), ("test", "ship"), ("test", "truck")):
        path = tmp_path / "photos" / part / name / "0001.jpg"
        path.parent.mkdir(parents=True)
        Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(path, quality=90)
    data = ImageFolder(path=tmp_path / "photos").load(HERE)
    assert data.class_names == ("ship", "truck")
    assert data.x.shape == data.test_x.shape == (2, 3, 32, 32)
    first = np.asarray(Image.open(tmp_path / "photos" / "train" / data.ids[0]).convert("RGB"))
    assert np.array_equal(data.x[0].permute(1, 2, 0).numpy(), first)


@pytest.mark.data("cifar10-jpg.tar.xz")
def test_the_jpeg_copy_of_cifar_10_is_read(tmp_path, data_dir):
    # The archive opens with one training class after the other: a few images of the first, one of the second.
    classes: dict[str, int] = {}
    with tarfile.open(data_dir / "cifar10-jpg.tar.xz") as archive:
        for member in archive:
            if member.isfile():
                name = Path(member.name).parent.name
                classes[name] = classes.get(name, 0) + 1
                if classes[name] % 500 == 1:
                    archive.extract(member, tmp_path / "cifar10", filter="data")
            if len(classes) == 2:
                break
    data = ImageFolder(path=tmp_path / "cifar10").load(HERE)
    assert data.class_names == tuple(sorted(classes))
    assert sorted(torch.bincount(data.y).tolist()) == [1, 10]
    assert data.x.shape[1:] == (3, 32, 32)
    first = np.asarray(Image.open(tmp_path / "cifar10" / "train" / data.ids[0]).convert("RGB"))
    assert np.array_equal(data.x[0].permute(1, 2, 0).numpy(), first)


def test_every_kind_of_image_becomes_bytes_of_one_shape(tmp_path):
    root = tmp_path / "mixed"
    paint(root / "a" / "colour.jpg", size=(20, 10))
    (root / "b").mkdir(parents=True)
    Image.new("L", (3, 9), 128).save(root / "b" / "grey.png")
    Image.new("P", (5, 5)).save(root / "b" / "palette.PNG")
    Image.new("RGBA", (5, 5), (1, 2, 3, 0)).save(root / "b" / "transparent.webp")
    Image.new("1", (5, 5), 1).save(root / "b" / "bits.bmp")
    data = ImageFolder(path=root, size=6).load(HERE)
    assert data.x.shape == (5, 3, 6, 6)
    grey = ImageFolder(path=root, size=6, grey=True).load(HERE)
    assert grey.x.shape == (5, 1, 6, 6)
    assert bool((grey.x[data.ids.index("b/grey.png")] == 128).all())


def test_a_photograph_is_turned_as_its_camera_meant_it(tmp_path):
    pixels = np.zeros((8, 8, 3), dtype=np.uint8)
    pixels[:4] = 255  # white above, black below
    image = Image.fromarray(pixels)
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    image.save(tmp_path / "turned.png", exif=exif)
    turned = images.read_images([tmp_path / "turned.png"], 8)[0, 0]
    assert not turned[:4].any()
    assert bool((turned[4:] == 255).all())


def test_a_table_gives_candidate_sets_to_the_images_it_names(folder):
    (folder / "labels.csv").write_text("file,candidates\ncat/0.png,cat|dog noir\néléphant/2.png,éléphant\n")
    data = ImageFolder(path=folder, size=4).load(HERE)
    assert data.candidates.to_names() == [["cat", "dog noir"], ["éléphant"]]
    assert data.x[1].flatten(1).unique(dim=1).flatten().tolist() == [0, 0, 255]


# -------------------------------------------------------------------- cache


def test_images_are_decoded_once(folder, cache, monkeypatch):
    first = ImageFolder(path=folder, size=4).load(HERE)
    assert len(list(cache.glob("images-*.safetensors"))) == 1
    monkeypatch.setattr(images, "read_images", lambda *args: pytest.fail("decoded again"))
    assert ImageFolder(path=folder, size=4).load(HERE).digest() == first.digest()


@pytest.mark.parametrize("change", ["touch", "edit", "add", "remove", "size", "grey"])
def test_a_change_of_files_or_settings_is_noticed(folder, cache, change):
    ImageFolder(path=folder, size=4).load(HERE)
    options: dict[str, object] = {"size": 4}
    if change == "touch":
        os.utime(folder / "cat" / "1.png", ns=(1, 1))
    elif change == "edit":
        paint(folder / "cat" / "1.png", (9, 9, 9), (64, 64))
    elif change == "add":
        paint(folder / "cat" / "9.png", (9, 9, 9))
    elif change == "remove":
        (folder / "cat" / "1.png").unlink()
    else:
        options = {"size": 5} if change == "size" else {"size": 4, "grey": True}
    data = ImageFolder(path=folder, **options).load(HERE)  # type: ignore[arg-type]
    assert len(list(cache.glob("images-*.safetensors"))) == 2
    assert len(data.x) == {"add": 10, "remove": 8}.get(change, 9)


@pytest.mark.parametrize(("size", "every_byte"), [((8, 8), False), ((300, 300), False), ((300, 300), True)])
def test_images_exchanged_under_the_same_size_and_time_are_noticed(tmp_path, size, every_byte):
    folder, moment = tmp_path / "zoo", (10**18, 10**18)
    colours = {"cat": (255, 0, 0), "dog": (0, 255, 0)}

    def make() -> torch.Tensor:
        for name, colour in colours.items():
            path = folder / name / "0.bmp"
            paint(path, colour, size)
            os.utime(path, ns=moment)
        return ImageFolder(path=folder, size=2, every_byte=every_byte).load(HERE).x

    first = make()
    colours = dict(zip(colours, reversed(colours.values()), strict=True))
    assert torch.equal(make(), first.flip(0))


def test_every_byte_of_an_image_counts_on_request(tmp_path):
    folder = tmp_path / "zoo"
    for name in ("cat", "dog"):
        paint(folder / name / "0.bmp", (255, 0, 0), (300, 300))
    path = folder / "cat" / "0.bmp"
    os.utime(path, ns=(1, 1))
    first = ImageFolder(path=folder, size=300, every_byte=True).load(HERE).x
    content = bytearray(path.read_bytes())
    content[60_000] ^= 128  # neither at the beginning nor in the middle nor at the end
    path.write_bytes(content)
    os.utime(path, ns=(1, 1))
    assert not torch.equal(ImageFolder(path=folder, size=300, every_byte=True).load(HERE).x, first)


def test_a_flipped_bit_in_the_cache_is_noticed(folder, cache):
    first = ImageFolder(path=folder, size=4).load(HERE)
    file = next(cache.glob("images-*.safetensors"))
    content = bytearray(file.read_bytes())
    content[-7] ^= 64
    file.write_bytes(content)
    assert ImageFolder(path=folder, size=4).load(HERE).digest() == first.digest()


@pytest.mark.parametrize("damage", [b"", b"not safetensors", None])
def test_a_damaged_cache_is_made_anew(folder, cache, damage):
    first = ImageFolder(path=folder, size=4).load(HERE)
    file = next(cache.glob("images-*.safetensors"))
    file.write_bytes(file.read_bytes()[:-5] if damage is None else damage)
    assert ImageFolder(path=folder, size=4).load(HERE).digest() == first.digest()
    assert file.stat().st_size > 9 * 3 * 16


def test_a_cache_that_cannot_be_written_costs_time_only(folder, tmp_path, caplog):
    (tmp_path / "file").write_text("in the way")
    with caplog.at_level(logging.WARNING):
        data = ImageFolder(path=folder, size=4, cache=tmp_path / "file" / "cache").load(HERE)
    assert len(data.x) == 9
    assert "WSL_CACHE_DIR" in caplog.text


def test_the_user_cache_directory_is_honoured(monkeypatch, tmp_path):
    decoder = images.Decoder(size=4)
    monkeypatch.delenv("WSL_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert decoder.cache_file(tmp_path, []).parent == tmp_path / "xdg" / "wsl-toolkit"


# ---------------------------------------------------------------- refusals


def test_a_file_that_is_no_image_is_named(folder):
    noise = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    Image.fromarray(noise).save(folder / "cat" / "1.png")
    content = (folder / "cat" / "1.png").read_bytes()
    for spoilt in (b"", b"text", content[:40], content[: len(content) // 2]):
        (folder / "cat" / "1.png").write_bytes(spoilt)
        with pytest.raises(DataError, match=r"cat/1\.png is not a readable image") as caught:
            ImageFolder(path=folder).load(HERE)
        assert "\n" not in str(caught.value)


def test_deep_pixels_are_refused_rather_than_cut(folder):
    Image.fromarray(np.full((8, 8), 40_000, dtype=np.uint16)).save(folder / "cat" / "1.png")
    with pytest.raises(DataError, match=r"cat/1\.png is not a readable image: .*only 8-bit"):
        ImageFolder(path=folder).load(HERE)


def test_folders_that_make_no_dataset_are_refused_with_the_reason(folder, tmp_path):
    with pytest.raises(DataError, match="there is no folder nowhere"):
        ImageFolder(path=Path("nowhere")).load(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="has 0 class folders"):
        ImageFolder(path=tmp_path / "empty").load(HERE)
    (folder / "bird").mkdir()
    with pytest.raises(DataError, match=r"bird holds no images"):
        ImageFolder(path=folder).load(HERE)


def test_a_class_that_only_the_test_part_has_is_refused(tmp_path):
    for name in ("train/cat", "train/dog", "test/cat", "test/dgo"):
        paint(tmp_path / "zoo" / name / "0.png")
    with pytest.raises(DataError, match=r"dgo: there is no such class in .*train\. Did you mean 'dog'"):
        ImageFolder(path=tmp_path / "zoo").load(HERE)


@pytest.mark.parametrize("name", ["x" * 9000 + ".png", "gone.png"])
def test_a_name_that_no_image_has_is_named_with_its_row(folder, name):
    (folder / "labels.csv").write_text(f"file,candidates\ncat/0.png,cat|dog\n{name},dog\n")
    with pytest.raises(DataError, match=r"labels\.csv: row 2, column 'file': there is no image"):
        ImageFolder(path=folder, size=4).load(HERE)
