"""What decides the last bits of a training on a CPU: the processor and the versions. Never a host's name."""

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

# Instruction sets between which oneDNN, MKL and torch choose their kernels.
_SETS = ("avx2", "fma", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16")
# Variables by which a person makes them choose others: `tests/test_processors.py` does.
_CHOICES = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR")
_NAMES = ("vendor_id", "cpu family", "model", "model name", "stepping", "cache size")


def machine() -> dict[str, Any]:
    """Return the facts that must be equal for equal bits to be expected."""
    import torch

    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "processor": _processor(),
        "choices": {name: os.environ[name] for name in _CHOICES if name in os.environ},
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch built with": [line.strip(" -") for line in torch.__config__.show().splitlines() if _counts(line)],
        "numpy": version("numpy"),
        "pillow": version("pillow"),
        "scikit-learn": version("scikit-learn"),
        "diffusers": version("diffusers"),
    }


def _counts(line: str) -> bool:
    return any(word in line for word in ("Math Kernel", "MKL-DNN", "OpenMP", "CPU capability"))


def _processor() -> dict[str, Any]:
    """Return the first processor of /proc/cpuinfo; empty where there is no such file."""
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return {}
    first = path.read_text().split("\n\n")[0]
    metadata = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())}
    flags = metadata.get("flags", "").split()
    return {name: metadata[name] for name in _NAMES if name in metadata} | {"sets": [s for s in _SETS if s in flags]}
