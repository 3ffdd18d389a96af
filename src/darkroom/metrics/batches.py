"""Run a network of images at one compute batch, however they come."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Images = Tensor | NDArray[np.uint8]


def _rebatch(images: Iterable[Images], batch: int) -> Iterator[Tensor]:
    """Yield the same images in batches of exactly `batch`, and what is left at the end."""
    held: list[Tensor] = []
    count = 0
    for group in images:
        held.append(torch.as_tensor(group))
        count += len(held[-1])
        if count >= batch:
            whole = torch.cat(held)
            *full, rest = whole.split(batch)
            if len(rest) == batch:
                full, rest = [*full, rest], rest[:0]
            yield from full
            held, count = [rest], len(rest)
    if count:
        yield torch.cat(held)


def batched(
    function: Callable[[Tensor], Tensor], images: Iterable[Images], batch: int, device: torch.device
) -> Iterator[Tensor]:
    """Yield what `function` makes of the images, float32 on the CPU, always of `batch` at once.

    The last batch is padded with black images: image i gets the same bits however they are grouped and however many are
    requested.
    """
    for group in _rebatch(images, batch):
        padded = group.new_zeros(batch, *group.shape[1:])
        padded[: len(group)] = group
        with torch.inference_mode():
            result = function(padded.to(device))[: len(group)].float().cpu()
        yield result.clone()  # a normal tensor: one made in inference mode cannot be updated in place
