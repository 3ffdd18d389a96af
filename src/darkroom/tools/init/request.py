"""What a person asks of `darkroom init`. Loads no torch."""

import math
import shlex
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass

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

    @classmethod
    def of(cls, options: Namespace) -> "Request":
        """Return the request of a command line.

        Raises:
            DarkroomError: the time or the size is none, or two options contradict each other.
        """
        minutes = options.hours * 60 if options.hours is not None else options.minutes
        if not 0 < minutes < math.inf:
            said = f"--minutes is {minutes:g}" if options.hours is None else f"--hours is {options.hours:g}"
            raise DarkroomError(f"{said}, and must be above 0 and finite.")
        if options.generator != "dit" and options.text is not None:
            option = "--text" if options.text else "--no-text"
            raise DarkroomError(f"{option} is for the generator dit: remove it, or --generator {options.generator}.")
        if options.size is not None and (options.size < 16 or options.size % 16):
            raise DarkroomError(f"--size is {options.size}, and must be a multiple of 16.")
        return cls(options.source, minutes, options.text, options.generator, options.size, options.dry_run)

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


def add_options(parser: ArgumentParser) -> None:
    """Add the options of `darkroom init`."""
    hint = "a folder of images, or digits, shapes, torchvision:NAME, hub:OWNER/NAME, hub:FOLDER, a tar, or a folder or "
    parser.add_argument("source", help=f"{hint}URL of tars ({{000..099}} in a URL is a range)")
    length, texts = parser.add_mutually_exclusive_group(), parser.add_mutually_exclusive_group()
    hint = "in which the whole DAG is to end on this machine; %(default)s"
    length.add_argument("--minutes", type=float, default=30.0, help=hint)
    length.add_argument("--hours", type=float, help="the same in hours")
    hint = "images of texts; by default where there are captions"
    texts.add_argument("--text", action="store_true", default=None, help=hint)
    texts.add_argument("--no-text", action="store_false", dest="text", help="images of classes, not of texts")
    hint = "dit: a transformer, of captions or classes; unclip: CLIP, prior and decoder, of captions; none; %(default)s"
    parser.add_argument("--generator", default="dit", choices=["dit", "unclip", "none"], help=hint)
    hint = "pixels of the stored images, height and width, a multiple of 16; default: what the time allows"
    parser.add_argument("--size", type=int, help=hint)
    parser.add_argument("--dry-run", action="store_true", help="print the same, and write nothing")
