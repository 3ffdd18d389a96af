"""Small U-Nets for tests."""

from typing import Any

import torch

from darkroom.models.decoder.network import Conditions, DecoderUNet, UNetConfig

SMALL: dict[str, Any] = {
    "size": 8,
    "image_channels": 1,
    "channels": (8, 16),
    "attention": (False, True),
    "layers": 1,
    "head_dim": 8,
    "norm_groups": 4,
}
TOLD: dict[str, Any] = {"embed_dim": 6, "image_tokens": 2, "image_to_time": True, "image_map": 3}


def unet(seed: int = 0, **changes: Any) -> DecoderUNet:
    """Return a small U-Net whose last layer says something, in evaluation mode."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = DecoderUNet(UNetConfig(**{**SMALL, **changes}))
        for name, parameter in network.named_parameters():
            if "conv_out" in name:
                torch.nn.init.normal_(parameter, std=0.3)
    return network.eval()


def normals(seed: int, *shape: int) -> torch.Tensor:
    """Return standard normal numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def everything(count: int = 2, seed: int = 0) -> Conditions:
    """Return conditions of all kinds for `SMALL` with text_shape (4, 5)."""
    text = normals(seed + 1, count, 4, 5)
    text[:, 2:] = 0
    return Conditions(
        image=normals(seed, count, 6),
        text=text,
        low=normals(seed + 2, count, 1, 8, 8),
        image_noise=torch.full((count,), 0.3),
        low_noise=torch.full((count,), 0.2),
    )
