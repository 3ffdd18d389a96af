"""Augmentation of latents that does not leak: linear transforms, which are a condition of the network.

T moves the places of a latent, or sets them to zero. As it is linear, T(x_t) = α T(x_0) + σ T(ε): T of x_0 and of ε
gives T of the noisy latent and of the target, whichever of them is predicted, and the loss is that of

    f(T(x_t), t, y, c(T)) = T(target)

(ScoreAug, 2025, arXiv 2508.07926). The condition c is zero where T is the identity, as in validation and sampling
(Karras et al., "EDM", 2022, arXiv 2206.00364, appendix F.2), so what is sampled looks like no transform. Places that T
sets to zero stay in the loss: input, target and c say so alike, the error there soon vanishes, and a latent weighs as
much as there is of it.
"""

from collections.abc import Sequence
from typing import NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from darkroom.device import to_device
from darkroom.models.generators.dit.settings import Augment, Transform
from darkroom.rng import random_numbers

# Of c: mirrored; cos - 1 and sin of the turn; rows and columns of the translation; cut out, its row and column.
NUMBERS = 8
_UNIFORMS = 9  # which of the four are taken, the turn, the two of the translation, the two of the cut-out
_TURNS = ((-1, 1), (-2, 0), (-1, -1))  # cos - 1 and sin of one, two and three quarters


class Augmentation(NamedTuple):
    """T of N latents: T(x)[p] = x[source[p]], and 0 where source[p] is -1.

    source: places row by row, int64 (N, S²).
    condition: c(T), float32 (N, NUMBERS).
    """

    source: Tensor
    condition: Tensor

    @classmethod
    def drawn(cls, settings: Augment, seed: int, positions: Sequence[int], side: int) -> "Augmentation":
        """Return the transforms of latents of a height and width at some positions of the training sequence."""
        _, uniforms = random_numbers(seed, "dit/augment", positions, 0, _UNIFORMS)
        source, condition = zip(*(_transform(settings, row, side) for row in uniforms), strict=True)
        return cls(torch.from_numpy(np.stack(source)).flatten(1), torch.from_numpy(np.stack(condition)))

    def to(self, device: torch.device) -> "Augmentation":
        """Return the same on a device."""
        return Augmentation(to_device(self.source, device), to_device(self.condition, device))

    def __call__(self, x: Tensor) -> Tensor:
        """Return T(x), (N, C, S, S)."""
        source = self.source[:, None].expand(-1, x.shape[1], -1)  # (N, C, S²)
        return x.flatten(2).gather(2, source.clamp(min=0)).masked_fill(source < 0, 0).view_as(x)


def _transform(
    settings: Augment, uniform: NDArray[np.float64], side: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the sources (S, S) and c (NUMBERS,) of one latent; what is not among `transforms` changes no other."""
    pairs = zip(get_args(Transform), uniform[:4] < settings.probability, strict=True)
    taken = {name for name, below in pairs if below and name in settings.transforms}
    turn, *shift, top, left = uniform[4:]
    source, condition = np.arange(side**2).reshape(side, side), np.zeros(NUMBERS, np.float32)
    if "mirror" in taken:
        source, condition[0] = source[:, ::-1], 1
    if "turn" in taken:
        quarters = 1 + int(3 * turn)
        source, condition[1:3] = np.rot90(source, quarters), _TURNS[quarters - 1]
    if "translation" in taken:
        most = max(1, side // 4)
        down, right = (int((2 * most + 1) * each) - most for each in shift)
        padded = np.pad(source, most, constant_values=-1)
        source = padded[most - down :, most - right :][:side, :side]
        condition[3:5] = down / most, right / most
    if "cutout" in taken:
        hole = max(1, side // 2)
        row, column = (int((side - hole + 1) * each) for each in (top, left))
        source[row : row + hole, column : column + hole] = -1
        condition[5:] = 1, row / side, column / side
    return source, condition
