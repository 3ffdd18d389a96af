"""CLIP's image embeddings as features, with the resize of CMMD: bicubic to the network's side, no antialias.

Source: Jayasumana et al., 2024, arXiv 2401.09603; published values are of ViT-L/14 at 336 pixels.
"""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from darkroom.artifacts.manifest import sha256_file
from darkroom.data.colours import to_rgb
from darkroom.errors import DarkroomError
from darkroom.models.clip.load import open_clip
from darkroom.models.clip.network import MEAN, STD, Clip
from darkroom.models.evaluators.published import Keys, Published, of_section
from darkroom.params.reference_stats import CLIP_URL, ClipFile
from darkroom.params.section import NO_FILE

PUBLISHED = Published("the weights of CLIP ViT-L/14 at 336 pixels", CLIP_URL, ClipFile().sha256)
KEYS = of_section("reference_stats", "clip")


class ClipFeatures(nn.Module):
    """A frozen CLIP's image embeddings, not normalised. dim: their length."""

    def __init__(self, clip: Clip) -> None:
        super().__init__()
        self.network, self.side, self.dim = clip.network, clip.image_size, clip.embed_dim

    @torch.no_grad()
    def features(self, images: Tensor) -> Tensor:
        """Return embeddings (N, dim) float32 of uint8 images (N, C, H, W) with C of 1, 3 or 4."""
        side = self.side
        x = functional.interpolate(to_rgb(images).float() / 255, size=(side, side), mode="bicubic")
        mean, std = (torch.tensor(values, device=x.device)[:, None, None] for values in (MEAN, STD))
        return self.network.encode_image((x - mean) / std).float()


def open_clip_features(weights: Path, sha256: str | None, keys: Keys = KEYS) -> tuple[ClipFeatures, str]:
    """Return a CLIP's image network, on the CPU, and the fingerprint of its weights.

    Args:
        weights: OpenAI's file, a state dict, or a folder as `models/clip`; `data/none`: OpenAI's, from torch hub's
            cache.
        sha256: the SHA-256 that the file must have; None: any.
        keys: for messages.

    Raises:
        DarkroomError: there is no such file, its hash differs, or it holds no CLIP of OpenAI's kind.
    """
    path = PUBLISHED.cached if weights == Path(NO_FILE) else weights
    if not path.exists():
        raise DarkroomError(
            f"{PUBLISHED.name} are not in {path}: download {PUBLISHED.url} (sha256 {PUBLISHED.sha256}) to that path, "
            f"or to another one and set {keys.weights} to it; or {keys.instead}."
        )
    if sha256 is not None and path.is_file() and (digest := sha256_file(path)) != sha256:
        raise DarkroomError(
            f"{path} has the sha256 {digest}, not {sha256} ({keys.sha256}): download it again, or correct the hash."
        )
    clip = open_clip(path, keys.weights.split("`")[1])
    if not hasattr(clip.network, "visual") or type(clip) is not Clip:
        raise DarkroomError(f"{keys.weights} names {path}, a CLIP of open_clip: use one in OpenAI's format.")
    return ClipFeatures(clip), clip.fingerprint
