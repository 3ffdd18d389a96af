"""The Python interface: `darkroom.load`, `score`, `compare`, `images` and `latents`.

It gives the same bits as the commands, from the same settings: params.yaml in the clone of a model, or for a generator
and a tokenizer the defaults where there is none. Use it from one thread: a call changes the working folder while it
runs, and sets torch's threads, deterministic algorithms and device for the process.
"""

import json
import os
import tempfile
import warnings
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from darkroom.artifacts.manifest import ArtifactError
from darkroom.artifacts.models import DECODER, GENERATOR, generator_manifest
from darkroom.data.datasets import Images, Latents, Split
from darkroom.device import set_up_device
from darkroom.environment import choose_device
from darkroom.errors import DarkroomError
from darkroom.models.prior.settings import SampleParams
from darkroom.models.tokenizers.protocol import KIND as TOKENIZER
from darkroom.models.tokenizers.protocol import Codes, encode_all, load_tokenizer, padded
from darkroom.models.tokenizers.settings import EncodeLatents
from darkroom.params.section import NO_FILE, PARAMS, validate
from darkroom.params.stage import read_yaml, stage_params
from darkroom.tools.compare.seeds import read_runs
from darkroom.tools.compare.verdicts import compare as compare_results
from darkroom.tools.sample.classes import Overrides, generated, requested
from darkroom.tools.sample.command import require_models
from darkroom.tools.sample.pictures import pictures
from darkroom.tools.score.command import score as score_command
from darkroom.tools.score.options import Request

Protocol = Literal["darkroom", "torch-fidelity", "clean-fid", "adm", "edm", "dit"]
Device = Literal["auto", "cpu", "cuda", "mps"]


class Generator:
    """A trained generator with its tokenizer. Each call reads the weights again, so it uses the last training.

    Attributes:
        classes: names of the classes; empty if it was trained without classes.
        condition: what it was trained on: "class", "caption", "text", "tokens", "image" or "none".
    """

    def __init__(self, root: Path) -> None:
        manifest = generator_manifest(root / "models/generator")
        self._root = root
        self.classes = [str(name) for name in manifest.get("classes", [])]
        self.condition = str(manifest.get("condition", "class"))

    def sample(
        self,
        labels: Sequence[int | str] | None = None,
        texts: Sequence[str] | None = None,
        n: int = 4,
        seed: int | None = None,
        steps: int | str | None = None,
        guidance: float | None = None,
        solver: str | None = None,
        weights: str | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
    ) -> Tensor:
        """Generate n images of each class or text, as `darkroom sample --labels` or `--text` does.

        Args:
            labels: numbers (int) or names (str) of classes.
            texts: texts, for a generator with the condition caption, text or tokens.
            n: images of each label or text.
            seed: seed of the noise. This and the following default to `sample_generator` in params.yaml.
            steps: steps of the solver, or timesteps as in `--steps`.
            guidance: scale of guidance; 1: none.
            solver: name of the solver.
            temperature: divisor of the logits of codes, for generators of codes.
            top_k: sample among the k most likely codes, for generators of codes.
            weights: "ema", "raw", a .safetensors file, or a folder of a model or checkpoint.

        Returns:
            uint8 (len(labels or texts) * n, C, H, W), grouped by label or text. Image k of a label depends only on the
            label, the seed and k.

        Raises:
            DarkroomError: a class does not exist, a value is invalid, or the generator has another condition.
        """
        if (not labels) == (not texts) or n < 1:
            raise DarkroomError("give either labels or texts, and n of at least 1.")
        if weights not in (None, "ema", "raw"):
            weights = str(Path(str(weights)).absolute())
        overrides = Overrides(
            seed, None if steps is None else str(steps), guidance, solver, weights, temperature, top_k
        )
        with chdir(self._root):
            if labels:
                request = requested("class", [self._name(label) for label in labels], overrides)
            else:
                request = requested("text", list(texts or []), overrides)
            rows, _ = generated(request, n)
        return torch.from_numpy(np.concatenate([images for _, images in rows]))

    def _name(self, label: int | str) -> str:
        if isinstance(label, str) and label in self.classes:
            return label
        if not isinstance(label, str) and 0 <= label < len(self.classes):
            return self.classes[label]
        last = len(self.classes) - 1
        raise DarkroomError(f"the label {label!r} is no class: use a name in `classes`, or a number from 0 to {last}.")


