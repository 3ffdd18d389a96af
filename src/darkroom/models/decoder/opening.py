"""Open and check the training data of a U-Net of the decoder."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from darkroom.data.catalog import Catalog
from darkroom.data.embeddings import EmbeddingShards, require_same_images
from darkroom.data.latents import LatentShards
from darkroom.data.reader import ImageShards
from darkroom.diffusion.scalers import EmbeddingScaler, LatentScaler, spaced_rows
from darkroom.errors import DarkroomError
from darkroom.models.clip.load import load_clip
from darkroom.models.decoder.data import (
    ClipConditioner,
    ConditionedDataset,
    Conditioner,
    LatentSpace,
    PixelSpace,
    Space,
    embedded,
)
from darkroom.models.decoder.network import UNetConfig
from darkroom.models.decoder.settings import TrainDecoder
from darkroom.models.decoder.unet_settings import UNet
from darkroom.models.tokenizers.protocol import Tokenizer, load_tokenizer
from darkroom.params.section import NO_FILE
from darkroom.training.data import Augmentation, Images, StoredLatents
from darkroom.training.initial import initial_manifest, require_same
from darkroom.training.recipe import IndexedDataset

SPLITS = ("train", "val")
_GROUP = 32  # images in a forward pass of them
_STATISTICS = 1024  # images for mean and deviation of latents, if none are stored


@dataclass
class DecoderData:
    """The training data of a U-Net.

    rows: of each split.
    channels: of x_0.
    embed_dim, text_shape: of the embeddings and encodings of CLIP; 0 and None: none.
    metadata: for the manifest.
    """

    space: Space
    conditioner: Conditioner
    rows: dict[str, IndexedDataset]
    channels: int
    metadata: dict[str, Any]
    embed_dim: int = 0
    text_shape: tuple[int, int] | None = None


def weights_key(name: str) -> str:
    """Return the key that names the initial weights of a U-Net."""
    return f"train_decoder.unets.{name}.weights"


def open_data(section: TrainDecoder, name: str, catalog: Catalog, device: torch.device) -> DecoderData:
    """Open the training data of a U-Net by its name.

    With the initial weights of another U-Net, latents and embeddings are scaled as for that one.

    Raises:
        DarkroomError: latents, embeddings or images do not fit each other, the U-Net, or its initial weights.
    """
    begun, seed = initial_manifest(section.unets[name].weights, "decoder"), section.training_of(name).seed
    embedded = section.unets[name].image_conditioned and section.unets[name].embeddings != NO_FILE
    images = {split: ImageShards.open_parts(list(catalog.parts), split) for split in SPLITS}
    catalog.require_parts(images["train"].sources)
    augment = section.unets[name].augment
    # Stored embeddings are those of the unchanged images.
    augmentation = Augmentation(mirror=0.0) if embedded else Augmentation(augment.mirror, augment.scale, augment.ratio)
    rows: dict[str, IndexedDataset] = {split: Images(shards, seed, augmentation) for split, shards in images.items()}
    metadata = {"tokenizer": None, "clip": None}
    opened = DecoderData(PixelSpace(), Conditioner(), rows, catalog.image_shape[0], metadata)
    if section.tokenizer != NO_FILE:
        _latents(opened, section, begun, images, catalog, device, seed, mirror=not embedded)
    if section.unets[name].conditioned:
        _condition(opened, section.unets[name], begun, images, device)
    require_same(weights_key(name), begun, opened.metadata, ("clip", "normalised", "tokenizer"))
    return opened


def _latents(
    opened: DecoderData,
    section: TrainDecoder,
    begun: Mapping[str, Any],
    images: dict[str, ImageShards],
    catalog: Catalog,
    device: torch.device,
    seed: int,
    mirror: bool,
) -> None:
    """Set up diffusion in latents: stored ones, mirrored and moved if `mirror` allows it, or those of images."""
    tokenizer, fingerprint = load_tokenizer(Path(section.tokenizer), catalog.image_shape)
    tokenizer = tokenizer.to(device)
    if section.latents != NO_FILE:
        parts, root = list(catalog.parts), Path(section.latents)
        latents = {split: LatentShards.open_parts(parts, split, root) for split in SPLITS}
        if latents["train"].tokenizer != fingerprint:
            raise DarkroomError(
                f"{root} was made with another tokenizer than {section.tokenizer}: run `dvc repro encode_latents`."
            )
        for split, shards in latents.items():
            if shards.sources != images[split].sources:
                raise DarkroomError(f"{root} is of other images than data/shards: run `dvc repro encode_latents`.")
        mean, std = latents["train"].statistics
        opened.rows = {split: StoredLatents(shards, seed, mirror, shift=mirror) for split, shards in latents.items()}
    else:
        mean, std = _statistics(tokenizer, images["train"], device)
    if "latent_mean" in begun:
        mean, std = begun["latent_mean"], begun["latent_std"]
    opened.space, opened.channels = LatentSpace(tokenizer, LatentScaler(mean, std)), tokenizer.latent_shape[0]
    opened.metadata |= {"tokenizer": fingerprint, "latent_mean": mean, "latent_std": std}


@torch.no_grad()
def _statistics(tokenizer: Tokenizer, images: ImageShards, device: torch.device) -> tuple[list[float], list[float]]:
    """Return mean and standard deviation of each channel of the latents of evenly spaced images, to four digits."""
    latents = [tokenizer.encode(group)[0] for group in _groups(images, device)]
    z = torch.cat(latents).cpu().double().transpose(0, 1).flatten(1)  # (C, N h w)
    mean, std = ([float(f"{each:.4g}") for each in values.tolist()] for values in (z.mean(1), z.std(1)))
    return mean, std


def _condition(
    opened: DecoderData, settings: UNet, begun: Mapping[str, Any], images: dict[str, ImageShards], device: torch.device
) -> None:
    """Add embeddings of CLIP to the rows, or the captions that it embeds while training."""
    image, text = settings.image_conditioned, settings.model.text_tokens
    if settings.clip != NO_FILE:
        clip = load_clip(Path(settings.clip)).to(device)
        for split, rows in opened.rows.items():
            captions = images[split].caption_column if text else None
            opened.rows[split] = ConditionedDataset(rows, captions=captions, clip=clip)

        def some() -> NDArray[np.float32]:
            groups = _groups(images["train"], device)
            return np.concatenate([embedded(clip, group).cpu().numpy() for group in groups])

        scaler = _scaler(begun, some) if image else None
        opened.conditioner = ClipConditioner(clip, scaler, text)
        opened.embed_dim, opened.text_shape = clip.embed_dim, (clip.context_length, clip.text_width)
        opened.metadata |= {"clip": clip.fingerprint, "normalised": True, **(scaler.metadata() if scaler else {})}
        return
    names = [name for name, used in (("image", image), ("encoding", text)) if used]
    parts = list(images["train"].sources)
    stored = {split: EmbeddingShards.open_parts(parts, split, Path(settings.embeddings)) for split in SPLITS}
    for split, rows in opened.rows.items():
        require_same_images(stored[split], images[split])
        opened.rows[split] = ConditionedDataset(rows, stored[split], names)
    first = stored["train"]
    if text and first.encoding_shape is None:
        raise DarkroomError(
            "`model.text_tokens` needs encodings: set `embed_clip.encodings` to true, and add captions to all parts."
        )
    scaler = _scaler(begun, lambda: first.__getitems__(spaced_rows(len(first)))["image"]) if image else None
    opened.conditioner = Conditioner(scaler)
    opened.embed_dim, opened.text_shape = first.dim, first.encoding_shape
    opened.metadata |= {"clip": first.clip, "normalised": first.normalised, **(scaler.metadata() if scaler else {})}


def _scaler(begun: Mapping[str, Any], embeddings: Callable[[], NDArray[Any]]) -> EmbeddingScaler:
    """Return the scaler of embeddings: that of the initial weights, or one estimated from some embeddings."""
    return EmbeddingScaler.from_facts(begun) if "embedding_mean" in begun else EmbeddingScaler.of(embeddings())


def _groups(images: ImageShards, device: torch.device) -> Iterator[Tensor]:
    """Yield evenly spaced images, a few at a time, uint8 (n, C, H, W)."""
    rows = spaced_rows(len(images), _STATISTICS)
    for start in range(0, len(rows), _GROUP):
        yield torch.from_numpy(images.__getitems__(rows[start : start + _GROUP])).to(device)


def config_of(settings: UNet, opened: DecoderData) -> UNetConfig:
    """Return the shape of a U-Net for its training data."""
    low = settings.low_size is not None
    named = settings.model.model_dump(exclude={"channels", "attention", "text_tokens"})
    return UNetConfig(
        size=settings.size,
        image_channels=opened.channels,
        channels=tuple(settings.model.channels),
        attention=tuple(settings.model.attention),
        **named,
        embed_dim=opened.embed_dim if settings.image_conditioned else 0,
        embedding_noise=bool(settings.diffusion.embedding_noise),
        text_shape=opened.text_shape if settings.model.text_tokens else None,
        low=low,
        low_noise=low and bool(settings.low.noise),
        learned_variance=settings.diffusion.learns_variance,
    )
