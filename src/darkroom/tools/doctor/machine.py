"""Checks the machine: device, cores, disk."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.stage import lookup, read_yaml
from darkroom.terminal.numbers import bytes_of
from darkroom.tools.cores import core_count
from darkroom.tools.doctor.packages import Finding, note, ok, problem
from darkroom.training.state import root

NEEDED, SCARCE = 1e9, 10e9  # free bytes that the demo needs, and that larger work may need


def devices() -> Iterator[Finding]:
    """List the devices that torch can use, and whether `run.device` is among them."""
    try:
        import torch
    except Exception:  # `torch_pair` reports the error
        return
    yield ok("cpu", f"{core_count()} cores, torch's kernels for {torch.backends.cpu.get_cpu_capability()}")
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    for number in range(torch.cuda.device_count() if cuda else 0):
        gpu, (free, total) = torch.cuda.get_device_properties(number), torch.cuda.mem_get_info(number)
        bf16 = "computes in bf16" if torch.cuda.is_bf16_supported(False) else "no bf16: take `precision: fp16`"
        yield ok("cuda", f"{number}: {gpu.name}, {bytes_of(free)} of {bytes_of(total)} free, {bf16}")
    if not cuda and shutil.which("nvidia-smi"):
        yield note("cuda", "an NVIDIA driver is here, and torch sees no device: its build or the driver is too old.")
    device = "auto"
    with contextlib.suppress(DarkroomError):  # `parameters` reports the error
        device = str(lookup(read_yaml(PARAMS), "run.device"))
    kind, colon, index = device.partition(":")
    is_known = not colon or (index.isdigit() and int(index) < torch.cuda.device_count())
    there = {"auto": True, "cpu": True, "cuda": cuda, "mps": mps}.get(kind, False)
    if not there or not is_known:
        yield problem("device", f"`run.device` is {device}, and torch sees no such device: take auto or cpu.")
    else:
        chosen = kind if kind != "auto" else "cuda" if cuda else "mps" if mps else "cpu"
        yield ok("device", f"`run.device` is {device}: stages run on {chosen}")


def _cache() -> Path | None:
    """Return the folder of DVC's cache; None where DVC fails."""
    try:
        from darkroom.dag.repo import cache_folder

        return cache_folder()
    except Exception:  # the findings on the clone report errors of git or DVC
        return None


def disk() -> Iterator[Finding]:
    """Check the free disk space where stages write: the checkout, DVC's cache, the states of trainings."""
    for subject, folder in {"disk": Path(), "disk of cache": _cache(), "disk of state": root()}.items():
        if folder is None:
            yield note(subject, "DVC does not say where its cache lies.")
            continue
        place = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
        free = shutil.disk_usage(place).free
        text = f"{bytes_of(free)} free in {place}"
        if not os.access(place, os.W_OK):
            yield problem(subject, f"{place} is not writable: make it so, or clone to another place.")
        elif free < NEEDED:
            yield problem(subject, f"{text}: free some space, at least {bytes_of(NEEDED)}; `dvc gc --workspace` helps.")
        elif free < SCARCE:
            yield note(subject, f"{text}: enough for the demo; `darkroom plan` says what your parameters need.")
        else:
            yield ok(subject, text)
