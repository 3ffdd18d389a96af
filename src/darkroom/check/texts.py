"""What `darkroom check` asks of CLIP, the decoder and the prior beyond each section: that they fit each other."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from darkroom.check.diffusion import diffusion_fits
from darkroom.errors import DarkroomError
from darkroom.models.clip.embed_settings import EmbedClip
from darkroom.models.decoder.settings import TrainDecoder, UNet
from darkroom.models.tokenizers.loss_settings import SMALLEST
from darkroom.params.numbers import NO_FILE
from darkroom.params.section import PARAMS


def texts_fit(params: Any, factor: int) -> None:
    """Check what the sections of CLIP, the decoder and the prior ask of each other and of the data.

    Without a CLIP (`train_clip.source` is none) what reads it is idle, and nothing is asked of it.

    Args:
        params: the whole of params.yaml, validated.
        factor: pixels, in height and width, behind one place of the tokenizer's latent.

    Raises:
        DarkroomError: the first fault; names its key.
    """
    decoder, sampling, size = params.train_decoder, params.sample_decoder, params.ingest.image_size
    for name in sampling.unets:
        if name not in decoder.unets:
            raise DarkroomError(
                f"{PARAMS}: `sample_decoder.unets.{name}` is of no U-Net under `train_decoder.unets` "
                f"({', '.join(decoder.unets)}): name one of them, or take it out."
            )
    clip = params.train_clip.source != "none"
    _unets_fit(decoder, params.embed_clip, size, factor)
    cascade = decoder.cascade(clip)
    diffusion_fits(params, cascade, _imagines(cascade, clip))
    _splits_fit(params, cascade, clip)
    _blocks_fit(params, cascade, clip)
    _embeddings_fit(cascade, params.embed_clip)
    _noise_fits(params, cascade)
    if cascade:
        _attributes_fit(params)
    if cascade and params.score_decoder.lpips == "lpips" and size < SMALLEST["lpips"]:
        raise DarkroomError(
            f"{PARAMS}: `score_decoder.lpips` needs images of {SMALLEST['lpips']} pixels at least, and "
            f"`ingest.image_size` is {size}: set it to none."
        )


def _imagines(cascade: dict[str, UNet], clip: bool) -> bool:
    """Return whether images are made of texts: there is a CLIP, and a U-Net that is told of it."""
    return clip and any(unet.conditioned for unet in cascade.values())


def _embeddings_fit(cascade: dict[str, UNet], embed: EmbedClip) -> None:
    """Check that what is stored is what a U-Net has learned to read.

    One that is trained on what is computed while it is trained is sampled with what is stored all the same.
    """
    for name, unet in cascade.items():
        if unet.clip != NO_FILE and unet.told_image and not embed.normalise:
            raise DarkroomError(
                f"{PARAMS}: `train_decoder.unets.{name}.clip` computes embeddings of length 1 while training, and "
                "`embed_clip.normalise` is false, so those that it is sampled with have other lengths: set it to true."
            )
        if unet.model.text_tokens and not embed.encodings:
            raise DarkroomError(
                f"{PARAMS}: `train_decoder.unets.{name}.model.text_tokens` reads what CLIP says of each token, and "
                "`embed_clip.encodings` is false: set it to true."
            )


def _noise_fits(params: Any, cascade: dict[str, UNet]) -> None:
    """Check that no U-Net is told of more noise in its conditions than it has learned to read."""
    for name, unet in cascade.items():
        sampling, own = params.sample_decoder.sampling(name), params.sample_decoder.unets.get(name, {})
        learned = {"embedding_noise": ("diffusion.embedding_noise", unet.diffusion.embedding_noise)}
        if unet.low_size is not None:
            learned["low_noise"] = ("low.noise", unet.low.noise)
        for key, (source, most) in learned.items():
            # Of a U-Net that learned none, what is said of all is not read.
            if getattr(sampling, key) > most and (most or key in own):
                where = f"sample_decoder.unets.{name}" if key in own else "sample_decoder.common"
                raise DarkroomError(
                    f"{PARAMS}: `{where}.{key}` is {getattr(sampling, key)}, and the most that the U-Net learns to be "
                    f"told of, `train_decoder.unets.{name}.{source}`, is {most}: set the former to {most} at most."
                )


def _attributes_fit(params: Any) -> None:
    """Check that the images are scenes that the reader learns to read, where it is to read them."""
    if params.score_decoder.attributes != "scenes":
        return
    known = params.train_scene_reader.kinds
    for name, part in params.parts.items():
        if part.source == "digits":
            raise DarkroomError(
                f"{PARAMS}: `score_decoder.attributes` is scenes, and the images of `parts.{name}` are digits: set it "
                "to none."
            )
        kinds = part.settings.get("kinds", params.shapes.kinds) if part.source == "shapes" else []
        if unknown := [kind for kind in kinds if kind not in known]:
            raise DarkroomError(
                f"{PARAMS}: `parts.{name}` holds scenes of the kind {unknown[0]}, which `train_scene_reader.kinds` "
                "does not name: name it there, so that it can be read."
            )


def _splits_read(params: Any, cascade: dict[str, UNet], clip: bool) -> Iterator[tuple[str, str, bool]]:
    """Yield the key that names a split, the split, and whether its stored embeddings are read."""
    if clip:
        yield "train_clip.evaluate.split", params.train_clip.evaluate.split, False
        # Without those that it is trained on there is no prior, and nothing to score.
        stored = {"train", "val"} <= set(params.embed_clip.store)
        yield "train_prior.evaluate.split", params.train_prior.evaluate.split, stored
    if cascade:
        told = any(unet.conditioned for unet in cascade.values())
        yield "sample_decoder.split", params.sample_decoder.split, told
    if _imagines(cascade, clip):
        yield "sample_text.split", params.sample_text.split, {"train", "val"} <= set(params.embed_clip.store)


def _splits_fit(params: Any, cascade: dict[str, UNet], clip: bool) -> None:
    """Check that the splits that are asked for have images, and embeddings where these are read."""
    for key, split, stored in _splits_read(params, cascade, clip):
        if not getattr(params.ingest.splits, split):
            raise DarkroomError(f"{PARAMS}: `{key}` is {split}, and `ingest.splits.{split}` is 0: give it a share.")
        if stored and split not in params.embed_clip.store:
            raise DarkroomError(
                f"{PARAMS}: `{key}` is {split}, whose embeddings `embed_clip.store` leaves out: name it there."
            )


def _blocks_fit(params: Any, cascade: dict[str, UNet], clip: bool) -> None:
    """Check that there are images enough for the blocks of the standard errors, as far as can be known here."""
    scored = [("sample_decoder", "score_decoder")] if cascade else []
    scored += [("sample_text", "score_text")] if _imagines(cascade, clip) else []
    known = all(part.stop is not None and part.source != "webdataset" for part in params.parts.values())
    total = sum(part.stop - part.start for part in params.parts.values()) if known else None
    for sampling, scoring in scored:
        section, blocks = getattr(params, sampling), getattr(params, scoring).blocks
        if section.images is not None and section.images < 2 * blocks:
            raise DarkroomError(
                f"{PARAMS}: `{scoring}.blocks` is {blocks}, and needs at least {2 * blocks} images; "
                f"`{sampling}.images` is {section.images}."
            )
        if total is None:
            continue
        if (there := round(total * getattr(params.ingest.splits, section.split))) < 2 * blocks:
            raise DarkroomError(
                f"{PARAMS}: `{scoring}.blocks` is {blocks}, and needs at least {2 * blocks} images; the split "
                f"{section.split} will have about {there}: give it a larger share in `ingest.splits`, or take fewer "
                "blocks."
            )


def _unets_fit(decoder: TrainDecoder, embed: EmbedClip, size: int, factor: int) -> None:
    """Check that the U-Nets that are trained lead to images of `size` pixels, and that what they are told is stored.

    Args:
        decoder: its section.
        embed: that of the embeddings.
        size: pixels of an image.
        factor: of these behind one place of the latent.
    """
    if not any(unet.trained for unet in decoder.unets.values()):
        return
    key = f"{PARAMS}: `train_decoder.unets"
    wanted = size if decoder.tokenizer == NO_FILE else size // factor
    what = "`ingest.image_size`" if decoder.tokenizer == NO_FILE else "the size of the tokenizer's latents"
    sizes = {unet.size: name for name, unet in decoder.unets.items()}
    if len(sizes) < len(decoder.unets):
        raise DarkroomError(f"{key}`: two of {', '.join(decoder.unets)} have the same size: each enlarges another.")
    if (largest := max(sizes)) != wanted:
        raise DarkroomError(
            f"{key}.{sizes[largest]}.size` is {largest}, and {what} is {wanted}: set it to {wanted}, and the sizes of "
            "the others to what it enlarges, or `trained` to false for all."
        )
    for name, unet in decoder.unets.items():
        if unet.low_size is not None and unet.low_size not in sizes:
            known = " or ".join(str(each) for each in sorted(sizes) if each < unet.size)
            raise DarkroomError(
                f"{key}.{name}.low_size` is {unet.low_size}, and no U-Net makes images of that size: set it to "
                f"{known or 'null'}."
            )
    for below, above in pairwise(sorted(size for size, name in sizes.items() if decoder.unets[name].trained)):
        if (found := decoder.unets[sizes[above]].low_size) != below:
            raise DarkroomError(
                f"{key}.{sizes[above]}.low_size` is {found}, and the next smaller U-Net that is trained, "
                f"`{sizes[below]}`, makes images of {below} pixels: set it to {below}."
            )
    for name, unet in decoder.unets.items():
        if unet.embeddings == NO_FILE or not (unet.trained or unet.weights != NO_FILE):
            continue
        if missing := sorted({"train", "val"} - set(embed.store)):
            raise DarkroomError(
                f"{key}.{name}.embeddings` is {unet.embeddings}, and `embed_clip.store` leaves out {missing[0]}: name "
                f"it there, or set `embeddings` to {NO_FILE} and `clip` to models/clip."
            )
