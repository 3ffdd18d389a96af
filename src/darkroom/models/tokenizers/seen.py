"""What an update has quantised, of all pieces and processes, for the codebook that moves at its end."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, distributed


def of_all_processes(rows: Tensor) -> Tensor:
    """Return the rows (N, …) of all processes, each with as many, in the order of their ranks."""
    if not distributed.is_initialized() or distributed.get_world_size() == 1:
        return rows
    pieces = [torch.empty_like(rows) for _ in range(distributed.get_world_size())]
    distributed.all_gather(pieces, rows.contiguous())
    return torch.cat(pieces)


class Seen:
    """Latents and codes of the pieces of an update.

    batch: images of an update, which says to which one a piece belongs. Pieces of an update whose step was left out are
    forgotten.
    """

    def __init__(self, batch: int) -> None:
        self._batch = batch
        self._pieces: dict[int, tuple[Tensor, Tensor]] = {}  # by the first position in the training

    def update_of(self, positions: NDArray[np.int64]) -> int:
        """Return the number of the update that images at these positions of the training belong to."""
        return int(positions[0]) // self._batch

    def add(self, positions: NDArray[np.int64], latents: Tensor, codes: Tensor) -> None:
        """Take in what the images (N,) at some positions became: latents (N, …), codes (N, …). A gradient is cut."""
        update = self.update_of(positions)
        self._pieces = {at: piece for at, piece in self._pieces.items() if at // self._batch == update}
        self._pieces[int(positions[0])] = latents.detach(), codes

    def take(self) -> tuple[Tensor, Tensor]:
        """Return latents and codes of the whole update, in the order of their positions by process, and forget them."""
        pieces = [self._pieces[at] for at in sorted(self._pieces)]
        self._pieces = {}
        latents, codes = (of_all_processes(torch.cat(parts)) for parts in zip(*pieces, strict=True))
        return latents, codes
