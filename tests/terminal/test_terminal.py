"""Lines on the terminal and in the log, and a bar below them where the terminal can show one."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from darkroom.terminal import terminal
from darkroom.terminal.terminal import Bar, Tee, bar_line, shows_bars
from helpers import Screen


@pytest.fixture(autouse=True)
def able(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")


class Gone(io.StringIO):
    """A terminal that is closed after the first line."""

    def write(self, text):
        if self.getvalue():
            raise BrokenPipeError
        return super().write(text)


def test_lines_are_prefixed_on_the_terminal_and_plain_in_the_log():
    out, log = io.StringIO(), io.StringIO()
    tee = Tee(out, log, "[x] ", Bar())
    for piece in ("one\ntw", "o\n", "", "three\n"):
        tee.write(piece)
    tee.draw(0.5, "half")
    tee.clear()
    assert out.getvalue() == "[x] one\n[x] two\n[x] three\n" and log.getvalue() == "one\ntwo\nthree\n"
    assert not tee.has_bar and not tee.isatty()


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


def test_the_bar_stays_below_the_lines_of_both_streams_and_out_of_the_log():
    screen, log, bar = Screen(), io.StringIO(), Bar()
    out, err = (Tee(stream, log, "[x] ", bar) for stream in (screen.stream, screen.again()))
    out.draw(0.25, "quarter")
    out.write("one\n")
    assert screen.lines() == ["[x] one", f"[x]  25% |{'#' * 7:<30}| quarter"]
    err.write("a warn")
    out.draw(0.5, "half")
    assert screen.lines() == ["[x] one", "[x] a warn"]  # an unfinished line is not written over
    err.write("ing\n")
    assert screen.lines() == ["[x] one", "[x] a warning", f"[x]  50% |{'#' * 15:<30}| half"]
    out.clear()
    out.write("end\n")
    assert screen.lines() == ["[x] one", "[x] a warning", "[x] end"]
    assert log.getvalue() == "one\na warning\nend\n"


def test_a_terminal_that_hangs_up_while_a_bar_is_drawn_stops_nothing():
    screen, log = Screen(), io.StringIO()
    tee = Tee(screen.stream, log, "", Bar())
    tee.draw(0.1, "x")
    screen.hang_up()
    tee.draw(0.2, "x")
    tee.write("on\n")
    tee.clear()
    assert log.getvalue() == "on\n" and not tee.has_bar


@pytest.mark.parametrize("columns", [25, 40, 80, 200])
def test_a_bar_fits_the_width_of_the_terminal_and_never_fills_its_last_column(columns):
    screen = Screen(columns)
    text = "loss 0.1234  lr 0.0015  1,234 images/s  42 s left"
    for share in (0, 0.005, 0.5, 1):
        Tee(screen.stream, io.StringIO(), "[train_generator] ", Bar()).draw(share, text)
        (line,) = screen.lines()
        assert len(line) < columns and line.startswith(f"[train_generator] {int(100 * share):>3}%")
    assert columns < 80 or (text in line and "####|" in line)


def test_the_graph_shows_the_share():
    assert bar_line("", 0.5, "", 200).count("#") == 15 and bar_line("", 1.0, "", 200).count("#") == 30
    assert "|" not in bar_line("", 0.5, "x" * 60, 70)


def test_a_bar_needs_a_terminal_of_its_own(monkeypatch):
    screen = Screen()
    assert shows_bars(screen.stream)
    for name in ("dumb", None):
        monkeypatch.setenv("TERM", name) if name else monkeypatch.delenv("TERM")
        assert not shows_bars(screen.stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(terminal, "_below_snakemake", lambda: True)
    assert not shows_bars(screen.stream)
    closed = io.StringIO()
    closed.close()
    assert not shows_bars(closed) and not shows_bars(io.StringIO())


@pytest.mark.parametrize(("name", "below"), [("snakemake", True), ("dvc", False)])
def test_snakemake_is_found_among_the_ancestors(tmp_path, name, below):
    """A program of that name starts a shell, which starts a stage."""
    stage = "from darkroom.terminal.terminal import _below_snakemake as b; print(b())"
    command = f"'{sys.executable}' -c '{stage}'; exit"
    (tmp_path / name).write_text(f"import subprocess; subprocess.run({command!r}, shell=True)")
    environment = os.environ | {"PYTHONPATH": str(Path("src").resolve())}
    done = subprocess.run([sys.executable, tmp_path / name], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == str(below), done.stderr
