"""What a person asks of `darkroom init`. Loads no torch."""

import math
import shlex
from dataclasses import dataclass
from typing import Annotated, Literal

from typer import Argument, Option

from darkroom.errors import DarkroomError


@dataclass(frozen=True)
class Request:
    """The options of `darkroom init`.

    generator: what makes images: dit (of texts, where there are captions, else of classes), unclip or none.
    """

    source: str  # a folder, or the name of a source: digits, shapes, torchvision:NAME, hub:OWNER/NAME or hub:FOLDER
    minutes: float  # in which the whole DAG is to end
    text: bool | None = None  # whether images of texts are wanted; None: where the images have captions
    generator: str = "dit"
    size: int | None = None  # pixels of the stored images; None: by the time
    dry_run: bool = False  # whether params.yaml stays as it is

    def wants_texts(self, has_captions: bool) -> bool:
        """Return whether images are to be made of texts."""
        if self.generator != "dit":
            return self.generator == "unclip"
        return has_captions if self.text is None else self.text

    def command(self) -> str:
        """Return the arguments of the command line that means this."""
        said = [shlex.quote(self.source), "--minutes", f"{self.minutes:g}"]
        said += {None: [], True: ["--text"], False: ["--no-text"]}[self.text]
        said += ["--generator", self.generator] if self.generator != "dit" else []
        return " ".join(said + (["--size", str(self.size)] if self.size is not None else []))


_SOURCE = (
    "a folder of images, or digits, shapes, torchvision:NAME, hub:OWNER/NAME, hub:FOLDER, a tar, or a folder or URL of "
    "tars ({000..099} in a URL is a range)"
)


def request(
    source: Annotated[str, Argument(help=_SOURCE)],
    minutes: Annotated[float, Option(help="in which the whole DAG ends on this machine")] = 30.0,
    hours: Annotated[float | None, Option(help="the same in hours")] = None,
    text: Annotated[
        bool | None,
        Option("--text/--no-text", help="images of texts, or of classes; default: texts if there are captions"),
    ] = None,
    generator: Annotated[
        Literal["dit", "unclip", "none"],
        Option(help="dit: a transformer, of captions or classes; unclip: CLIP, prior and decoder, of captions"),
    ] = "dit",
    size: Annotated[
        int | None, Option(help="pixels of the stored images, a multiple of 16; default: what the time allows")
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="print the same, and write nothing")] = False,
) -> Request:
    """Return the options.

    Raises:
        DarkroomError: the time or the size is not valid, or two options contradict each other.
    """
    if hours is not None:
        minutes = hours * 60
    if not 0 < minutes < math.inf:
        option = f"--minutes is {minutes:g}" if hours is None else f"--hours is {hours:g}"
        raise DarkroomError(f"{option}, and must be above 0 and finite.")
    if generator != "dit" and text is not None:
        option = "--text" if text else "--no-text"
        raise DarkroomError(f"{option} is for the generator dit: remove it, or --generator {generator}.")
    if size is not None and (size < 16 or size % 16):
        raise DarkroomError(f"--size is {size}, and must be a multiple of 16.")
    return Request(source, minutes, text, generator, size, dry_run)
