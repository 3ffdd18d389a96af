"""A fork server: starts the processes of a run from parents that have already imported their libraries.

Importing takes 1 to 7 s for each process, forking 0.1 s. An engine starts one parent for each kind of process:

- `light`: DVC, and stages without networks;
- `networks`: stages with networks, if more than one will run.

A parent runs no computation. For each request it forks a child with the terminal, environment, working folder and
number of CPU threads of the requesting process. The child imports Darkroom's modules again if one of their files was
edited since the parent loaded them. A process that finds no parent starts the stage itself. Parents exit with their
engine, and a child receives SIGTERM when the requesting process or its parent has exited.

Works on Linux only, because a process that has loaded torch cannot fork safely on other systems. A process that has
opened a GPU cannot fork either, so the libraries of a parent must not look for one.

    python -S -m darkroom.dag.parents reproduce STAGE     what a rule of Snakemake calls
    python -m darkroom.dag.parents serve KIND SOCKET PIPE
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import secrets
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from darkroom.environment import set_threads

NAME = "DARKROOM_PARENTS"  # in the environment of a run: the prefix of the addresses of its parents; empty: none
LIGHT, NETWORKS = "light", "networks"
_MODULE = "darkroom.dag.parents"
_SERVED = b"+"
_ROOM = " " * 400  # an argument that leaves room for the command line of a child
_PR_SET_PDEATHSIG = 1  # of <sys/prctl.h>
_ANYWHERE = ("numpy", "pandas", "PIL.Image", "psutil", "pydantic", "yaml", "networkx")
_LIBRARIES = {
    LIGHT: (
        *(*_ANYWHERE, "pydantic.main", "ruamel.yaml", "jinja2", "dulwich.ignore", "dulwich.worktree"),
        *("dvc.cli.parser", "dvc.repo", "dvc.commands.repro", "dvc.stage.cache", "dvc.rwlock", "dvc.scm"),
        *("dvc.cachemgr", "dvc.data_cloud", "dvc.repo.plots", "dvc.repo.stage", "dvc.utils.strictyaml"),
        *("dvc_data.hashfile.db.local", "dvc.repo.artifacts", "dvc.repo.datasets", "dvc.repo.params"),
    ),
    NETWORKS: (
        *_ANYWHERE,
        *("torch", "torch._dynamo", "torch._inductor.config", "torchvision", "torchmetrics", "accelerate", "einops"),
        *("diffusers.models.autoencoders.autoencoder_kl", "diffusers.models.unets.unet_2d_condition"),
        *("diffusers.models.transformers.prior_transformer", "scipy.stats", "safetensors.torch", "sklearn.metrics"),
        *("torchmetrics.image.fid", "x_transformers", "vector_quantize_pytorch", "threadpoolctl"),
    ),
}
_OWN = ("darkroom.runner", "darkroom.dag.dvc", "darkroom.dag.lock_file")
_loaded: dict[str, tuple[int, int]] = {}  # what `_written` returned before the parent imported anything
_lifelines: list[int] = []  # the parents of this process end when these are closed


def start(kinds: Sequence[str]) -> None:
    """Start parents, which live as long as this process; none if NAME is empty or the system is not Linux."""
    if sys.platform != "linux" or os.environ.get(NAME) == "":
        return
    name = os.environ.setdefault(NAME, f"darkroom-{os.getpid()}-{secrets.token_hex(8)}")
    for kind in kinds:
        reader, writer = os.pipe()
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"\0{name}-{kind}")
            listener.listen(128)
            passed = (listener.fileno(), reader)
            command = [sys.executable, "-m", _MODULE, "serve", kind, *map(str, passed), _ROOM]
            subprocess.Popen(command, pass_fds=passed, env=os.environ | {"PYTHONPATH": "src"})
        os.close(reader)
        _lifelines.append(writer)


def ask(kind: str, words: Sequence[str], environment: Mapping[str, str], threads: int = 1) -> int | None:
    """Request a child that runs a command on `threads` CPU threads, and wait until it exits.

    Returns:
        The exit status, negative if a signal ended the child; None: there is no such parent.
    """
    if not (name := os.environ.get(NAME)):
        return None
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(f"\0{name}-{kind}")
            if _user(connection) != os.getuid():
                return None
            facts = {"words": words, "environment": dict(environment), "folder": str(Path.cwd()), "threads": threads}
            request = json.dumps(facts).encode()
            socket.send_fds(connection, [struct.pack("!I", len(request))], [0, 1, 2])
            connection.sendall(request)
            if connection.recv(1) != _SERVED:
                return None
        except OSError:
            return None
        with contextlib.suppress(OSError):
            if len(status := connection.recv(4)) == 4:
                return int(struct.unpack("!i", status)[0])
        return -signal.SIGKILL  # the parent is gone, and so is the child


def _user(connection: socket.socket) -> int:
    """Return the user that the process at the other end belongs to: anybody may use an abstract address."""
    return int(struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1])


def _receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Return a request and the file descriptors 0 to 2 of its process; None if it has exited or is another user's."""
    with contextlib.suppress(OSError):
        if _user(connection) == os.getuid():
            head, terminal, _, _ = socket.recv_fds(connection, 4, 3)
            if len(head) == 4 and len(terminal) == 3:
                with connection.makefile("rb") as file:
                    return json.loads(file.read(struct.unpack("!I", head)[0])), terminal
    return None


