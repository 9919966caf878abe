"""The contract of a transform: one set for each example, from the stream that it is given, and nothing written to."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from wsl_toolkit.components import Transform
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.testing.batches import random_sets
from wsl_toolkit.testing.common import ComponentContract, global_randomness_untouched, stream


class TransformContract(ComponentContract):
    """Give `component`; give `input_shape` if it does not take rows of numbers."""

    input_shape: ClassVar[tuple[int, ...]] = (6,)
    num_classes: ClassVar[int] = 5
    examples: ClassVar[int] = 120

    def test_every_example_has_a_set_of_the_same_classes(self, component: Transform) -> None:
        """Never an empty one; a full one says that nothing is known."""
        x, sets = self._data()
        found = component.apply(x, sets, stream(1))
        assert isinstance(found, CandidateSets), f"apply returned {type(found).__name__}, not CandidateSets"
        assert (len(found), found.num_classes) == (len(sets), sets.num_classes), (
            f"{len(sets)} sets of {sets.num_classes} classes became {len(found)} of {found.num_classes}"
        )
        assert not bool((found.sizes == 0).any()), "it made an empty set"

    def test_the_stream_rules_what_is_random(self, component: Transform) -> None:
        """The same stream gives the same sets, whatever the global generators are."""
        x, sets = self._data()
        with global_randomness_untouched(f"transform {component.name}"):
            first, again = (component.apply(x, sets, stream(1)) for _ in range(2))
        assert first.content_hash == again.content_hash, "the same stream gave different sets"

    def test_arguments_are_left_alone(self, component: Transform) -> None:
        """Inputs and sets are used again."""
        x, sets = self._data()
        kept, digest = x.clone(), sets.content_hash
        component.apply(x, sets, stream(1))
        assert torch.equal(x, kept), "it writes into the inputs"
        assert CandidateSets.from_mask(sets.mask()).content_hash == digest, "it writes into the candidate sets"

    def _data(self) -> tuple[Tensor, CandidateSets]:
        rng = stream(2)
        x = torch.randn(self.examples, *self.input_shape, generator=rng)
        return x, CandidateSets.from_mask(random_sets(self.examples, self.num_classes, rng))
