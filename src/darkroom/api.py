"""The Python interface: `darkroom.load`, `score`, `compare`, `images` and `latents`.

It gives the same bits as the commands, from the same settings: params.yaml in the clone of a model, or defaults where
there is none. A call changes the working folder while it runs, so use it from one thread.
"""

import json
import tempfile
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from darkroom.artifacts.manifest import ArtifactError
from darkroom.artifacts.models import DECODER, GENERATOR, generator_manifest
from darkroom.data.catalog import load_catalog
from darkroom.data.latent_file import to_float32
from darkroom.data.latents import LatentShards
from darkroom.data.reader import ImageShards
from darkroom.device import set_up_device
from darkroom.errors import DarkroomError
from darkroom.models.prior.settings import SampleParams
from darkroom.models.tokenizers.protocol import KIND as TOKENIZER
from darkroom.models.tokenizers.protocol import Codes, encode_all, load_tokenizer, padded
from darkroom.params.section import NO_FILE, PARAMS, validate
from darkroom.params.stage import read_yaml, stage_params
from darkroom.tools.compare.seeds import read_runs
from darkroom.tools.compare.verdicts import compare as judged
from darkroom.tools.sample.classes import Overrides, generated, requested
from darkroom.tools.sample.pictures import pictures
from darkroom.tools.score.command import score as score_command
from darkroom.tools.score.options import Request

_BATCH = 64  # images in a forward pass of a tokenizer, where there is no params.yaml
Split = Literal["train", "val", "test"]
Protocol = Literal["darkroom", "torch-fidelity", "clean-fid", "adm", "edm", "dit"]
Device = Literal["auto", "cpu", "cuda", "mps"]


class Generator:
    """A trained generator with its tokenizer.

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
        steps: int | None = None,
        guidance: float | None = None,
        solver: str | None = None,
        weights: str | None = None,
    ) -> Tensor:
        """Generate n images of each class or text, as `darkroom sample --labels` or `--text` does.

        Args:
            labels: numbers or names of classes.
            texts: texts, for a generator that was trained on captions.
            n: images of each label or text.
            seed: seed of the noise; default, as of the following: `sample_generator` in params.yaml.
            steps: steps of the solver.
            guidance: scale of guidance; 1: none.
            solver: name of the solver.
            weights: "ema", "raw", a .safetensors file, or a folder of a model or checkpoint.

        Returns:
            uint8 (len(labels or texts) * n, C, H, W), grouped by label or text. Image k of a label depends only on the
            label, the seed and k.

        Raises:
            DarkroomError: a class does not exist, a value is invalid, or the generator has another condition.
        """
        if (labels is None) == (texts is None):
            raise DarkroomError("give either labels or texts.")
        overrides = Overrides(seed, None if steps is None else str(steps), guidance, solver, weights)
        with chdir(self._root):
            if labels is not None:
                request = requested("class", [str(label) for label in labels], overrides)
            else:
                request = requested("text", list(texts or []), overrides)
            rows, _ = generated(request, n)
        return torch.from_numpy(np.concatenate([images for _, images in rows]))


class Decoder:
    """The unCLIP decoder with its CLIP and prior."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def sample(self, texts: Sequence[str], n: int = 4, seed: int | None = None) -> Tensor:
        """Generate n images of each text, as `darkroom sample --text` does with prior and decoder.

        Returns:
            uint8 (len(texts) * n, C, H, W), grouped by text.

        Raises:
            DarkroomError: a text is too long, or models are missing or do not fit each other.
        """
        with chdir(self._root):
            values = stage_params("sample_text")
            values["sample_text"] |= {} if seed is None else {"seed": seed}
            rows = pictures(validate(SampleParams, values), list(texts), [], n)
        return torch.from_numpy(np.concatenate([images for _, images in rows]))


class Tokenizer:
    """A trained tokenizer.

    Attributes:
        latent_shape: (C, h, w) of a latent.
        codebook_size: number of codes; None for a continuous tokenizer.
    """

    def __init__(self, root: Path) -> None:
        settings = read_yaml(root / PARAMS) if (root / PARAMS).is_file() else {}
        stage = settings.get("encode_latents") or {}
        self._batch = int(stage.get("batch") or _BATCH)
        self._device = set_up_device(torch.get_num_threads(), (settings.get("run") or {}).get("device") or "auto")
        network, _ = load_tokenizer(root / "models/tokenizer")
        self._network = network.to(self._device)
        self.latent_shape = self._network.latent_shape
        self.codebook_size = self._network.codebook_size if isinstance(self._network, Codes) else None

    def encode(self, images: Tensor) -> Tensor:
        """Encode images, uint8 (N, C, H, W), to latents (the mean), float32 (N, *latent_shape).

        Raises:
            DarkroomError: the images have another shape than those of the training.
        """
        mean, _ = encode_all(self._network, images, self._batch, self._device)
        return torch.from_numpy(mean.copy())

    def decode(self, latents: Tensor) -> Tensor:
        """Decode latents, (N, *latent_shape), to images, uint8 (N, C, H, W)."""
        return padded(self._network.decode, latents, self._batch, self._device)

    def encode_codes(self, images: Tensor) -> Tensor:
        """Encode images, uint8 (N, C, H, W), to codes, int64 (N, h, w) in [0, codebook_size).

        Raises:
            DarkroomError: the tokenizer has no codes.
        """
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


