"""The presets of the original tokenizers: their scripts' settings, and their first updates on rendered images."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from darkroom.check.check import schema
from darkroom.data.images import to_array
from darkroom.data.scenes.rendering import render
from darkroom.data.scenes.scene import scene
from darkroom.models.generators.settings import NO_GENERATOR
from darkroom.models.tokenizers.perceptual import untrained
from darkroom.models.tokenizers.settings import Params
from darkroom.params.section import validate
from darkroom.params.stage import stage_params
from darkroom.stages.train_tokenizer import build
from darkroom.tools import preset
from darkroom.training.loop import train
from darkroom.training.start import OutputPaths
from reference.five import ROOT, bare_bones

UPDATES, BATCH = 2, 2
SHAPES = {"original-dvae": (3, 128, 128), "original-vqgan": (3, 128, 128), "original-vq-ar": (1, 28, 28)}
# Parameters in millions of the original classes with these arguments: the autoencoder, and the discriminator.
MILLIONS = {
    "original-dvae": {"tokenizer": 16.672259},
    "original-vqgan": {"tokenizer": 325.185043, "discriminator": 49.348865},
    "original-vq-ar": {"tokenizer": 2.441232},
}


class Scenes:
    """Rendered scenes of a preset's shape."""

    def __init__(self, shape: tuple[int, int, int], count: int = 4) -> None:
        self.shape, self.count = shape, count

    def __len__(self) -> int:
        return self.count

    def __getitems__(self, rows: Sequence[int], positions: Any = None) -> dict[str, Any]:
        channels, size, _ = self.shape
        images = np.stack([to_array(render(scene(0, row), size)) for row in rows])
        return {"images": images[:, :channels]}

    def keys(self, rows: Sequence[int]) -> list[str]:
        return [f"scene-{row}" for row in rows]


@pytest.fixture
def applied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Params]:
    """Return what applies a preset in a clone's bare bones, and returns what `train_tokenizer` is given."""
    bare_bones(tmp_path)
    monkeypatch.chdir(tmp_path)

    def apply(name: str) -> Params:
        preset.apply(name)
        assert validate(schema("train_generator"), stage_params("train_generator")).idle == NO_GENERATOR  # type: ignore[attr-defined]
        found = validate(schema("train_tokenizer"), stage_params("train_tokenizer"))
        assert isinstance(found, Params)
        return found

    return apply


def updated(params: Params, name: str, size: int | None = None, **changes: Any) -> Any:
    """Train a few updates at batch 2, as the preset says but for images of `size` and `changes` of its section."""
    section, (channels, side, _) = params.train_tokenizer, SHAPES[name]
    shape = (channels, size or side, size or side)
    how = {"batch": BATCH, "images": UPDATES * BATCH, "log_every": BATCH, "validate_every": UPDATES * BATCH}
    chosen = section.chosen.model_copy(update={**changes, "training": section.chosen.training | how})
    section = section.model_copy(update={section.kind: chosen})
    rows: Any = Scenes(shape)
    shown: Any = Scenes(shape, 2)
    perceptual = untrained(section.perceptual.network) if section.perceptual else None
    recipe = build(params.model_copy(update={"train_tokenizer": section}), shape, rows, shown, perceptual)
    run = params.run.model_copy(update={"device": "cpu", "grid_every": UPDATES * BATCH, "max_lost_seconds": 1e9})
    places = OutputPaths(Path("state"), Path("curves"), Path("logs/train_tokenizer"))
    trainer = train(recipe, section.own_training, run, places)
    assert [record["images"] for record in trainer.records] == [2, 4]
    assert all(math.isfinite(value) for record in trainer.records for value in record.values())
    assert all(record[f"train/grad_norm/{m}"] > 0 for record in trainer.records for m in recipe.modules)
    assert len(list(Path("logs/train_tokenizer/grids").iterdir())) == 2
    return trainer


def require_sizes(params: Params, name: str) -> None:
    """Check the number of parameters of each network."""
    rows: Any = Scenes(SHAPES[name])
    with torch.device("meta"):
        recipe = build(params, SHAPES[name], rows, rows)
    found = {of: sum(p.numel() for p in module.parameters()) / 1e6 for of, module in recipe.modules.items()}
    assert found == pytest.approx(MILLIONS[name], rel=1e-6)


def test_these_are_all_the_presets_of_tokenizers() -> None:
    others = ("original-dit", "original-decoder")
    found = {path.stem for path in (ROOT / "presets").glob("original-*") if not path.stem.startswith(others)}
    assert found == set(SHAPES)


