"""Stage `encode_latents@PART`: encode the shards of a part with the tokenizer, and write `data/latents/PART/`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from darkroom.artifacts.atomic import require_writable
from darkroom.data.latent_writer import write_latents
from darkroom.data.reader import ImageShards
from darkroom.device import set_up_device
from darkroom.errors import DarkroomError
from darkroom.models.tokenizers.protocol import Codes, Tokenizer, encode_all, load_tokenizer, padded
from darkroom.models.tokenizers.settings import EncodeLatents, EncodeParams

OUT = Path("data/latents")
Arrays = tuple[NDArray[Any], ...]
Encoder = Callable[[Tensor], Arrays]


def encoder(
    tokenizer: Tokenizer, settings: EncodeLatents, image_shape: tuple[int, int, int], device: torch.device
) -> tuple[str, Encoder, NDArray[np.float32] | None]:
    """Return the form of the latents, the function from uint8 images (N, C, H, W) to their tensors, and the codebook.

    The codebook, float32 (K, C), is None for latents that are not codes.

    Raises:
        DarkroomError: codes are requested, but the tokenizer has none.
    """
    if settings.latents == "codes":
        if not isinstance(tokenizer, Codes):
            raise DarkroomError(
                "`encode_latents.latents` is codes, but the tokenizer in models/tokenizer has none: use continuous."
            )
        discrete: Codes = tokenizer

        def encode_codes(images: Tensor) -> Arrays:
            return (padded(discrete.encode_codes, images, settings.batch, device).numpy(),)

        return "codes", encode_codes, discrete.codebook.detach().float().cpu().numpy()

    def encode(images: Tensor) -> Arrays:
        mean, logvar = encode_all(tokenizer, images, settings.batch, device)
        return (mean,) if logvar is None else (mean, logvar)

    black = torch.zeros(1, *image_shape, dtype=torch.uint8)
    return ("distribution" if len(encode(black)) == 2 else "point"), encode, None


def run(params: EncodeParams, part: str) -> None:
    """Encode every split of a part; row i of a shard is row i of the image shard's index.

    Mirror images are also encoded if the manifest of the part allows them, and moved ones if `shift` asks for them.
    """
    settings = params.encode_latents
    require_writable(OUT / part)
    device = set_up_device(settings.threads, params.run.device)
    splits = {split: ImageShards.open_parts([part], split) for split in ("train", "val", "test")}
    image_shape = splits["train"].image_shape
    tokenizer, tokenizer_hash = load_tokenizer(Path("models/tokenizer"), image_shape)
    form, encoded, codebook = encoder(tokenizer := tokenizer.to(device), settings, image_shape, device)

    images = sum(len(shards) for shards in splits.values())
    mirrored = sum(int(shards.mirrors.sum()) for shards in splits.values())
    write_latents(
        OUT / part,
        part,
        splits,
        lambda pixels: encoded(torch.from_numpy(pixels)),
        dtype=settings.dtype,
        tokenizer=tokenizer_hash,
        shape=tokenizer.latent_shape,
        form=form,
        codebook=codebook,
        shift=settings.shift,
    )
    mirrors = f" and {mirrored:,} mirror images" if mirrored else ""
    mirrors += f", those of train also moved by {settings.shift} pixels in four directions," if settings.shift else ""
    output = "latents" if codebook is None else f"codes of {len(codebook):,} for latents"
    print(f"{images:,} images{mirrors} to {output} of {tokenizer.latent_shape}")
