"""Lines on the terminal and in the log."""

import io
import os
import subprocess
import sys
from pathlib import Path

from darkroom.terminal import terminal
from darkroom.terminal.terminal import Tee


class Gone(io.StringIO):
    """A terminal that is closed after the first line."""

    def write(self, text):
        if self.getvalue():
            raise BrokenPipeError
        return super().write(text)


def test_lines_are_prefixed_on_the_terminal_and_plain_in_the_log():
    out, log = io.StringIO(), io.StringIO()
    tee = Tee(out, log, "[x] ")
    for piece in ("one\ntw", "o\n", "", "three\n"):
        tee.write(piece)
    assert out.getvalue() == "[x] one\n[x] two\n[x] three\n" and log.getvalue() == "one\ntwo\nthree\n"
    assert not tee.isatty()


def test_a_closed_terminal_stops_nothing():
    out, log = Gone(), io.StringIO()
    tee = Tee(out, log, "")
    for piece in ("one\n", "two\n", "three\n"):
        tee.write(piece)
    assert out.getvalue() == "one\n" and log.getvalue() == "one\ntwo\nthree\n"


def test_a_program_whose_terminal_is_closed_ends_well(tmp_path):
    """What the stream held when its other end went away is not tried again at the end: that would be an error."""
    code = (
        "import sys; from darkroom.terminal.terminal import Tee; tee = Tee(sys.stdout, open('log', 'w'), '')\n"
        "for line in sys.stdin: tee.write(line)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(terminal.__file__).parents[2])}
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as program:
        program.stdout.close()
        program.stdin.write("one\ntwo\n")
        program.stdin.close()
    assert program.returncode == 0 and (tmp_path / "log").read_text() == "one\ntwo\n"
