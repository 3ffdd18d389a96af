"""Give each stage GPUs of this machine that no other running stage has, under any engine and in any checkout.

For each GPU there is a file in a folder of this machine. A stage locks the files of its GPUs while it runs, and each
process of a training locks them too, since it may outlive the stage's first process. The kernel releases a lock when
its process ends, however it ends. The names are UUIDs, since an index means another GPU in another Slurm job.
"""

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from darkroom.errors import DarkroomError

VISIBLE = "CUDA_VISIBLE_DEVICES"
LOCKS = "DARKROOM_GPU_LOCKS"  # the files that the first process of a stage has locked, for its other processes
PER_GPU = "DARKROOM_STAGES_PER_GPU"  # how many small stages may share a GPU; default: 1
FOLDER = Path(tempfile.gettempdir()) / "darkroom-gpus"
_OLD = 30.0  # seconds of waiting from which one stage keeps the GPUs that it has while it waits for more
_PAUSE = 0.05
_LISTED = re.compile(r"^ *(GPU|MIG) .*\(UUID: ([\w./-]+)\)", re.MULTILINE)
_held: list[TextIO] = []  # closed, and so unlocked, when this process ends


def present() -> list[str]:
    """Return the UUIDs of the GPUs that this process may use: those of CUDA_VISIBLE_DEVICES, else all of nvidia-smi.

    A GPU that is divided (MIG) counts as its parts.
    """
    if shutil.which("nvidia-smi") is None:
        return []
    listed = _LISTED.findall(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout)
    known: list[str] = []
    for kind, name in listed:
        if kind == "MIG" and known and known[-1].startswith("GPU"):
            known.pop()  # its parts follow
        known.append(name)
    if (visible := os.environ.get(VISIBLE)) is None:
        return known
    names: list[str] = []
    for each in filter(None, map(str.strip, visible.split(","))):
        named = known[int(each) :][:1] if each.isdigit() else [name for name in known if name.startswith(each)]
        if len(named) != 1:
            break  # CUDA ignores such an entry and all after it
        names += named
    return names


def per_gpu() -> int:
    """Return how many stages may share a GPU.

    Raises:
        DarkroomError: the variable is not a number above 0.
    """
    text = os.environ.get(PER_GPU, "1")
    if not text.isdigit() or text == "0":
        raise DarkroomError(f"{PER_GPU} is {text}: set it to the number of stages that may share a GPU.")
    return int(text)


def take(count: int) -> None:
    """Wait for `count` GPUs, lock them until this process ends, and make them the only visible ones.

    Raises:
        DarkroomError: there are fewer, or they are parts of a GPU, which several processes cannot share.
    """
    names = present()
    if count > len(names):
        raise DarkroomError(f"{count} processes need one GPU each, but there are {len(names)}: lower `processes`.")
    if count > 1 and any(name.startswith("MIG") for name in names):
        raise DarkroomError("the processes of a training cannot use parts of a GPU (MIG): set `processes` to 1.")
    began, has_printed = time.monotonic(), False
    mine: dict[str, TextIO] = {}
    elder: TextIO | None = None
    while len(mine) < count:
        with _opened("gate") as gate:
            fcntl.flock(gate, fcntl.LOCK_EX)
            for slot in range(per_gpu()):
                for name in names:
                    if name not in mine and len(mine) < count and (file := _locked(f"{name}.{slot}")):
                        mine[name] = file
            if len(mine) == count:
                for file in mine.values():
                    fcntl.flock(file, fcntl.LOCK_SH)  # the processes of this stage lock it, too
                break
            if elder is None:
                for file in mine.values():
                    file.close()
                mine.clear()
        if elder is None and time.monotonic() - began > _OLD:
            elder = _locked("elder")
        if not has_printed and time.monotonic() - began > 1:
            print(f"waiting for {count} of {len(names)} GPUs: other stages use them.", flush=True)
            has_printed = True
        time.sleep(_PAUSE)
    if elder is not None:
        elder.close()
    _held.extend(mine.values())
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    os.environ[VISIBLE] = ",".join(mine)
    os.environ[LOCKS] = ",".join(Path(file.name).name for file in mine.values())


def share() -> None:
    """Lock the GPUs that the supervisor of this process has taken, until this process ends."""
    for name in filter(None, os.environ.get(LOCKS, "").split(",")):
        file = _opened(name)
        fcntl.flock(file, fcntl.LOCK_SH)
        _held.append(file)


def release() -> None:
    """Unlock the GPUs of this process."""
    while _held:
        _held.pop().close()


def _opened(name: str) -> TextIO:
    """Open a file to lock, which any user may lock."""
    FOLDER.mkdir(mode=0o777, exist_ok=True)
    path = FOLDER / name.replace("/", "_")
    with suppress(OSError):  # of another user
        FOLDER.chmod(0o1777)
    if not path.exists():
        with suppress(FileExistsError):
            file = os.open(path, os.O_CREAT | os.O_EXCL)
            os.fchmod(file, 0o666)
            os.close(file)
    return path.open()


def _locked(name: str) -> TextIO | None:
    """Return the open file of a GPU, locked for this process alone; None: another process has locked it."""
    file = _opened(name)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file
