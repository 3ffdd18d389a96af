"""Check how many images of each split the stages need.

Used by `darkroom check`, `init` and every stage after `catalog`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from darkroom.data.splits import SPLITS
from darkroom.models.generators.kind_settings import OF_ROWS, TEXTS
from darkroom.models.kinds import GENERATORS, TOKENIZERS
from darkroom.params.fits import refuse
from darkroom.params.training import Training

SCORED = 2  # the fewest images with a covariance


class Need(NamedTuple):
    """The images of a split that a key needs, and whether they have captions."""

    key: str
    split: str
    images: int
    captioned: bool = False


def needs(params: Any) -> Iterator[Need]:
    """Yield the needs of the enabled stages; `params` is all of params.yaml, validated."""
    generator, common, bits = params.train_generator, params.sample_generator.common, params.score_generator.bits
    clip, decoder = params.train_clip.source != "none", params.train_decoder
    cascade, texts = _decoded(params)
    yield Need("reference_stats.split", params.reference_stats.split, 2 * SCORED)  # to score one half against the other
    yield Need("reference_stats.held_out", params.reference_stats.held_out, SCORED)
    yield Need("score_tokenizer.split", params.score_tokenizer.split, SCORED)
    if generator.generates and generator.chosen.condition in OF_ROWS:
        yield Need("sample_generator.common.split", common.split, 1, generator.chosen.condition in TEXTS)
    if generator.generates and bits.enabled:
        yield Need("score_generator.bits.split", bits.split, 1)
    if clip:
        yield Need("train_clip.evaluate.split", params.train_clip.evaluate.split, 1)
        yield Need("train_prior.evaluate.split", params.train_prior.evaluate.split, 1)
    if cascade:
        yield Need("sample_decoder.split", params.sample_decoder.split, SCORED)
    if cascade and decoder.evaluate.every:
        yield Need("train_decoder.evaluate.every", "val", 2 * SCORED)  # two blocks, to estimate the bias
    if texts:
        yield Need("sample_text.split", params.sample_text.split, SCORED, captioned=True)
    yield from (Need(f"{key}.select", "val", 1) for key, each in trainings(params) if each.select == "best")


def _decoded(params: Any) -> tuple[Any, bool]:
    """Return the U-Nets of the decoder, and whether they make images from texts."""
    clip = params.train_clip.source != "none"
    cascade = params.train_decoder.cascade(clip)
    return cascade, clip and any(unet.conditioned for unet in cascade.values())


def fits(params: Any) -> None:
    """Check the numbers of images in params.yaml: of generated images, and of splits where it sets them.

    Raises:
        DarkroomError: a number is too small, or `shuffle` is groups although `ingest.group` is key; names the key.
    """
    for key, each in trainings(params):
        if each.shuffle == "groups" and params.ingest.group == "key":
            refuse(
                f"`{key}.shuffle` is groups, but `ingest.group` is key, so each image is its own group. Set "
                f"`ingest.group` to auto, or `{key}.shuffle` to true."
            )
    cascade, texts = _decoded(params)
    for key, section, used in (
        ("sample_generator.common", params.sample_generator.common, params.train_generator.generates),
        ("sample_tokenizer", params.sample_tokenizer, TOKENIZERS.has("sample", params.train_tokenizer.kind)),
        ("sample_decoder", params.sample_decoder, bool(cascade)),
        ("sample_text", params.sample_text, texts),
    ):
        if used and section.images is not None and section.images < SCORED:
            refuse(f"`{key}.images` is {section.images}, but scores need at least {SCORED} images.")
    counts = [part.images for part in params.parts.values() if part.images is not None]
    fractions = {split: getattr(params.ingest.splits, split) for split in SPLITS}
    every = len(counts) == len(params.parts)
    require(params, {split: round(each * sum(counts)) for split, each in fractions.items() if every or not each})


def require(params: Any, images: Mapping[str, int], captions: Mapping[str, int] | None = None, place: str = "") -> None:
    """Check that the splits have enough images.

    Args:
        params: all of params.yaml, validated.
        images: number in each split; unknown splits are left out.
        captions: number of images with a caption; None: all. If no image has one, captions are not read.
        place: where the numbers are recorded; "": they are estimates.

    Raises:
        DarkroomError: a split has too few; names key and split.
    """
    for key, split, least, captioned in needs(params):
        counts = captions if captioned and captions is not None and any(captions.values()) else images
        if (available := counts.get(split, least)) >= least:
            continue
        if not getattr(params.ingest.splits, split):
            refuse(f"`{key}` needs images of the split {split}, but `ingest.splits.{split}` is 0: set it above 0.")
        need = f"`{key}` needs {least} image{'s' * (least > 1)} of the split {split}{' with a caption' * captioned}"
        count = f"has {available} ({place})" if place else f"will have about {available}"
        again = ", set another `ingest.split_seed`, and run `dvc repro catalog`" if place else ""
        remedy = f"add images, or raise `ingest.splits.{split}`{again}"
        refuse(f"{need}, which {count}: {remedy}.")


_ALWAYS = "train_teacher", "train_extractor", "train_classifier", "train_distilled", "train_scene_reader", "train_prior"


def trainings(params: Any) -> Iterator[tuple[str, Training]]:
    """Yield the key and the settings of each training."""
    yield from ((f"{stage}.training", getattr(params, stage).training) for stage in _ALWAYS)
    if params.train_clip.source == "trained":
        yield "train_clip.training", params.train_clip.training
    if not params.train_tokenizer.untrained:
        yield "train_tokenizer.training", params.train_tokenizer.own_training
    if GENERATORS.has("recipe", params.train_generator.kind):
        yield "train_generator.training", params.train_generator.own_training
    decoder = params.train_decoder
    for name in decoder.cascade(params.train_clip.source != "none"):
        if not decoder.unets[name].frozen:
            yield f"train_decoder.unets.{name}.training", decoder.training_of(name)
