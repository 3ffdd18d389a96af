"""One shard of latents: a safetensors file, written here and read through a memory map.

The format (github.com/huggingface/safetensors): 8 bytes with the header's length, little-endian; the header, JSON,
`{name: {dtype, shape, data_offsets}}`; the tensors' bytes. It is written and parsed here because the library maps a
file for one slice at a time, and because NumPy has no bfloat16, which is stored as the upper half of a float32.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darkroom.artifacts.manifest import ArtifactError

KIND = "latents"  # of the manifest beside the shards
TENSORS = ("mean", "logvar")
# The names of params.yaml, the format's own, and how NumPy holds an element in the file.
_CODES = {"float32": "F32", "bfloat16": "BF16"}
_STORED: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "BF16": np.dtype("<u2")}
_ALIGNMENT = 8


def to_bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Return the bfloat16 nearest to each finite float32, ties to even, as its 16 bits."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)


def to_float32(stored: NDArray[Any]) -> NDArray[np.float32]:
    """Return stored elements as float32: bfloat16 bits (uint16) are widened, which is exact."""
    if stored.dtype == np.uint16:
        return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return stored.astype(np.float32, copy=False)


def write_latent_shard(path: Path, mean: NDArray[np.float32], logvar: NDArray[np.float32], dtype: str) -> None:
    """Write mean and logvar, both (n, C, h, w), rounded to `dtype` (float32 or bfloat16). No metadata."""
    header: dict[str, Any] = {}
    tensors = []
    end = 0
    for name, values in zip(TENSORS, (mean, logvar), strict=True):
        stored = to_bfloat16(values) if dtype == "bfloat16" else np.ascontiguousarray(values, dtype="<f4")
        start, end = end, end + stored.nbytes
        header[name] = {"dtype": _CODES[dtype], "shape": list(values.shape), "data_offsets": [start, end]}
        tensors.append(stored)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    # write(), not a memory map: on a full disk a map kills the process instead of raising OSError.
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for stored in tensors:
            file.write(stored.data)


def map_latent_shard(path: Path) -> dict[str, NDArray[Any]]:
    """Return the tensors of a shard as views of the mapped file: float32, or bfloat16's bits as uint16.

    Raises:
        ArtifactError: the file is not such a shard; names it.
    """
    try:
        content = np.memmap(path, mode="r", dtype=np.uint8).view(np.ndarray)
        start = 8 + int.from_bytes(content[:8].tobytes(), "little")
        header = json.loads(content[8:start].tobytes())
        views = {}
        for name in TENSORS:
            begin, end = header[name]["data_offsets"]
            stored = content[start + begin : start + end].view(_STORED[header[name]["dtype"]])
            views[name] = stored.reshape(header[name]["shape"])
        return views
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtifactError(
            f"{path} is not a shard of latents with mean and logvar in float32 or bfloat16 ({error}): restore it with "
            f"`dvc checkout {path.parent}`, or run encode_latents again."
        ) from error
