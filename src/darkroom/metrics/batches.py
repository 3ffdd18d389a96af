"""Run a network on images at a fixed batch size, however they are grouped; the outputs of extractors."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from darkroom.errors import DarkroomError

Images = Tensor | NDArray[np.uint8]


def _rebatch(images: Iterable[Images], batch: int) -> Iterator[Tensor]:
    """Yield the same images in batches of exactly `batch`, and the remaining ones at the end."""
    held: list[Tensor] = []
    count = 0
    for group in images:
        held.append(torch.as_tensor(group))
        count += len(held[-1])
        if count >= batch:
            full, rest = torch.cat(held).tensor_split([count - count % batch])
            yield from full.split(batch)
            held, count = [rest], len(rest)
    if count:
        yield torch.cat(held)


def batched(
    function: Callable[[Tensor], Tensor], images: Iterable[Images], batch: int, device: torch.device
) -> Iterator[Tensor]:
    """Yield the outputs of `function` for the images, float32 on the CPU, always computed `batch` at once.

    The last batch is padded with black images: image i gets the same bits however they are grouped and however many are
    requested.
    """
    for group in _rebatch(images, batch):
        padded = group.new_zeros(batch, *group.shape[1:])
        padded[: len(group)] = group
        with torch.inference_mode():
            result = function(padded.to(device))[: len(group)].float().cpu()
        yield result.clone()  # a normal tensor: one made in inference mode cannot be updated in place


@dataclass(frozen=True)
class Views:
    """Features of N images, and the other outputs of Inception's forward pass.

    pool: (N, D) float32, the features in which distances are measured.
    spatial: (N, 2023) float32, 17 x 17 places of 7 channels, those of sFID (Nash et al., 2021, arXiv 2103.03841); None:
        of another network than Inception.
    logits: (N, 1008) float32, those of the Inception Score; None: of another network.
    """

    pool: Tensor
    spatial: Tensor | None = None
    logits: Tensor | None = None

    def __len__(self) -> int:
        return len(self.pool)

    @property
    def parts(self) -> list[Tensor | None]:
        """`pool`, `spatial` and `logits`."""
        return [self.pool, self.spatial, self.logits]

    def take(self, rows: Tensor | list[int]) -> "Views":
        """Return some of the images, by their rows or by a mask."""
        return Views(*(None if part is None else part[rows] for part in self.parts))  # type: ignore[arg-type]

    @staticmethod
    def joined(views: "Iterable[Views]") -> "Views":
        """Return the images of all views as one.

        Raises:
            DarkroomError: there is no image.
        """
        parts = list(zip(*(each.parts for each in views), strict=True))
        if not parts:
            raise DarkroomError(
                "there are no images to extract features from: check that the split or the samples are not empty."
            )
        return Views(*(None if of_all[0] is None else torch.cat(of_all) for of_all in parts))  # type: ignore[arg-type]
