"""A small `vq_ar` for tests."""

import torch

from darkroom.models.tokenizers.vq_ar.network import VQAutoregressive, configure
from darkroom.models.tokenizers.vq_ar.settings import VQAR

SHAPE = (3, 16, 16)


def settings(**changes):
    values = {
        "training": {},
        "patch": 4,
        "encoder_hidden": None,
        "dim": 24,
        "codebook_dim": 8,
        "codebook_size": 12,
        "decay": 0.9,
        "kmeans_init": True,
        "dead_below": 1.0,
        "depth": 2,
        "heads": 2,
        "head_dim": 16,
        "dropout": 0.0,
        "classes": False,
        "label_dropout": 0.1,
        "logit_scale": 1.5,
        "logits_codebook": "before",
        "reconstruction_weight": 2.0,
        "recon_from_pred_codes": 0.25,
        "commitment_weight": 0.5,
        "ar_commitment_weight": 0.75,
    }
    return VQAR(**{**values, **changes})


def network(classes=0, **changes):
    torch.manual_seed(0)
    return VQAutoregressive(configure(settings(**changes), SHAPE, classes))


def pictures(count):
    return torch.randint(0, 256, (count, *SHAPE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
