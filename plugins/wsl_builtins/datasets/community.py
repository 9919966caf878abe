"""The community's tables by name: a `.mat` file each, known by how many examples, features and classes it must have.

Most of them are collected at https://palm.seu.edu.cn/zhangml/Resources.htm#data.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import attrs

from wsl_builtins.datasets.mat import Mat
from wsl_toolkit import Dataset, param
from wsl_toolkit.errors import DataError

if TYPE_CHECKING:
    from wsl_toolkit import Data

ADDRESS = "https://palm.seu.edu.cn/zhangml/Resources.htm#data"
FOLDERS = ("pll", ".")
"""Where a table is looked for below the data directory."""


@attrs.frozen(kw_only=True)
class CommunityTable(Dataset):
    """What the tables share: where they are, what they must hold, and which classes are kept."""

    file: ClassVar[str]
    """The file's name; another spelling of capitals, blanks and signs is found too."""
    examples: ClassVar[int]
    features: ClassVar[int]
    classes: ClassVar[int]
    mean_size: ClassVar[float]
    """The published mean size of the candidate sets, two digits."""
    ordered: ClassVar[bool] = False
    """Whether classes are consecutive numbers, such as ages, of which near ones are nearly right."""
    compared: ClassVar[bool] = False
    """Whether these numbers were compared with the file itself: only then is another file refused."""

    normalise: str = param(
        "per-feature",
        help="features to mean 0 and deviation 1, to 0..1 (min-max), or as they are, by the training part's statistics",
        choices=("per-feature", "min-max", "none"),
    )
    coverage: float = param(
        1.0, help="keep the most frequent true classes that cover this share of the examples, such as 0.99", gt=0, le=1
    )

    def load(self, data_dir: Path) -> Data:
        data = Mat(path=self.located(data_dir), normalise=self.normalise).load(data_dir)
        self.check(data)
        values = tuple(map(float, range(data.num_classes))) if self.ordered else None
        data = attrs.evolve(data, name=self.name, class_values=values)
        return data if self.coverage == 1 else most_frequent(data, self.coverage)

    def located(self, data_dir: Path) -> Path:
        """Return the file below the data directory, or say where to get it."""
        for folder in FOLDERS:
            for path in sorted((data_dir / folder).glob("*.mat")):
                if _letters(path.stem) == _letters(Path(self.file).stem):
                    return path.resolve()
        raise DataError(
            f"{self.name}: there is no {data_dir / FOLDERS[0] / self.file}: get it from {ADDRESS} and put it there, or "
            "point --data-dir to the directory that holds it"
        )

    def check(self, data: Data) -> None:
        """Refuse a file that is not the published one, or warn where we never had that one to compare with."""
        if data.candidates is None or data.y is None:
            missing = "candidate sets" if data.candidates is None else "true labels"
            raise DataError(f"{self.name}: {self.file} has no {missing} of all examples: read it with --dataset mat")
        found = (len(data.x), data.x.shape[1], data.num_classes, round(data.candidates.mean_size, 2))
        wanted = (self.examples, self.features, self.classes, self.mean_size)
        if found[:3] != wanted[:3] or abs(found[3] - wanted[3]) > 0.011:
            differing = "; ".join(
                f"{what} {have:g} instead of {should:g}"
                for what, have, should in zip(
                    ("examples", "features", "classes", "mean |s|"), found, wanted, strict=True
                )
                if have != should
            )
            if self.compared:
                raise DataError(
                    f"{self.name}: {self.file} is not the published table: {differing}; to use it all the same, "
                    "read it with --dataset mat"
                )
            warnings.warn(
                f"{self.name}: {self.file} may not be the published table: {differing} (the numbers are known from "
                "papers, not from the file)",
                stacklevel=2,
            )


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def most_frequent(data: Data, share: float) -> Data:
    """Keep the fewest classes, by their number of true labels, that cover a share of the examples, and those examples.

    One public protocol keeps 99 % of the large tables in this way. It reads true labels to choose what the problem is.
    """
    import torch

    from wsl_toolkit import CandidateSets

    assert data.y is not None
    assert data.candidates is not None
    counts = torch.bincount(data.y, minlength=data.num_classes)
    order = torch.argsort(counts, descending=True, stable=True)
    enough = int((counts[order].cumsum(0) < share * len(data.y)).sum()) + 1
    kept = order[:enough].sort().values
    if len(kept) < 2:
        raise DataError(f"{data.name}: a coverage of {share:g} leaves a single class: raise it")
    place = torch.full((data.num_classes,), -1)
    place[kept] = torch.arange(len(kept))
    rows = (place[data.y] >= 0).nonzero().flatten()
    mask = data.candidates.take(rows).mask()[:, kept]
    empty = (~mask.any(1)).nonzero().flatten()
    if len(empty):
        raise DataError(
            f"{data.name}: no candidate of example {int(rows[empty[0]])} is among the classes that are kept"
        )
    names = None if data.class_names is None else tuple(data.class_names[int(j)] for j in kept)
    return attrs.evolve(
        data,
        x=data.x[rows],
        y=place[data.y[rows]],
        candidates=CandidateSets.from_mask(mask, names),
        num_classes=len(kept),
        class_names=names,
        class_values=None if data.class_values is None else tuple(data.class_values[int(j)] for j in kept),
        ids=None if data.ids is None else tuple(data.ids[int(i)] for i in rows),
    )


