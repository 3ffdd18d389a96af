"""The network of FID: Inception v3 of 2015-12-05, as torch-fidelity ported it from TensorFlow.

Only distances in its 2,048 features are called FID. The weights are torch-fidelity's published file, or a copy of it.
The resize to 299 x 299 follows the convention of a program: `tensorflow`, as the first FID, ADM's evaluator and
torch-fidelity; `pillow`, as clean-fid (Parmar et al., 2022, arXiv 2104.11222).
"""

import io
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch_fidelity.feature_extractor_inceptionv3 import URL_INCEPTION_V3, FeatureExtractorInceptionV3
from torch_fidelity.interpolate_compat_tensorflow import interpolate_bilinear_2d_like_tensorflow1x

from darkroom.data.colours import to_rgb
from darkroom.models.evaluators.published import Keys, Published, of_section, other_file, read_published
from darkroom.params.reference_stats import Inception as Settings

PUBLISHED = Published("the weights of Inception", URL_INCEPTION_V3, Settings().sha256)
KEYS = of_section("reference_stats", "inception")
SIDE = 299  # of the network's input
_STEM = ("Conv2d_1a_3x3", "Conv2d_2a_3x3", "Conv2d_2b_3x3", "MaxPool_1", "Conv2d_3b_1x1", "Conv2d_4a_3x3", "MaxPool_2")
_MIXED = ("5b", "5c", "5d", "6a", "6b", "6c", "6d", "6e", "7a", "7b", "7c")
_LAYERS = (*_STEM, *(f"Mixed_{block}" for block in _MIXED), "AvgPool")
_SPATIAL = 7  # channels of the 1 x 1 branch of Mixed_6d that sFID sees

Resize = Callable[[Tensor], Tensor]


def tensorflow(images: Tensor) -> Tensor:
    """Return uint8 RGB (N, 3, H, W) as float32 (N, 3, 299, 299), 0 to 255: TensorFlow 1's bilinear resize."""
    return interpolate_bilinear_2d_like_tensorflow1x(images.float(), size=(SIDE, SIDE), align_corners=False)


def pillow(images: Tensor) -> Tensor:
    """Return the same by Pillow: bicubic, antialiased, each channel in float32, clamped and not rounded."""
    planes = images.cpu().numpy().reshape(-1, *images.shape[2:])
    wide = np.empty((len(planes), SIDE, SIDE), np.float32)
    for plane, row in zip(planes, wide, strict=True):
        row[:] = np.asarray(Image.fromarray(plane.astype(np.float32)).resize((SIDE, SIDE), Image.Resampling.BICUBIC))
    return torch.from_numpy(wide.clip(0, 255).reshape(-1, 3, SIDE, SIDE)).to(images.device)


class Inception(nn.Module):
    """FID's network, with features of length 2048."""

    dim = 2048
    widths = (2048, 17 * 17 * _SPATIAL, 1008)  # of pool features, spatial features and logits

    def __init__(self, state: Mapping[str, Tensor], resize: Resize = tensorflow) -> None:
        super().__init__()
        self._resize = resize
        # torch-fidelity reads its weights with weights_only=False. So it gets a file in memory that is written here,
        # from tensors that were read with weights_only=True.
        buffer = io.BytesIO()
        torch.save(state, buffer)
        buffer.seek(0)
        with torch.random.fork_rng(devices=[]):  # initial weights are replaced: keep the global random state
            self.network = FeatureExtractorInceptionV3(
                "inception-v3-compat", ["2048"], feature_extractor_weights_path=buffer
            )

    def outputs(self, images: Tensor) -> Tensor:
        """Return all inputs of scores, (N, 2048 + 2023 + 1008) float32, of uint8 images (N, C, H, W), C of 1, 3 or 4.

        The 2,048 features of FID; those of sFID, the first 7 channels of the 1 x 1 branch of Mixed_6d after its ReLU,
        by row, column and channel, as in ADM's evaluator; the 1,008 logits without their bias, for the Inception
        Score. `widths` are their lengths.
        """
        x = (self._resize(to_rgb(images)) - 128) / 128
        spatial = x
        for name in _LAYERS:
            if name == "Mixed_6d":
                spatial = self.network.Mixed_6d.branch1x1(x)[:, :_SPATIAL]
            x = getattr(self.network, name)(x)
        pool = x.flatten(1)
        return torch.cat([pool, spatial.permute(0, 2, 3, 1).flatten(1), pool @ self.network.fc.weight.T], dim=1)

    def features(self, images: Tensor) -> Tensor:
        """Return the features, (N, 2048) float32, of uint8 images (N, C, H, W) with C of 1, 3 or 4."""
        return self.outputs(images)[:, : self.dim]


def open_inception(
    weights: Path, sha256: str | None, keys: Keys = KEYS, resize: Resize = tensorflow, download: bool = True
) -> tuple[Inception, str]:
    """Return FID's network with checked weights, in evaluation mode, on the CPU, and the SHA-256 of its file.

    Args:
        weights: a file in the format of torch-fidelity's release; `data/none`: that release, from torch hub's cache.
        sha256: the SHA-256 that the file must have; None: any.
        keys: for messages.
        resize: the resize convention.
        download: whether the release is downloaded into the cache.

    Raises:
        DarkroomError: there is no file and no internet, the hash differs, or the file does not hold the tensors of this
            network.
    """
    state, digest, path = read_published(weights, sha256, PUBLISHED, keys, download)
    try:
        network = Inception(state, resize)
    except (RuntimeError, TypeError) as error:
        raise other_file(path, PUBLISHED, keys, error) from error
    return network.eval(), digest