class Decoder:
    """The unCLIP decoder with its CLIP and prior. It needs params.yaml in its clone."""

    def __init__(self, root: Path) -> None:
        self._root = root
        with chdir(root):
            require_models(["clip", "decoder"])

    def sample(self, texts: Sequence[str], n: int = 4, seed: int | None = None) -> Tensor:
        """Generate n images of each text, as `darkroom sample --text` does with prior and decoder.

        Returns:
            uint8 (len(texts) * n, C, H, W), grouped by text.

        Raises:
            DarkroomError: a text is too long, or models are missing or do not fit each other.
        """
        if not texts or n < 1:
            raise DarkroomError("give texts, and n of at least 1.")
        with chdir(self._root):
            require_models(["prior"])
            values = stage_params("sample_text")
            values["sample_text"] |= {} if seed is None else {"seed": seed}
            params = validate(SampleParams, values)
            choose_device(params.run.device)
            rows = pictures(params, list(texts), [], n)
        return torch.from_numpy(np.concatenate([images for _, images in rows]))


class Tokenizer:
    """A trained tokenizer.

    Attributes:
        latent_shape: (C, h, w) of a latent.
        codebook_size: number of codes; None for a continuous tokenizer.
    """

    def __init__(self, root: Path) -> None:
        values = read_yaml(root / PARAMS) if (root / PARAMS).is_file() else {}
        settings = validate(EncodeLatents, values.get("encode_latents") or {}, "encode_latents")
        device = str((values.get("run") or {}).get("device") or "auto")
        choose_device(device)
        self._batch, self._device = settings.batch, set_up_device(settings.threads, device)
        network, _ = load_tokenizer(root / "models/tokenizer")
        self._network = network.to(self._device)
        self.latent_shape = self._network.latent_shape
        self.codebook_size = self._network.codebook_size if isinstance(self._network, Codes) else None

    def encode(self, images: Tensor) -> Tensor:
        """Encode images, uint8 (N, C, H, W), to latents (the mean), float32 (N, *latent_shape).

        Raises:
            DarkroomError: the images are not uint8, or have another shape than those of the training.
        """
        _require_images(images)
        mean, _ = encode_all(self._network, images, self._batch, self._device)
        return torch.from_numpy(mean.copy())

    def decode(self, latents: Tensor) -> Tensor:
        """Decode latents, (N, *latent_shape), to images, uint8 (N, C, H, W)."""
        return padded(self._network.decode, latents, self._batch, self._device)

    def encode_codes(self, images: Tensor) -> Tensor:
        """Encode images, uint8 (N, C, H, W), to codes, int64 (N, h, w) in [0, codebook_size).

        Raises:
            DarkroomError: the tokenizer has no codes, or the images are not uint8 or have another shape.
        """
        _require_images(images)
        return padded(self._codes.encode_codes, images, self._batch, self._device)

    def decode_codes(self, codes: Tensor) -> Tensor:
        """Decode codes, int64 (N, h, w), to images, uint8 (N, C, H, W).

        Raises:
            DarkroomError: the tokenizer has no codes.
        """
        return padded(self._codes.decode_codes, codes, self._batch, self._device)

    @property
    def _codes(self) -> Codes:
        if not isinstance(self._network, Codes):
            raise DarkroomError("this tokenizer is continuous: use `encode` and `decode`.")
        return self._network


@overload
def load(folder: Literal["models/generator"]) -> Generator: ...
@overload
def load(folder: Literal["models/tokenizer"]) -> Tokenizer: ...
@overload
def load(folder: Literal["models/decoder"]) -> Decoder: ...
@overload
def load(folder: str | Path) -> Any: ...
def load(folder: str | Path) -> Any:
    """Load a trained model: models/generator, models/tokenizer or models/decoder of a clone.

    A generator needs its tokenizer next to it, a decoder CLIP and, for texts, the prior.

    Raises:
        DarkroomError: the folder has no such model, or it is damaged.
    """
    place = Path(os.path.abspath(folder))  # noqa: PTH100  # `resolve` would follow a link to the model
    kinds: dict[str, type[Generator | Tokenizer | Decoder]] = {
        GENERATOR: Generator,
        TOKENIZER: Tokenizer,
        DECODER: Decoder,
    }
    if place.parent.name != "models" or place.name not in kinds:
        raise DarkroomError(f"{folder}: load takes the folder {', '.join(f'models/{name}' for name in kinds)}.")
    if not place.is_dir():
        raise ArtifactError(f"{place} is missing: run `dvc repro train_{place.name}`, or `dvc pull {place}`.")
    return kinds[place.name](place.parents[1])


