"""The sections that `ingest` reads."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from darkroom.params.numbers import Positive, Seed, Share
from darkroom.params.parts import Parts
from darkroom.params.run import Run
from darkroom.params.section import Section
from darkroom.params.sources import Digits, Folder, Hub, Shapes, Torchvision, Urls, Webdataset


class Splits(Section):
    """Shares of the keys that go to each split."""

    train: Annotated[float, Field(gt=0, le=1)]
    val: Annotated[float, Field(ge=0, lt=1)]
    test: Annotated[float, Field(ge=0, lt=1)]

    @model_validator(mode="after")
    def _sum(self) -> "Splits":
        total = self.train + self.val + self.test
        if abs(total - 1) > 1e-9:
            raise ValueError(f"the shares must sum to 1, and sum to {total:g}")
        return self


class Rules(Section):
    """What is done with samples that are damaged in a way that training could live with."""

    wrong_extension: Literal["keep", "quarantine"]
    duplicate: Literal["keep", "quarantine"]
    caption_missing: Literal["keep", "quarantine"]
    caption_not_utf8: Literal["repair", "quarantine"]
    label_missing: Literal["keep", "quarantine"]
    label_out_of_range: Literal["keep", "quarantine"]


class Ingest(Section):
    """How images are stored, and which."""

    threads: Positive
    image_size: Positive
    channels: Literal["RGB", "RGBA", "L"]
    crop: Literal["adm", "center", "random"]
    resample: Literal["box", "bilinear", "bicubic", "lanczos"]
    format: Literal["png", "webp", "jpeg"]
    quality: Annotated[int, Field(ge=1, le=100)]
    shard_size: Positive
    max_pixels: Positive
    min_size: Positive
    rules: Rules
    default_label: Annotated[str, Field(min_length=1)] | None
    max_quarantined: Share
    split_seed: Seed
    splits: Splits

    @model_validator(mode="after")
    def _no_alpha_in_jpeg(self) -> "Ingest":
        if self.format == "jpeg" and self.channels == "RGBA":
            raise ValueError("JPEG has no alpha channel: store RGBA as png or webp")
        return self


class Params(Section):
    """What dvc.yaml gives to `ingest`."""

    run: Run
    parts: Parts
    digits: Digits | None = None
    shapes: Shapes | None = None
    torchvision: Torchvision | None = None
    folder: Folder | None = None
    webdataset: Webdataset | None = None
    urls: Urls | None = None
    hub: Hub | None = None
    ingest: Ingest
