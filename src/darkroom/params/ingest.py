"""The sections that `ingest`, `catalog` and `code` read."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from darkroom.params.parts import Parts, Sources
from darkroom.params.run import Run
from darkroom.params.section import Fraction, Positive, Section, Seed


class Splits(Section):
    """Fractions of the keys that go to each split."""

    train: Annotated[float, Field(gt=0, le=1)]
    """Fraction of the keys in the train split: trained on, and the reference of the scores."""
    val: Annotated[float, Field(ge=0, lt=1)]
    """Fraction of the keys in the val split: validation while training."""
    test: Annotated[float, Field(ge=0, lt=1)]
    """Fraction of the keys in the test split: reconstructed, and the real images of the noise floor."""

    def _misfits(self) -> Iterator[str]:
        if abs(self.train + self.val + self.test - 1) > 1e-9:
            yield f"train ({self.train}), val ({self.val}) and test ({self.test}) must sum to 1"


class Rules(Section):
    """What to do with damaged samples that training could still use."""

    transparent: Literal["keep", "quarantine"] = "quarantine"
    """Every pixel is transparent."""
    one_pixel: Literal["keep", "quarantine"] = "quarantine"
    """An image of 1 x 1 pixels."""
    one_colour: Literal["keep", "quarantine"] = "keep"
    """All pixels of the stored image are equal, for example a white icon on a white background."""
    duplicate: Literal["keep", "quarantine"] = "quarantine"
    """The same content as an earlier sample of the part."""
    caption_missing: Literal["keep", "quarantine"] = "keep"
    """No caption where the source has captions."""
    caption_not_utf8: Literal["repair", "quarantine"] = "repair"
    """A caption that is not UTF-8; repair: read it as UTF-16 or Windows-1252, where that gives text."""
    label_missing: Literal["keep", "quarantine"] = "quarantine"
    """No label; the extractor and the generator need one for each image."""
    label_out_of_range: Literal["keep", "quarantine"] = "quarantine"
    """A label that is not one of the source's classes."""


class Ingest(Section):
    """Which images are stored, and how."""

    threads: Positive = 1
    """CPU threads."""
    image_size: Positive = 32
    """Pixels, height and width of the stored images."""
    channels: Literal["RGB", "RGBA", "L"] = "RGB"
    """Channels of the stored images."""
    fit: Literal["crop", "pad", "stretch"] = "crop"
    """How images become squares: crop, by `crop`; pad, the whole image with a margin; stretch, each side resized."""
    crop: Literal["adm", "center", "random"] = "center"
    """Crop to a square; adm: halve by averaging, then resize, as in ADM and DiT."""
    pad_colour: Annotated[str, Field(pattern=r"^(border|transparent|white|black|#[0-9a-fA-F]{6})$")] = "border"
    """Colour of the margin: border, the mean of the image's border; transparent; white, black, or #rrggbb."""
    resample: Literal["nearest", "area", "box", "bilinear", "bicubic", "lanczos"] = "bicubic"
    """Resize filter; area and box are one, the mean of the covered pixels; nearest, for pixel art, makes no colours."""
    format: Literal["png", "webp", "jpeg"] = "png"
    """Format of the stored images; png and webp are lossless."""
    quality: Annotated[int, Field(ge=1, le=100)] = 95
    """JPEG quality."""
    shard_size: Positive = 1000
    """Images per shard."""
    max_pixels: Positive = 100000000
    """Images with more pixels are quarantined, not decoded."""
    min_size: Positive = 1
    """Images whose shorter side has fewer pixels are quarantined."""
    rules: Rules = Rules()
    """What to do with damaged samples that could still be used."""
    default_label: Annotated[str, Field(min_length=1)] | None = None
    """Class of images without a label, so that a flat folder can train a one-class generator; null: none."""
    group: (
        Literal["key", "caption", "name", "folder", "similar", "auto"] | Annotated[str, Field(pattern=r"^column:.+$")]
    ) = "key"
    """Images that lie in one split: key: each alone; caption: equal captions, in all parts; name: a rule on file names;
    folder; similar: by colours and shape; auto: name, else similar; column:NAME: equal text in a column, or a field of
    the json member. See docs/how-to/parts-and-splits.md."""
    split_seed: Seed = 0
    """Seed of the splits; by key (or caption), the split of a sample depends only on this number and its key."""
    splits: Splits
    """Fraction of the keys in each split; they sum to 1."""

    READ_WITH = {"crop": ("fit", "crop"), "pad_colour": ("fit", "pad")}

    def _misfits(self) -> Iterator[str]:
        if self.format == "jpeg" and self.channels == "RGBA":
            yield "JPEG has no alpha channel: store RGBA as png or webp"
        if self.pad_colour == "transparent" and self.channels != "RGBA":
            yield f"pad_colour transparent needs an alpha channel, but channels is {self.channels}: set it to RGBA"
        if self.crop == "adm" and self.resample == "nearest":
            yield "crop adm averages pixels, which resample nearest excludes: set crop to center"


class Params(Sources):
    """The parameters of `ingest`, as dvc.yaml lists them."""

    run: Run
    parts: Parts
    ingest: Ingest


class Catalog(Section):
    """What to show of the data, and how much damage is allowed."""

    threads: Positive = 1
    """CPU threads."""
    grid_images: Positive = 64
    """Images in the grid that shows the data; no training reads it."""
    max_quarantined: Fraction = 0.05
    """Largest fraction of a part's samples that may be quarantined; above it the stage fails."""


# Keys from the section of another stage, which validates them.
Given = dict[str, Any]


class CatalogParams(Section):
    """The parameters of `catalog`, as dvc.yaml lists them."""

    run: Run
    parts: Parts
    catalog: Catalog
    train_tokenizer: Given
    train_generator: Given | None = None


class CodeParams(Section):
    """The parameters of `code`, as dvc.yaml lists them: the keys that choose a kind."""

    run: Run
    train_generator: Given
    train_tokenizer: Given
