"""Import the libraries of stages once: `darkroom plan` forks all stages from a process that imported this module.

That process must not look for a GPU, since CUDA would not work in its forks. CLIP and diffusers look for one when
they are imported.
"""

import importlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch

_LIBRARIES = (
    *("yaml", "psutil", "pyarrow.parquet", "pandas", "scipy.linalg", "sklearn.datasets", "einops", "safetensors.torch"),
    *("webdataset", "torchvision", "torchmetrics", "accelerate", "diffusers.models.autoencoders"),
    *("diffusers.models.transformers", "diffusers.models.unets", "vector_quantize_pytorch", "x_transformers", "clip"),
)


@contextmanager
def _gpus_hidden() -> Iterator[None]:
    """Make torch report no GPUs inside the block, without looking for them."""
    # The functions below the public ones, as libraries store references to the public ones.
    answers = {"_cuda_getDeviceCount": lambda: 0, "_accelerator_getAccelerator": lambda: None}
    were = {name: getattr(torch._C, name) for name in answers if hasattr(torch._C, name)}
    for name in were:
        setattr(torch._C, name, answers[name])
    try:
        yield
    finally:
        for name, was in were.items():
            setattr(torch._C, name, was)


with _gpus_hidden(), warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of deprecations inside of libraries
    for _name in _LIBRARIES:
        with suppress(ImportError):
            importlib.import_module(_name)
