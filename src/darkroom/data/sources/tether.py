"""Runs a program that ends with the process that started it: `python -I tether.py PROGRAM ARGUMENT…`.

When standard input ends, also because the process at its other end was killed, the program and all its child processes
are killed. It uses only the standard library, so that it starts at once.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading


def main() -> int:
    """Run the program and return its exit code."""
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, start_new_session=True)

    def end() -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)

    def follow() -> None:
        sys.stdin.buffer.read()
        end()

    threading.Thread(target=follow, daemon=True).start()
    code = child.wait()
    end()  # child processes that are left
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    # Not sys.exit: it would wait for the lock that the thread holds on standard input.
    os._exit(main())
