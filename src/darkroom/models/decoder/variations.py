"""Pictures of a decoder's outputs: variations of an embedding, interpolations between two, and in-painting."""

import math
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from darkroom.models.decoder.cascade import Decoder
from darkroom.models.decoder.sample import SampleRequest

COLUMNS = 8  # generated images in each row
_HOLE = 0.5  # fraction of the side that is filled in


def _made(decoder: Decoder, request: SampleRequest) -> NDArray[np.uint8]:
    return torch.cat(list(decoder.images(request))).numpy()


def _repeated(values: Tensor | None, times: int) -> Tensor | None:
    return None if values is None else values.repeat_interleave(times, dim=0)


def _rows_of(first: NDArray[np.uint8], generated: NDArray[np.uint8], last: NDArray[np.uint8] | None = None) -> NDArray:
    """Return images row by row: an original, the images generated from it, and another original, if any."""
    rows = generated.reshape(len(first), -1, *generated.shape[1:])
    parts = [first[:, None], rows] if last is None else [first[:, None], rows, last[:, None]]
    return np.concatenate(parts, axis=1).reshape(-1, *generated.shape[1:])


def variations(decoder: Decoder, real: NDArray[np.uint8], image: Tensor, text: Tensor | None) -> NDArray[np.uint8]:
    """Return each image, then eight images from its embedding and different noise: uint8 (N * 9, C, H, W).

    Args:
        decoder: the decoder.
        real: uint8 (N, C, H, W).
        image: their embeddings, (N, D).
        text: their text encodings, if the decoder reads them.
    """
    low = decoder.low(torch.from_numpy(real))
    numbers = list(range(len(real) * COLUMNS))
    request = SampleRequest(numbers, _repeated(image, COLUMNS), _repeated(text, COLUMNS), _repeated(low, COLUMNS))
    return _rows_of(real, _made(decoder, request))


def interpolations(decoder: Decoder, real: NDArray[np.uint8], image: Tensor, text: Tensor | None) -> NDArray[np.uint8]:
    """Return for each pair the first image, eight on the arc between the embeddings, the second: (N / 2 * 10, ...).

    All images of a row have the same initial noise, so only the embedding changes; a text, and an image to enlarge,
    are those of the first.
    """
    pairs = len(real) // 2
    first, second = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
    share = torch.linspace(0, 1, COLUMNS)
    between = torch.cat([spherical(one, other, share) for one, other in zip(image[first], image[second], strict=True)])
    low = decoder.low(torch.from_numpy(real[first]))
    numbers = [row for row in range(pairs) for _ in range(COLUMNS)]
    words = _repeated(None if text is None else text[first], COLUMNS)
    request = SampleRequest(numbers, between, words, _repeated(low, COLUMNS))
    return _rows_of(real[first], _made(decoder, request), real[second])


def inpainted(
    decoder: Decoder, real: NDArray[np.uint8], image: Tensor, text: Tensor | None, resamples: int
) -> NDArray[np.uint8]:
    """Return each image, the same with a grey square in its middle, and with that square filled in: (N * 3, ...)."""
    pixels = torch.from_numpy(real)
    height, width = pixels.shape[2:]
    mask = torch.ones(len(real), 1, height, width)
    top, left = int(height * (1 - _HOLE) / 2), int(width * (1 - _HOLE) / 2)
    mask[..., top : height - top, left : width - left] = 0
    holes, request = filling(decoder, pixels, mask, SampleRequest(range(len(real)), image, text, resamples=resamples))
    return _rows_of(real, np.stack([holes.numpy(), _made(decoder, request)], axis=1).reshape(-1, *real.shape[1:]))


def filling(decoder: Decoder, pixels: Tensor, mask: Tensor, request: SampleRequest) -> tuple[Tensor, SampleRequest]:
    """Return images with grey in the masked area, and the request that in-paints it (RePaint).

    Args:
        decoder: the decoder.
        pixels: uint8 (N, C, H, W).
        mask: 1 where pixels stay, else 0, float32 (N, 1, H, W).
        request: numbers and conditions of the N images.
    """
    width = pixels.shape[-1]
    holes = torch.where(mask.bool(), pixels, torch.full_like(pixels, 128))
    # Neither a tokenizer nor a first U-Net that enlarges sees the pixels to fill in.
    known, low = decoder.space(holes), decoder.low(holes)
    intact = (torch.nn.functional.adaptive_avg_pool2d(mask, known.shape[-1]) == 1).float()
    if known.shape[-1] < width:  # latents next to the square depend on its grey
        intact = -torch.nn.functional.max_pool2d(-intact, 3, stride=1, padding=1)
    return holes, replace(request, low=low, known=known, mask=intact.to(known.device))


def spherical(one: Tensor, other: Tensor, share: Tensor) -> Tensor:
    """Return points on the arc between two embeddings, (K, D): sin((1-a)θ)/sin θ · u + sin(aθ)/sin θ · v.

    Source: Shoemake, "Animating rotation with quaternion curves", 1985. Lengths go from the one's to the other's.
    Between opposite ones the arc is not unique: the points lie on the line.

    Args:
        one: (D,).
        other: (D,).
        share: a, the fraction of the way from the first to the second, 0 to 1, (K,).
    """
    lengths = one.norm(), other.norm()
    u, v = one / lengths[0].clamp(min=1e-12), other / lengths[1].clamp(min=1e-12)
    angle = torch.arccos((u * v).sum().clamp(-1, 1))
    far = torch.lerp(lengths[0], lengths[1], share)[:, None]
    if not 1e-4 < float(angle) < math.pi - 1e-3:
        return far * torch.nn.functional.normalize(torch.lerp(u, v, share[:, None]), dim=1)
    along = (torch.sin((1 - share) * angle)[:, None] * u + torch.sin(share * angle)[:, None] * v) / torch.sin(angle)
    return far * along
