"""Stage `sample_decoder`: decode a split's embeddings with the cascade, and write `samples/decoder/`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from darkroom.artifacts.atomic import require_writable
from darkroom.artifacts.models import trained
from darkroom.models.decoder.settings import SampleDecoder, SampleParams
from darkroom.stages.empty import write_no_samples

if TYPE_CHECKING:
    from darkroom.data.reader import ImageShards
    from darkroom.models.decoder.cascade import Decoder
    from darkroom.stages.decoding import Condition

OUT = Path("samples/decoder")


def _pictures(
    folder: Path, section: SampleDecoder, decoder: Decoder, images: ImageShards, rows: Sequence[int], read: Condition
) -> None:
    from darkroom.data.grid import contact_sheet, save_png
    from darkroom.models.decoder.variations import COLUMNS, inpainted, interpolations, variations

    settings = section.pictures
    image, text = read(rows[: max(settings.variations, 2 * settings.interpolations, settings.inpainted)])
    if image is None:
        print("no U-Net is conditioned on an image embedding, so there are no additional pictures")
        return
    for name, count, columns, make in (
        ("variations", settings.variations, 1 + COLUMNS, variations),
        ("interpolations", 2 * settings.interpolations, 2 + COLUMNS, interpolations),
        ("inpainted", settings.inpainted, 3, partial(inpainted, resamples=settings.resamples)),
    ):
        count = min(count, len(image))
        if not count or (name == "interpolations" and count < 2):
            continue
        words = None if text is None else text[:count]
        pictures = make(decoder, images.__getitems__(rows[:count]), image[:count], words)
        save_png(folder / f"{name}.png", contact_sheet(pictures, columns))
        print(name)


def run(params: SampleParams) -> None:
    """Decode the embeddings of random images of a split, and write the results next to their originals."""
    require_writable(OUT)
    if not trained(list(params.train_decoder.unets)):
        write_no_samples(OUT, "no U-Net is trained")
        return
    _sample(params)


def _sample(params: SampleParams) -> None:
    # Imported here: torch is not needed if there is nothing to decode.
    from darkroom.data.catalog import load_catalog
    from darkroom.data.draw import drawn
    from darkroom.data.reader import ImageShards
    from darkroom.device import set_up_device
    from darkroom.stages.decoding import CONDITIONS, conditioned_by, open_decoder, sampler_of, write_decoded

    section, names = params.sample_decoder, list(params.train_decoder.unets)
    device = set_up_device(section.threads, params.run.device)
    catalog = load_catalog(shards=None)
    parts = list(catalog.parts)
    images = ImageShards.open_parts(parts, section.split)
    rows = drawn(len(images), section.images)
    decoder = open_decoder(section, names, section.seed, device)
    read = conditioned_by(decoder, parts, section.split, images)
    cascade = decoder.cascade
    condition = next((name for name in CONDITIONS if cascade.conditioned_on(name)), "none")
    write_decoded(
        OUT,
        decoder,
        images,
        rows,
        read,
        section.shard_size,
        lambda folder: _pictures(folder, section, decoder, images, rows, read),
        classes=list(catalog.classes),
        condition=condition,
        clip=cascade.clip,
        split=section.split,
        sampler=sampler_of(decoder, section, {"threads", "shard_size", "pictures"}),
    )
