"""Inception's weights as torch-fidelity publishes them, but random."""

import io
from pathlib import Path
from typing import Any

import torch


def blank() -> Any:
    """Return torch-fidelity's network as it is before any weights are read."""
    from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3

    class Blank(FeatureExtractorInceptionV3):
        def load_state_dict(self, *_: Any) -> None:  # type: ignore[override]
            pass

    nothing = io.BytesIO()
    torch.save({}, nothing)
    nothing.seek(0)
    return Blank("inception-v3-compat", ["2048"], feature_extractor_weights_path=nothing)


def write_random_weights(path: Path) -> Path:
    """Write a file in the real format (names, shapes, dtypes, serialisation) and return its path."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        torch.save(blank().state_dict(), path)
    return path


def random_dinov2(width: int = 128, depth: int = 3) -> dict[str, torch.Tensor]:
    """Return random weights under the published names of DINOv2, small, of the published grid of positions."""
    draw = torch.Generator().manual_seed(0)

    def random(*shape: int, scale: float = 0.05) -> torch.Tensor:
        return scale * torch.randn(*shape, generator=draw)

    def linear(name: str, rows: int, columns: int) -> dict[str, torch.Tensor]:
        return {f"{name}.weight": random(rows, columns), f"{name}.bias": random(rows)}

    def norm(name: str) -> dict[str, torch.Tensor]:
        return {f"{name}.weight": 1 + random(width), f"{name}.bias": random(width)}

    state = {
        "cls_token": random(1, 1, width),
        "pos_embed": random(1, 1 + 37 * 37, width, scale=0.5),
        "mask_token": random(1, width),
        "patch_embed.proj.weight": random(width, 3, 14, 14),
        "patch_embed.proj.bias": random(width),
    }
    for block in range(depth):
        at = f"blocks.{block}"
        state |= (
            norm(f"{at}.norm1") | linear(f"{at}.attn.qkv", 3 * width, width) | linear(f"{at}.attn.proj", width, width)
        )
        state |= {f"{at}.ls1.gamma": random(width, scale=1.0)} | norm(f"{at}.norm2")
        state |= linear(f"{at}.mlp.fc1", 4 * width, width) | linear(f"{at}.mlp.fc2", width, 4 * width)
        state |= {f"{at}.ls2.gamma": random(width, scale=1.0)}
    return state | norm("norm")
