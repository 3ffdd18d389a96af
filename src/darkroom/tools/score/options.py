"""The options of `darkroom score`. Loads no torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from darkroom.errors import DarkroomError
from darkroom.params.section import NO_FILE
from darkroom.tools.places import require_no_output


@dataclass(frozen=True)
class Request:
    """The options of `darkroom score`.

    Raises:
        DarkroomError: one of the two paths does not exist, or `--out` cannot be written; names the path.
    """

    samples: Annotated[Path, Argument(help="a folder of images or of tars, a tar, or an .npz with arr_0")]
    against: Annotated[Path, Option(metavar="REFERENCE", help="the same, or an .npz with mu and sigma")]
    extractor: Annotated[str, Option(help="inception, dinov2, clip, or a folder as models/extractor")] = "inception"
    weights: Annotated[
        Path,
        Option(
            metavar="FILE",
            help="the extractor's published file; default: where torch hub keeps it",
            show_default=False,
        ),
    ] = Path(NO_FILE)
    download: Annotated[bool, Option("--download", help="download that file if it is missing")] = False
    convention: Annotated[
        Literal["darkroom", "torch-fidelity", "clean-fid", "adm", "edm", "dit"],
        Option("--protocol", "--convention", help="whose resize of images, splits and subsets"),
    ] = "darkroom"
    out: Annotated[Path, Option(metavar="FOLDER", help="of scores.json and nearest.png")] = Path("score")
    limit: Annotated[int | None, Option(metavar="N", min=20, help="at most N images of each, drawn at random")] = None
    size: Annotated[
        int | None,
        Option(
            metavar="N",
            min=1,
            help="crop each image to its middle square and resize it to N x N pixels of RGB, as ingest does; without "
            "it the images of a set must have one size and one kind of colour",
        ),
    ] = None
    batch: Annotated[int, Option(min=1, help="images in a forward pass")] = 32
    threads: Annotated[int | None, Option(min=1, help="CPU threads; default: all")] = None
    device: Annotated[Literal["auto", "cpu", "cuda", "mps"], Option(help="of the extractor")] = "auto"

    def __post_init__(self) -> None:
        for path in (self.samples, self.against):
            if not path.exists():
                raise DarkroomError(f"{path} is neither a folder nor a file.")
        require_no_output(f"--out {self.out}", self.out / "scores.json")
