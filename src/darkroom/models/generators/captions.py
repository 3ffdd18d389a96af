"""Conditions from captions, as byte-pair tokens that the transformer embeds, and from texts without images."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from darkroom.artifacts.manifest import ArtifactError
from darkroom.data.reader import ImageShards
from darkroom.errors import DarkroomError
from darkroom.models.clip.network import Clip, tokens_of
from darkroom.models.clip.settings import OPENAI
from darkroom.models.generators.conditions import Captioned, Condition, ConditionSource, asked_stored, condition_of

_COVERED = 0.99  # the fraction of captions that is read whole if params.yaml has no length


@dataclass(frozen=True)
class Captions:
    """The captions of a split, tokenised once.

    tokens: those of each distinct caption, uint16 (U + 1, L), the last row zero: no caption.
    numbers: the row of each image's caption in `tokens`, (N,).
    longer: the number of distinct captions with more than L tokens.
    """

    tokens: NDArray[np.uint16]
    numbers: NDArray[np.int64]
    longer: int = 0

    @classmethod
    def of(cls, images: ImageShards, length: int | None = None) -> "Captions":
        """Return the captions of a split.

        Args:
            images: the split.
            length: tokens of a caption with its start and end; longer ones are cut. None: enough for 99 % of them.

        Raises:
            DarkroomError: no image has a caption, and no length is given.
        """
        column = images.caption_column.combine_chunks().dictionary_encode()
        texts = column.dictionary.to_pylist()
        numbers = column.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False).astype(np.int64)
        most = OPENAI + 1  # to recognise captions of more than OPENAI tokens
        tokens = np.concatenate([tokens_of(texts, most, truncate=True), np.zeros((1, most), np.uint16)])
        if length is None:
            if not texts:
                raise DarkroomError(
                    f"none of the {len(images):,} images has a caption, but the generator's `model.condition` is "
                    "caption: add captions to the source (`parts` and the source's section in params.yaml)."
                )
            lengths = 1 + tokens.argmax(axis=1)[numbers[numbers < len(texts)]]
            length = min(OPENAI, int(np.quantile(lengths, _COVERED, method="higher")))
        return cls(cut(tokens, length), numbers, int((tokens.argmax(axis=1) >= length).sum()))

    @property
    def vocabulary(self) -> NDArray[np.int64]:
        """The numbers of all tokens in the captions, ascending, without the padding."""
        return np.unique(self.tokens[self.tokens > 0]).astype(np.int64)


def cut(tokens: NDArray[np.uint16], length: int) -> NDArray[np.uint16]:
    """Return tokens (N, L) cut or padded to a length; a cut text ends with the end token."""
    longer = tokens.argmax(axis=1) >= length
    short = tokens[:, :length].copy()
    short[longer, -1] = tokens[longer].max(axis=1, initial=0)
    return short


def read(texts: Sequence[str | None], length: int) -> dict[str, Tensor]:
    """Return `caption`, the tokens of texts, int64 (N, length), zeros without a text; longer ones are cut."""
    tokens = cut(tokens_of([text or "" for text in texts], OPENAI, truncate=True), length).astype(np.int64)
    tokens[[text is None for text in texts]] = 0
    return {"caption": torch.from_numpy(tokens)}


def asked_captions(images: ImageShards, classes: Sequence[str], length: int) -> ConditionSource:
    """Use the captions of a split as conditions: image i gets the caption of the i-th drawn row, see `asked_stored`."""
    texts = images.captions

    def of(rows: Any) -> Captioned:
        return Captioned.of(read([texts[row] for row in rows.tolist()], length)["caption"])

    return asked_stored(images, "caption", classes, of)


_BATCH = 64  # texts in a forward pass, the last one padded: a text's embedding does not depend on their number


def asked_texts(texts: Sequence[str], stored: Mapping[str, Tensor]) -> ConditionSource:
    """Return the conditions from texts and their embeddings or tokens: image i has text i modulo their number."""

    def condition(numbers: Any) -> Condition:
        rows = torch.from_numpy(numbers) % len(texts)
        return condition_of({name: value[rows] for name, value in stored.items()})

    return ConditionSource(
        condition, caption=lambda numbers: [texts[number % len(texts)] for number in numbers.tolist()]
    )


def embedded(clip: Clip, texts: Sequence[str], manifest: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the embeddings of texts that a generator reads, as `embed_clip` stores them, on the CPU.

    Returns:
        text: float16 (N, D); and of the condition `tokens` encoding: float16 (N, L, W), zero after the end of a text.

    Raises:
        ArtifactError: the generator was trained with another CLIP.
        DarkroomError: a text is too long for the CLIP.
    """
    if clip.fingerprint != manifest["clip"]:
        raise ArtifactError("models/generator was trained with another CLIP than models/clip: run `dvc repro`.")
    embeddings: dict[str, list[Tensor]] = {"text": [], "encoding": []}
    for start in range(0, len(texts), _BATCH):
        some = list(texts[start : start + _BATCH])
        vectors, tokens = clip.texts(some + some[-1:] * (_BATCH - len(some)))
        vectors = functional.normalize(vectors, dim=1) if manifest["normalised"] else vectors
        embeddings["text"].append(vectors[: len(some)].half().cpu())
        if manifest["condition"] == "tokens":
            embeddings["encoding"].append(tokens[: len(some)].half().cpu())
    return {name: torch.cat(values) for name, values in embeddings.items() if values}
