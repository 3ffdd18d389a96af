"""The unit that sources give and shards keep."""

from dataclasses import dataclass

from PIL import Image


@dataclass(frozen=True)
class Sample:
    """One image and what is said of it.

    key: its name, letters, digits, `_` and `-` only (a dot would end the key inside a webdataset tar); a source gives
        its keys in ascending order, so that equal sources give equal shards and no key comes twice.
    image: any size and mode; sources give it as it is, shards take it prepared (`darkroom.data.images.prepare`).
    label: the name of its class, or None.
    caption: a text, or None.
    """

    key: str
    image: Image.Image
    label: str | None = None
    caption: str | None = None
