"""A tiny DiT on a tiny collection, through the stages."""

import json
import os
import shutil
import signal
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from darkroom.artifacts.manifest import file_hashes, write_manifest
from darkroom.check.check import read_params
from darkroom.data.catalog import load_catalog
from darkroom.data.reader import ImageShards
from darkroom.models.evaluators.extractor import Classifier
from darkroom.models.generators import sample_settings, settings
from darkroom.models.generators.dit.recipe import DiTRecipe
from darkroom.models.generators.sampler import KeptBatches
from darkroom.models.tokenizers.dvae.settings import DVAEConfig
from darkroom.models.tokenizers.dvae.tokenizer import DiscreteVAE
from darkroom.models.tokenizers.kl.network import KLAutoencoder, build
from darkroom.models.tokenizers.settings import EncodeParams
from darkroom.params import reference_stats as of_reference
from darkroom.params.section import validate
from darkroom.stages import encode_latents, reference_stats, sample_generator, train_generator
from darkroom.training.recipe import Batch
from helpers import DIGITS, run, training
from models.tokenizers.sections import kl
from stages.text_models import embed, write_clip, write_data

VALUES = read_params(DIGITS)
INCEPTION = VALUES["reference_stats"]["inception"]


DISCRETE = DVAEConfig(8, 3, 16, 4, 1, 8, 0, "signed")


def write_clone(root: Path, codes: bool = False) -> Path:
    """Write captioned images, every fifth without, embeddings, latents or codes, and what scores; return the folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        write_data({"one": True})
        write_clip()
        embed({"one": True})
        torch.manual_seed(0)
        kind, tokenizer = ("dvae", DiscreteVAE(DISCRETE)) if codes else ("kl", KLAutoencoder(build(kl(), 3, 8)))
        tokenizer.save_pretrained(Path("models/tokenizer"))
        files = file_hashes(Path("models/tokenizer"))
        write_manifest(Path("models/tokenizer"), "tokenizer", tokenizer_kind=kind, image_shape=[3, 8, 8], files=files)
        stored = {"batch": 4, "latents": "codes" if codes else "continuous"}
        values = {"run": run().model_dump(), "encode_latents": {**VALUES["encode_latents"], **stored}}
        encode_latents.run(EncodeParams.model_validate(values), "one")
        judge, classes = Path("models/extractor"), load_catalog().classes
        judge.mkdir(parents=True)
        Classifier(3, len(classes), [4, 4], 3, 0.0).save_pretrained(judge)
        files = file_hashes(judge)
        write_manifest(judge, "extractor", image_shape=[3, 8, 8], classes=list(classes), files=files)
        how = {"threads": 1, "batch": 8, "blocks": 2, "split": "train", "held_out": "test", "kid_images": 100}
        values = {"run": run().model_dump(), "reference_stats": {**how, "extractors": ["in_domain"]}}
        values["reference_stats"]["inception"] = INCEPTION
        reference_stats.run(validate(of_reference.Params, values))
        outs = {name: {"outs": [f"{place}/generator"]} for name, place in PLACES.items()}
        Path("dvc.yaml").write_text(yaml.safe_dump({"stages": outs}))
    return root


PLACES = {"train_generator": "models", "sample_generator": "samples"}


def enter_copy(whole: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a copy of it the working folder, with the state of stages in `state`."""
    shutil.copytree(whole, folder)
    monkeypatch.chdir(folder)
    for place in ("training.stage", "stages.sample_generator"):
        monkeypatch.setattr(f"darkroom.{place}.open_state", lambda stage, item=None: nullcontext(Path("state") / stage))
    monkeypatch.setattr(KeptBatches, "place", lambda state, device: state / "batches")


def train(
    condition: str,
    how: dict[str, Any] | None = None,
    dropout: float = 0.3,
    evaluate: dict[str, Any] | None = None,
    sampling: dict[str, Any] | None = None,
    diffusion: dict[str, Any] | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """Train a tiny DiT, with evaluations and grids, and return its manifest.

    Args:
        condition: of the DiT.
        how: changes of the section `run`.
        dropout: fraction of conditions that are dropped.
        evaluate: changes of that section.
        sampling: changes of how grids and evaluations are sampled.
        diffusion: changes of that section.
        changes: of the training.
    """
    model = {"width": 16, "depth": 2, "heads": 2, "patch": 2, "condition": condition}
    guidance = 1.0 if condition == "none" else 2.0
    scored = {"every": 32, "images": 8, "batch": 4, "extractor": "models/extractor", "reference": "data/reference"}
    section = {
        "kind": "dit",
        "training": training(**{"images": 64, "batch": 4, **changes}).model_dump(),
        "embeddings": "data/embeddings" if condition in ("image", "text", "tokens") else "data/none",
        "captions": "data/shards" if condition == "caption" else "data/none",
        "evaluate": scored | (evaluate or {}),
        "dit": {
            "model": model,
            "diffusion": {"label_dropout": dropout, **(diffusion or {})},
            "sampling": {"steps": 2, "guidance": guidance, **(sampling or {})},
        },
    }
    values = {"run": run(**{"grid_every": 64, **(how or {})}).model_dump(), "train_generator": section}
    train_generator.run(validate(settings.Params, values))
    return json.loads(Path("models/generator/manifest.json").read_text())


def train_until(images: int, condition: str, monkeypatch: pytest.MonkeyPatch, **more: Any) -> None:
    """Train as `train` does; while the loss of image number `images` is computed, the process gets SIGTERM."""
    loss, seen = DiTRecipe.loss, []

    def stopped(self: DiTRecipe, batch: Batch) -> Any:
        seen.extend(batch.positions.tolist())
        if len(seen) == images:
            os.kill(os.getpid(), signal.SIGTERM)
        return loss(self, batch)

    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(DiTRecipe, "loss", stopped)
        train(condition, **more)
    assert len(seen) == images


def sample(
    condition: str, guidance: float | None = None, dit: dict[str, Any] | None = None, **changes: Any
) -> tuple[ImageShards, dict[str, Any]]:
    """Sample 12 images; return them and their manifest."""
    scale = guidance if guidance is not None else 1.0 if condition == "none" else 2.0
    section = {
        "common": {"threads": 1, "images": 12, "batch": 4, "shard_size": 6, **changes},
        "dit": {"steps": 2, "guidance": scale, **(dit or {})},
    }
    values = {"run": run().model_dump(), "sample_generator": section}
    sample_generator.run(validate(sample_settings.Params, values))
    shards = ImageShards.open_folder(Path("samples/generator"), "samples")
    return shards, json.loads(Path("samples/generator/manifest.json").read_text())
