"""Write a generator as a diffusers pipeline folder: transformer, autoencoder, scheduler and pipeline code."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from diffusers import __version__ as diffusers_version
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from diffusers.models.transformers.dit_transformer_2d import DiTTransformer2DModel

from darkroom.diffusion.flow import Flow
from darkroom.diffusion.gaussian import Gaussian
from darkroom.diffusion.objectives import stored_objective
from darkroom.errors import DarkroomError
from darkroom.models.generators.dit.network import DiT
from darkroom.models.generators.dit.published import to_diffusers
from darkroom.models.generators.embeddings import sincos_positions
from darkroom.models.tokenizers.kl.network import KLAutoencoder
from darkroom.models.tokenizers.kl.settings import PATCH

PIPELINE = "pipeline.py"
_PREDICTIONS = {"eps": "epsilon", "x0": "sample", "v": "v_prediction"}
_OTHERWISE = "use --format safetensors."


def write_pipeline(folder: Path, model: DiT, manifest: Mapping[str, Any], tokenizer: Any) -> None:
    """Write the folder.

    `model` has only parts that the format supports; `manifest` is the generator's, `tokenizer` that of its latents.

    Raises:
        DarkroomError: diffusers has no such autoencoder, transformer or scheduler; the message names the key.
    """
    scheduler = _scheduler(manifest)
    transformer_of(model).save_pretrained(folder / "transformer")
    if not isinstance(tokenizer, KLAutoencoder):
        raise DarkroomError(
            "models/tokenizer is not a KL autoencoder, which the DiT pipeline of diffusers needs: use "
            "--format pt or safetensors, or train with `train_tokenizer.kind`: kl."
        )
    scaled_vae(tokenizer.network, manifest["latent_mean"], manifest["latent_std"]).save_pretrained(folder / "vae")
    scheduler.save_pretrained(folder / "scheduler")
    shutil.copyfile(Path(__file__).with_name(PIPELINE), folder / PIPELINE)
    index = {
        "_class_name": ["pipeline", "DarkroomDiTPipeline"],
        "_diffusers_version": diffusers_version,
        "id2label": {str(number): name for number, name in enumerate(manifest["classes"])},
        "scheduler": ["diffusers", type(scheduler).__name__],
        "transformer": ["diffusers", "DiTTransformer2DModel"],
        "vae": ["diffusers", "AutoencoderKL"],
    }
    (folder / "model_index.json").write_text(json.dumps(index, indent=2, ensure_ascii=False) + "\n")


def transformer_of(model: DiT) -> DiTTransformer2DModel:
    """Return diffusers' transformer with the weights of a DiT.

    Raises:
        DarkroomError: its hidden layers or its position table differ from those of diffusers.
    """
    config = model.config
    if config.mlp_ratio != 4:
        raise DarkroomError(
            f"`train_generator.dit.model.mlp_ratio` is {config.mlp_ratio:g}, but diffusers' DiT has 4: {_OTHERWISE}"
        )
    if config.size % config.patch:
        raise DarkroomError(
            f"diffusers needs `train_generator.dit.model.patch`, {config.patch}, to divide the side of the latents, "
            f"{config.size}: {_OTHERWISE}"
        )
    table = sincos_positions(config.width, config.side).to(model.positions.device)
    if not torch.allclose(model.positions, table, atol=1e-5):
        raise DarkroomError(
            "the position table of models/generator differs from that of diffusers: use --format pt or "
            "safetensors, which include the table."
        )
    with torch.random.fork_rng(devices=[]):
        transformer = DiTTransformer2DModel(
            num_attention_heads=config.heads,
            attention_head_dim=config.width // config.heads,
            in_channels=config.channels,
            out_channels=config.channels * (1 + config.learned_variance),
            num_layers=config.depth,
            attention_bias=True,
            sample_size=config.size,
            patch_size=config.patch,
            activation_fn="gelu-approximate",
            num_embeds_ada_norm=config.classes,
            norm_type="ada_norm_zero",
            norm_elementwise_affine=False,
            norm_eps=1e-6,
        )
    transformer.load_state_dict(to_diffusers(model.state_dict()))
    return transformer.eval()


def scaled_vae(network: AutoencoderKL, mean: Sequence[float], std: Sequence[float]) -> AutoencoderKL:
    """Return an autoencoder whose configuration contains the normalisation of its latents.

    If channels share one deviation and have no mean, `scaling_factor`, by which a pipeline divides, is set. Otherwise
    it is 1, and `latents_mean` and `latents_std` are those of each channel, (C,), where a deviation of 0 counts as 1.
    """
    deviations = [each or 1.0 for each in std]
    scale: dict[str, Any] = {"scaling_factor": 1.0, "latents_mean": [*mean], "latents_std": deviations}
    if not any(mean) and len(set(deviations)) == 1:
        factor = float(f"{1 / deviations[0]:.12g}")
        scale = {"scaling_factor": factor, "latents_mean": None, "latents_std": None}
    own = {name: value for name, value in network.config.items() if not name.startswith("_") or name == PATCH}
    with torch.random.fork_rng(devices=[]):
        vae = AutoencoderKL.from_config({**own, **scale, "shift_factor": None})
    vae.load_state_dict(network.state_dict())
    return vae.eval()


def _scheduler(manifest: Mapping[str, Any]) -> Any:
    """Return diffusers' scheduler of a generator's objective.

    Raises:
        DarkroomError: diffusers has none; the message names the key.
    """
    objective = stored_objective(manifest, "flow")
    if isinstance(objective, Gaussian):
        from diffusers.schedulers.scheduling_ddim import DDIMScheduler

        return DDIMScheduler(
            num_train_timesteps=len(objective.schedule),
            trained_betas=objective.schedule.betas.tolist(),
            prediction_type=_PREDICTIONS[objective.target],
            clip_sample=False,
            set_alpha_to_one=True,
            timestep_spacing="trailing",
        )
    supported = ("linear", "velocity", "thousand")
    if isinstance(objective, Flow) and (objective.path, objective.target, objective.units) == supported:
        from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler

        return FlowMatchEulerDiscreteScheduler(num_train_timesteps=1000, shift=objective.shift)
    names = ("path", "flow_target", "time_units")
    has = ", ".join(f"`{name}` {manifest['prediction'][name]}" for name in names if name in manifest["prediction"])
    raise DarkroomError(
        "diffusers' schedulers support only flows on the straight path with velocity and times up to 1000, but "
        f"`train_generator.dit.diffusion` has {has or manifest['objective']}: use --format pt or safetensors."
    )
