"""What is kept off the terminal while the machine is measured."""

import subprocess
import sys

SCRIPT = """
import subprocess, sys
from pathlib import Path
from darkroom.tools.quiet import quiet

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
