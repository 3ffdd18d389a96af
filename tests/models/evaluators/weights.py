"""Inception's weights as torch-fidelity publishes them, but random."""

import io
from pathlib import Path
from typing import Any

import torch
from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3


class Blank(FeatureExtractorInceptionV3):
    """torch-fidelity's network as it is before any weights are read."""

    def __init__(self) -> None:
        nothing = io.BytesIO()
        torch.save({}, nothing)
        nothing.seek(0)
        super().__init__("inception-v3-compat", ["2048"], feature_extractor_weights_path=nothing)

    def load_state_dict(self, *_: Any) -> None:  # type: ignore[override]
        pass


def write_random_weights(path: Path) -> Path:
    """Write a file in the real format (names, shapes, dtypes, serialisation) and return its path."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        torch.save(Blank().state_dict(), path)
    return path
