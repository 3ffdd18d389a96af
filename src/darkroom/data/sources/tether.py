"""Runs a program that ends with whoever started it: `python -I tether.py PROGRAM ARGUMENT…`.

When standard input ends, which it also does when the process at its other end is killed, the program and all that it
started are killed. Python's own library alone, so that it starts at once.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading


def main() -> int:
    """Return the exit code of the program."""
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, start_new_session=True)

    def end() -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)

    def follow() -> None:
        sys.stdin.buffer.read()
        end()

    threading.Thread(target=follow, daemon=True).start()
    code = child.wait()
    end()  # what it left behind
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    # Not sys.exit: it would wait for the lock that the thread holds on standard input.
    os._exit(main())
