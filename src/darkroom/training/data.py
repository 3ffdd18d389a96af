"""Datasets for recipes: the rows of the readers under the names that the losses use."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn import functional

from darkroom.data.catalog import Catalog
from darkroom.data.images import to_array, to_pil
from darkroom.data.latent_file import SHIFTS
from darkroom.data.latents import LatentShards
from darkroom.data.reader import ImageShards
from darkroom.data.streaming import StreamingOrder
from darkroom.device import to_device
from darkroom.errors import DarkroomError
from darkroom.remote import is_remote, redacted
from darkroom.rng import order, random_numbers

Positions = NDArray[np.int64]


@dataclass(frozen=True)
class Classes:
    """The classes of some parts only, so that other parts do not change the class numbers."""

    classes: tuple[str, ...]

    @classmethod
    def of(cls, columns: Iterable[pa.ChunkedArray]) -> "Classes":
        """Return the classes in some label columns, in the order of their names."""
        names = {name for column in columns for name in column.unique().to_pylist()}
        return cls(tuple(sorted(name for name in names if name is not None)))

    def number(self, label: str) -> int:
        """Return the number of a class."""
        return self.classes.index(label)


def label_numbers(
    labels: Iterable[str | None] | pa.ChunkedArray,
    catalog: Catalog | Classes,
    keys_of: Callable[[list[int]], list[str]] | None = None,
    model: str = "this model",
    hint: str = "",
) -> NDArray[np.int64]:
    """Return the class number of each label, (N,), int64.

    For messages: `keys_of` returns the keys of rows, `model` needs the labels, `hint` is another remedy.

    Raises:
        DarkroomError: an image has no label, or one that is not in the catalog.
    """
    column = labels if isinstance(labels, pa.ChunkedArray) else pa.chunked_array([pa.array(labels, pa.string())])
    if column.null_count:
        row = column.is_null().index(True).as_py()
        first = keys_of([row])[0] if keys_of else f"row {row}"
        raise DarkroomError(
            f"{column.null_count:,} of {len(column):,} images have no label (the first is {first}), but {model} "
            f"needs labels: {hint and hint + ', '}add labels, or set `ingest.rules.label_missing` to quarantine."
        )
    # A label is looked up once, however many images have it.
    encoded = column.combine_chunks().dictionary_encode()
    numbers = np.array([catalog.number(label) for label in encoded.dictionary.to_pylist()], dtype=np.int64)
    return numbers[encoded.indices.to_numpy()] if len(column) else np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Augmentation:
    """Augmentation of training images; it depends on the training's seed and the image's position.

    mirror: probability of mirroring any image; None: 0.5 for those whose mirror image is equally valid.
    scale: smallest and largest area of a random resized crop, as fractions of the image's; None: whole images.
    ratio: smallest and largest width / height of the crop.
    """

    mirror: float | None = None
    scale: tuple[float, float] | None = None
    ratio: tuple[float, float] = (3 / 4, 4 / 3)


def mirrored(
    seed: int,
    mirrors: NDArray[np.bool_],
    rows: Sequence[int],
    positions: Positions | None,
    probability: float | None = None,
) -> NDArray[np.bool_]:
    """Return which images are mirrored, (N,), by seed and position.

    Args:
        seed: of the training.
        mirrors: for every row, whether its mirror image is equally valid.
        rows: the rows that are read.
        positions: their places in the training sequence; None: nothing is mirrored.
        probability: of mirroring any image; None: 0.5 for those whose mirror image is equally valid.
    """
    chosen = mirrors[list(rows)] if probability is None else np.full(len(rows), probability > 0)
    if positions is None or not chosen.any():
        return np.zeros(len(rows), dtype=bool)
    return chosen & (random_numbers(seed, "mirror", positions.tolist(), 0, 1)[1][:, 0] < (probability or 0.5))


_TRIES = 10  # random crops tried per image before the central one is used


def random_crop(
    image: NDArray[np.uint8], scale: tuple[float, float], ratio: tuple[float, float], uniform: NDArray[np.float64]
) -> NDArray[np.uint8]:
    """Return a random crop of an image, resized to the image's size, uint8 (C, H, W): Inception's crop.

    The area and the logarithm of the ratio are drawn uniformly until the crop fits; after ten tries it is the largest
    central crop with an allowed ratio (Szegedy et al., "Going deeper with convolutions", 2015, section 6;
    torchvision's RandomResizedCrop). Resized bilinearly, with antialiasing.

    Args:
        image: uint8 (C, H, W).
        scale: smallest and largest area, as fractions of the image's.
        ratio: smallest and largest width / height.
        uniform: in [0, 1), (22,): the place, then area and ratio of each try.
    """
    _, height, width = image.shape
    areas = height * width * (scale[0] + (scale[1] - scale[0]) * uniform[2::2])
    ratios = np.exp(np.log(ratio[0]) + (np.log(ratio[1]) - np.log(ratio[0])) * uniform[3::2])
    sizes = np.stack([np.round(np.sqrt(areas / ratios)), np.round(np.sqrt(areas * ratios))], axis=1).astype(int)
    fits = ((sizes > 0) & (sizes <= (height, width))).all(axis=1)
    if fits.any():
        down, right = sizes[fits.argmax()]
        top, left = int(uniform[0] * (height - down + 1)), int(uniform[1] * (width - right + 1))
    else:
        aspect = min(max(width / height, ratio[0]), ratio[1])
        down, right = min(height, round(width / aspect)), min(width, round(height * aspect))
        top, left = (height - down) // 2, (width - right) // 2
    if (down, right) == (height, width):
        return image
    # Cropped before it is resized: with a box, the filter would read pixels outside of it.
    part = to_pil(image[:, top : top + down, left : left + right])
    return to_array(part.resize((width, height), Image.Resampling.BILINEAR))


class Images:
    """Stored images: `images` uint8 (N, C, H, W). `seed` is the training's, and determines their augmentation.

    Shards behind URLs are read a few at a time (`StreamingOrder`), and fetched before they are needed.
    """

    def __init__(self, shards: ImageShards, seed: int = 0, augmentation: Augmentation = Augmentation()) -> None:
        self.shards, self.seed, self.augmentation = shards, seed, augmentation
        self._streaming = StreamingOrder([shard.images for shard in shards.shards]) if shards.remote else None
        self._fetched: list[int] = []

    def __len__(self) -> int:
        return len(self.shards)

    def __getitems__(self, rows: Sequence[int], positions: Positions | None = None) -> dict[str, Any]:
        """Return the images of some rows, augmented where positions are given."""
        images, augmentation = self.shards.__getitems__(rows), self.augmentation
        if augmentation.scale is not None and positions is not None:
            draws = random_numbers(self.seed, "crop", positions.tolist(), 0, 2 + 2 * _TRIES)[1]
            for number, draw in enumerate(draws):
                images[number] = random_crop(images[number], augmentation.scale, augmentation.ratio, draw)
        flipped = mirrored(self.seed, self.shards.mirrors, rows, positions, augmentation.mirror)
        if flipped.any():
            images[flipped] = images[flipped][..., ::-1]
        return {"images": images}

    def order(self, seed: int, positions: Positions) -> NDArray[np.int64]:
        """Return the row at each position of the endless sequence."""
        if self._streaming is not None:
            return self._streaming.order(seed, positions)
        return order(seed, len(self), positions)

    def prefetch(self, seed: int, position: int) -> None:
        """Start to fetch the shards of the window at a position and of the next one."""
        if self._streaming is not None and (numbers := self._streaming.upcoming(seed, position)) != self._fetched:
            self._fetched = numbers
            self.shards.prefetch([self.shards.shards[number] for number in numbers])

    def keys(self, rows: Sequence[int]) -> list[str]:
        """Return the keys of some rows, which identify the images in messages."""
        return self.shards.keys_of(rows)

    @property
    def groups(self) -> NDArray[np.int64]:
        """The number of the group of each row, (N,).

        Raises:
            DarkroomError: a shard lies behind a URL: rows of all groups would fetch all shards again and again.
        """
        if far := [shard.tar for shard in self.shards.shards if is_remote(shard.tar)]:
            raise DarkroomError(
                f"`shuffle` of this training is groups, which needs local images, but {redacted(far[0])} is remote: "
                "set it to true."
            )
        return self.shards.groups


class StoredLatents:
    """Stored latents.

    They are `mean` and `logvar` (N, C, H, W), or `mean` alone, float32 or bfloat16 as stored, and are widened on the
    device, where z is sampled; or `codes` int32 (N, H, W), see `with_means`. In training, half of the rows whose mirror
    image was also encoded return its latents if `mirror` allows it, and all moved views are equally frequent if `shift`
    does. `seed` is the training's.

    keeps_codes: whether batches have codes, not their vectors.
    """

    keeps_codes = False

    def __init__(self, shards: LatentShards, seed: int = 0, mirror: bool = True, shift: bool = True) -> None:
        self.shards, self.seed, self._shift = shards, seed, shift and shards.shift > 0
        self._mirrors = shards.mirrors & mirror

    def __len__(self) -> int:
        return len(self.shards)

    def __getitems__(self, rows: Sequence[int], positions: Positions | None = None) -> dict[str, Any]:
        """Return the latents of some rows, some of them mirrored or moved where positions are given."""
        view = len(SHIFTS) * mirrored(self.seed, self._mirrors, rows, positions)
        if self._shift and positions is not None:
            uniform = random_numbers(self.seed, "shift", positions.tolist(), 0, 1)[1][:, 0]
            view = view + (len(SHIFTS) * uniform).astype(np.int64)
        stored = self.shards.__getitems__(rows, view)
        return {name: _tensor(value, self.shards.form) for name, value in stored.items()}

    @property
    def codebook(self) -> NDArray[np.float32] | None:
        """The vectors that replace codes in batches, (K, C); None: the latents are not codes, or stay codes."""
        return None if self.keeps_codes else self.shards.codebook

    def keys(self, rows: Sequence[int]) -> list[str]:
        """Return the keys of some rows, which identify the images in messages."""
        return self.shards.keys_of(rows)

    @property
    def groups(self) -> NDArray[np.int64]:
        """The number of the group of each row, (N,)."""
        return self.shards.groups


def _tensor(stored: NDArray[Any], form: str) -> torch.Tensor:
    """Return stored elements as a tensor: NumPy stores a bfloat16 as 16 bits, and torch cannot index with uint16."""
    if form == "codes":
        return torch.from_numpy(stored.astype(np.int32, copy=False))
    tensor = torch.from_numpy(stored)
    return tensor.view(torch.bfloat16) if stored.dtype == np.uint16 else tensor


def with_means(
    data: Mapping[str, torch.Tensor], codebook: torch.Tensor | NDArray[np.float32] | None
) -> dict[str, torch.Tensor]:
    """Return a batch with `mean`, the vectors of its `codes`, float32 (N, C, H, W), in place of these.

    The vectors are looked up on the device of the codes, so that only the codes are copied there.
    """
    if codebook is None:
        return dict(data)
    tensors = dict(data)
    codes = tensors.pop("codes")
    vectors = functional.embedding(codes, to_device(codebook, codes.device))  # (N, H, W, C)
    return {"mean": vectors.permute(0, 3, 1, 2).contiguous(), **tensors}


class LabelledImages(Images):
    """Stored images with their class numbers: `images` uint8 (N, C, H, W), `labels` int64 (N,).

    model, hint: see `label_numbers`.
    """

    def __init__(
        self, shards: ImageShards, catalog: Catalog | Classes, seed: int = 0, model: str = "this model", hint: str = ""
    ) -> None:
        super().__init__(shards, seed)
        self.classes = catalog.classes
        self.labels = label_numbers(shards.label_column, catalog, shards.keys_of, model, hint)

    def __getitems__(self, rows: Sequence[int], positions: Positions | None = None) -> dict[str, Any]:
        """Return the images and class numbers of some rows."""
        return {**super().__getitems__(rows, positions), "labels": self.labels[list(rows)]}
