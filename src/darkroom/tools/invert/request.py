"""The options of `darkroom invert`. Loads no torch."""

from dataclasses import dataclass
from typing import Annotated, Literal

from typer import Option


@dataclass(frozen=True)
class Request:
    """The options of `darkroom invert`."""

    split: Annotated[Literal["train", "val", "test"], Option(help="stored images of this split")] = "test"
    images: Annotated[int, Option(min=1, help="how many, drawn of the split")] = 8
    labels: Annotated[str | None, Option(metavar="CLASS", help="the class of all, in place of their own")] = None
    steps: Annotated[str | None, Option(help="steps of the solver, there and back; default: `sample_generator`")] = None
    solver: Annotated[
        str | None, Option(help="ddim, euler or heun; default: ddim of Gaussian diffusion, euler of a flow")
    ] = None
    guidance: Annotated[float, Option(min=0, help="scale of guidance there and back; 1: none")] = 1.0
    weights: Annotated[
        str | None, Option(help="ema, raw, a .safetensors file, or a folder with a model or a checkpoint")
    ] = None
    out: Annotated[
        str | None,
        Option(
            metavar="FILE.png", help="where the grid is written, beside a table and the noise; default: logs/invert/"
        ),
    ] = None