def score(
    images: Tensor | NDArray[np.uint8] | str | Path,
    reference: Tensor | NDArray[np.uint8] | str | Path,
    extractor: str | Path = "inception",
    weights: str | Path | None = None,
    download: bool = False,
    protocol: Protocol = "darkroom",
    limit: int | None = None,
    size: int | None = None,
    batch: int = 32,
    threads: int | None = None,
    device: Device = "auto",
) -> dict[str, float]:
    """Score images against reference images, as `darkroom score` does.

    Args:
        images: uint8 (N, C, H, W); or a folder of images or tars, a tar, or an .npz with `arr_0`.
        reference: the same; or an .npz with `mu` and `sigma`.
        extractor: "inception", "dinov2", "clip", or a folder models/extractor.
        weights: published file of the extractor; default: that of torch hub.
        download: download the weights if they are missing.
        protocol: published protocol: its resize, splits and subsets.
        limit: draw at most this number of images of each set at random.
        size: crop each image to its middle square and resize it to this number of pixels.
        batch: images in a forward pass.
        threads: CPU threads; default: all.
        device: device of the extractor.

    Returns:
        Scores by name; NAME_se is the standard error of NAME.

    Raises:
        DarkroomError: images or weights are missing or incompatible.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = [_stored(side, Path(folder) / f"{at}.npz") for at, side in enumerate((images, reference))]
        request = Request(
            samples=paths[0],
            against=paths[1],
            extractor=str(extractor),
            weights=Path(NO_FILE if weights is None else weights),
            download=download,
            convention=protocol,
            out=Path(folder) / "out",
            limit=limit,
            size=size,
            batch=batch,
            threads=threads,
            device=device,
        )
        score_command(request)
        scores: dict[str, float] = json.loads((request.out / "scores.json").read_text())["scores"]
    return scores


def _stored(images: Any, path: Path) -> Path:
    """Return the path of images, after writing an array as uint8 (N, H, W, C)."""
    if isinstance(images, str | Path):
        return Path(images)
    array = images.cpu().numpy() if isinstance(images, Tensor) else np.asarray(images)
    _require_images(array)
    np.savez(path, arr_0=np.ascontiguousarray(array.transpose(0, 2, 3, 1)))
    return path


def _require_images(images: Tensor | NDArray[Any]) -> None:
    """Check that images are uint8 (N, C, H, W), at least one. Raises DarkroomError."""
    shape = tuple(images.shape)
    if str(images.dtype).rpartition(".")[2] != "uint8" or len(shape) != 4 or shape[1] not in (1, 3, 4) or not shape[0]:
        raise DarkroomError(f"images must be uint8 (N, C, H, W) with C of 1, 3 or 4, not {images.dtype} {shape}.")


def compare(old: str = "HEAD", new: str = "workspace", root: str | Path = ".") -> pd.DataFrame:
    """Compare the scores of two revisions, as `darkroom compare` does.

    Args:
        old: a commit, branch, tag or experiment, or several that differ in seeds, "A,B"; "workspace": the working tree.
        new: the same.
        root: the clone.

    Returns:
        A row for each score: file, score, old, old_se, new, new_se, difference, se, verdict.

    Raises:
        DarkroomError: the clone or a revision does not exist, or has no metrics.

    Warns:
        UserWarning: scores of the working tree are older than its parameters.
    """
    if not Path(root).is_dir():
        raise DarkroomError(f"{root} is not a folder.")
    with chdir(root):
        results = [read_runs(revision) for revision in (old, new)]
    for file, state in (entry for each in results for entry in each.outdated.items()):
        warnings.warn(f"metrics/{file}.json {state}.", stacklevel=2)
    rows = compare_results(*results)
    columns = ("file", "name", "old", "old_se", "new", "new_se", "difference", "se", "verdict")
    frame = pd.DataFrame([[getattr(row, column) for column in columns] for row in rows], columns=list(columns))
    return frame.rename(columns={"name": "score"})


def images(split: Split = "train", root: str | Path = ".") -> Images:
    """Return the images of a split of a clone, "train", "val" or "test", as a dataset of torch.

    Raises:
        DarkroomError: `ingest` or `catalog` has not run, or a shard is damaged.
    """
    return Images(split, Path(root).resolve())


def latents(split: Split = "train", root: str | Path = ".") -> Latents:
    """Return the latents of a split of a clone, "train", "val" or "test", as a dataset of torch.

    Raises:
        DarkroomError: `encode_latents` has not run, or a file is damaged.
    """
    return Latents(split, Path(root).resolve())
