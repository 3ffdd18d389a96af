"""How long the libraries take to load that stages use: importing this module loads and times them.

`darkroom plan` does so in the process that all stages are forked from.
"""

import importlib
import sys
import time
from collections.abc import Set
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
    for name in LIBRARIES:
        began = time.process_time()
        try:
            importlib.import_module(name)
        except ImportError:
            continue
        library = name.partition(".")[0]
        seconds[library] = seconds.get(library, 0.0) + time.process_time() - began
    return seconds


def loading_seconds(before: Set[str]) -> float:
    """Return the seconds of the libraries from which modules of Darkroom take something that were loaded lately.

    Args:
        before: the names of the modules that were loaded before.
    """
    own = [module for name, module in sys.modules.items() if name.startswith("darkroom.") and name not in before]
    values = [value for module in own for value in vars(module).values()]
    used = {_origin(value).partition(".")[0] for value in values}
    return sum(seconds for library, seconds in SECONDS.items() if library in used)


def _origin(value: Any) -> str:
    """Return the name of the module that a value is, or comes from."""
    origin = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", "")
    return origin if isinstance(origin, str) else ""


SECONDS = load()
