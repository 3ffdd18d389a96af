"""One shard of latents: a safetensors file, written here and read through a memory map.

The format (github.com/huggingface/safetensors): 8 bytes with the header's length, little-endian; the header, JSON,
`{name: {dtype, shape, data_offsets}}`; the tensors' bytes. It is written and parsed here because the library maps a
file for one slice at a time, and because NumPy has no bfloat16, which is stored as the upper half of a float32.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from darkroom.artifacts.manifest import ArtifactError

KIND = "latents"  # of the manifest beside the shards
# What stands for an image, and, where a mirror image is as true as the image, for that.
TENSORS = ("mean", "logvar")
MIRRORED = ("mean_mirror", "logvar_mirror")
_NAMES = {*TENSORS, *MIRRORED}
# How NumPy holds an element in the file, by the names of params.yaml; and the format's own names.
DTYPES: dict[str, np.dtype[Any]] = {"float32": np.dtype("<f4"), "bfloat16": np.dtype("<u2")}
_CODES = {"float32": "F32", "bfloat16": "BF16"}
_ALIGNMENT = 8


@dataclass(frozen=True)
class LatentFile:
    """A shard, mapped.

    content: the bytes of the file.
    starts: the byte at which each tensor begins.
    shape: (n, C, h, w) of each.
    dtype: of an element: float32, or uint16 with the bits of a bfloat16.
    """

    content: memoryview
    starts: Mapping[str, int]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def tensor(self, name: str) -> NDArray[Any]:
        """Return a tensor as a view of the map, (n, C, h, w). Raises KeyError."""
        count = int(np.prod(self.shape))
        return np.frombuffer(self.content, self.dtype, count, self.starts[name]).reshape(self.shape)


def to_bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Return the bfloat16 nearest to each finite float32, ties to even, as its 16 bits."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)


def to_float32(stored: NDArray[Any]) -> NDArray[np.float32]:
    """Return stored elements as float32: bfloat16 bits (uint16) are widened, which is exact."""
    if stored.dtype == np.uint16:
        return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return stored.astype(np.float32, copy=False)


def write_latent_shard(path: Path, tensors: Mapping[str, NDArray[np.float32]], dtype: str) -> None:
    """Write mean and logvar, and those of mirror images where there are any, each (n, C, h, w); no metadata.

    Values are rounded to `dtype`, float32 or bfloat16.
    """
    header: dict[str, Any] = {}
    content = []
    end = 0
    for name in (*TENSORS, *MIRRORED):
        if name not in tensors:
            continue
        values = tensors[name]
        stored = to_bfloat16(values) if dtype == "bfloat16" else np.ascontiguousarray(values, dtype="<f4")
        start, end = end, end + stored.nbytes
        header[name] = {"dtype": _CODES[dtype], "shape": list(values.shape), "data_offsets": [start, end]}
        content.append(stored)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    # write(), not a memory map: on a full disk a map kills the process instead of raising OSError.
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for stored in content:
            file.write(stored.data)


def map_latent_shard(path: Path) -> LatentFile:
    """Return a shard, mapped: nothing but its header is read.

    Raises:
        ArtifactError: the file is not such a shard; names it.
    """
    try:
        # Arrow's map outlives the file's descriptor, so a thousand shards need no thousand descriptors. It has the
        # system read ahead what it is asked for, so it is asked for a byte, and a view of the whole made of that.
        with pa.memory_map(str(path)) as file:
            first, size = file.read_buffer(1), file.size()
        content = memoryview(pa.foreign_buffer(first.address, size, first)).cast("B")
        start = 8 + int.from_bytes(content[:8], "little")
        header = {name: facts for name, facts in json.loads(bytes(content[8:start])).items() if name in _NAMES}
        (shape,) = {tuple(facts["shape"]) for facts in header.values()}
        (code,) = {facts["dtype"] for facts in header.values()}
        dtype = next(DTYPES[name] for name, known in _CODES.items() if known == code)
        bytes_each = int(np.prod(shape)) * dtype.itemsize
        for name in (*TENSORS, *(MIRRORED if header.keys() & set(MIRRORED) else ())):
            begin, end = header[name]["data_offsets"]
            if not 0 <= begin <= end == begin + bytes_each <= len(content) - start:
                raise ValueError(f"{name} has bytes {begin} to {end} of {len(content) - start} for shape {shape}")
        starts = {name: start + facts["data_offsets"][0] for name, facts in header.items()}
        return LatentFile(content, starts, shape, dtype)
    except (OSError, ValueError, KeyError, TypeError, StopIteration) as error:
        raise ArtifactError(
            f"{path} is not a shard of latents with mean and logvar in float32 or bfloat16 ({error}): restore it with "
            f"`dvc checkout {path.parent}`, or run encode_latents again."
        ) from error
