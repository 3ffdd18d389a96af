"""The options of `darkroom score`. Loads no torch."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import NamedTuple

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

    @classmethod
    def of(cls, options: Namespace) -> "Request":
        """Return the request of a command line."""
        return cls(
            **{name: getattr(options, name) for name in cls._fields}
            | {name: Path(getattr(options, name)) for name in ("samples", "against", "weights", "out")}
        )


def add_options(parser: ArgumentParser) -> None:
    """Add the options; their names are the fields of `Request`."""
    parser.add_argument("samples", help="a folder of images or of tars, a tar, or an .npz with arr_0")
    parser.add_argument("--against", required=True, metavar="REFERENCE", help="the same, or an .npz with mu and sigma")
    parser.add_argument(
        "--extractor",
        default="inception",
        help="inception, dinov2, clip, or a folder as models/extractor or models/tokenizer; %(default)s",
    )
    parser.add_argument(
        "--weights", default=NO_FILE, metavar="FILE", help="the extractor's published file; where torch hub keeps it"
    )
    parser.add_argument("--download", action="store_true", help="download that file where it is missing")
    parser.add_argument(
        "--protocol",
        "--convention",
        dest="convention",
        default="darkroom",
        choices=["darkroom", "torch-fidelity", "clean-fid", "adm", "edm", "dit"],
        help="whose resize of images, splits and subsets; %(default)s",
    )
    parser.add_argument("--out", default="score", metavar="FOLDER", help="of scores.json and index.html; %(default)s")
    parser.add_argument("--limit", type=int, metavar="N", help="at most N images of each, drawn at random")
    parser.add_argument(
        "--size",
        type=int,
        metavar="N",
        help="crop each image of both sets to its middle square and resize it to N x N pixels of RGB, as ingest does; "
        "without it the images of a set must have one size and one kind of colour",
    )
    parser.add_argument("--batch", type=int, default=32, help="images in a forward pass; %(default)s")
    parser.add_argument("--threads", type=int, help="CPU threads; all there are")
    parser.add_argument(
        "--device", default="auto", choices=["auto", "cpu", "cuda", "mps"], help="of the extractor; %(default)s"
    )


def require_paths(options: Namespace) -> None:
    """Check that something lies at both paths, and that `--out` can be written, before torch is loaded.

    Raises:
        DarkroomError: nothing does, or it cannot; names the path.
    """
    for path in (options.samples, options.against):
        if not Path(path).exists():
            raise DarkroomError(f"{path} is neither a folder nor a file.")
    require_no_output(f"--out {options.out}", Path(options.out) / "scores.json")
