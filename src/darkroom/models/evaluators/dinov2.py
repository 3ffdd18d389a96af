"""DINOv2: a vision transformer with self-supervised features, whose scores agree better with human ranking.

Source: Oquab et al., "DINOv2: learning robust visual features without supervision", 2023, arXiv 2304.07193; as a
network for scores: Stein et al., "Exposing flaws of generative model evaluation metrics", 2023, arXiv 2306.04675. The
features are the class token after the last norm. Images are resized to 224 x 224, bicubic with antialias, in float32.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from darkroom.data.colours import to_rgb
from darkroom.models.evaluators.published import Keys, Published, of_section, other_file, read_published
from darkroom.params.reference_stats import DINOV2_B, DINOV2_B_SHA256, DINOV2_L
from darkroom.params.reference_stats import Dinov2 as Settings

# By the size of the network: the length of features is 768 and 1,024.
PUBLISHED = {
    "b": Published("the weights of DINOv2 ViT-B/14", DINOV2_B, DINOV2_B_SHA256),
    "l": Published("the weights of DINOv2 ViT-L/14", DINOV2_L, Settings().sha256),
}
KEYS = of_section("reference_stats", "dinov2")
SIDE = 224  # of the network's input
_HEAD = 64  # width of an attention head, in all published sizes
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's channels
_OFFSET = 0.1  # which the authors add to the side of the grid of positions before they divide


class _Scale(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gamma


class _Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = width // _HEAD
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        q, k, v = self.qkv(x).reshape(n, length, 3, self.heads, _HEAD).permute(2, 0, 3, 1, 4)  # each (N, heads, L, 64)
        return self.proj(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, length, width))


class _Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.attn, self.ls1, self.ls2 = _Attention(width), _Scale(width), _Scale(width)
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(width, 4 * width), "fc2": nn.Linear(4 * width, width)})

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.ls1(self.attn(self.norm1(x)))
        return x + self.ls2(self.mlp["fc2"](functional.gelu(self.mlp["fc1"](self.norm2(x)))))


class Dinov2(nn.Module):
    """DINOv2's network under the names of its published weights. dim: the length of its features."""

    def __init__(self, width: int, depth: int, patch: int, positions: int) -> None:
        super().__init__()
        self.dim, self.patch = width, patch
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, positions, width))
        self.mask_token = nn.Parameter(torch.zeros(1, width))  # of its training: in the file, and not used
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(3, width, patch, patch)})
        self.blocks = nn.ModuleList(_Block(width) for _ in range(depth))
        self.norm = nn.LayerNorm(width, eps=1e-6)

    @classmethod
    def of(cls, state: Mapping[str, Tensor]) -> "Dinov2":
        """Return the network of published weights, with the sizes that they imply.

        Raises:
            KeyError, RuntimeError: they belong to another network.
        """
        width, _, patch, _ = state["patch_embed.proj.weight"].shape
        depth = 1 + max(int(name.split(".")[1]) for name in state if name.startswith("blocks."))
        with torch.device("meta"):
            network = cls(width, depth, patch, state["pos_embed"].shape[1])
        network.load_state_dict({name: value.float() for name, value in state.items()}, assign=True)
        return network.requires_grad_(False)

    def _positions(self, side: int) -> Tensor:
        """Return the embeddings of positions (1, 1 + side², D), resized from the grid of its training."""
        own, grid = self.pos_embed[:, :1], self.pos_embed[:, 1:]
        trained = round(grid.shape[1] ** 0.5)
        if trained == side:
            return self.pos_embed
        square = grid.reshape(1, trained, trained, -1).permute(0, 3, 1, 2)
        factor = (side + _OFFSET) / trained
        square = functional.interpolate(square, scale_factor=(factor, factor), mode="bicubic")
        return torch.cat([own, square.permute(0, 2, 3, 1).flatten(1, 2)], dim=1)

    def tokens(self, x: Tensor) -> Tensor:
        """Return all tokens after the last norm, (N, 1 + L, D), of the network's input (N, 3, S, S)."""
        patches = self.patch_embed["proj"](x).flatten(2).transpose(1, 2)  # (N, L, D)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), patches], dim=1)
        x = x + self._positions(round(patches.shape[1] ** 0.5))
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    def features(self, images: Tensor) -> Tensor:
        """Return the features, (N, D) float32, of uint8 images (N, C, H, W) with C of 1, 3 or 4."""
        x = to_rgb(images).float() / 255
        x = functional.interpolate(x, size=(SIDE, SIDE), mode="bicubic", antialias=True)
        mean, std = (torch.tensor(values, device=x.device)[:, None, None] for values in (_MEAN, _STD))
        return self.tokens((x - mean) / std)[:, 0]


def open_dinov2(weights: Path, sha256: str | None, keys: Keys = KEYS, download: bool = True) -> tuple[Dinov2, str]:
    """Return DINOv2 with checked weights, in evaluation mode, on the CPU, and the SHA-256 of its file.

    Args:
        weights: a published file, without registers; `data/none`: that of ViT-L/14, from torch hub's cache.
        sha256: the SHA-256 that the file must have; None: any.
        keys: for messages.
        download: whether the file is downloaded into the cache.

    Raises:
        DarkroomError: there is no file and no internet, the hash differs, or the file is another network's.
    """
    state, digest, path = read_published(weights, sha256, PUBLISHED["l"], keys, download)
    try:
        network = Dinov2.of(state)
    except (RuntimeError, KeyError, ValueError) as error:
        raise other_file(path, PUBLISHED["l"], keys, error) from error
    return network.eval(), digest