def _load(kind: str) -> None:
    """Import what stages need, and exclude it from garbage collection, which would copy its pages in each child."""
    _loaded.update(_written())
    set_threads(1)  # `_become` changes it
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # then a library that looks for GPUs opens none
    for name in _LIBRARIES.get(kind, ()):
        with contextlib.suppress(ImportError), warnings.catch_warnings(action="ignore"):
            importlib.import_module(name)
    with contextlib.suppress(Exception):  # a child imports it again, and says what is wrong
        for name in _OWN[: 1 if kind == NETWORKS else None]:
            importlib.import_module(name)
        importlib.import_module("darkroom.check.check").read_params()  # builds the models of pydantic
    gc.collect()
    gc.freeze()


def _end(children: Mapping[int, Any]) -> None:
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def _become(request: Mapping[str, Any], terminal: Sequence[int]) -> None:
    """Give this process, a child that has just been forked, the environment of the requested one."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    for place, file in enumerate(terminal):
        os.dup2(file, place)
        os.close(file)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=stream is sys.stderr or os.isatty(1))  # type: ignore[union-attr]
    os.environ.clear()
    os.environ.update(request["environment"])
    _move(request["folder"])
    sys.argv[:] = request["words"]
    _use_threads(request["threads"])
    atexit._clear()  # exit handlers that libraries registered in the parent belong to the parent
    _show([sys.executable, "-m", *request["words"]])


def _move(folder: str) -> None:
    """Enter a folder. If it is another clone, as of a sweep, or a file was edited, drop Darkroom's modules."""
    old, new = Path("src").resolve(), Path(folder, "src").resolve()
    os.chdir(folder)
    if old != new:
        sys.path[:] = [str(new) if Path(path) == old else path for path in sys.path]
    if old != new or _written() != _loaded:
        for name in [name for name in sys.modules if name.partition(".")[0] == "darkroom"]:
            del sys.modules[name]


def _written() -> dict[str, tuple[int, int]]:
    """Return the time of the last change and the size of each of Darkroom's files."""
    files = {}
    for path in Path("src/darkroom").rglob("*.py"):
        with contextlib.suppress(OSError):  # a link that an editor made, or just removed
            status = path.stat()
            files[str(path)] = (status.st_ctime_ns, status.st_size)
    return files


