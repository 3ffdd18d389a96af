"""Stage `sample_text`: make images of a split's captions with prior and cascade, and write `samples/text/`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from darkroom.artifacts.atomic import require_writable
from darkroom.artifacts.manifest import manifest_hash, read_manifest
from darkroom.artifacts.models import PRIOR, PRIOR_FOLDER, conditioned_on_clip
from darkroom.models.prior.settings import SampleParams
from darkroom.stages.empty import write_no_samples

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from darkroom.models.prior.network import TextToImage

OUT = Path("samples/text")


def open_imagination(params: SampleParams, device: torch.device, clip: str, where: str) -> TextToImage:
    """Return the prior and decoder on a device, with the settings of the sections, for texts of a CLIP from `where`.

    Raises:
        ArtifactError: one is missing, or was trained with another CLIP.
    """
    from darkroom.models.prior.network import Prior, TextToImage, require_same_clip
    from darkroom.stages.decoding import open_decoder

    section = params.sample_text
    prior = Prior.open(params.sample_decoder.weights)
    prior.network.to(device)
    decoder = open_decoder(params.sample_decoder, list(params.train_decoder.unets), section.seed, device)
    require_same_clip(prior, decoder, clip, where)
    return TextToImage(prior, decoder, section.prior, section.seed)


def run(params: SampleParams) -> None:
    """Make images of random captions of a split, and write them next to the originals."""
    require_writable(OUT)
    if not read_manifest(PRIOR_FOLDER, PRIOR)["trained"]:
        write_no_samples(OUT, "there is no prior")
        return
    if not conditioned_on_clip(list(params.train_decoder.unets)):
        write_no_samples(OUT, "no U-Net is trained that is conditioned on an embedding or a text")
        return
    _sample(params)


def _sample(params: SampleParams) -> None:
    # Imported here: torch is not needed if there is nothing to sample.
    import torch

    from darkroom.data.catalog import load_catalog
    from darkroom.data.draw import drawn
    from darkroom.data.embeddings import EmbeddingShards, captioned_parts, require_same_images
    from darkroom.data.reader import ImageShards
    from darkroom.device import set_up_device
    from darkroom.models.prior.recipe import captioned_rows
    from darkroom.stages.decoding import sampler_of, write_decoded

    section, decoding = params.sample_text, params.sample_decoder
    device = set_up_device(section.threads, params.run.device)
    catalog = load_catalog(shards=None)
    parts = captioned_parts(list(catalog.parts))
    images = ImageShards.open_parts(parts, section.split)
    stored = EmbeddingShards.open_parts(parts, section.split)
    require_same_images(stored, images)
    captioned = captioned_rows(stored.captions)
    rows = [captioned[place] for place in drawn(len(captioned), section.images)]
    imagination = open_imagination(params, device, stored.clip, "data/embeddings")
    prior, decoder = imagination.prior, imagination.decoder
    encoded = prior.network.config.text_shape is not None or decoder.cascade.conditioned_on("encoding")

    def read(some: Sequence[int]) -> tuple[Tensor, Tensor | None]:
        arrays = stored.__getitems__(some, ("text", "encoding") if encoded else ("text",))
        words = torch.from_numpy(arrays["encoding"]).float() if encoded else None
        return imagination.embeddings(torch.from_numpy(arrays["text"]).float(), words, some), words

    write_decoded(
        OUT,
        decoder,
        images,
        rows,
        read,
        decoding.shard_size,
        classes=list(catalog.classes),
        prior=manifest_hash(PRIOR_FOLDER),
        condition="text",
        clip=stored.clip,
        split=section.split,
        sampler=section.model_dump(exclude={"threads"}) | {"decoder": sampler_of(decoder, decoding, {"shard_size"})},
    )
