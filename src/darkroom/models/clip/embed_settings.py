"""The sections that `embed_clip` reads."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from darkroom.params.run import Run
from darkroom.params.section import NO_FILE, PartName, Positive, Section

Split = Literal["train", "val", "test"]


class Imported(Section):
    """How the embeddings lie in the folder that a part's `embeddings` names."""

    layout: Literal["clip_retrieval", "dalle2"] = "clip_retrieval"
    """clip_retrieval: rows are joined by key; dalle2, as DALLE2-pytorch: a row is the last digits of a key."""
    images: Annotated[str, Field(min_length=1)] = "img_emb"
    """Subfolder with the embeddings of the images."""
    texts: Annotated[str, Field(min_length=1)] | None = None
    """Subfolder with the embeddings of the captions; null: they are computed."""
    encodings: Annotated[str, Field(min_length=1)] | None = None
    """Subfolder with the encodings of the captions' tokens; null: they are computed."""
    metadata: str = "metadata"
    """clip_retrieval: subfolder of the tables that say which row is which image."""
    column: str = "image_path"
    """clip_retrieval: column of these tables with the keys, or with paths that the keys follow from."""
    index_width: Positive = 4
    """dalle2: number of digits at the end of a key that are the row."""
    missing: Literal["stop", "compute"] = "stop"
    """What to do with an image that has no embedding."""

    @property
    def subfolders(self) -> dict[str, str]:
        """Where each kind of embeddings lies that is taken over."""
        given = {"image": self.images, "text": self.texts, "encoding": self.encodings}
        return {name: folder for name, folder in given.items() if folder is not None}


class EmbedClip(Section):
    """How embeddings are computed, or taken over, and stored."""

    threads: Positive = 1
    """CPU threads."""
    batch: Positive = 64
    """Images, or captions, in a forward pass."""
    normalise: bool = True
    """Give the embeddings of images and captions length 1."""
    encodings: bool = False
    """Also store CLIP's encoding of each token of a caption: 77 times the space with OpenAI's, for `text_tokens`."""
    store: list[Split] = ["train", "val", "test"]
    """Splits whose embeddings are stored; those of other splits are computed when they are needed."""
    imported: Imported = Imported()
    """How embeddings by others lie in the folder that a part's `embeddings` names."""

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