def load(folder: str | Path) -> Generator | Tokenizer | Decoder:
    """Load a trained model: models/generator, models/tokenizer or models/decoder of a clone.

    A generator needs its tokenizer next to it, a decoder CLIP and, for texts, the prior.

    Raises:
        DarkroomError: the folder has no such model, or it is damaged.
    """
    place = Path(folder).resolve()
    kinds: dict[str, type[Generator | Tokenizer | Decoder]]
    kinds = {GENERATOR: Generator, TOKENIZER: Tokenizer, DECODER: Decoder}
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
        protocol: program whose resize, splits and subsets to use.
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
    file = Path(NO_FILE if weights is None else weights)
    with tempfile.TemporaryDirectory() as folder:
        paths = [_stored(side, Path(folder) / f"{at}.npz") for at, side in enumerate((images, reference))]
        out = Path(folder) / "out"
        sets = {"samples": paths[0], "against": paths[1], "out": out, "limit": limit, "size": size}
        network = {"extractor": str(extractor), "weights": file, "download": download, "convention": protocol}
        score_command(Request(**sets, **network, batch=batch, threads=threads, device=device))  # type: ignore[arg-type]
        scores: dict[str, float] = json.loads((out / "scores.json").read_text())["scores"]
    return scores


def _stored(images: Any, path: Path) -> Path:
    """Return the path of images, after writing an array as uint8 (N, H, W, C)."""
    if isinstance(images, str | Path):
        return Path(images)
    array = images.cpu().numpy() if isinstance(images, Tensor) else np.asarray(images)
    if array.dtype != np.uint8 or array.ndim != 4:
        raise DarkroomError(f"images must be uint8 (N, C, H, W), not {array.dtype} {array.shape}.")
    np.savez(path, arr_0=np.ascontiguousarray(array.transpose(0, 2, 3, 1)))
    return path


def compare(old: str = "HEAD", new: str = "workspace", root: str | Path = ".") -> pd.DataFrame:
    """Compare the scores of two revisions, as `darkroom compare` does.

    Args:
        old: a commit, branch, tag or experiment, or several that differ in seeds, "A,B"; "workspace": the working tree.
        new: the same.
        root: the clone.

    Returns:
        A row for each score: file, score, old, old_se, new, new_se, difference, se, verdict.

    Raises:
        DarkroomError: a revision does not exist or has no metrics.
    """
    with chdir(root):
        rows = judged(*(read_runs(revision, False) for revision in (old, new)))
    columns = ("file", "name", "old", "old_se", "new", "new_se", "difference", "se", "verdict")
    frame = pd.DataFrame([[getattr(row, column) for column in columns] for row in rows], columns=list(columns))
    return frame.rename(columns={"name": "score"})


class Images(Dataset[dict[str, Any]]):
    """The images of a split, for a DataLoader.

    An item: image, uint8 (C, H, W); label, the number of its class, -1 without; caption and key, text.

    Attributes:
        classes: names of the classes.
        labels: number of the class of each image, -1 without.
    """

    def __init__(self, split: Split, root: Path) -> None:
        catalog = load_catalog(root / "data/catalog", root / "data/shards")
        self._shards = ImageShards.open_parts(list(catalog.parts), split, root / "data/shards")
        self.classes = list(catalog.classes)
        numbers = {name: number for number, name in enumerate(self.classes)}
        self.labels = [-1 if label is None else numbers[label] for label in self._shards.labels]

    def __len__(self) -> int:
        return len(self._shards)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return self.__getitems__([row])[0]

    def __getitems__(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        """Return several items, which is faster than one by one; a DataLoader calls it."""
        images = torch.from_numpy(self._shards.__getitems__(rows))
        texts = zip(self._shards.some("caption", rows), self._shards.keys_of(rows), strict=True)
        return [
            {"image": image, "label": self.labels[row], "caption": caption or "", "key": key}
            for row, image, (caption, key) in zip(rows, images, texts, strict=True)
        ]


class Latents(Dataset[dict[str, Tensor]]):
    """The latents of a split, for a DataLoader.

    An item: mean and, unless latents are points, logvar, float32 (C, h, w); or codes, int64 (h, w).
    """

    def __init__(self, split: Split, root: Path) -> None:
        catalog = load_catalog(root / "data/catalog", root / "data/shards")
        self._shards = LatentShards.open_parts(list(catalog.parts), split, root / "data/latents")

    def __len__(self) -> int:
        return len(self._shards)

    def __getitem__(self, row: int) -> dict[str, Tensor]:
        return self.__getitems__([row])[0]

    def __getitems__(self, rows: Sequence[int]) -> list[dict[str, Tensor]]:
        """Return several items, which is faster than one by one; a DataLoader calls it."""
        stored = self._shards.__getitems__(np.asarray(rows)).items()
        wide = {name: values.astype(np.int64) if name == "codes" else to_float32(values) for name, values in stored}
        tensors = {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in wide.items()}
        return [{name: values[at] for name, values in tensors.items()} for at in range(len(rows))]


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
