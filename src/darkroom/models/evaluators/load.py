"""The protocol of extractors; opens the in-domain one, and runs extractors at a fixed batch size."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from darkroom.artifacts.manifest import manifest_hash, open_artifact, sha256_file
from darkroom.artifacts.networks import WEIGHTS
from darkroom.metrics.batches import Images, Views, batched
from darkroom.models.evaluators.extractor import Classifier


class FeatureNetwork(Protocol):
    """The protocol of an extractor: a torch module with `features`."""

    def features(self, images: Tensor) -> Tensor:
        """Return features (N, D) float32 of uint8 images (N, C, H, W)."""
        ...

    def to(self, device: torch.device) -> "FeatureNetwork":
        """Move the network to a device and return it."""
        ...

    def eval(self) -> "FeatureNetwork":
        """Set evaluation mode and return the network."""
        ...


class Extractor(NamedTuple):
    """A network, the SHA-256 of its weights file, the length of its features, and its resize method."""

    network: FeatureNetwork
    sha256: str
    dim: int
    resize: str = "none"


class Evaluator(NamedTuple):
    """The in-domain extractor with entries of its manifest."""

    network: Classifier
    classes: list[str]  # in the order of its logits
    sha256: str  # hash of its weights
    fingerprint: str  # hash of its manifest, the fingerprint


def open_evaluator(folder: Path, image_shape: Sequence[int]) -> Evaluator:
    """Return the in-domain extractor in `folder`, in evaluation mode, for images of shape (C, H, W).

    Raises:
        ArtifactError: missing, damaged, or trained on images of another shape.
    """
    manifest = open_artifact(folder, "extractor", image_shape)
    network = Classifier.from_pretrained(folder)
    return Evaluator(network, manifest["classes"], sha256_file(folder / WEIGHTS), manifest_hash(folder))


def stream_views(
    network: FeatureNetwork, images: Iterable[Images], batch: int, device: torch.device
) -> Iterator[Views]:
    """Yield the outputs of a network for uint8 images in groups (n, C, H, W) of any sizes, float32, on the CPU.

    With Inception also those for sFID and IS, from the same forward pass. The network always runs on `batch` images;
    the last batch is padded with black images. So the features of an image have the same bits for any grouping and
    any number of images.
    """
    running: Any = network.to(device).eval()
    widths = getattr(running, "widths", None)
    for rows in batched(running.features if widths is None else running.outputs, images, batch, device):
        yield Views(rows) if widths is None else Views(*rows.split(widths, dim=1))


def extract_views(network: FeatureNetwork, images: Iterable[Images], batch: int, device: torch.device) -> Views:
    """Return the outputs of a network for all images, in one forward pass of each; see `stream_views`.

    Raises:
        DarkroomError: there is no image.
    """
    return Views.joined(stream_views(network, images, batch, device))


def extract(network: FeatureNetwork, images: Iterable[Images], batch: int, device: torch.device) -> Tensor:
    """Return only the features that `extract_views` returns, (N, D) float32 on the CPU."""
    return extract_views(network, images, batch, device).pool
