"""The sections that `embed_clip` reads."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from darkroom.params.numbers import NO_FILE, PartName, Positive
from darkroom.params.run import Run
from darkroom.params.section import Section

Split = Literal["train", "val", "test"]


class Imported(Section):
    """How the embeddings lie in the folder that a part's `embeddings` names.

    images, texts, encodings: subfolders; null: they are computed.
    """

    layout: Literal["clip_retrieval", "dalle2"]
    images: Annotated[str, Field(min_length=1)]
    texts: Annotated[str, Field(min_length=1)] | None
    encodings: Annotated[str, Field(min_length=1)] | None
    metadata: str
    column: str
    index_width: Positive
    missing: Literal["stop", "compute"]

    @property
    def subfolders(self) -> dict[str, str]:
        """Where each kind of embeddings lies that is taken over."""
        given = {"image": self.images, "text": self.texts, "encoding": self.encodings}
        return {name: folder for name, folder in given.items() if folder is not None}


class EmbedClip(Section):
    """How embeddings are computed, or taken over, and stored."""

    threads: Positive
    batch: Positive
    normalise: bool
    encodings: bool
    store: list[Split]
    imported: Imported

    @model_validator(mode="after")
    def _once(self) -> "EmbedClip":
        if len(set(self.store)) != len(self.store):
            raise ValueError("store names a split twice")
        return self


class PartEmbeddings(Section):
    """Of a part, where its embeddings by others lie."""

    embeddings: str


class Params(Section):
    """What dvc.yaml gives to `embed_clip`."""

    run: Run
    parts: dict[PartName, PartEmbeddings]
    embed_clip: EmbedClip


def folder_of(params: Params, part: str) -> str | None:
    """Return the folder with a part's embeddings by others; None: they are computed."""
    folder = params.parts[part].embeddings
    return None if folder == NO_FILE else folder