def test_dvae_is_the_script(applied: Callable[[str], Params]) -> None:
    params = applied("original-dvae")
    require_sizes(params, "original-dvae")
    section: Any = params.train_tokenizer.dvae
    training = params.train_tokenizer.own_training
    assert (training.batch, training.learning_rate, training.weight_decay) == (8, 1e-3, 0.0)
    assert training.schedule == "exponential"
    assert (training.betas, training.clip_norm, training.warmup, training.ema_decay) == ((0.9, 0.999), None, 0, 0.0)
    # 20 epochs of 615 updates; the rate falls after updates 0, 100, … of each.
    assert training.images == 20 * 615 * 8 and training.final_rate == pytest.approx(0.98 ** (20 * 7), rel=1e-2)
    tau = section.temperature
    assert (tau.rule, tau.start, tau.minimum, tau.rate) == ("compounding", 1.0, 0.5, 1e-6)
    assert (section.codebook_size, section.codebook_dim, section.layers, section.width) == (8192, 512, 3, 256)
    assert (section.residual_blocks, section.reconstruction, section.kl_weight) == (2, "mse", 0.0)
    assert (section.straight_through, section.reinmax, section.alpha, section.grid_images) == (False, False, "unit", 4)


def test_vqgan_is_the_trainer_and_the_readme(applied: Callable[[str], Params]) -> None:
    params = applied("original-vqgan")
    require_sizes(params, "original-vqgan")
    section: Any = params.train_tokenizer.vqgan
    training = params.train_tokenizer.own_training
    assert (training.images, training.batch, training.learning_rate) == (50_000 * 32, 4 * 8, 3e-4)
    assert (training.schedule, training.betas, training.clip_norm) == ("constant", (0.9, 0.999), None)
    assert (training.warmup, training.weight_decay, training.ema_decay) == (0, 0.0, 0.995)
    assert (section.width, section.layers, section.residual_blocks, section.norm_groups) == (256, 4, 1, 16)
    assert (section.quantiser, section.codebook_size, section.pixels) == ("lfq", 65536, "unit")
    lfq = section.lfq
    assert (lfq.entropy_weight, lfq.diversity, lfq.inverse_temperature, lfq.commitment_weight) == (0.1, 4.0, 100.0, 0.0)
    assert (section.reconstruction, section.perceptual.network, section.perceptual.weight) == ("l1", "vgg16", 1.0)
    game = section.adversarial
    assert (game.weight, game.loss, game.start, game.adaptive) == (1.0, "hinge_sum", 0, "perceptual")
    assert (game.lr_scale, game.betas, game.clip_norm) == (1.0, (0.9, 0.999), None)
    assert (game.gradient_penalty, game.gradient_penalty_every, game.norm_groups) == (10.0, 4, 16)


def test_vq_ar_is_the_script(applied: Callable[[str], Params]) -> None:
    params = applied("original-vq-ar")
    require_sizes(params, "original-vq-ar")
    section: Any = params.train_tokenizer.vq_ar
    training = params.train_tokenizer.own_training
    assert (training.images, training.batch, training.learning_rate) == (100_000 * 32, 32, 3e-4)
    assert (training.schedule, training.betas, training.clip_norm) == ("constant", (0.9, 0.999), 0.5)
    assert (training.warmup, training.weight_decay, training.ema_decay) == (0, 0.0, 0.0)
    assert (section.patch, section.dim, section.depth, section.codebook_size, section.decay) == (4, 256, 4, 64, 0.95)
    assert (section.heads, section.head_dim, section.dropout, section.classes) == (4, 16, 0.0, False)
    assert (section.encoder_hidden, section.codebook_dim) == (None, None)
    assert (section.kmeans_init, section.dead_below) == (False, 0.0)
    assert (section.recon_from_pred_codes, section.reconstruction_weight) == (0.5, 1.0)
    assert (section.commitment_weight, section.ar_commitment_weight) == (1.0, 1.0)
    assert (section.logit_scale, section.logits_codebook, section.grid_images) == (1.0, "after", 8)
    assert (section.sampling.images, section.sampling.min_p, section.sampling.temperature) == (64, 0.25, 1.5)
    sampling = validate(schema("sample_tokenizer"), stage_params("sample_tokenizer")).sample_tokenizer  # type: ignore[attr-defined]
    assert (sampling.min_p, sampling.temperature) == (0.25, 1.5)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("original-dvae", 32),
        pytest.param("original-dvae", None, marks=pytest.mark.slow),
        ("original-vq-ar", None),
    ],
)
def test_a_few_updates_run(applied: Callable[[str], Params], name: str, size: int | None) -> None:
    updated(applied(name), name, size)


def narrow(params: Params) -> dict[str, Any]:
    """Return the section's keys of a VQGAN 16 times as narrow, with fewer codes."""
    section: Any = params.train_tokenizer.chosen
    channels = [width // 16 for width in section.adversarial.channels]
    return {
        "width": 16,
        "codebook_size": 1024,
        "adversarial": section.adversarial.model_copy(update={"channels": channels}),
    }


def test_a_few_updates_of_a_narrow_vqgan_run(applied: Callable[[str], Params]) -> None:
    """Whole it has hundreds of millions of parameters, and takes minutes."""
    params = applied("original-vqgan")
    trainer = updated(params, "original-vqgan", 64, **narrow(params))
    assert trainer.records[0]["train/adversarial_weight"] > 0


@pytest.mark.slow
def test_a_few_updates_of_the_whole_vqgan_run(applied: Callable[[str], Params]) -> None:
    updated(applied("original-vqgan"), "original-vqgan")
