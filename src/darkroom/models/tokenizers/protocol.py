"""The interface of tokenizers to the rest of the DAG: protocols, folder, pixel ranges, and batches.

The last batch is padded, so an image's bits do not depend on the number of requested images.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, cast, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from darkroom.artifacts.manifest import manifest_hash, open_artifact
from darkroom.artifacts.networks import SavedNetwork
from darkroom.data.colours import premultiplied, unmultiplied
from darkroom.device import fill_batch
from darkroom.errors import DarkroomError
from darkroom.models.kinds import TOKENIZERS
from darkroom.models.tokenizers.sections import Pixels
from darkroom.training.weight_files import pickle_in

KIND = "tokenizer"


class Tokenizer(Protocol):
    """Maps images to continuous latents, and latents to images.

    A discrete tokenizer, see `Codes`, also has continuous latents: its encoder's output before quantisation. Its
    `decode` quantises them first, if its decoder was trained only on quantised ones (Rombach et al., 2022, "VQ-reg").

    A tokenizer has no statistics of its latents: count, sum and sum of squares of each channel over the train split
    are in the manifest of the latents, which `data/latent_writer.py` writes. `codebook_size` belongs to `Codes`.
    """

    @property
    def latent_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of a latent."""
        ...

    def encode(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return mean and logvar, each (N, *latent_shape), float32, of uint8 images (N, C, H, W).

        logvar is None if the latent of an image is a point and not a distribution.

        Raises:
            DarkroomError: images of another shape (C, H, W) than that of the tokenizer.
        """
        ...

    def decode(self, latents: Tensor) -> Tensor:
        """Return uint8 images (N, C, H, W) from latents (N, *latent_shape)."""
        ...

    def reconstruct(self, images: Tensor) -> Tensor:
        """Return reconstructions, uint8 (N, C, H, W), from the codes, if any, or from the mean."""
        ...

    def to(self, device: torch.device) -> Self:
        """Move to a device."""
        ...

    def save_pretrained(self, folder: Path) -> None:
        """Write the configuration and the weights."""
        ...

    @classmethod
    def from_pretrained(cls, folder: Path) -> Self:
        """Return the tokenizer that `save_pretrained` wrote, in evaluation mode."""
        ...


@runtime_checkable
class Codes(Protocol):
    """The additional protocol of discrete tokenizers: a code for each position of the latent."""

    @property
    def codebook_size(self) -> int:
        """K, the number of codes."""
        ...

    @property
    def codebook(self) -> Tensor:
        """The vector that each code stands for, (K, C) float32, K the size of the codebook."""
        ...

    def encode_codes(self, images: Tensor) -> Tensor:
        """Return the codes, int64 (N, h, w) from 0 to K - 1, of uint8 images (N, C, H, W).

        Raises:
            DarkroomError: see `Tokenizer.encode`.
        """
        ...

    def decode_codes(self, codes: Tensor) -> Tensor:
        """Return uint8 images (N, C, H, W) from codes (N, h, w)."""
        ...


class DiscreteNetwork(SavedNetwork):
    """A network with codes, and with a published file format.

    published: the module that reads and writes these files.
    prefix: that of our names of the tensors; the files have none.
    """

    made_by = ("tokenizer", "train_tokenizer")
    pickles = (".pt",)
    published: ClassVar[Any]
    prefix: ClassVar[str] = ""

    def reconstruct(self, images: Tensor) -> Tensor:
        """Encode images to codes and decode them, uint8 (N, C, H, W)."""
        codes = cast(Codes, self)
        return codes.decode_codes(codes.encode_codes(images))

    @classmethod
    def own_names(cls, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors of a file, `save_pretrained`'s or a published one, under the names of `state_dict()`."""
        return {f"{cls.prefix}{name}": value for name, value in tensors.items()}

    def own_weights(self, path: Path) -> dict[str, Tensor] | None:
        """Return the weights of a published file under the names of `state_dict()`; None: another kind of file.

        Raises:
            DarkroomError: see `published.read`.
        """
        file = pickle_in(path)
        return None if file is None else self.own_names(self.published.read(file, self.config))

    def original(self) -> Any:
        """Return the content of a file for the program that published the format.

        Raises:
            DarkroomError: see `published.written`.
        """
        return self.published.written(self.config, self.saved.state_dict())


def require_shape(images: Tensor, shape: tuple[int, int, int]) -> None:
    """Check that images (N, C, H, W) have the shape (C, H, W) of a tokenizer.

    Raises:
        DarkroomError: they have another shape.
    """
    if (actual := tuple(images.shape[1:])) != shape:
        raise DarkroomError(
            f"the tokenizer needs images of shape {shape}, not {actual}: run `dvc repro train_tokenizer`."
        )


def filled(x: Tensor, factor: int) -> Tensor:
    """Return x (N, C, S, S) continued to a multiple of `factor` by its last pixels, on the right and at the bottom."""
    gap = -x.shape[-1] % factor
    return functional.pad(x, (0, gap, 0, gap), mode="replicate") if gap else x


def fit_size(encoder: nn.Module, decoder: nn.Module, size: int, factor: int, patch: int = 1) -> None:
    """Make an encoder and a decoder that need multiples of `factor` pixels work on images of `size` pixels a side.

    The encoder's input is `filled`, and the decoder's output cut to `size`; nothing changes where `factor` divides it.
    `patch` x `patch` pixels become channels of one position before the encoder, and pixels again after the decoder.
    """
    if size % factor or patch > 1:
        encoder.register_forward_pre_hook(
            lambda _, inputs: (functional.pixel_unshuffle(filled(inputs[0], factor), patch), *inputs[1:])
        )
        decoder.register_forward_hook(
            lambda _, inputs, output: functional.pixel_shuffle(output, patch)[..., :size, :size]
        )


def to_network(images: Tensor, pixels: Pixels = "signed") -> Tensor:
    """Return uint8 images 0..255 as float32, same shape: in [-1, 1], x / 127.5 - 1, or in [0, 1], x / 255.

    Colours of RGBA are premultiplied first, see `darkroom.data.colours`.
    """
    x = premultiplied(images)
    return x / 255 if pixels == "unit" else x / 127.5 - 1


def to_images(values: Tensor, pixels: Pixels = "signed") -> Tensor:
    """Return network outputs as uint8 images, clamped to 0..255, same shape: round((x + 1) * 127.5), or round(x * 255).

    Rounding, not truncation: `to_images(to_network(images))` is `images` for all 256 values. RGBA is unmultiplied, and
    its alpha snapped: it is `images` where alpha is 0 without a colour, 255, or not within `SNAP` levels of these.
    """
    scaled = values.float() * 255 if pixels == "unit" else (values.float() + 1) * 127.5
    return unmultiplied(scaled).round().clamp(0, 255).to(torch.uint8)


def padded(function: Callable[[Tensor], Tensor], values: Tensor, batch: int, device: torch.device) -> Tensor:
    """Return `function` of `values`, (N, ...), in batches of exactly `batch` rows, on the CPU."""
    results = []
    for at in range(0, len(values), batch):
        piece = values[at : at + batch]
        results.append(function(fill_batch(piece, batch).to(device))[: len(piece)].cpu())
    return torch.cat(results)


def encode_all(
    tokenizer: Tokenizer, images: Tensor, batch: int, device: torch.device
) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
    """Return mean and logvar, float32 (N, *latent_shape), of uint8 images (N, C, H, W).

    logvar is None if the latent of an image is a point.
    """

    def both(x: Tensor) -> Tensor:
        mean, logvar = tokenizer.encode(x)
        return torch.stack([mean] if logvar is None else [mean, logvar], dim=1)

    encoded = padded(both, images, batch, device).numpy()
    return encoded[:, 0], encoded[:, 1] if encoded.shape[1] > 1 else None


def load_tokenizer(folder: Path, image_shape: tuple[int, int, int] | None = None) -> tuple[Tokenizer, str]:
    """Return the tokenizer in `folder`, in evaluation mode, and its identity, the hash of its manifest.

    Raises:
        ArtifactError: missing, damaged, or made for images of another shape than `image_shape` (C, H, W).
    """
    manifest = open_artifact(folder, KIND, image_shape)
    kind: type[Tokenizer] = TOKENIZERS.load("network", manifest["tokenizer_kind"])
    return kind.from_pretrained(folder), manifest_hash(folder)
