"""Views of a batch: for estimators that ask for them, and, with `--augmentation`, for every other one.

Inputs are the network's: images [B, C, H, W] scaled channel by channel, or rows of a table scaled column by column.
Everything random comes from torch's global generator, which belongs to the trainer (or, for `--augmentation`, to
`networks.Augmented`) and is part of its checkpoints, so that a resumed run sees the same views.

* weak: images moved by up to an eighth of the side, colour images mirrored half the time; a table's row as it is
* strong: images after a weak view and RandAugment; a table's row with noise on every number, and a tenth of them
  replaced by their column's mean
* cutout: images after a weak view with a square of half the side blank; a table's row with a tenth of its numbers
  replaced by their column's mean
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

RANDAUGMENT_OPERATIONS = 3
"""Operations in a row, as PiCO's authors have them."""
RANDAUGMENT_MAGNITUDE = 15
"""Of torchvision's 31 steps: half the range, as PiCO's authors have it."""
RANDAUGMENT_DRAWS = 8
"""Parts of a batch, each of which gets operations of its own; torchvision treats a tensor as one image."""
TABLE_NOISE = 0.1
"""Deviation of the noise on a table's numbers, of which each column has deviation 1."""
TABLE_DROPPED = 0.1
"""Share of a table's numbers that a strong view replaces by their column's mean, 0."""


def weak(inputs: Tensor) -> Tensor:
    """Return a view that hardly differs: a crop of the padded image, mirrored or not; a table's row as it is."""
    if inputs.ndim != 4:
        return inputs
    moved = shifted(inputs)
    if inputs.shape[1] != 3:
        return moved  # grey images are mostly characters, which a mirror makes into others
    mirrored = torch.rand(len(inputs), 1, 1, 1, device=inputs.device) < 0.5
    return torch.where(mirrored, moved.flip(-1), moved)


def strong(inputs: Tensor) -> Tensor:
    """Return a view that differs a lot: a weak one after RandAugment; a table's row with noise and without a tenth."""
    if inputs.ndim != 4:
        kept = torch.rand_like(inputs) >= TABLE_DROPPED
        return (inputs + TABLE_NOISE * torch.randn_like(inputs)) * kept
    return randaugmented(weak(inputs))


def weak_and_cutout(inputs: Tensor) -> Tensor:
    """Return a weak view with a blank square; of a table, rows without a tenth of their numbers."""
    if inputs.ndim != 4:
        return inputs * (torch.rand_like(inputs) >= TABLE_DROPPED)
    return cutout(weak(inputs))


def unchanged(inputs: Tensor) -> Tensor:
    """Return the inputs themselves: a view for methods that are tried without augmentation."""
    return inputs


def randaugmented(images: Tensor) -> Tensor:
    """Return images after RandAugment (Cubuk et al., NeurIPS 2020), part of the batch by part."""
    from torchvision.transforms import v2

    if images.shape[1] not in (1, 3):
        return images + TABLE_NOISE * torch.randn_like(images)  # its operations are for grey and colour images
    # Its operations expect numbers from 0 to 1; a scaled channel's range in the batch is that of its pixels.
    low, high = images.amin((0, 2, 3), keepdim=True), images.amax((0, 2, 3), keepdim=True)
    spread = (high - low).clamp(min=torch.finfo(images.dtype).eps)
    augment = v2.RandAugment(num_ops=RANDAUGMENT_OPERATIONS, magnitude=RANDAUGMENT_MAGNITUDE)
    parts = ((images - low) / spread).chunk(RANDAUGMENT_DRAWS)
    return torch.cat([augment(part) for part in parts]) * spread + low


def cutout(images: Tensor) -> Tensor:
    """Return images of which a square of half the side, anywhere, is blank (DeVries, Taylor, 2017); 0 is the mean."""
    n, _, height, width = images.shape
    rows, columns = (
        (torch.arange(side, device=images.device) - torch.randint(side, (n, 1), device=images.device)).abs()
        <= side // 4
        for side in (height, width)
    )
    return images.masked_fill((rows.unsqueeze(2) & columns.unsqueeze(1)).unsqueeze(1), 0.0)


def shifted(images: Tensor) -> Tensor:
    """Return images moved by up to an eighth of their side, each by its own; the border repeats."""
    n, _, height, width = images.shape
    rows, columns = (_shifted_positions(n, side, images.device) for side in (height, width))
    # Indices around a slice put the indexed dimensions first: [n, H, W, C].
    picked = images[torch.arange(n, device=images.device)[:, None, None], :, rows[:, :, None], columns[:, None, :]]
    return picked.permute(0, 3, 1, 2)


def _shifted_positions(n: int, side: int, device: torch.device) -> Tensor:
    """Return for each image where its rows (or columns) come from."""
    reach = max(1, side // 8)
    shift = torch.randint(-reach, reach + 1, (n, 1), device=device)
    return (torch.arange(side, device=device) + shift).clamp_(0, side - 1)


AUGMENTATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": unchanged,
    "weak": weak,
    "strong": strong,
    "cutout": weak_and_cutout,
}
"""What `--augmentation` may be (`training.config.AUGMENTATIONS` has the names where torch is not to be imported)."""
