"""Training data of a U-Net of the decoder: images or latents, with the CLIP embeddings of each."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from darkroom.data.embeddings import EmbeddingShards
from darkroom.device import in_float32
from darkroom.diffusion.scalers import EmbeddingScaler, LatentScaler
from darkroom.models.clip.network import Clip, tokens_of
from darkroom.models.clip.scores import AHEAD
from darkroom.models.tokenizers.protocol import Tokenizer, padded, to_images, to_network
from darkroom.rng import order
from darkroom.training.data import Images, Positions
from darkroom.training.recipe import IndexedDataset

Data = dict[str, Tensor]

# Spaces, where the diffusion takes place: from a batch to x_0, float32 (N, C, S, S), and to images, uint8 (N, C, H, W)


class PixelSpace:
    """Pixels, from -1 to 1."""

    bounded = True

    def data(self, batch: Data) -> Tensor:
        """Return `images` as float32."""
        return to_network(batch["images"])

    def images(self, x0: Tensor) -> Tensor:
        """Return the nearest uint8."""
        return to_images(x0)


class LatentSpace:
    """A tokenizer's latents, of about unit variance: stored ones, or those of `images`, encoded here."""

    bounded = False

    def __init__(self, tokenizer: Tokenizer, scaler: LatentScaler, batch: int = 32) -> None:
        self.tokenizer, self.scaler, self.batch = tokenizer, scaler, batch

    @torch.no_grad()
    def data(self, batch: Data) -> Tensor:
        """Return the mean of each posterior, whose spread is far below the noise of the diffusion.

        Images are encoded in float32, as stored latents are, regardless of the training's precision.
        """
        if "mean" in batch:
            return self.scaler(batch["mean"].float())
        with in_float32(batch["images"].device):
            return self.scaler(self.tokenizer.encode(batch["images"])[0].float())

    @torch.no_grad()
    def images(self, x0: Tensor) -> Tensor:
        """Return decoded latents."""
        return padded(self.tokenizer.decode, self.scaler.invert(x0), self.batch, x0.device)


Space = PixelSpace | LatentSpace


# Conditioners: from a batch to the conditions that come from CLIP


class Conditioner:
    """Stored image embeddings and text encodings, `image` (N, D) and `encoding` (N, L, W)."""

    def __init__(self, scaler: EmbeddingScaler | None = None) -> None:
        """Set the scaler of image embeddings; None: the U-Net reads none."""
        self.scaler = scaler

    def __call__(self, batch: Data) -> tuple[Tensor | None, Tensor | None]:
        """Return embeddings, scaled, float32 (N, D), and encodings, float32 (N, L, W), or None."""
        image, encoding = batch.get("image"), batch.get("encoding")
        scaled = None if image is None or self.scaler is None else self.scaler(image)
        return scaled, None if encoding is None else encoding.float()


class ClipConditioner(Conditioner):
    """The same, computed from `images` and `tokens` by a CLIP while training, for data sets too large to store them."""

    def __init__(self, clip: Clip, scaler: EmbeddingScaler | None, text: bool) -> None:
        """Set the CLIP; `scaler`: that of image embeddings if they are read; `text`: whether texts are read."""
        super().__init__(scaler)
        self.clip, self.text = clip, text

    @torch.no_grad()
    def __call__(self, batch: Data) -> tuple[Tensor | None, Tensor | None]:
        """Return embeddings and encodings, in float32 regardless of the training's precision, as in `embed_clip`."""
        with in_float32(next(iter(batch.values())).device):
            image = None if self.scaler is None else self.scaler(embedded(self.clip, batch["images"]))
            return image, self._encodings(batch["tokens"].long()) if self.text else None

    def _encodings(self, tokens: Tensor) -> Tensor:
        """Return encodings of tokens (N, L); zero for an image without a caption, which has no tokens."""
        return self.clip.tokens(tokens)[1].float() * tokens.any(dim=1)[:, None, None]


@torch.no_grad()
def embedded(clip: Clip, images: Tensor) -> Tensor:
    """Return embeddings of uint8 images as `embed_clip` stores normalised ones, of length 1, float32 (N, D)."""
    return functional.normalize(clip.images(images), dim=1)


class ConditionedDataset:
    """Rows of images or latents, with their own augmentation, and the CLIP embeddings of each.

    Args:
        rows: the images or latents.
        embeddings: those of the same images in the same order; None: none are read.
        names: the embeddings to read: image and encoding.
        captions: those of the images, which CLIP embeds while training; None: none.
        clip: the CLIP of the captions.

    Raises:
        DarkroomError: one of the first captions is too long and truncation is off; names the image.
    """

    def __init__(
        self,
        rows: IndexedDataset,
        embeddings: EmbeddingShards | None = None,
        names: Sequence[str] = (),
        captions: pa.ChunkedArray | None = None,
        clip: Clip | None = None,
    ) -> None:
        self.rows, self.embeddings, self.names = rows, embeddings, tuple(names)
        self.captions = None
        if captions is not None and clip is not None:
            self.captions, self.context, self.truncate = captions.combine_chunks(), clip.context_length, clip.truncate
            self._tokens(range(min(AHEAD, len(rows))))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitems__(self, rows: Sequence[int], positions: Positions | None = None) -> dict[str, Any]:
        """Return the rows of images or latents, with `image` float16 (N, D), `encoding` (N, L, W), `tokens` (N, L)."""
        data = dict(self.rows.__getitems__(rows, positions))
        if self.embeddings is not None and self.names:
            data |= self.embeddings.__getitems__(rows, self.names)
        if self.captions is not None:
            data["tokens"] = self._tokens(rows)
        return data

    def _tokens(self, rows: Sequence[int]) -> NDArray[np.int32]:
        """Return the tokens of some captions, (N, L), zero without a caption."""
        assert self.captions is not None
        texts = self.captions.take(pa.array(rows, pa.int64())).to_pylist()
        tokens = tokens_of(
            [text or "" for text in texts], self.context, self.truncate, lambda place: self.keys([rows[place]])[0]
        )
        tokens[[text is None for text in texts]] = 0
        return tokens.astype(np.int32)

    def order(self, seed: int, positions: Positions) -> NDArray[np.int64]:
        """Return the row at each position of the endless sequence."""
        return self.rows.order(seed, positions) if isinstance(self.rows, Images) else order(seed, len(self), positions)

    def prefetch(self, seed: int, position: int) -> None:
        """Start to fetch remote shards."""
        if isinstance(self.rows, Images):
            self.rows.prefetch(seed, position)

    @property
    def codebook(self) -> NDArray[np.float32] | None:
        """The vectors of the codes; None: the rows are images or continuous latents."""
        return getattr(self.rows, "codebook", None)

    def keys(self, rows: Sequence[int]) -> list[str]:
        """Return the keys of some rows."""
        return self.rows.keys(rows)

    @property
    def groups(self) -> NDArray[np.int64]:
        """The number of the group of each row, (N,)."""
        return self.rows.groups  # type: ignore[attr-defined]
