"""Set threads and devices before NumPy and torch are loaded. Part of the code of every stage."""

import os

# How long OpenMP's threads spin for each other before they leave the core to other work: turns of libgomp's loop, tens
# of microseconds, and milliseconds of LLVM's and Intel's library. Libgomp's own 300,000 turns are several milliseconds
# at each of hundreds of operations of an update: next to other work, a training with two threads falls to a twentieth
# of its speed, or less. The cost is in docs/explanation/start-up.md. If you set one of them, or OMP_WAIT_POLICY, yours
# applies.
_SPINNING = {"GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "1"}
_CHOSEN = "DARKROOM_DEVICE"  # the numbered device that is the only visible one


def set_threads(count: int) -> None:
    """Fix the number of CPU threads, before NumPy or torch is loaded: results depend on it, so no engine may set it."""
    for library in ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB_MAXIMUM"):
        os.environ[f"{library}_NUM_THREADS"] = str(count)
    if not {"OMP_WAIT_POLICY", *_SPINNING} & os.environ.keys():
        os.environ.update(_SPINNING)


def choose_device(device: str) -> None:
    """Make only `run.device` visible to torch and accelerate, before they are loaded.

    Calling it again in the same process, or in one that it starts, changes nothing.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        os.environ["ACCELERATE_USE_CPU"] = "true"
    elif device.startswith("cuda:") and os.environ.get(_CHOSEN) != device:
        os.environ[_CHOSEN] = device
        number = int(device.removeprefix("cuda:"))
        names = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
        # If a scheduler gave this job devices 2 and 3, cuda:1 is device 3.
        os.environ["CUDA_VISIBLE_DEVICES"] = names[number] if number < len(names) else "" if names else str(number)