def _use_threads(count: int) -> None:
    """Set the CPU threads of libraries that are loaded already to those of a new process with `count` threads."""
    if (threadpoolctl := sys.modules.get("threadpoolctl")) is not None:
        blas = min(count, len(os.sched_getaffinity(0)))  # OpenBLAS uses no more threads than cores
        threadpoolctl.threadpool_limits({"openmp": count, "blas": blas})


def _show(words: Sequence[str]) -> None:
    """Overwrite the command line of this process, which `ps` and Darkroom's own searches for processes read."""
    fields = Path("/proc/self/stat").read_text().rpartition(") ")[2].split()
    start, end = int(fields[45]), int(fields[46])  # proc(5): arg_start and arg_end, the 48th and 49th field
    text = "\0".join(words).encode()[: end - start - 1]
    ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)


def serve(kind: str, listener: socket.socket, lifeline: int) -> bool:
    """Fork a child for each request until the engine has exited; return True in a child, False in the parent."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers: dict[Any, Any] = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    handlers[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda number, frame: None)
    ended, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    children: dict[int, socket.socket] = {}
    _load(kind)
    with selectors.DefaultSelector() as selector:
        for file in (listener, lifeline, ended):
            selector.register(file, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj == lifeline:
                    _end(children)
                    return False
                if key.fileobj == ended:
                    os.read(ended, 512)
                    for connection in _answer(children):
                        with contextlib.suppress(KeyError):
                            selector.unregister(connection)
                        connection.close()
                elif key.fileobj != listener:  # the requesting process has exited
                    selector.unregister(key.fileobj)
                    _end({key.data: None})
                else:
                    connection = listener.accept()[0]
                    received = _receive(connection)
                    if received is None:
                        connection.close()
                        continue
                    with contextlib.suppress(OSError):
                        connection.sendall(_SERVED)
                    sys.stdout.flush()
                    if (pid := os.fork()) == 0:
                        signal.set_wakeup_fd(-1)
                        for number, handler in handlers.items():
                            signal.signal(number, handler)
                        for file in (ended, writer, lifeline):
                            os.close(file)
                        for each in (listener, connection, *children.values()):
                            each.close()
                        _become(*received)
                        return True
                    for file in received[1]:
                        os.close(file)
                    children[pid] = connection
                    selector.register(connection, selectors.EVENT_READ, pid)


def _answer(children: dict[int, socket.socket]) -> Iterator[socket.socket]:
    """Send the exit status of each child that has exited to its requester; yield the connections to close."""
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        connection = children.pop(pid)
        with contextlib.suppress(OSError):
            connection.sendall(struct.pack("!i", os.waitstatus_to_exitcode(status)))
        yield connection


def _run(name: str) -> None:
    """Run `main` of a module, and exit without finalizing the interpreter, which takes a second."""
    status = 1
    try:
        main = importlib.import_module("darkroom.cli" if name == "darkroom" else name).main
        status = int(main() or 0)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(BaseException):
        threading._shutdown()  # type: ignore[attr-defined]  # as `multiprocessing` ends what it forks
        atexit._run_exitfuncs()
        if (multiprocessing := sys.modules.get("multiprocessing.util")) is not None:
            multiprocessing._exit_function()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def reproduce(stage: str) -> int:
    """Request the job of a stage, or replace this process by it; return the exit status."""
    words = ["darkroom.dag.job", stage]
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the child has it, too
    status = ask(LIGHT, words, os.environ)
    if status is None:
        signal.signal(signal.SIGINT, handler)
        os.execv(sys.executable, [sys.executable, "-m", *words])
    return status if status >= 0 else 128 - status


def main() -> int:
    """Serve or request a stage, as the command line says; a child runs its request."""
    if sys.argv[1] == "reproduce":
        return reproduce(sys.argv[2])
    kind, listener, lifeline = sys.argv[2:5]
    if serve(kind, socket.socket(fileno=int(listener)), int(lifeline)):
        _run(sys.argv[0])
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
