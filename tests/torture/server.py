"""A fork server: it imports everything once, which takes seconds, and forks a process for each life.

`python -m torture.server SOCKET`. It computes nothing, so no thread pool of torch exists when it forks. A connection is
one life: arguments in, then the process id, and when the life has ended its exit status.
"""

import json
import os
import socketserver
import sys

import dvclive  # noqa: F401 - what the loop imports when it needs it, so that no fork has to

from torture.arguments import Arguments
from torture.worker import live


class _Life(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        arguments = Arguments(**json.loads(self.rfile.readline()))
        pid = os.fork()
        if pid == 0:
            os.setsid()  # a process group of its own, with its DataLoader's workers
            self.server.socket.close()
            self.connection.close()
            os._exit(live(arguments))
        self.wfile.write(f"{pid}\n".encode())
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self.wfile.write(f"{status}\n".encode())


class Server(socketserver.ForkingMixIn, socketserver.UnixStreamServer):
    """One forked handler a connection; ends with the process that started it."""

    parent = os.getppid()

    def service_actions(self) -> None:
        super().service_actions()
        if os.getppid() != self.parent:
            sys.exit()


if __name__ == "__main__":
    with Server(sys.argv[1], _Life) as server:
        print("ready", flush=True)
        server.serve_forever(poll_interval=0.1)
