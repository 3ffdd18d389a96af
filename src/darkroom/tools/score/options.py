"""The options of `darkroom score`. Loads no torch."""

from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from typer import Argument, Option

from darkroom.errors import DarkroomError
from darkroom.params.section import NO_FILE
from darkroom.tools.places import require_no_output


class Request(NamedTuple):
    """What a person asks for: the options of `darkroom score`."""

    samples: Path
    against: Path
    extractor: str = "inception"
    weights: Path = Path(NO_FILE)
    convention: str = "darkroom"
    out: Path = Path("score")
    limit: int | None = None
    size: int | None = None
    batch: int = 32
    threads: int | None = None
    device: str = "auto"
    download: bool = False


def request(
    samples: Annotated[Path, Argument(help="a folder of images or of tars, a tar, or an .npz with arr_0")],
    against: Annotated[Path, Option(metavar="REFERENCE", help="the same, or an .npz with mu and sigma")],
    extractor: Annotated[
        str, Option(help="inception, dinov2, clip, or a folder as models/extractor or models/tokenizer")
    ] = "inception",
    weights: Annotated[
        Path,
        Option(
            metavar="FILE",
            help="the extractor's published file; default: where torch hub keeps it",
            show_default=False,
        ),
    ] = Path(NO_FILE),
    download: Annotated[bool, Option("--download", help="download that file if it is missing")] = False,
    convention: Annotated[
        Literal["darkroom", "torch-fidelity", "clean-fid", "adm", "edm", "dit"],
        Option("--protocol", "--convention", help="whose resize of images, splits and subsets"),
    ] = "darkroom",
    out: Annotated[Path, Option(metavar="FOLDER", help="of scores.json and index.html")] = Path("score"),
    limit: Annotated[int | None, Option(metavar="N", help="at most N images of each, drawn at random")] = None,
    size: Annotated[
        int | None,
        Option(
            metavar="N",
            help="crop each image to its middle square and resize it to N x N pixels of RGB, as ingest does; without "
            "it the images of a set must have one size and one kind of colour",
        ),
    ] = None,
    batch: Annotated[int, Option(help="images in a forward pass")] = 32,
    threads: Annotated[int | None, Option(help="CPU threads; default: all")] = None,
    device: Annotated[Literal["auto", "cpu", "cuda", "mps"], Option(help="of the extractor")] = "auto",
) -> Request:
    """Return the options.

    Raises:
        DarkroomError: one of the two paths does not exist, or `--out` cannot be written; names the path.
    """
    for path in (samples, against):
        if not path.exists():
            raise DarkroomError(f"{path} is neither a folder nor a file.")
    require_no_output(f"--out {out}", out / "scores.json")
    return Request(samples, against, extractor, weights, convention, out, limit, size, batch, threads, device, download)
