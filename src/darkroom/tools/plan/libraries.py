"""How long the libraries take to load that stages use: importing this module loads and times them.

`darkroom plan` does so in the process that all stages are forked from, and that must not have looked for a GPU: CUDA
cannot be used in what is forked from a process that has. CLIP and diffusers look when they are loaded.
"""

import importlib
import sys
import time
import warnings
from collections.abc import Iterator, Set
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any

# In an order in which each comes after those that it loads itself.
LIBRARIES = (
    *("yaml", "pydantic", "psutil", "numpy", "PIL", "pyarrow.parquet", "pandas", "scipy.linalg", "sklearn.datasets"),
    *("torch", "einops", "safetensors.torch", "webdataset", "torchvision", "torchmetrics", "accelerate", "diffusers"),
    *("diffusers.models.autoencoders", "diffusers.models.transformers", "diffusers.models.unets"),
    *("vector_quantize_pytorch", "x_transformers", "clip"),
)


def load() -> dict[str, float]:
    """Load the libraries, and return the seconds of each without those before it; one that is missing takes none."""
    seconds: dict[str, float] = {}
    with ExitStack() as hidden, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of deprecations inside of libraries
        for name in LIBRARIES:
            began = time.process_time()
            try:
                importlib.import_module(name)
            except ImportError:
                continue
            library = name.partition(".")[0]
            seconds[library] = seconds.get(library, 0.0) + time.process_time() - began
            if name == "torch":
                hidden.enter_context(_gpus_hidden())
    return seconds


@contextmanager
def _gpus_hidden() -> Iterator[None]:
    """Let what asks torch for GPUs inside the block hear of none, and not look."""
    import torch  # where its time is counted

    # What the public functions call, whose own names libraries keep as they load.
    answers = {"_cuda_getDeviceCount": lambda: 0, "_accelerator_getAccelerator": lambda: None}
    were = {name: getattr(torch._C, name) for name in answers if hasattr(torch._C, name)}
    for name in were:
        setattr(torch._C, name, answers[name])
    try:
        yield
    finally:
        for name, was in were.items():
            setattr(torch._C, name, was)


def loading_seconds(before: Set[str]) -> float:
    """Return the seconds of the libraries that modules of Darkroom not loaded `before` take something from."""
    own = [module for name, module in sys.modules.items() if name.startswith("darkroom.") and name not in before]
    values = [value for module in own for value in vars(module).values()]
    used = {_origin(value).partition(".")[0] for value in values}
    return sum(seconds for library, seconds in SECONDS.items() if library in used)


def _origin(value: Any) -> str:
    """Return the name of the module that a value is, or comes from."""
    origin = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", "")
    return origin if isinstance(origin, str) else ""


SECONDS = load()
