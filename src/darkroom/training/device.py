"""Where the networks of a stage run, and that they run the same way each time."""

import os

import torch


def prepare(threads: int, device: str) -> torch.device:
    """Fix torch's threads and deterministic algorithms, and return the device that `run.device` names.

    Every stage that runs a network calls this first. `auto` takes CUDA, then MPS, then the CPU.
    """
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    if device.startswith("cuda:") and os.environ.get("CUDA_VISIBLE_DEVICES") == device.removeprefix("cuda:"):
        return torch.device("cuda")  # the runner made it the only one that is seen
    return torch.device(device)
