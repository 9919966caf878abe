"""Labels that people (or models in their place) gave, as their authors publish them: pickles of plain values.

PLCIFAR10 is of Wang, Wu, Wang, Niu, Zhang, Sugiyama. Realistic Evaluation of Deep Partial-Label Learning Algorithms.
ICLR 2025. CLCIFAR is of Wang, Lin, Lin. CLCIFAR: CIFAR-Derived Benchmark Datasets with Human Annotated Complementary
Labels. 2023; it and the others are distributed with libcll (Ye, Mai, Wang, Lin, Lin, 2024). Nobody publishes checksums
of the labels, so they are read by a reader that runs no foreign code; CIFAR's own files are checked against theirs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from wsl_builtins import superclasses
from wsl_builtins.datasets.pickles import read_pickle
from wsl_builtins.datasets.torchvision_sets import Cifar10, Cifar100
from wsl_toolkit import Dataset, param
from wsl_toolkit.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from wsl_toolkit import Annotator, Data

DRIVE = "https://drive.google.com/uc?id="
KEYS = ("images", "ord_labels", "cl_labels")
MOST = 10**6
"""No label is a larger number."""


@attrs.frozen(kw_only=True)
class PlCifar10(Dataset):
    """PLCIFAR10: CIFAR-10's training images with the candidate sets of about ten people each.

    plcifar10/plcifar10.pkl (https://github.com/wwangwitsel/PLCIFAR10) and CIFAR-10's own files lie below the data
    directory. `aggregate` is the union of an image's sets, `vaguest` the first of the largest, `vote` the labels that
    most people named, `annotator` the set of one place in each image's list. A set may lack the true label. An image
    without a set gets the full one, which is no label at all.
    """

    name: ClassVar[str] = "plcifar10"
    citation: ClassVar[str] = "Wang, Wu, Wang, Niu, Zhang, Sugiyama (ICLR 2025)"
    file: ClassVar[str] = "plcifar10/plcifar10.pkl"
    address: ClassVar[str] = "https://github.com/wwangwitsel/PLCIFAR10"

    variant: str = param(
        "aggregate", help="how an image's sets become one", choices=("aggregate", "vaguest", "vote", "annotator")
    )
    annotator: int = param(0, help="of variant 'annotator': the place in each image's list, from 0", ge=0)
    download: bool = param(False, help="fetch CIFAR-10, checksummed, if it is not below the data directory")

    def load(self, data_dir: Path) -> Data:
        import torch

        from wsl_toolkit import CandidateSets

        votes = read_votes(existing(data_dir / self.file, self.name, self.address))
        images = Cifar10(download=self.download).load(data_dir)
        n = len(images.x)
        unknown = next((index for index in votes if not 0 <= index < n), None)
        if unknown is not None:
            raise DataError(f"{self.name}: {self.file} speaks of image {unknown}, but CIFAR-10 has images 0 to {n - 1}")
        mask = torch.zeros(n, images.num_classes, dtype=torch.bool)
        for index, sets in votes.items():
            chosen = self.combined(sets)
            if any(not 0 <= label < images.num_classes for label in chosen):
                raise DataError(f"{self.name}: image {index} has the labels {sorted(chosen)}, of 0 to 9 only")
            mask[index, list(chosen)] = True
        mask[~mask.any(1)] = True
        return attrs.evolve(
            images,
            name=self.name,
            candidates=CandidateSets.from_mask(mask, images.class_names),
            annotators=tuple(apart(votes, n, images)),
        )

    def combined(self, sets: list[list[int]]) -> set[int]:
        """Return one set from those of several people; empty where there is none."""
        if self.variant == "aggregate":
            return {label for one in sets for label in one}
        if self.variant == "vaguest":
            largest = max((len(one) for one in sets), default=0)
            return set(next((one for one in sets if len(one) == largest), []))
        if self.variant == "annotator":
            return set(sets[self.annotator]) if self.annotator < len(sets) else set()
        named = [label for one in sets for label in set(one)]
        most = max((named.count(label) for label in named), default=0)
        return {label for label in named if named.count(label) == most}


def apart(votes: dict[int, list[list[int]]], n: int, images: Data) -> Iterator[Annotator]:
    """Yield what the people at each place of the images' lists said; a place is not always the same person's."""
    import torch

    from wsl_toolkit import Annotator

    for place in range(max(map(len, votes.values()))):
        cells = [(i, label) for i, sets in votes.items() if place < len(sets) for label in sets[place]]
        mask = torch.zeros(n, images.num_classes, dtype=torch.bool)
        if cells:
            rows, labels = torch.tensor(cells).unbind(1)
            wrong = ((labels < 0) | (labels >= images.num_classes)).nonzero().flatten()
            if len(wrong):
                raise DataError(
                    f"plcifar10: image {int(rows[wrong[0]])} has a label {int(labels[wrong[0]])}, of 0 to 9"
                )
            mask[rows, labels] = True
        yield Annotator.from_mask(f"annotator {place}", mask, images.class_names)


def read_votes(path: Path) -> dict[int, list[list[int]]]:
    """Return each image's list of sets, checked to be lists of whole numbers."""
    found = read_pickle(path)
    if not isinstance(found, dict) or not found:
        raise DataError(f"{path} holds no dict from an image's number to its lists of labels")
    for index, sets in found.items():
        if type(index) is not int or not isinstance(sets, list):
            raise DataError(f"{path}: {index!r} must be an image's number, with a list of sets")
        for one in sets:
            if not isinstance(one, list) or any(type(label) is not int or abs(label) > MOST for label in one):
                raise DataError(f"{path}: a set of image {index} is not a list of whole numbers up to {MOST:,}")
    return found


@attrs.frozen(kw_only=True)
class ComplementaryImages(Dataset):
    """What the sets of complementary labels share: three labels an image that it is said not to have."""

    file: ClassVar[str]
    address: ClassVar[str]
    classes: ClassVar[int]
    side: ClassVar[int] = 32
    citation: ClassVar[str] = "distributed with libcll: Ye, Mai, Wang, Lin, Lin (2024), arXiv:2411.12276"

    labels: tuple[int, ...] = param(
        (1, 2, 3), help="which of an image's three labels are used, from 1; the authors' code uses the first, 1", ge=1
    )
    combine: str = param(
        "union",
        help="what is excluded: every label that was named, or those that were named most often (vote)",
        choices=("union", "vote"),
    )

    def load(self, data_dir: Path) -> Data:
        import torch

        from wsl_toolkit import CandidateSets, Data

        path = existing(data_dir / self.file, self.name, self.address)
        train = read_images(path, self.side, KEYS)
        excluded = self.excluded(label_matrix(train["cl_labels"], len(train["images"]), path), path)
        test_x, test_y, class_names = self.test_part(data_dir)
        return Data(
            name=self.name,
            x=train["images"],
            y=whole_labels(train["ord_labels"], len(train["images"]), "ord_labels", path),
            candidates=CandidateSets.from_mask(~excluded, class_names),
            num_classes=self.classes,
            class_names=class_names,
            test_x=test_x,
            test_y=torch.as_tensor(test_y),
            normalise="per-channel",
        )

    def excluded(self, given: Tensor, path: Path) -> Tensor:
        """Return which classes an image is said not to have, [n, K]."""
        import torch

        if max(self.labels) > given.shape[1]:
            raise DataError(f"{path} has {given.shape[1]} labels an image: there is no label {max(self.labels)}")
        used = given[:, [place - 1 for place in self.labels]]
        if bool(((used < 0) | (used >= self.classes)).any()):
            row = int(((used < 0) | (used >= self.classes)).any(1).nonzero()[0])
            raise DataError(f"{path}: image {row} has the labels {used[row].tolist()}, of 0 to {self.classes - 1} only")
        counts = torch.zeros(len(used), self.classes).scatter_add_(1, used, torch.ones(used.shape))
        return counts == counts.amax(1, keepdim=True) if self.combine == "vote" else counts > 0

    def test_part(self, data_dir: Path) -> tuple[Tensor, Tensor, tuple[str, ...] | None]:
        """Return test images, their labels, and the classes' names where they are known."""
        raise NotImplementedError


@attrs.frozen(kw_only=True)
class CifarComplements(ComplementaryImages):
    """Those on CIFAR, whose test part is CIFAR's own; twenty classes are CIFAR-100's superclasses."""

    download: bool = param(False, help="fetch CIFAR, checksummed, if it is not below the data directory")

    def test_part(self, data_dir: Path) -> tuple[Tensor, Tensor, tuple[str, ...] | None]:
        import torch

        images = (Cifar10 if self.classes == 10 else Cifar100)(download=self.download).load(data_dir)
        assert images.test_x is not None
        assert images.test_y is not None
        if self.classes == 10:
            return images.test_x, images.test_y, images.class_names
        coarse = torch.empty(100, dtype=torch.long)
        for number, block in enumerate(superclasses.CIFAR100):
            coarse[list(block)] = number
        return images.test_x, coarse[images.test_y], None


@attrs.frozen(kw_only=True)
class MicroImageNetComplements(ComplementaryImages):
    """Those on small parts of ImageNet, 64×64 pixels, with a test part in a file of its own."""

    side: ClassVar[int] = 64
    test_file: ClassVar[str]
    test_address: ClassVar[str]

    def test_part(self, data_dir: Path) -> tuple[Tensor, Tensor, tuple[str, ...] | None]:
        path = existing(data_dir / self.test_file, self.name, self.test_address)
        found = read_images(path, self.side, KEYS[:2])
        return found["images"], whole_labels(found["ord_labels"], len(found["images"]), "ord_labels", path), None


def existing(path: Path, name: str, address: str) -> Path:
    """Return a path if there is a file, or say where to get it."""
    if not path.is_file():
        raise DataError(
            f"{name}: there is no {path}: get it from {address} and put it there, or point --data-dir to it"
        )
    return path


def read_images(path: Path, side: int, keys: tuple[str, ...]) -> dict[str, Any]:
    """Return the wanted values of a pickled dict, its images as bytes [n, 3, side, side]."""
    import numpy as np
    import torch

    found = read_pickle(path)
    missing = [key for key in keys if not isinstance(found, dict) or key not in found]
    if missing:
        raise DataError(f"{path} holds no {', '.join(missing)}: it must be a dict with {', '.join(keys)}")
    images = found["images"]
    if isinstance(images, list) and images and {getattr(one, "shape", None) for one in images} == {(side, side, 3)}:
        images = np.stack(images)
    if getattr(images, "shape", (0,))[1:] != (side, side, 3) or images.dtype != np.uint8:
        raise DataError(f"{path}: images must be bytes of n×{side}×{side}×3")
    return {**found, "images": torch.from_numpy(images.copy()).permute(0, 3, 1, 2).contiguous()}


def label_matrix(given: Any, n: int, path: Path) -> Tensor:
    """Return complementary labels [n, 3] from a list of lists or an array."""
    import numpy as np
    import torch

    lengths = {len(row) if hasattr(row, "__len__") else -1 for row in given} if hasattr(given, "__len__") else {-1}
    if len(lengths) != 1 or min(lengths) < 1 or len(given) != n:
        raise DataError(f"{path}: cl_labels must be {n} lists of the same number of labels")
    matrix = _array(given)
    if matrix.ndim != 2 or matrix.dtype.kind not in "iu":
        raise DataError(f"{path}: cl_labels must be whole numbers")
    return torch.from_numpy(matrix.astype(np.int64))


def _array(given: Any) -> Any:
    """Return lists as an array; one of no numbers where they are not of one shape."""
    import numpy as np

    try:
        return np.asarray(given)
    except ValueError:
        return np.zeros(0)


def whole_labels(given: Any, n: int, key: str, path: Path) -> Tensor:
    """Return true labels [n] from a list or an array."""
    import numpy as np
    import torch

    labels = _array(given).reshape(-1) if isinstance(given, list | np.ndarray) else np.zeros(0)
    if labels.dtype.kind not in "iu" or len(labels) != n:
        raise DataError(f"{path}: {key} must be {n} whole numbers")
    return torch.from_numpy(labels.astype(np.int64))


@attrs.frozen(kw_only=True)
class ClCifar10(CifarComplements):
    """CLCIFAR10: CIFAR-10 with three complementary labels an image from people."""

    name: ClassVar[str] = "clcifar10"
    file: ClassVar[str] = "clcifar10/clcifar10.pkl"
    address: ClassVar[str] = "https://github.com/ntucllab/complementary_cifar"
    classes: ClassVar[int] = 10


@attrs.frozen(kw_only=True)
class ClCifar20(CifarComplements):
    """CLCIFAR20: CIFAR-100's twenty superclasses with three complementary labels an image from people."""

    name: ClassVar[str] = "clcifar20"
    file: ClassVar[str] = "clcifar20/clcifar20.pkl"
    address: ClassVar[str] = "https://github.com/ntucllab/complementary_cifar"
    classes: ClassVar[int] = 20


@attrs.frozen(kw_only=True)
class AclCifar10(CifarComplements):
    """ACLCIFAR10: CIFAR-10 with three complementary labels an image from a vision-language model."""

    name: ClassVar[str] = "acl-cifar10"
    file: ClassVar[str] = "aclcifar10/aclcifar10.pkl"
    address: ClassVar[str] = f"{DRIVE}1Tn4-sidFRtJ_Q0M9EJXnUxeodp_hO-wF"
    classes: ClassVar[int] = 10


@attrs.frozen(kw_only=True)
class AclCifar20(CifarComplements):
    """ACLCIFAR20: CIFAR-100's twenty superclasses with complementary labels from a vision-language model."""

    name: ClassVar[str] = "acl-cifar20"
    file: ClassVar[str] = "aclcifar20/aclcifar20.pkl"
    address: ClassVar[str] = f"{DRIVE}12MVz5gRKKXrznELt3NholwAmnvvCVJGh"
    classes: ClassVar[int] = 20


@attrs.frozen(kw_only=True)
class ClMicroImageNet10(MicroImageNetComplements):
    """CLMicro-ImageNet10: ten classes of ImageNet with three complementary labels an image from people."""

    name: ClassVar[str] = "cl-micro-imagenet10"
    file: ClassVar[str] = "imagenet10/clmicro_imagenet10_train.pkl"
    address: ClassVar[str] = f"{DRIVE}1k02mwMpnBUM9de7TiJLBaCuS8myGuYFx"
    test_file: ClassVar[str] = "imagenet10/clmicro_imagenet10_test.pkl"
    test_address: ClassVar[str] = f"{DRIVE}1e8fZN8swbg9wc6BSOC0A5KHIqCY2C7me"
    classes: ClassVar[int] = 10


@attrs.frozen(kw_only=True)
class AclMicroImageNet10(ClMicroImageNet10):
    """ACLMicro-ImageNet10: ten classes of ImageNet with complementary labels from a vision-language model."""

    name: ClassVar[str] = "acl-micro-imagenet10"
    file: ClassVar[str] = "imagenet10/aclmicro_imagenet10_train.pkl"
    address: ClassVar[str] = f"{DRIVE}1mYCfykcbifm0WHdJzLCbuH4wiAloqL5Z"


@attrs.frozen(kw_only=True)
class ClMicroImageNet20(MicroImageNetComplements):
    """CLMicro-ImageNet20: twenty classes of ImageNet with three complementary labels an image from people."""

    name: ClassVar[str] = "cl-micro-imagenet20"
    file: ClassVar[str] = "imagenet20/clmicro_imagenet20_train.pkl"
    address: ClassVar[str] = f"{DRIVE}1Urdxs_QTxbb1gDBpmjP09Q35btckI3_d"
    test_file: ClassVar[str] = "imagenet20/clmicro_imagenet20_test.pkl"
    test_address: ClassVar[str] = f"{DRIVE}1EdBCrifSrIIUg1ioPWA-ZLEHO53P4NPl"
    classes: ClassVar[int] = 20


@attrs.frozen(kw_only=True)
class AclMicroImageNet20(ClMicroImageNet20):
    """ACLMicro-ImageNet20: twenty classes of ImageNet with complementary labels from a vision-language model."""

    name: ClassVar[str] = "acl-micro-imagenet20"
    file: ClassVar[str] = "imagenet20/aclmicro_imagenet20_train.pkl"
    address: ClassVar[str] = f"{DRIVE}1a8bD0Nu__eX1qq1ncuOhjsn46GY9wd5X"
