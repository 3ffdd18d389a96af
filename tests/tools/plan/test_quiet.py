"""What is kept off the terminal while the machine is measured."""

import subprocess
import sys
from pathlib import Path

import pytest

from darkroom.errors import DarkroomError
from darkroom.tools.plan.forks import quiet

SCRIPT = """
import subprocess, sys
from pathlib import Path
from darkroom.tools.plan.forks import quiet

print("before")
try:
    with quiet(Path("logs/x.log")):
        subprocess.run([sys.executable, "-c", "import sys; print('chatter'); print('warning', file=sys.stderr)"])
        print("of this process", file=sys.stderr)
        raise KeyboardInterrupt
except KeyboardInterrupt:
    print("after")
"""


def test_what_processes_print_goes_to_the_log_and_nothing_behind_it(tmp_path):
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("before\nafter\n", "")
    assert set((tmp_path / "logs/x.log").read_text().splitlines()) == {"chatter", "warning", "of this process"}


def test_a_log_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("logs").write_text("a file in its place")
    with pytest.raises(DarkroomError, match=r"cannot write logs/x\.log"), quiet(Path("logs/x.log")):
        pass
