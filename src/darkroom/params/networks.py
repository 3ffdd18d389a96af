"""Published networks beside FID's, in whose features images are compared."""

from typing import Annotated

from pydantic import Field

from darkroom.params.numbers import NO_FILE
from darkroom.params.section import Section

Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

_DINOV2 = "https://dl.fbaipublicfiles.com/dinov2"
_CLIP = "3035c92b350959924f9f00213499208652fc7ea050643e8b385c2dac08641f02"
DINOV2_B, DINOV2_L = (f"{_DINOV2}/dinov2_vit{size}14/dinov2_vit{size}14_pretrain.pth" for size in "bl")
CLIP_URL = f"https://openaipublic.azureedge.net/clip/models/{_CLIP}/ViT-L-14-336px.pt"
DINOV2_B_SHA256 = "0b8b82f85de91b424aded121c7e1dcc2b7bc6d0adeea651bf73a13307fad8c73"


class Dinov2(Section):
    """Where the weights of DINOv2 come from: a file, or (`data/none`) the release of ViT-L/14."""

    weights: str = NO_FILE
    """A file with published weights, ViT-B/14 or ViT-L/14; data/none: download ViT-L/14."""
    sha256: Hash = "d5383ea8f4877b2472eb973e0fd72d557c7da5d3611bd527ceeb1d7162cbf428"
    """SHA-256 of that file; another file is refused."""


class ClipFile(Section):
    """Where the weights of the CLIP of CMMD come from: a file, or (`data/none`) ViT-L/14 at 336 pixels."""

    weights: str = NO_FILE
    """A file of OpenAI's; data/none: ViT-L/14 at 336 pixels, from torch hub's cache."""
    sha256: Hash = _CLIP
    """SHA-256 of that file; another file is refused."""
