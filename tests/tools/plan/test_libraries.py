"""The libraries that stages load, loaded once for all that are forked from one process."""

import subprocess
import sys

# `_cuda_getDeviceCount` is what torch calls to find a GPU, and what makes it refuse one in forks from then on.
LOOKING = """
import torch

looked = []
torch._C._cuda_getDeviceCount = lambda: looked.append("cuda") or 0
torch._C._accelerator_getAccelerator = lambda: looked.append("accelerator") or torch.device("cuda")
import darkroom.tools.plan.libraries
import darkroom.tools.plan.rehearsal
print(list(looked), torch.cuda.is_available(), looked)
"""


def test_loading_looks_for_no_gpu_since_cuda_cannot_be_used_in_forks_of_what_did():
    done = subprocess.run([sys.executable, "-c", LOOKING], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "[] False ['cuda']"  # asked afterwards, it looks
    assert done.stderr == ""  # their warnings as they load, of which nobody can do anything
