"""Stage `encode_latents@PART`: one part's shards in, `data/latents/PART/` out."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from darkroom.artifacts.atomic import require_writable
from darkroom.data.latent_writer import write_latents
from darkroom.data.reader import ImageShards
from darkroom.device import set_up_device
from darkroom.schemas.encode_latents import Params
from darkroom.tokenizers.batches import encode_all
from darkroom.tokenizers.load import load_tokenizer

OUT = Path("data/latents")
EVERY = 10_000  # images between lines of progress
Array = NDArray[np.float32]


def run(params: Params, part: str) -> None:
    """Encode every split of a part: mean and logvar, row i of a shard is row i of the image shard's index.

    Where the part's manifest says that a mirror image is as true as the image, those of mirror images too.
    """
    settings = params.encode_latents
    require_writable(OUT / part)
    device = set_up_device(settings.threads, params.run.device)
    splits = {split: ImageShards.open_parts([part], split) for split in ("train", "val", "test")}
    tokenizer, tokenizer_hash = load_tokenizer(Path("models/tokenizer"), splits["train"].image_shape)
    tokenizer = tokenizer.to(device)

    images = sum(len(shards) for shards in splits.values())
    mirrored = sum(int(shards.mirrors.sum()) for shards in splits.values())
    total, done = images + mirrored, 0

    def encode(pixels: NDArray[np.uint8]) -> tuple[Array, Array]:
        nonlocal done
        mean, logvar = encode_all(tokenizer, torch.from_numpy(pixels), settings.batch, device)
        assert logvar is not None
        if (done + len(pixels)) // EVERY > done // EVERY:
            print(f"{done + len(pixels):,} of {total:,} images")
        done += len(pixels)
        return mean, logvar

    write_latents(
        OUT / part, part, splits, encode, dtype=settings.dtype, tokenizer=tokenizer_hash, shape=tokenizer.latent_shape
    )
    mirrors = f" and {mirrored:,} mirror images" if mirrored else ""
    print(f"{images:,} images{mirrors} to latents of {tokenizer.latent_shape}")
