"""What is kept off the terminal while the machine is measured."""

import subprocess
import sys

from darkroom.tools.init.quiet import LOG

SCRIPT = """
import subprocess, sys
from darkroom.tools.init.quiet import quiet

print("before")
try:
    with quiet():
        subprocess.run([sys.executable, "-c", "import sys; print('chatter'); print('warning', file=sys.stderr)"])
        print("of this process", file=sys.stderr)
        raise KeyboardInterrupt
except KeyboardInterrupt:
    print("after")
"""


def test_what_processes_print_goes_to_the_log_and_nothing_behind_it(tmp_path):
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("before\nafter\n", "")
    assert set((tmp_path / LOG).read_text().splitlines()) == {"chatter", "warning", "of this process"}
