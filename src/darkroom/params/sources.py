"""The sections of the sources, one each, and the settings that a part has of them."""

import re
import unicodedata
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from darkroom.errors import DarkroomError
from darkroom.params.numbers import Positive, Seed
from darkroom.params.parts import Part
from darkroom.params.section import PARAMS, Section, validate

# The labels that are allowed; None: all. Letters in one form, as labels have them, see `label_of`.
Class = Annotated[str, AfterValidator(lambda name: unicodedata.normalize("NFC", name))]
Classes = Annotated[list[Class], Field(min_length=1)] | None
# Of a member of a webdataset sample: what comes after the first dot of its name.
Ending = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*$")]
JsonField = Annotated[str, Field(pattern=r"^json:.+$")]


class Digits(Section):
    """The digits that scikit-learn carries."""

    caption: str

    @model_validator(mode="after")
    def _fields(self) -> "Digits":
        try:
            self.caption.format(word="seven", label=7)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"the caption may hold {{word}} and {{label}} only, not {error}") from error
        return self


class Shapes(Section):
    """Rendered, captioned scenes of coloured forms."""

    seed: Seed
    size: Annotated[int, Field(ge=8)]
    kinds: Annotated[list[Literal["position", "count", "relation"]], Field(min_length=1)]
    transparent: bool


class Torchvision(Section):
    """A classification data set of torchvision."""

    dataset: str
    split: str | None
    options: dict[str, bool | int | str]
    download: bool
    caption: str | None
    mirror: bool

    @model_validator(mode="after")
    def _fields(self) -> "Torchvision":
        try:
            (self.caption or "").format(label="cat")
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"the caption may hold {{label}} only, not {error}") from error
        return self


class Folder(Section):
    """Image files in a folder."""

    label: Literal["none", "parent", "top", "metadata"]
    label_column: str
    caption: Literal["none", "txt", "metadata"]
    caption_column: str
    classes: Classes
    mirror: bool


class Webdataset(Section):
    """Existing shards: tars with images, captions, labels and facts."""

    url: str | None
    image: Annotated[list[Ending], Field(min_length=1)]
    label: Ending | JsonField | None
    caption: Ending | JsonField | None
    classes: Classes
    shard_in_key: bool
    repack: bool
    damaged_shard: Literal["stop", "quarantine"]
    mirror: bool

    @model_validator(mode="after")
    def _integers(self) -> "Webdataset":
        for place, name in enumerate(self.classes or []):
            if re.fullmatch(r"-?[0-9]+", name) and name != str(place):
                raise ValueError(
                    f"the class {name!r} stands at place {place}, so a label {name} could mean it or the class of that "
                    "number: give it a name with a letter, or leave `classes` empty"
                )
        return self


class Urls(Section):
    """A table of addresses, downloaded with img2dataset."""

    url_column: str
    caption_column: str | None
    label_column: str | None
    resize: Positive | None
    encode_format: Literal["jpg", "png", "webp"]
    disallowed: list[str]
    retries: Annotated[int, Field(ge=0)]
    timeout: Positive
    mirror: bool


class Hub(Section):
    """A data set of the Hugging Face Hub."""

    dataset: str
    configuration: str | None
    split: str
    revision: str | None
    image: str
    label: str | None
    caption: str | None
    mirror: bool


SECTIONS: dict[str, type[Section]] = {
    "digits": Digits,
    "shapes": Shapes,
    "torchvision": Torchvision,
    "folder": Folder,
    "webdataset": Webdataset,
    "urls": Urls,
    "hub": Hub,
}


def settings_of(name: str, part: Part, section: Section | Mapping[str, Any] | None) -> Any:
    """Return the settings of a part's source: its section of params.yaml, with what the part says otherwise.

    Raises:
        DarkroomError: the section is missing, or a key of `settings` is unknown or has a value that is not allowed.
    """
    if section is None:
        raise DarkroomError(f"{PARAMS}: the section `{part.source}` with the settings of this source is missing.")
    values = section.model_dump() if isinstance(section, Section) else dict(section)
    return validate(SECTIONS[part.source], {**values, **part.settings}, f"parts.{name}.settings")
