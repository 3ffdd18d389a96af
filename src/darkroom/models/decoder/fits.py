"""Check that the cascade of U-Nets fits the data and CLIP, and that its samples fit the cascade."""

from itertools import pairwise
from typing import Any

from darkroom.diffusion.settings import require_sampling
from darkroom.models.clip.settings import EmbedClip
from darkroom.models.decoder.settings import TrainDecoder
from darkroom.models.decoder.unet_settings import UNet
from darkroom.models.tokenizers.settings import require_lpips
from darkroom.params.fits import refuse, refuse_both, require_dropout, require_stored
from darkroom.params.section import NO_FILE


def dropouts_of(source: str, unet: UNet) -> dict[str, float]:
    """Return keys and values of the fractions of conditions that a U-Net is trained without; `source`: its section."""
    fractions = {}
    if unet.image_conditioned:
        fractions[f"{source}.image_dropout"] = unet.diffusion.image_dropout
    if unet.model.text_tokens:
        fractions[f"{source}.text_dropout"] = unet.diffusion.text_dropout
    return fractions


def fits(params: Any) -> None:
    """Check the sections of the decoder, its samples and its scores; without a CLIP, only U-Nets that need none.

    Args:
        params: the whole of params.yaml, validated.

    Raises:
        DarkroomError: one does not fit; names its key.
    """
    decoder, sampling = params.train_decoder, params.sample_decoder
    for name in sampling.unets:
        if name not in decoder.unets:
            known = ", ".join(decoder.unets)
            refuse(f"`sample_decoder.unets.{name}` names no U-Net of `train_decoder.unets` ({known}): remove it.")
    _unets_fit(decoder, params.embed_clip, params.ingest.image_size, params.train_tokenizer.chosen.factor)
    cascade = decoder.cascade(params.train_clip.source != "none")
    if not cascade:
        return
    _sampling_fits(params, cascade)
    _embeddings_fit(params, cascade)
    _noise_fits(params, cascade)
    _attributes_fit(params)
    if any(unet.conditioned for unet in cascade.values()):
        require_stored(params, "sample_decoder.split", sampling.split)
    require_lpips(params, "score_decoder")


def _sampling_fits(params: Any, cascade: dict[str, UNet]) -> None:
    """Check that each U-Net is sampled as it is trained."""
    timesteps = "train_decoder.timesteps", params.train_decoder.timesteps
    for name, unet in cascade.items():
        own, source = params.sample_decoder.unets.get(name, {}), f"train_decoder.unets.{name}.diffusion"

        def key(setting: str, name: str = name, own: Any = own) -> str:
            return f"sample_decoder.{f'unets.{name}' if setting in own else 'common'}.{setting}"

        dropouts = dropouts_of(source, unet)
        require_sampling(key, params.sample_decoder.sampling(name), source, unet.diffusion, timesteps, dropouts)
        if unet.grids.guidance is not None:
            for dropout, share in dropouts.items():
                require_dropout(f"train_decoder.unets.{name}.grids.guidance", unet.grids.guidance, dropout, share)
        if unet.diffusion.objective != "gaussian" and params.sample_decoder.pictures.inpainted:
            remedy = "and only Gaussian diffusion can in-paint: set the former to 0"
            refuse_both(params, "sample_decoder.pictures.inpainted", f"{source}.objective", remedy)


