"""Texts that no image of the data has, from a file or the command line, as what generated images are asked to show."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from darkroom.artifacts.manifest import ArtifactError
from darkroom.data.texts import read_texts
from darkroom.models.clip.load import load_clip
from darkroom.models.clip.network import Clip
from darkroom.models.generators.captions import read
from darkroom.models.generators.conditions import Asked, Condition, condition_of

_BATCH = 64  # texts in a forward pass, the last one padded: a text's embedding does not depend on their number


def asked_file(path: Path, name: str, folder: Path, manifest: Mapping[str, Any], device: torch.device) -> Asked:
    """Return what is asked by a file of captions, one a line: image i is made of line i modulo their number.

    Args:
        path: the file.
        name: its key and value in params.yaml, for errors.
        folder: that of the CLIP, where the generator does not embed captions itself.
        manifest: of the generator.
        device: where the CLIP runs.

    Raises:
        DarkroomError: the file cannot be read, holds no text, or a text is too long for the CLIP.
        ArtifactError: the generator was trained with another CLIP.
    """
    texts = read_texts(path, name)
    if manifest["condition"] == "caption":
        return asked_texts(texts, read(texts, manifest["context_length"]))
    return asked_texts(texts, embedded(load_clip(folder).to(device), texts, manifest))


def asked_texts(texts: Sequence[str], stored: Mapping[str, Tensor]) -> Asked:
    """Return what is asked by texts and their embeddings or tokens, by the numbers of images modulo theirs."""

    def condition(numbers: Any) -> Condition:
        rows = torch.from_numpy(numbers) % len(texts)
        return condition_of({name: value[rows] for name, value in stored.items()})

    return Asked(condition, caption=lambda numbers: [texts[number % len(texts)] for number in numbers.tolist()])


def embedded(clip: Clip, texts: Sequence[str], manifest: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return what a generator reads of texts, as `embed_clip` stores it, on the CPU.

    Returns:
        text: float16 (N, D); and of the condition `tokens` encoding: float16 (N, L, W), zero after the end of a text.

    Raises:
        ArtifactError: the generator was trained with another CLIP.
        DarkroomError: a text is too long for the CLIP.
    """
    if clip.fingerprint != manifest["clip"]:
        raise ArtifactError(
            "models/generator was trained with another CLIP than models/clip holds: train it again (`dvc repro`)."
        )
    found: dict[str, list[Tensor]] = {"text": [], "encoding": []}
    for start in range(0, len(texts), _BATCH):
        some = list(texts[start : start + _BATCH])
        vectors, tokens = clip.texts(some + some[-1:] * (_BATCH - len(some)))
        vectors = functional.normalize(vectors, dim=1) if manifest["normalised"] else vectors
        found["text"].append(vectors[: len(some)].half().cpu())
        if manifest["condition"] == "tokens":
            found["encoding"].append(tokens[: len(some)].half().cpu())
    return {name: torch.cat(values) for name, values in found.items() if values}
