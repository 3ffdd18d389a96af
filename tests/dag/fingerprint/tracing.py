"""Runs the bodies of stages in a clone, and notes which functions of the package call which below the `run` of each.

Called as `python tracing.py OUT STAGE[@ITEM]...` in the root of a clone, with PYTHONPATH=src. Writes OUT/STAGE[@ITEM],
a line for each pair of a caller and what it calls: FILE:LINE:NAME of both, separated by tabs. A caller is the nearest
one in the package; where there is none, as in a thread, it is empty. The name of a module or a class that is loaded is
BODY, and its line as a caller the one that runs. Each stage runs in a process of its own that has the
libraries in memory already, but nothing of the package.
"""

import importlib
import os
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType

LIBRARIES = ("numpy", "pydantic", "PIL.Image", "scipy.linalg", "torch", "accelerate", "dvc.repo")
FUNCTION = 0x1  # CO_OPTIMIZED: the code of a module or of a class has not got it
BODY = "<body>"


def trace(out: Path) -> None:
    """Note what is called in this process, its threads and its forks from now on."""
    source, seen = str(Path("src/darkroom").resolve()), set[tuple[CodeType | None, CodeType]]()
    descriptor = os.open(out, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def said(code: CodeType, line: int) -> str:
        body = not code.co_flags & FUNCTION
        return f"{code.co_filename}:{line if body else code.co_firstlineno}:{BODY if body else code.co_qualname}"

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(source):
            return
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(source):
            caller = caller.f_back
        pair = (caller.f_code if caller else None, frame.f_code)
        if pair not in seen or (caller and not caller.f_code.co_flags & FUNCTION):
            seen.add(pair)
            by = said(caller.f_code, caller.f_lineno) if caller else ""
            os.write(descriptor, f"{by}\t{said(frame.f_code, frame.f_code.co_firstlineno)}\n".encode())

    threading.setprofile(profile)
    sys.setprofile(profile)


def run(name: str, out: Path) -> None:
    """Run a stage's body in a child of this process, and wait for it."""
    if child := os.fork():
        if os.waitpid(child, 0)[1]:
            sys.exit(f"{name} failed")
        return
    stage, _, item = name.partition("@")
    try:
        from darkroom.check.check import schema
        from darkroom.environment import choose_device, set_threads
        from darkroom.params.section import validate
        from darkroom.params.stage import stage_params, threads

        values = stage_params(stage, item or None)
        params = validate(schema(stage), values)
        set_threads(threads(values.get(stage, {})))
        choose_device("cpu")
        body = importlib.import_module(f"darkroom.stages.{stage}").run
        trace(out / name)
        body(params, item) if item else body(params)
        sys.setprofile(None)
        sys.stdout.flush()
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    for library in LIBRARIES:
        importlib.import_module(library)
    for each in sys.argv[2:]:
        run(each, Path(sys.argv[1]))
