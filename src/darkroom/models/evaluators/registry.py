"""The registry of extractors by name, with the source of their weights and their resize methods."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from darkroom.artifacts.manifest import sha256_file
from darkroom.artifacts.networks import WEIGHTS
from darkroom.errors import DarkroomError
from darkroom.models.evaluators.extractor import Classifier
from darkroom.models.evaluators.load import Extractor
from darkroom.models.evaluators.published import Keys, of_section
from darkroom.params.reference_stats import ClipFile, Dinov2, Inception
from darkroom.params.section import NO_FILE

TENSORFLOW = "TensorFlow 1 bilinear to 299 px, align_corners=False, no half-pixel centres, no antialias"
PILLOW = "Pillow bicubic to 299 px, antialias, each channel in float32, clamped to 0..255, not rounded"
RESIZE = {
    "in_domain": "none",
    "inception": TENSORFLOW,
    "dinov2": "torch bicubic to 224 px, antialias, in float32, not rounded",
    "clip": "torch bicubic to the network's input, no antialias, in float32, not rounded",
}


@dataclass(frozen=True)
class Source:
    """The source of an extractor.

    weights: a file, or for in_domain a folder; `data/none`: the published file.
    sha256: the hash that a file must have; None: any.
    pillow: whether images for Inception are resized as in clean-fid.
    download: whether a published file is downloaded.
    keys: their names in messages; None: those of `reference_stats` in params.yaml.
    """

    weights: Path = field(default_factory=lambda: Path(NO_FILE))
    sha256: str | None = None
    pillow: bool = False
    download: bool = True
    keys: Keys | None = None


def open_configured(name: str, in_domain: Path, section: Any) -> Extractor:
    """Return an extractor of `reference_stats.extractors`, the in-domain one from its folder.

    `section` is `reference_stats`, which gives the sources of published networks.

    Raises:
        DarkroomError: see `open_extractor`.
    """
    if name == "in_domain":
        return open_extractor(name, Source(in_domain))
    given: Inception | Dinov2 | ClipFile = getattr(section, name)
    return open_extractor(name, Source(Path(given.weights), given.sha256))


def open_extractor(name: str, source: Source) -> Extractor:
    """Return the extractor called `name`, in evaluation mode, on the CPU.

    Raises:
        DarkroomError: the name is unknown, or the weights are missing, damaged or have another hash.
    """
    keys = source.keys or of_section("reference_stats", name)
    network: Any
    match name:
        case "in_domain":
            network, sha256 = Classifier.from_pretrained(source.weights), sha256_file(source.weights / WEIGHTS)
        case "inception":
            from darkroom.models.evaluators.inception import open_inception, pillow, tensorflow

            resize = pillow if source.pillow else tensorflow
            network, sha256 = open_inception(source.weights, source.sha256, keys, resize, source.download)
        case "dinov2":
            from darkroom.models.evaluators.dinov2 import open_dinov2

            network, sha256 = open_dinov2(source.weights, source.sha256, keys, source.download)
        case "clip":
            from darkroom.models.evaluators.clip_features import open_clip_features

            network, sha256 = open_clip_features(source.weights, source.sha256, keys)
        case _:
            raise DarkroomError(f"there is no extractor `{name}`: choose one of {', '.join(RESIZE)}.")
    return Extractor(network, sha256, network.dim, PILLOW if name == "inception" and source.pillow else RESIZE[name])