def _unets_fit(decoder: TrainDecoder, embed: EmbedClip, size: int, factor: int) -> None:
    """Check that the trained U-Nets lead to images of `size` pixels, and that their conditions are stored.

    One position of the latent is `factor` pixels high and wide.
    """
    if all(unet.frozen for unet in decoder.unets.values()):
        return
    key = "`train_decoder.unets"
    expected = size if decoder.tokenizer == NO_FILE else -(-size // factor)
    source = "`ingest.image_size`" if decoder.tokenizer == NO_FILE else "the size of the tokenizer's latents"
    sizes = {unet.size: name for name, unet in decoder.unets.items()}
    if len(sizes) < len(decoder.unets):
        refuse(f"{key}`: two of {', '.join(decoder.unets)} have the same size: give each its own size.")
    if (largest := max(sizes)) != expected:
        refuse(f"{key}.{sizes[largest]}.size` is {largest}, but {source} is {expected}: set the former to the latter.")
    for name, unet in decoder.unets.items():
        if unet.low_size is not None and unet.low_size not in sizes:
            known = " or ".join(str(each) for each in sorted(sizes) if each < unet.size)
            refuse(
                f"{key}.{name}.low_size` is {unet.low_size}, but no U-Net has that size: set it to {known or 'null'}."
            )
    for below, above in pairwise(sorted(size for size, name in sizes.items() if not decoder.unets[name].frozen)):
        if (low_size := decoder.unets[sizes[above]].low_size) != below:
            refuse(
                f"{key}.{sizes[above]}.low_size` is {low_size}, but the next smaller U-Net has size {below}: use that."
            )
    for name, unet in decoder.unets.items():
        if unet.embeddings == NO_FILE or (unet.frozen and unet.weights == NO_FILE):
            continue
        if missing := sorted({"train", "val"} - set(embed.store)):
            refuse(
                f"{key}.{name}.embeddings` is {unet.embeddings}, but `embed_clip.store` leaves out {missing[0]}: "
                f"add it there, or set `embeddings` to {NO_FILE} and `clip` to models/clip."
            )


def _embeddings_fit(params: Any, cascade: dict[str, UNet]) -> None:
    """Check that the stored embeddings are those that the U-Nets are conditioned on.

    A U-Net that is trained on embeddings computed while training is also sampled with stored ones.
    """
    for name, unet in cascade.items():
        key, embed = f"train_decoder.unets.{name}", params.embed_clip
        if unet.clip != NO_FILE and unet.image_conditioned and not embed.normalise:
            remedy = "and embeddings computed while training have length 1: set the latter to true"
            refuse_both(params, f"{key}.clip", "embed_clip.normalise", remedy)
        if unet.model.text_tokens and not embed.encodings:
            refuse_both(params, f"{key}.model.text_tokens", "embed_clip.encodings", "set the latter to true")


def _noise_fits(params: Any, cascade: dict[str, UNet]) -> None:
    """Check that no condition of a U-Net has more noise than the U-Net was trained with."""
    for name, unet in cascade.items():
        sampling, own = params.sample_decoder.sampling(name), params.sample_decoder.unets.get(name, {})
        trained = f"train_decoder.unets.{name}"
        learned = {"embedding_noise": (f"{trained}.diffusion.embedding_noise", unet.diffusion.embedding_noise)}
        if unet.low_size is not None:
            learned["low_noise"] = (f"{trained}.low.noise", unet.low.noise)
        for key, (source, most) in learned.items():
            # A U-Net that was trained without noise ignores the value in `common`.
            if getattr(sampling, key) > most and (most or key in own):
                where = f"sample_decoder.unets.{name}" if key in own else "sample_decoder.common"
                refuse_both(params, f"{where}.{key}", source, f"set the former to {most} at most")


def _attributes_fit(params: Any) -> None:
    """Check that the images are scenes that the reader is trained on, if scores use it."""
    if params.score_decoder.attributes != "scenes":
        return
    known = params.train_scene_reader.kinds
    for name, part in params.parts.items():
        if part.source == "digits":
            refuse_both(params, "score_decoder.attributes", f"parts.{name}.source", "set the former to none")
        kinds = part.settings.get("kinds", params.shapes.kinds) if part.source == "shapes" else []
        if unknown := [kind for kind in kinds if kind not in known]:
            remedy = "add it to `train_scene_reader.kinds`"
            if "single" in unknown:  # which the reader does not read
                remedy = "set `score_decoder.attributes` to none"
            refuse(f"`parts.{name}` holds scenes of the kind {unknown[0]}: {remedy}.")
