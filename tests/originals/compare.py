"""Compares one kind with its original: `python compare.py KIND DTYPE`, in the environment of the originals.

Prints by what is compared how far apart both are, as JSON. In float64, what either casts to float32 stays as it is:
what is left then is a difference of formulas, and not of rounding.
"""

import importlib
import json
import sys
from pathlib import Path
from unittest.mock import patch

ROOT = Path(__file__).resolve().parents[2]


def main(kind: str, dtype: str) -> None:
    """Compare, and print."""
    sys.path[:1] = [str(ROOT / "src"), str(ROOT / "tests")]  # in place of this folder, whose modules have their names
    import torch

    torch.set_num_threads(1)  # sums in one order
    torch.set_default_dtype(getattr(torch, dtype))
    with patch.object(torch.Tensor, "float", getattr(torch.Tensor, {"float32": "float", "float64": "double"}[dtype])):
        print(json.dumps(importlib.import_module(f"originals.{kind}").compare()))


if __name__ == "__main__":
    main(*sys.argv[1:])
