"""The options of `darkroom init`. Does not import torch."""

import math
import shlex
from dataclasses import dataclass
from typing import Annotated, Literal

from typer import Argument, Option

from darkroom.errors import DarkroomError
from darkroom.tools import command

_SOURCE = (
    "a folder of images, or digits, shapes, torchvision:NAME, hub:OWNER/NAME, hub:FOLDER, a tar, or a folder or URL of "
    "tars ({000..099} in a URL is a range)"
)


@command("Data", "init", "Inspect a dataset, benchmark this machine, and write params.yaml.", "tools.init.command:init")
@dataclass(frozen=True)
class Request:
    """The options of `darkroom init`.

    Raises:
        DarkroomError: the time or the size is not valid, or two options contradict each other.
    """

    source: Annotated[str, Argument(help=_SOURCE)]
    minutes: Annotated[float, Option(help="time for the whole DAG on this machine")] = 30.0
    text: Annotated[
        bool | None,
        Option("--text/--no-text", help="generate images from texts or classes; default: texts if there are captions"),
    ] = None
    generator: Annotated[
        Literal["dit", "none"], Option(help="dit: a transformer on captions or classes; none: a tokenizer only")
    ] = "dit"
    size: Annotated[
        int | None, Option(help="size of the stored images in pixels, at least 16; default: by the time")
    ] = None

    def __post_init__(self) -> None:
        if not 0 < self.minutes < math.inf:
            raise DarkroomError(f"--minutes is {self.minutes:g}, but must be above 0 and finite.")
        if self.generator != "dit" and self.text is not None:
            option = "--text" if self.text else "--no-text"
            raise DarkroomError(f"{option} needs the generator dit: remove it, or --generator {self.generator}.")
        if self.size is not None and self.size < 16:
            raise DarkroomError(f"--size is {self.size}, but must be at least 16.")

    def wants_texts(self, has_captions: bool) -> bool:
        """Return whether to generate images from texts."""
        return self.generator == "dit" and (has_captions if self.text is None else self.text)

    def command(self) -> str:
        """Return the equivalent arguments of the command line."""
        words = [shlex.quote(self.source), "--minutes", f"{self.minutes:g}"]
        words += {None: [], True: ["--text"], False: ["--no-text"]}[self.text]
        words += ["--generator", self.generator] if self.generator != "dit" else []
        return " ".join(words + (["--size", str(self.size)] if self.size is not None else []))
