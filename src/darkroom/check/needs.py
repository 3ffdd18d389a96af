"""How many images the stages need of each split: for `darkroom check`, `init` and all that is run behind `catalog`.

A stage may rely on what stands here: nothing that needs more images is begun with fewer.
"""

# No effect on any output: validates

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from darkroom.artifacts.manifest import NAME, read_manifest
from darkroom.check.endings import trainings
from darkroom.data.catalog import CATALOG, KIND
from darkroom.data.splits import SPLITS
from darkroom.models.generators.kind_settings import OF_ROWS, TEXTS
from darkroom.models.kinds import TOKENIZERS
from darkroom.params.fits import refuse

SCORED = 2  # images that a covariance needs
_HALVES = 2 * SCORED
_VALIDATED = 4  # images whose distance has an error and no bias: two blocks of two


class Need(NamedTuple):
    """The images of a split that a key needs, and whether they have captions."""

    key: str
    split: str
    images: int
    captioned: bool = False


def needs(params: Any) -> Iterator[Need]:
    """Yield what the stages need that are switched on; `params` is the whole of params.yaml, validated."""
    yield Need("reference_stats.split", params.reference_stats.split, _HALVES)
    yield Need("reference_stats.held_out", params.reference_stats.held_out, SCORED)
    yield Need("score_tokenizer.split", params.score_tokenizer.split, SCORED)
    generator, common, bits = params.train_generator, params.sample_generator.common, params.score_generator.bits
    if generator.generates:
        condition = generator.chosen.condition
        if condition in OF_ROWS and not common.captions.given:
            yield Need("sample_generator.common.split", common.split, 1, condition in TEXTS)
        if bits.wanted:
            yield Need("score_generator.bits.split", bits.split, 1)
    clip = params.train_clip.source != "none"
    if clip:
        yield Need("train_clip.evaluate.split", params.train_clip.evaluate.split, 1)
        yield Need("train_prior.evaluate.split", params.train_prior.evaluate.split, 1)
    if cascade := params.train_decoder.cascade(clip):
        yield Need("sample_decoder.split", params.sample_decoder.split, SCORED)
        if clip and any(unet.conditioned for unet in cascade.values()):
            yield Need("sample_text.split", params.sample_text.split, SCORED, captioned=True)
        if params.train_decoder.evaluate.every:
            yield Need("train_decoder.evaluate.every", "val", _VALIDATED)
    for key, training, *_ in trainings(params):
        if training.select == "best":
            yield Need(f"{key}.select", "val", 1)


def _made(params: Any) -> Iterator[tuple[str, int | None]]:
    """Yield the keys of images that are made to be scored, and how many; None: all of a split."""
    if params.train_generator.generates:
        yield "sample_generator.common.images", params.sample_generator.common.images
    if TOKENIZERS.has("sample", params.train_tokenizer.kind):
        yield "sample_tokenizer.images", params.sample_tokenizer.images
    if params.train_decoder.cascade(params.train_clip.source != "none"):
        yield "sample_decoder.images", params.sample_decoder.images
        yield "sample_text.images", params.sample_text.images


def fits(params: Any) -> None:
    """Check what can be known of params.yaml alone: splits without images, and parts of a known number of images.

    Raises:
        DarkroomError: a split, or what is made, has too few; names the key.
    """
    for key, made in _made(params):
        if made is not None and made < SCORED:
            refuse(f"`{key}` is {made}, and scores need {SCORED} images at least.")
    known = [part.images for part in params.parts.values() if part.images is not None]
    fractions = {split: getattr(params.ingest.splits, split) for split in SPLITS}
    all_known = len(known) == len(params.parts)
    require(params, {name: round(each * sum(known)) for name, each in fractions.items() if all_known or not each})


def require(params: Any, images: Mapping[str, int], captions: Mapping[str, int] | None = None, known: str = "") -> None:
    """Check that splits have the images that are needed of them.

    Args:
        params: the whole of params.yaml, validated.
        images: of each split; one that is not known is left out.
        captions: images with a caption, likewise; None: as many. Where no image has one, none are read.
        known: where the numbers stand; "": they are expected.

    Raises:
        DarkroomError: a split has too few; names key and split.
    """
    for key, split, least, captioned in needs(params):
        counts = captions if captioned and captions is not None and any(captions.values()) else images
        if (there := counts.get(split, least)) >= least:
            continue
        if not getattr(params.ingest.splits, split):
            refuse(f"`{key}` needs images of the split {split}, and `ingest.splits.{split}` is 0: give it a fraction.")
        what = f"`{key}` needs {least} images of the split {split}{' with a caption' * captioned}"
        count = f"has {there} ({known})" if known else f"will have about {there}"
        again = ", and run `dvc repro catalog`" if known else ""
        remedy = f"add images, raise `ingest.splits.{split}`, or set another `ingest.split_seed`{again}"
        refuse(f"{what}, which {count}: {remedy}.")


def require_counted(params: Any) -> None:
    """Check the splits by the images that `catalog` counted, where it has run; `params` is validated.

    Raises:
        DarkroomError: a split has too few; names key and split.
    """
    if (CATALOG / NAME).is_file():
        manifest = read_manifest(CATALOG, KIND)
        require(params, manifest["images"], manifest["captions"], str(CATALOG))
