"""The options of `darkroom invert`. Does not import torch."""

from dataclasses import dataclass
from typing import Annotated, Literal

from typer import Option

from darkroom.tools import command


@command(
    "Sample",
    "invert",
    "Map images to noise by reversed DDIM or the reversed flow, and back.",
    "tools.invert.command:invert",
)
@dataclass(frozen=True)
class Request:
    """The options of `darkroom invert`."""

    split: Annotated[Literal["train", "val", "test"], Option(help="the split to take images from")] = "test"
    images: Annotated[int, Option(min=1, help="number of images, drawn from the split")] = 8
    labels: Annotated[str | None, Option(metavar="CLASS", help="the class of all images, instead of their own")] = None
    steps: Annotated[str | None, Option(help="solver steps in each direction; default: `sample_generator`")] = None
    solver: Annotated[
        str | None, Option(help="ddim, euler or heun; default: ddim for Gaussian diffusion, euler for flows")
    ] = None
    guidance: Annotated[float, Option(min=0, help="guidance scale in both directions; 1: none")] = 1.0
    weights: Annotated[str | None, Option(help="ema, raw, a .safetensors file, or a model or checkpoint folder")] = None
    out: Annotated[
        str | None,
        Option(
            metavar="FILE.png", help="path of the grid; a table and the noise go next to it; default: in logs/invert/"
        ),
    ] = None
