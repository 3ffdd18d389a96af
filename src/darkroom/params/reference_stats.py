"""The sections that `reference_stats` reads, and where published networks come from."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from darkroom.params.run import Run
from darkroom.params.section import NO_FILE, Positive, Section, Sha256

Split = Literal["train", "val", "test"]
ExtractorName = Literal["in_domain", "inception", "dinov2", "clip"]

_DINOV2 = "https://dl.fbaipublicfiles.com/dinov2"
_CLIP = "3035c92b350959924f9f00213499208652fc7ea050643e8b385c2dac08641f02"
DINOV2_B, DINOV2_L = (f"{_DINOV2}/dinov2_vit{size}14/dinov2_vit{size}14_pretrain.pth" for size in "bl")
CLIP_URL = f"https://openaipublic.azureedge.net/clip/models/{_CLIP}/ViT-L-14-336px.pt"
DINOV2_B_SHA256 = "0b8b82f85de91b424aded121c7e1dcc2b7bc6d0adeea651bf73a13307fad8c73"


class Dinov2(Section):
    """Where the weights of DINOv2 come from: a file, or (`data/none`) the release of ViT-L/14."""

    weights: str = NO_FILE
    """A file with published weights, ViT-B/14 or ViT-L/14; data/none: download ViT-L/14."""
    sha256: Sha256 = "d5383ea8f4877b2472eb973e0fd72d557c7da5d3611bd527ceeb1d7162cbf428"
    """SHA-256 of that file; other files are rejected."""


class ClipFile(Section):
    """Where the weights of the CLIP of CMMD come from: a file, or (`data/none`) ViT-L/14 at 336 pixels."""

    weights: str = NO_FILE
    """A file of OpenAI's; data/none: ViT-L/14 at 336 pixels, from torch hub's cache."""
    sha256: Sha256 = _CLIP
    """SHA-256 of that file; other files are rejected."""


class Inception(Section):
    """Where the weights of FID's network come from: a file, or (`data/none`) torch-fidelity's release."""

    weights: str = NO_FILE
    """A file with torch-fidelity's weights; data/none: download them."""
    sha256: Sha256 = "6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2"
    """SHA-256 of that file; other files are rejected."""


class ReferenceStats(Section):
    """The real images of the reference, and the networks that extract their features."""

    threads: Positive = 1
    """CPU threads."""
    batch: Positive = 64
    """Images per forward pass."""
    split: Split = "train"
    """Split of the real images that generated ones are compared with."""
    held_out: Literal["val", "test"] = "test"
    """Split of unseen real images, scored as if generated: the score of a perfect generator."""
    twins: Literal["keep", "quarantine"] = "keep"
    """Unseen images with a near twin in training, in any part; quarantine: leave them out of the scores."""
    kid_images: Annotated[int, Field(ge=2)] = 10000
    """Maximum number of reference features kept for the kernel distance."""
    blocks: Annotated[int, Field(ge=2)] = 10
    """Jackknife blocks for the noise floor's standard errors; fewer if a block has fewer than two images."""
    extractors: Annotated[list[ExtractorName], Field(min_length=1)] = ["in_domain"]
    """Feature networks; in_domain: train_extractor's network; inception: the network of FID; dinov2; clip: CMMD's."""
    inception: Inception = Inception.model_construct()
    """Weights of FID's network."""
    dinov2: Dinov2 = Dinov2.model_construct()
    """Weights of DINOv2."""
    clip: ClipFile = ClipFile.model_construct()
    """Weights of the CLIP of CMMD."""

    def _misfits(self) -> Iterator[str]:
        if self.held_out == self.split:
            yield f"held_out ({self.held_out}) must be another split than split"
        if len(set(self.extractors)) != len(self.extractors):
            yield "extractors lists a name twice"


class Params(Section):
    """The parameters of `reference_stats`, as dvc.yaml lists them."""

    run: Run
    reference_stats: ReferenceStats
