"""The network of FID: Inception v3 of 2015-12-05, as torch-fidelity ported it from TensorFlow.

Only distances in its 2,048 features, from images resized inside the network as in TensorFlow 1, are called FID. The
weights are torch-fidelity's published file, or a copy of it. The hash of the file is checked before it is read, and it
is read as tensors only, so that no code in it runs.
"""

import io
import pickle
import sys
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn
from torch_fidelity.feature_extractor_inceptionv3 import URL_INCEPTION_V3, FeatureExtractorInceptionV3

from darkroom.artifacts.hashing import sha256_bytes
from darkroom.errors import DarkroomError
from darkroom.params.numbers import NO_FILE

KEY = "reference_stats.inception.weights"


def to_rgb(images: Tensor) -> Tensor:
    """Return uint8 images (N, C, H, W) as RGB (N, 3, H, W).

    Grey (C = 1) is repeated; RGBA (C = 4) is composited over white, rounded to nearest: (a·v + (255 - a)·255) / 255.

    Raises:
        DarkroomError: the images are not uint8, or have another number of channels.
    """
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3, 4):
        raise DarkroomError(
            f"Inception takes uint8 images of 1, 3 or 4 channels, not {images.dtype} of shape {tuple(images.shape)}."
        )
    if images.shape[1] == 1:
        return images.expand(-1, 3, -1, -1)
    if images.shape[1] == 4:
        colour, alpha = images[:, :3].int(), images[:, 3:].int()
        return ((alpha * colour + (255 - alpha) * 255 + 127) // 255).to(torch.uint8)
    return images


class Inception(nn.Module):
    """FID's network, with features of length 2048."""

    dim = 2048

    def __init__(self, state: Mapping[str, Tensor]) -> None:
        super().__init__()
        # torch-fidelity reads its weights with weights_only=False. So it gets a file in memory that is written here,
        # from tensors that were read with weights_only=True.
        buffer = io.BytesIO()
        torch.save(state, buffer)
        buffer.seek(0)
        with torch.random.fork_rng(devices=[]):  # initial weights are replaced: keep the global random state
            self.network = FeatureExtractorInceptionV3(
                "inception-v3-compat", ["2048"], feature_extractor_weights_path=buffer
            )

    def features(self, images: Tensor) -> Tensor:
        """Return the features, (N, 2048) float32, of uint8 images (N, C, H, W) with C of 1, 3 or 4."""
        return self.network(to_rgb(images))[0]


def cached_weights() -> Path:
    """Return the path of the published file in torch hub's cache, which torch-fidelity and torchmetrics use too."""
    return Path(torch.hub.get_dir()) / "checkpoints" / URL_INCEPTION_V3.rpartition("/")[2]


def _download(path: Path, sha256: str) -> None:
    """Download the published file into a temporary sibling, check it, and rename it."""
    print(f"downloading {URL_INCEPTION_V3} to {path}", file=sys.stderr, flush=True)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.hub.download_url_to_file(URL_INCEPTION_V3, str(path), hash_prefix=sha256, progress=sys.stderr.isatty())
    except OSError as error:  # also URLError, HTTPError and timeouts
        raise DarkroomError(
            f"the weights of Inception cannot be downloaded from {URL_INCEPTION_V3} to {path} ({error}): fetch that "
            f"file where there is internet, and put it there, or anywhere, naming its path as `{KEY}` in params.yaml; "
            "or take `inception` out of `reference_stats.extractors`."
        ) from error
    except RuntimeError as error:  # torch's error for another hash, which names both hashes
        raise DarkroomError(
            f"{URL_INCEPTION_V3} gave another file than `reference_stats.inception.sha256` in params.yaml says "
            f"({error}): nothing was kept; try again, or give a file by `{KEY}`."
        ) from error


def load_inception(weights: Path, sha256: str) -> Inception:
    """Return FID's network with checked weights, in evaluation mode, on the CPU.

    Args:
        weights: a file in the format of torch-fidelity's release; `data/none`: that release, downloaded once into torch
            hub's cache.
        sha256: the SHA-256 of the file, 64 hexadecimal digits.

    Raises:
        DarkroomError: there is no file and no internet, the hash differs, or the file does not hold the tensors of this
            network.
    """
    path = weights
    if weights == Path(NO_FILE):
        path = cached_weights()
        if not path.is_file():
            _download(path, sha256)
    try:
        content = path.read_bytes()  # one copy in memory is hashed and read: the file cannot change in between
    except OSError as error:
        raise DarkroomError(f"`{KEY}` in params.yaml names {path}, which cannot be read: {error.strerror}.") from error
    if (found := sha256_bytes(content)) != sha256:
        raise DarkroomError(
            f"{path} has the sha256 {found}, and {sha256} is expected (`reference_stats.inception.sha256` in "
            "params.yaml): delete it and fetch it again, or correct the hash if the file is meant."
        )
    try:
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
            raise TypeError("not a mapping of names to tensors")
        network = Inception(state)
    except (pickle.UnpicklingError, RuntimeError, TypeError, EOFError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise DarkroomError(
            f"{path} does not hold the weights of torch-fidelity's Inception ({reason}): give the published file by "
            f"`{KEY}` in params.yaml, or {NO_FILE} to download it."
        ) from error
    return network.eval()
