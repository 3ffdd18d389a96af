"""The sections that `ingest` reads."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from darkroom.params import Section
from darkroom.schemas.numbers import Positive, Seed
from darkroom.schemas.parts import Parts
from darkroom.schemas.run import Run


class Digits(Section):
    """Source: the digits that scikit-learn carries."""

    caption: str

    @model_validator(mode="after")
    def _fields(self) -> "Digits":
        try:
            self.caption.format(word="seven", label=7)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"the caption may hold {{word}} and {{label}} only, not {error}") from error
        return self


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


class Ingest(Section):
    """How images are stored."""

    threads: Positive
    image_size: Positive
    channels: Literal["RGB", "RGBA", "L"]
    resample: Literal["box", "bilinear", "bicubic", "lanczos"]
    format: Literal["png", "webp"]
    shard_size: Positive
    split_seed: Seed
    splits: Splits


class Params(Section):
    """What dvc.yaml gives to `ingest`."""

    run: Run
    parts: Parts
    digits: Digits | None = None
    ingest: Ingest
