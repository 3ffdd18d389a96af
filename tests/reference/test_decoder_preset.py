"""The preset of DALLE2-pytorch's decoder: its configuration, and its first updates on rendered scenes of its shape."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from darkroom.check.check import schema
from darkroom.data.images import to_array
from darkroom.data.scenes.rendering import render
from darkroom.data.scenes.scene import scene
from darkroom.diffusion.scalers import EmbeddingScaler
from darkroom.models.decoder.data import Conditioner, PixelSpace
from darkroom.models.decoder.network import DecoderUNet
from darkroom.models.decoder.opening import DecoderData, config_of
from darkroom.models.decoder.unet_settings import UNet
from darkroom.models.generators.settings import NO_GENERATOR
from darkroom.params.section import validate
from darkroom.params.stage import stage_params
from darkroom.stages.train_decoder import build
from darkroom.tools import preset
from darkroom.training.loop import train
from darkroom.training.start import OutputPaths
from reference.five import bare_bones

UPDATES, EMBEDDING, PARAMETERS = 3, 768, 370.3  # of ViT-L/14; millions of parameters


class Scenes:
    """Rendered scenes of 64 pixels, and noise in the place of their embeddings."""

    def __len__(self) -> int:
        return 8

    def __getitems__(self, rows: Sequence[int], positions: Any = None) -> dict[str, Any]:
        images = np.stack([to_array(render(scene(0, row), 64)) for row in rows])
        return {"images": images, "image": np.random.default_rng(0).standard_normal((8, EMBEDDING))[list(rows)]}

    def keys(self, rows: Sequence[int]) -> list[str]:
        return [f"scene-{row}" for row in rows]


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    bare_bones(tmp_path)
    monkeypatch.chdir(tmp_path)
    preset.apply("original-decoder")
    return validate(schema("train_decoder"), stage_params("train_decoder", "base"))


def opened() -> DecoderData:
    scaler = EmbeddingScaler([0.0] * EMBEDDING, [1.0] * EMBEDDING)
    rows: Any = {"train": Scenes(), "val": Scenes()}
    return DecoderData(PixelSpace(), Conditioner(scaler), rows, 3, {}, embed_dim=EMBEDDING)


def updated(params: Any, **model: Any) -> Any:
    """Train a few updates at batch 2, as the preset says but for this and the size of the network."""
    unet: UNet = params.train_decoder.unets["base"]
    changed = unet.model_copy(update={"model": unet.model.model_copy(update=model)})
    own = params.train_decoder.training_of("base")
    how = own.model_copy(update={"batch": 2, "images": 2 * UPDATES, "log_every": 2, "validate_every": 2 * UPDATES})
    section = params.train_decoder.model_copy(update={"unets": {"base": changed}})
    recipe = build(params.model_copy(update={"train_decoder": section}), "base", opened())
    run = params.run.model_copy(update={"device": "cpu", "grid_every": 0, "max_lost_seconds": 1e9})
    trainer = train(recipe, how, run, OutputPaths(Path("state"), Path("curves"), Path("logs/train_decoder-base")))
    records = trainer.records
    assert [record["images"] for record in records] == [2, 4, 6]
    assert all(math.isfinite(value) for record in records for value in record.values())
    # An untrained U-Net answers 0, and noise has a variance of 1.
    assert records[0]["train/simple"] == pytest.approx(1, abs=0.05)
    assert all(record["train/grad_norm/unet"] > 0 for record in records) and records[-1]["val/bound"] > 0
    return trainer


def test_it_is_the_configuration_of_the_original(params: Any) -> None:
    section = params.train_decoder
    unet, training = section.unets["base"], section.training_of("base")
    assert validate(schema("train_generator"), stage_params("train_generator")).idle == NO_GENERATOR  # type: ignore[attr-defined]
    assert stage_params("train_decoder", "up")["train_decoder"]["unets"]["up"]["frozen"]
    assert (unet.size, unet.model.channels, unet.model.layers) == (64, [128, 256, 512, 1024], 2)
    assert (unet.model.head_dim, unet.model.norm_groups, unet.model.image_tokens) == (32, 8, 4)
    assert unet.model.image_to_time and not unet.model.text_tokens
    diffusion = unet.diffusion
    assert (section.timesteps, diffusion.schedule, diffusion.target, diffusion.loss) == (1000, "cosine", "eps", "l2")
    assert (diffusion.variance, diffusion.variance_range, diffusion.bound_weight) == ("learned_range", "linear", 0.001)
    assert (diffusion.image_dropout, diffusion.min_snr, diffusion.p2_gamma) == (0.1, None, 0.0)
    assert (training.seed, training.batch, training.learning_rate, training.schedule) == (0, 64, 1e-4, "constant")
    assert (training.betas, training.eps, training.weight_decay) == ((0.9, 0.99), 1e-8, 0.01)
    assert (training.warmup, training.clip_norm, training.ema_decay) == (0, 0.5, 0.99)
    assert (unet.augment.scale, unet.augment.ratio, unet.grids.images) == ((0.75, 1.0), (1.0, 1.0), 6)
    sampling = validate(schema("sample_decoder"), stage_params("sample_decoder")).sample_decoder
    how = sampling.sampling("base")
    assert (how.solver, how.steps, how.guidance, how.threshold) == ("ddpm", 1000, 1.0, "clip")
    assert (sampling.images, sampling.pictures.resamples) == (1000, 5)


def test_the_network_has_its_widths(params: Any) -> None:
    with torch.device("meta"):
        model = DecoderUNet(config_of(params.train_decoder.unets["base"], opened()))
    assert sum(parameter.numel() for parameter in model.parameters()) / 1e6 == pytest.approx(PARAMETERS, rel=0.001)


@pytest.mark.slow
def test_a_few_updates_of_a_narrow_network_run(params: Any) -> None:
    updated(params, channels=[32, 32, 32, 32])


@pytest.mark.slow
def test_a_few_updates_of_the_whole_network_run(params: Any) -> None:
    updated(params)
