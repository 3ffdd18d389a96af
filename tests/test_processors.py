"""The numerical tests hold on every processor: all of them again, with kernels of others and numbers of threads.

A last bit differs between vector widths, matrix libraries and numbers of threads. A test that fails here asks for more
than float32 holds, or what it tests makes too much of a rounding.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
NUMERICAL = ["models", "training", "diffusion", "metrics", "reference"]
# With AMX, torch's attention in bfloat16 packs for oneDNN what its own kernels without AVX-512 cannot: both are told.
SETTINGS = {
    "aten-default": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "aten-avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "aten-avx512": {"ATEN_CPU_CAPABILITY": "avx512"},
    "onednn-avx2": {"ONEDNN_MAX_CPU_ISA": "AVX2"},
    "1-thread": {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
    "2-threads": {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"},
    "4-threads": {"OMP_NUM_THREADS": "4", "MKL_NUM_THREADS": "4"},
}
# By what torch chooses on a processor: settings that it lacks, or that are what it chooses by itself (`make test`).
LEFT_OUT = {"AVX512": ["aten-avx512"], "AVX2": ["aten-avx2", "aten-avx512", "onednn-avx2"]}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("setting", SETTINGS)
def test_the_numerical_tests_pass(setting):
    chosen = torch.backends.cpu.get_cpu_capability()
    if setting in LEFT_OUT.get(chosen, [name for name in SETTINGS if not name[0].isdigit()]):
        pytest.skip(f"on {chosen} this is the same as without, or cannot be")
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider"]
    run = subprocess.run(
        [*command, *(f"tests/{name}" for name in NUMERICAL)],
        cwd=ROOT,
        env=os.environ | SETTINGS[setting],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    failed = [line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    assert run.returncode == 0, "\n".join(failed) or run.stdout[-3000:]
