"""Sections of params.yaml, small, with what a test changes."""

from typing import Any

from darkroom.models.tokenizers.kl.settings import KL
from darkroom.models.tokenizers.sections import Adversarial, Perceptual


def adversarial(**changes: Any) -> Adversarial:
    """Return the section of a discriminator, which is switched off."""
    values: dict[str, Any] = {
        "weight": 0.0,
        "loss": "hinge",
        "start": 0,
        "adaptive": "none",
        "channels": [4, 8],
        "norm_groups": 4,
        "lr_scale": 1.0,
        "betas": (0.5, 0.9),
        "clip_norm": None,
        "gradient_penalty": 0.0,
        "gradient_penalty_every": 1,
    }
    return Adversarial(**values | changes)


def perceptual(network: str = "none", weight: float = 0.0) -> Perceptual:
    """Return the section of a perceptual loss, which is switched off."""
    return Perceptual.model_validate({"network": network, "weight": weight})


def kl(**changes: Any) -> KL:
    """Return the section of a KL autoencoder of two levels."""
    values: dict[str, Any] = {
        "training": {},
        "channels": [8, 8],
        "layers_per_block": 1,
        "norm_groups": 4,
        "latent_channels": 2,
        "reconstruction": "mse",
        "kl_weight": 0.1,
        "perceptual": perceptual(),
        "adversarial": adversarial(),
    }
    return KL(**values | changes)
