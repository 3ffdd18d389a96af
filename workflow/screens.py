"""Draw the pictures of a terminal in docs: `--help`, a command that fails, a training, and the scores.

    python workflow/screens.py

Run it in a clone whose stages have run: it runs the commands, and the training for a few seconds; `dvc checkout` puts
its outputs back. Rich draws what they print as docs/screens/NAME.svg.
"""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

FOLDER = Path("docs/screens")
COLUMNS, ROWS = 110, 40
SECONDS = 600  # after which a command is stopped
SCREENS = {
    "help": "darkroom --help",
    "error": "darkroom plan train_genrator",
    "scores": "darkroom scores",
    "training": "dvc repro --single-item --force train_generator",
}
STOPPED = {"training": "images/s"}  # commands that are stopped once this is on the screen ten times


def printed(command: str, until: str | None = None) -> str:
    """Return what a command prints in a terminal of COLUMNS x ROWS, with its control codes.

    until: the command is stopped by SIGINT when this has been printed ten times.
    """
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "PYTHONPATH": "src"}
    process = subprocess.Popen(
        command.split(), stdin=end, stdout=end, stderr=end, env=environment, start_new_session=True
    )
    os.close(end)
    output, deadline = b"", time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        try:
            output += os.read(terminal, 65536)
        except OSError:  # all of its processes have ended
            break
        if until is not None and output.decode(errors="replace").count(until) >= 10:
            os.killpg(process.pid, signal.SIGINT)
            until = None
    process.wait()
    return output.decode(errors="replace")


def lines_of(text: str) -> str:
    """Return the final content of the screen: a line that was drawn again appears once."""
    lines = (re.split(r"\r(?:\x1b\[K)?", line.rstrip("\r"))[-1] for line in text.split("\n"))
    return "\n".join(lines).strip("\n")


def main() -> None:
    """Draw the screens named on the command line; default: all."""
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or SCREENS:
        text = lines_of(printed(SCREENS[name], STOPPED.get(name))).replace(f"{Path.cwd()}/", "")
        console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
        console.print(Text.from_ansi(text), soft_wrap=False)
        drawing = console.export_svg(title=SCREENS[name])
        drawing = re.sub(r"@font-face \{.*?\}\s*", "", drawing, flags=re.DOTALL)  # they are on another host
        (FOLDER / f"{name}.svg").write_text("\n".join(line.rstrip() for line in drawing.splitlines()) + "\n")


if __name__ == "__main__":
    main()
