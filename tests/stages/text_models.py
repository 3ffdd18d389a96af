"""A clone with tiny data, CLIP, embeddings and decoder, for the tests of the prior's stages."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import yaml

from darkroom.artifacts.manifest import file_hashes, manifest_hash, write_manifest
from darkroom.data.catalog_writer import write_catalog
from darkroom.data.images import ImageSpec
from darkroom.models.clip.load import save_clip
from darkroom.models.clip.network import Contrastive
from darkroom.models.clip.settings import EmbedParams
from darkroom.stages import embed_clip
from data.making import Noise, make_part
from helpers import run, training
from models.clip.clips import SIZE
from models.decoder.small_unets import unet

SPEC = ImageSpec(8, "RGB", "png")
TEXTS = ["a red circle", "a blue square", "a ring", "two red circles"]
PRIOR: dict[str, Any] = {"solver": "dpm", "steps": 2, "guidance": 1.5, "candidates": 2, "batch": 4}
UNET: dict[str, Any] = {
    "solver": "ddim",
    "steps": 2,
    "eta": 0.0,
    "guidance": 2.0,
    "threshold": "clip",
    "percentile": 0.95,
    "embedding_noise": 0.0,
    "low_noise": 0.0,
}
SECTIONS: dict[str, Any] = {
    "run": run().model_dump(),
    "train_prior": {
        "model": {"width": 16, "depth": 1, "heads": 2, "dropout": 0.0},
        "diffusion": {
            "schedule": "cosine",
            "timesteps": 20,
            "target": "x0",
            "loss": "l2",
            "text_dropout": 0.2,
        },
        "training": training(images=16).model_dump(),
        "evaluate": {**PRIOR, "seed": 0, "split": "test", "images": 8},
    },
    "train_decoder": {"unets": {"base": {}}},
    "sample_decoder": {"batch": 4, "weights": "ema", "common": UNET, "unets": {}, "shard_size": 3},
    "sample_text": {"seed": 3, "threads": 1, "split": "test", "images": 5, "prior": PRIOR},
}


class Captioned(Noise):
    """Noise of 8 pixels with one of four captions; of every fifth image there is none, or of no image."""

    def __init__(self, texts: bool = True) -> None:
        super().__init__(SPEC)
        self.texts = texts

    def read(self, entry: Any) -> Any:
        bare = not self.texts or entry.payload % 5 == 4
        return replace(super().read(entry), caption=None if bare else TEXTS[entry.payload % 4], label="noise")


def write_data(parts: dict[str, bool]) -> None:
    """Write shards of 30 images a part, with captions or without, and their catalog."""
    for number, (part, texts) in enumerate(parts.items()):
        make_part(Path("data/shards"), part, 30 * number, 30 * number + 30, SPEC, source=Captioned(texts))
    Path("data/catalog").mkdir(parents=True)
    write_catalog(Path("data/catalog"), list(parts))


def write_clip(seed: int = 0) -> None:
    """Write an untrained CLIP to `models/clip`."""
    folder = Path("models/clip")
    folder.mkdir(parents=True, exist_ok=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        metadata = save_clip(folder, Contrastive(SIZE))
    write_manifest(folder, "clip", source="trained", long_captions="stop", **metadata, files=file_hashes(folder))


def embed(parts: dict[str, bool], normalise: bool = True, store: Sequence[str] = ("train", "val", "test")) -> None:
    """Write `data/embeddings` by that CLIP."""
    values = {
        "run": run().model_dump(),
        "parts": {part: {"embeddings": "data/none"} for part in parts},
        "embed_clip": {
            "threads": 1,
            "batch": 8,
            "normalise": normalise,
            "encodings": True,
            "store": list(store),
            "imported": {
                "images": "image",
                "texts": None,
                "encodings": None,
                "index_width": 4,
                "missing": "stop",
            },
        },
    }
    for part in parts:
        embed_clip.run(EmbedParams.model_validate(values), part)


def write_decoder(clip: str | None, normalised: bool = True, text: bool = True, low_size: int | None = None) -> None:
    """Write `models/decoder/base`, which is told embeddings of a CLIP, and texts or not; or which enlarges."""
    folder = Path("models/decoder/base")
    told = {"embed_dim": SIZE["embed_dim"], "image_tokens": 2, "image_to_time": True, "image_map": 3} if clip else {}
    shape = (SIZE["context_length"], SIZE["text_width"]) if text and clip else None
    network = unet(image_channels=3, text_shape=shape, low=low_size is not None, **told)
    for where in (folder, folder / "raw"):
        network.save_pretrained(where)
    write_manifest(
        folder,
        "decoder",
        trained=True,
        timesteps=20,
        prediction={"schedule": "cosine", "target": "x0", "variance": "fixed_small", "variance_range": "linear"},
        image=SPEC.metadata(),
        clip=clip,
        normalised=normalised,
        embedding_mean=[0.0] * SIZE["embed_dim"],
        embedding_std=[0.5] * SIZE["embed_dim"],
        tokenizer=None,
        low_size=low_size,
        low_downsample="area",
        files=file_hashes(folder),
    )


def write_params(**changes: Any) -> None:
    """Write params.yaml with the sections of these stages, and a dvc.yaml with two outputs."""
    Path("params.yaml").write_text(yaml.safe_dump({**SECTIONS, **changes}, sort_keys=False))
    stages = {
        "sample_text": {"params": ["sample_decoder", "sample_text", "train_decoder.unets"], "outs": ["samples/text"]},
        "train_prior": {"outs": ["models/prior", "curves/prior"]},
    }
    Path("dvc.yaml").write_text(yaml.safe_dump({"stages": stages}))


def hashes(folder: str) -> str:
    """Return what a folder's manifest is, byte for byte."""
    return manifest_hash(Path(folder))