@attrs.frozen(kw_only=True)
class Lost(CommunityTable):
    """Faces in a television series, named by its script: 1,122 examples, 16 classes, 2.23 candidates."""

    name: ClassVar[str] = "lost"
    citation: ClassVar[str] = "Cour, Sapp, Taskar (JMLR 2011)"
    file: ClassVar[str] = "lost.mat"
    examples: ClassVar[int] = 1122
    features: ClassVar[int] = 108
    classes: ClassVar[int] = 16
    mean_size: ClassVar[float] = 2.23
    compared: ClassVar[bool] = True


@attrs.frozen(kw_only=True)
class Msrcv2(CommunityTable):
    """Segments of photographs, with the labels of the photograph: 1,758 examples, 23 classes, 3.16 candidates."""

    name: ClassVar[str] = "msrcv2"
    citation: ClassVar[str] = "Liu, Dietterich (NeurIPS 2012)"
    file: ClassVar[str] = "MSRCv2.mat"
    examples: ClassVar[int] = 1758
    features: ClassVar[int] = 48
    classes: ClassVar[int] = 23
    mean_size: ClassVar[float] = 3.16
    compared: ClassVar[bool] = True


@attrs.frozen(kw_only=True)
class BirdSong(CommunityTable):
    """Syllables of birds, with the species heard in the recording: 4,998 examples, 13 classes, 2.18 candidates."""

    name: ClassVar[str] = "birdsong"
    citation: ClassVar[str] = "Briggs, Fern, Raich (KDD 2012)"
    file: ClassVar[str] = "BirdSong.mat"
    examples: ClassVar[int] = 4998
    features: ClassVar[int] = 38
    classes: ClassVar[int] = 13
    mean_size: ClassVar[float] = 2.18
    compared: ClassVar[bool] = True


@attrs.frozen(kw_only=True)
class SoccerPlayer(CommunityTable):
    """Faces of football players, named by the caption: 17,472 examples, 171 classes, 2.09 candidates."""

    name: ClassVar[str] = "soccer-player"
    citation: ClassVar[str] = "Zeng, Xiao, Jia, Chan, Gao, Xu, Ma (CVPR 2013)"
    file: ClassVar[str] = "Soccer Player.mat"
    examples: ClassVar[int] = 17472
    features: ClassVar[int] = 279
    classes: ClassVar[int] = 171
    mean_size: ClassVar[float] = 2.09


@attrs.frozen(kw_only=True)
class YahooNews(CommunityTable):
    """Faces in the news, named by the caption: 22,991 examples, 219 classes, 1.91 candidates."""

    name: ClassVar[str] = "yahoo-news"
    citation: ClassVar[str] = "Guillaumin, Verbeek, Schmid (ECCV 2010)"
    file: ClassVar[str] = "Yahoo! News.mat"
    examples: ClassVar[int] = 22991
    features: ClassVar[int] = 163
    classes: ClassVar[int] = 219
    mean_size: ClassVar[float] = 1.91


@attrs.frozen(kw_only=True)
class Mirflickr(CommunityTable):
    """Photographs with the tags of their users: 2,780 examples, 14 classes, 2.76 candidates."""

    name: ClassVar[str] = "mirflickr"
    citation: ClassVar[str] = "Huiskes, Lew (MIR 2008)"
    file: ClassVar[str] = "Mirflickr.mat"
    examples: ClassVar[int] = 2780
    features: ClassVar[int] = 1536
    classes: ClassVar[int] = 14
    mean_size: ClassVar[float] = 2.76


@attrs.frozen(kw_only=True)
class FgNet(CommunityTable):
    """Faces with several guesses of their age in years: 1,002 examples, 78 ages, 7.48 candidates."""

    name: ClassVar[str] = "fg-net"
    citation: ClassVar[str] = "Panis, Lanitis (ECCV 2014)"
    file: ClassVar[str] = "FG-NET.mat"
    examples: ClassVar[int] = 1002
    features: ClassVar[int] = 262
    classes: ClassVar[int] = 78
    mean_size: ClassVar[float] = 7.48
    ordered: ClassVar[bool] = True


@attrs.frozen(kw_only=True)
class Italian(CommunityTable):
    """Words with the parts of speech that a dictionary allows: 21,878 examples, 90 classes, 1.60 candidates."""

    name: ClassVar[str] = "italian"
    file: ClassVar[str] = "Italian.mat"
    examples: ClassVar[int] = 21878
    features: ClassVar[int] = 519
    classes: ClassVar[int] = 90
    mean_size: ClassVar[float] = 1.60


@attrs.frozen(kw_only=True)
class Malagasy(CommunityTable):
    """Words with the parts of speech that a dictionary allows: 5,303 examples, 44 classes, 8.35 candidates."""

    name: ClassVar[str] = "malagasy"
    citation: ClassVar[str] = "Garrette, Baldridge (NAACL 2013)"
    file: ClassVar[str] = "Malagasy.mat"
    examples: ClassVar[int] = 5303
    features: ClassVar[int] = 384
    classes: ClassVar[int] = 44
    mean_size: ClassVar[float] = 8.35


@attrs.frozen(kw_only=True)
class English(CommunityTable):
    """Words with the parts of speech that a dictionary allows: 24,000 examples, 45 classes, 1.19 candidates."""

    name: ClassVar[str] = "english"
    file: ClassVar[str] = "English.mat"
    examples: ClassVar[int] = 24000
    features: ClassVar[int] = 300
    classes: ClassVar[int] = 45
    mean_size: ClassVar[float] = 1.19
