"""What every stage with a network sets up first."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys, torch
from darkroom.device import set_up_device

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.ones(4, 2**20)  # 16 MiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

plain = faults()
set_up_device(1, "cpu")
faults()
print(plain, faults())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc alone is told to keep memory")
def test_memory_of_freed_tensors_is_used_again():
    said = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout
    plain, kept = map(int, said.split())
    assert plain > 20 and kept < plain / 10, said
