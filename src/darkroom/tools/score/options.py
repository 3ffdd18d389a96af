"""The options of `darkroom score`. Does not import torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from darkroom.errors import DarkroomError
from darkroom.params.section import NO_FILE
from darkroom.tools import command
from darkroom.tools.places import require_no_output


@command(
    "Score and compare", "score", "Score two folders of images, or published .npz files.", "tools.score.command:score"
)
@dataclass(frozen=True)
class Request:
    """The options of `darkroom score`.

    Raises:
        DarkroomError: a path does not exist, or `--out` cannot be written; the message names the path.
    """

    samples: Annotated[Path, Argument(help="a folder of images or tars, a tar, or an .npz with arr_0")]
    against: Annotated[Path, Option(metavar="REFERENCE", help="the same, or an .npz with mu and sigma")]
    extractor: Annotated[str, Option(help="inception, dinov2, clip, or a folder like models/extractor")] = "inception"
    weights: Annotated[
        Path,
        Option(metavar="FILE", help="published file of the extractor; default: that of torch hub", show_default=False),
    ] = Path(NO_FILE)
    download: Annotated[bool, Option("--download", help="download the weights if missing")] = False
    convention: Annotated[
        Literal["darkroom", "torch-fidelity", "clean-fid", "adm", "edm", "dit"],
        Option("--protocol", "--convention", help="program whose resize, splits and subsets to use"),
    ] = "darkroom"
    out: Annotated[Path, Option(metavar="FOLDER", help="folder for scores.json and nearest.png")] = Path("score")
    limit: Annotated[int | None, Option(metavar="N", min=20, help="draw at most N images of each set at random")] = None
    size: Annotated[
        int | None,
        Option(
            metavar="N",
            min=1,
            help="crop each image to its middle square and resize it to N x N pixels in RGB, as ingest does; "
            "otherwise, the images of a set must have equal size and channels",
        ),
    ] = None
    batch: Annotated[int, Option(min=1, help="images per forward pass")] = 32
    threads: Annotated[int | None, Option(min=1, help="CPU threads; default: all")] = None
    device: Annotated[Literal["auto", "cpu", "cuda", "mps"], Option(help="device of the extractor")] = "auto"

    def __post_init__(self) -> None:
        for path in (self.samples, self.against):
            if not path.exists():
                raise DarkroomError(f"{path} is neither a folder nor a file.")
        require_no_output(f"--out {self.out}", self.out / "scores.json")
