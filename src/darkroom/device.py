"""Where the networks of a stage run, and that they run the same way each time."""

import torch

from darkroom.errors import DarkroomError


def set_up_device(threads: int, device: str) -> torch.device:
    """Fix torch's threads, deterministic algorithms and full float32, and return the device that `run.device` names.

    Every stage that runs a network calls this first. `auto` takes CUDA, then MPS, then the CPU. The runner has made a
    numbered CUDA device the only one that is seen.

    Raises:
        DarkroomError: the device that was asked for is not there.
    """
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    # TF32 keeps 10 bits of the 23: features and latents would err by about 1e-3.
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    found = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if device == "auto":
        return torch.device(next(kind for kind, there in found.items() if there))
    kind = device.partition(":")[0]
    if not found[kind]:
        raise DarkroomError(
            f"`run.device` is {device}, and torch sees no such device: take auto or cpu in params.yaml."
        )
    return torch.device(kind)
