"""What can be counted in candidate sets: sizes, classes, and pairs that the labels never tell apart."""

from __future__ import annotations

from typing import Any

import attrs
import torch
from torch import Tensor

from wsl_toolkit.labels.candidate_sets import CHUNK_CELLS, CandidateSets


@attrs.frozen(kw_only=True, eq=False)
class Counts:
    """The plain facts of a collection of candidate sets; all but `full` concern the sets that say something."""

    examples: int
    full: int
    """Sets of all classes: unlabelled examples, which weigh nothing."""
    histogram: Tensor
    """How many sets have each size, [K + 1]."""
    class_counts: Tensor
    """How many sets hold each class, [K]."""
    cooccurrence: Tensor
    """How many sets hold both j and k, [K, K]."""
    names: tuple[str, ...]

    @property
    def num_classes(self) -> int:
        """K."""
        return len(self.names)

    @property
    def labelled(self) -> int:
        """How many sets say something."""
        return self.examples - self.full

    @property
    def singletons(self) -> int:
        """How many examples have one candidate, that is, an ordinary label."""
        return int(self.histogram[1])

    @property
    def mean_size(self) -> float:
        """The mean |s| of the sets that say something."""
        sizes = torch.arange(self.num_classes + 1, dtype=torch.float64)
        informative = self.histogram.double()
        informative[self.num_classes] = 0
        return float((sizes * informative).sum() / max(self.labelled, 1))

    @property
    def never(self) -> tuple[str, ...]:
        """Classes that are in no set: nothing can be learned about them."""
        return self._named((self.class_counts == 0).nonzero().flatten())

    @property
    def always(self) -> tuple[str, ...]:
        """Classes that are in every set: no example speaks against them."""
        return self._named((self.class_counts == self.labelled).nonzero().flatten()) if self.labelled else ()

    @property
    def twins(self) -> tuple[tuple[str, ...], ...]:
        """Groups of classes that only ever appear together: no method can tell them apart from these sets."""
        groups: dict[int, list[int]] = {}
        for j in range(self.num_classes):
            together = (self.cooccurrence[j] == self.class_counts[j]) & (self.class_counts == self.class_counts[j])
            if self.class_counts[j]:
                groups.setdefault(int(together.nonzero()[0]), []).append(j)
        return tuple(self._named(torch.tensor(group)) for group in groups.values() if len(group) > 1)

    @property
    def shadows(self) -> tuple[tuple[str, str], ...]:
        """Pairs (j, k) where j never appears without k, but k does without j: no set speaks for j against k."""
        inside = (self.cooccurrence == self.class_counts[:, None]) & (self.class_counts[:, None] > 0)
        inside &= self.class_counts[None, :] > self.class_counts[:, None]
        everywhere = self.class_counts == self.labelled  # said once, by `always`, and not once for each class
        inside[:, everywhere] = False
        return tuple((self.names[j], self.names[k]) for j, k in inside.nonzero().tolist())

    @property
    def companion_rate(self) -> tuple[float, str, str]:
        """The largest share of the sets with j that hold some k ≠ j too, with j and k; needs no true label."""
        share = self.cooccurrence.double() / self.class_counts.clamp(min=1).double()[:, None]
        place = int(share.fill_diagonal_(0).argmax())
        j, k = divmod(place, self.num_classes)
        return float(share[j, k]), self.names[j], self.names[k]

    def _named(self, index: Tensor) -> tuple[str, ...]:
        return tuple(self.names[j] for j in index.tolist())

    def to_dict(self) -> dict[str, Any]:
        """Return the facts for JSON."""
        rate, j, k = self.companion_rate
        return {
            "examples": self.examples,
            "classes": self.num_classes,
            "class_names": list(self.names),
            "labelled": self.labelled,
            "full_sets": self.full,
            "empty_sets": 0,
            "singletons": self.singletons,
            "mean_size": self.mean_size,
            "size_histogram": self.histogram.tolist(),
            "class_counts": dict(zip(self.names, self.class_counts.tolist(), strict=True)),
            "never_present": list(self.never),
            "always_present": list(self.always),
            "always_together": [list(group) for group in self.twins],
            "never_without": [list(pair) for pair in self.shadows],
            "companion_rate": {"value": rate, "class": j, "companion": k},
            "cooccurrence": self.cooccurrence.tolist(),
        }


def names_of(candidates: CandidateSets) -> tuple[str, ...]:
    """Return the class names, or numbers where there are none."""
    return candidates.class_names or tuple(str(j) for j in range(candidates.num_classes))


def count(candidates: CandidateSets) -> Counts:
    """Count everything in one pass over the sets, chunk by chunk."""
    num_classes = candidates.num_classes
    together = torch.zeros(num_classes, num_classes, dtype=torch.float64)
    step = max(1, CHUNK_CELLS // (4 * num_classes))
    for start in range(0, len(candidates), step):
        mask = candidates.mask(slice(start, start + step)).cpu()
        # float32 counts exactly up to 2^24, far more than a chunk holds.
        cells = mask[mask.sum(1) < num_classes].float()
        together += (cells.T @ cells).double()
    return Counts(
        examples=len(candidates),
        full=candidates.full_count,
        histogram=candidates.histogram(),
        class_counts=together.diagonal().long(),
        cooccurrence=together.long(),
        names=names_of(candidates),
    )
