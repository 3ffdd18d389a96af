"""Images from embeddings: batches through the cascade, the last one padded, and back from its space to pixels."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from darkroom.artifacts.manifest import ArtifactError
from darkroom.data.images import ImageSpec
from darkroom.models.decoder.cascade import Cascade
from darkroom.models.decoder.low_resolution import downsampled, upsampled
from darkroom.models.decoder.member import Asked, Sampling
from darkroom.models.generators.normaliser import Normaliser
from darkroom.models.tokenizers.batches import decode_all
from darkroom.models.tokenizers.load import load_tokenizer
from darkroom.models.tokenizers.pixels import to_images, to_network
from darkroom.models.tokenizers.protocol import Tokenizer

TOKENIZER = Path("models/tokenizer")


class Decoder:
    """A cascade, and the way from what it makes to images of the data's size."""

    def __init__(self, cascade: Cascade, sampling: Mapping[str, Sampling], seed: int, batch: int) -> None:
        """Take in the cascade.

        Args:
            cascade: on the device where it runs.
            sampling: how each U-Net is sampled, by name.
            seed: of all noise.
            batch: images in a forward pass, always: the last batch is padded, so that an image's bits do not depend on
                how many others were asked for.
        """
        self.cascade, self.sampling, self.seed, self.batch = cascade, dict(sampling), seed, batch
        self.facts: Mapping[str, Any] = cascade.members[-1].facts
        self.device = next(cascade.members[0].network.parameters()).device
        self.image_shape: tuple[int, int, int] = ImageSpec.of(self.facts).shape
        self._tokenizer: Tokenizer | None = None
        if self.facts["tokenizer"] is not None:
            self._tokenizer, identity = load_tokenizer(TOKENIZER, self.image_shape)
            if identity != self.facts["tokenizer"]:
                raise ArtifactError(
                    f"the decoder was trained on latents of another tokenizer than {TOKENIZER} holds: train it again "
                    "(`dvc repro train_decoder`)."
                )
            self._tokenizer.to(self.device)
            self._normaliser = Normaliser(self.facts["latent_mean"], self.facts["latent_std"])

    def images(self, asked: Asked) -> Iterator[Tensor]:
        """Yield the images asked for in batches, uint8 (n, C, H, W), n at most `batch`."""
        count = len(asked.numbers)
        for start in range(0, count, self.batch):
            stop = min(start + self.batch, count)
            x0 = self.cascade.generate(_rows(asked, start, stop, self.batch), self.sampling, self.seed, self.device)
            yield self._pixels(x0)[: stop - start].cpu()

    def space(self, images: Tensor) -> Tensor:
        """Return uint8 images (N, C, H, W) as x_0 at the size of the last U-Net: what in-painting keeps."""
        images = images.to(self.device)
        if self._tokenizer is not None:
            return self._normaliser(self._tokenizer.encode(images)[0].float())
        return downsampled(to_network(images), self.cascade.members[-1].size)

    def low(self, images: Tensor) -> Tensor | None:
        """Return what the first trained U-Net enlarges, of real images; None where it begins with noise alone."""
        if (size := self.cascade.low_size) is None:
            return None
        how = self.cascade.members[0].facts["low_downsample"]
        return downsampled(to_network(images.to(self.device)), size, how)

    def _pixels(self, x0: Tensor) -> Tensor:
        if self._tokenizer is not None:
            return decode_all(self._tokenizer, self._normaliser.invert(x0), self.batch, self.device)
        side = self.image_shape[-1]
        # A cascade whose last U-Net is not trained ends with smaller images.
        return to_images(x0 if x0.shape[-1] == side else upsampled(x0, side))


def _rows(asked: Asked, start: int, stop: int, batch: int) -> Asked:
    """Return some of what is asked for, padded with its first to a whole batch."""
    missing = batch - (stop - start)

    def cut(values: Tensor | None) -> Tensor | None:
        if values is None:
            return None
        piece = values[start:stop]
        return torch.cat([piece, piece[:1].expand(missing, *piece.shape[1:])]) if missing else piece

    numbers = [*asked.numbers[start:stop], *[asked.numbers[start]] * missing]
    fields: dict[str, Any] = {name: cut(getattr(asked, name)) for name in ("image", "text", "low", "known", "mask")}
    return replace(asked, numbers=numbers, **fields)
