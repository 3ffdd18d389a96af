"""Write a shard of latents as a safetensors file, and read it through a memory map.

Latents have one of three forms: a distribution (mean and logvar), a point (the mean alone), or codes, whose codebook
is a file next to the manifest.

The format (github.com/huggingface/safetensors): 8 bytes with the length of the header, little-endian; the header as
JSON, `{name: {dtype, shape, data_offsets}}`; the bytes of the tensors. It is written and parsed here because the
library maps a file for one slice at a time, and because NumPy has no bfloat16, the upper half of a float32.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save

from darkroom.artifacts.atomic import write_bytes
from darkroom.artifacts.manifest import ArtifactError, check_file
from darkroom.data.rows import mapped

KIND = "latents"  # the kind in the manifest next to the shards
CODEBOOK = "codebook.safetensors"  # next to the manifest, if the latents are codes
# The tensors of an image, by the form of the latents.
FORMS = {"distribution": ("mean", "logvar"), "point": ("mean",), "codes": ("codes",)}
# The NumPy dtype of a stored element, and the names of the format.
DTYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype("<f4"),
    "bfloat16": np.dtype("<u2"),
    "uint16": np.dtype("<u2"),
    "int32": np.dtype("<i4"),
}
_NAMES = {"float32": "F32", "bfloat16": "BF16", "uint16": "U16", "int32": "I32"}
_CONTINUOUS, _CODES = ("float32", "bfloat16"), ("uint16", "int32")
_ALIGNMENT = 8
# The displacement of each moved view, down and to the right, in units of `shift`, by the suffix of its tensors.
SHIFTS = {"": (0, 0), "_left": (0, -1), "_right": (0, 1), "_up": (-1, 0), "_down": (1, 0)}


def views(mirror: bool, shift: bool) -> tuple[str, ...]:
    """Return the suffixes of the tensors of an image's views: itself, its mirror image, and both moved."""
    return tuple(side + moved for side in ("", "_mirror")[: 1 + mirror] for moved in (SHIFTS if shift else ("",)))


VIEWS = views(mirror=True, shift=True)


def code_dtype(codes: int) -> str:
    """Return the smallest dtype for the codes of a codebook with `codes` vectors, 0 to codes - 1."""
    return "uint16" if codes <= 2**16 else "int32"


def stored_shape(form: str, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of a stored tensor of one image for latents of shape (C, h, w): codes are (h, w)."""
    return tuple(shape[1:]) if form == "codes" else tuple(shape)


@dataclass(frozen=True)
class LatentFile:
    """A memory-mapped shard.

    content: the bytes of the file.
    starts: the offset of each tensor in bytes.
    form: distribution, point or codes.
    mirror: whether the shard has tensors of mirror images.
    shift: whether it has tensors of moved images.
    shape: (n, C, h, w) of each tensor; (n, h, w) of codes.
    dtype_name: the dtype of an element, a key of `DTYPES`.
    """

    content: memoryview
    starts: Mapping[str, int]
    form: str
    mirror: bool
    shift: bool
    shape: tuple[int, ...]
    dtype_name: str

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of an element: float32, uint16 with the bits of a bfloat16, or uint16 or int32 of a code."""
        return DTYPES[self.dtype_name]

    def tensor(self, name: str) -> NDArray[Any]:
        """Return a tensor as a view of the memory map, of shape `shape`. Raises KeyError."""
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


def write_latent_shard(path: Path, tensors: Mapping[str, NDArray[Any]], dtype: str) -> None:
    """Write the tensors of a form, and those of further `views` where there are any, without metadata.

    `tensors` are mean and logvar or mean alone, float32 (n, C, h, w), rounded to `dtype`, float32 or bfloat16; or codes
    (n, h, w) within the range of uint16 or int32.
    """
    header: dict[str, Any] = {}
    content = []
    end = 0
    for name in _order(tensors):
        values = tensors[name]
        stored = to_bfloat16(values) if dtype == "bfloat16" else np.ascontiguousarray(values, dtype=DTYPES[dtype])
        start, end = end, end + stored.nbytes
        header[name] = {"dtype": _NAMES[dtype], "shape": list(values.shape), "data_offsets": [start, end]}
        content.append(stored)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    # write(), not a memory map: on a full disk a memory map kills the process instead of raising OSError.
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for stored in content:
            file.write(stored.data)


def _order(names: Collection[str]) -> list[str]:
    """Return the names of tensors in the order of the file: those of images, then those of each further view."""
    names_in_order = dict.fromkeys(name for form in FORMS.values() for name in form)
    return [name + view for view in VIEWS for name in names_in_order if name + view in names]


def _form(names: Collection[str]) -> tuple[str, bool, bool]:
    """Return the form that has these tensors, and whether it is mirrored, and moved. Raises StopIteration."""
    return next(
        (form, mirror, shift)
        for form, own in FORMS.items()
        for mirror, shift in product((False, True), repeat=2)
        if set(names) == {name + view for name in own for view in views(mirror, shift)}
    )


def map_latent_shard(path: Path) -> LatentFile:
    """Return a memory-mapped shard: only its header is read.

    Raises:
        ArtifactError: the file is not a shard of latents; the message names it.
    """
    try:
        content = mapped(path)
        start = 8 + int.from_bytes(content[:8], "little")
        parsed = json.loads(bytes(content[8:start]))
        header = {name: parsed[name] for name in _order(parsed)}
        form, mirror, shift = _form(header)
        (shape,) = {tuple(metadata["shape"]) for metadata in header.values()}
        (code,) = {metadata["dtype"] for metadata in header.values()}
        dtype = next(name for name in (_CODES if form == "codes" else _CONTINUOUS) if _NAMES[name] == code)
        bytes_each = int(np.prod(shape)) * DTYPES[dtype].itemsize
        for name, metadata in header.items():
            begin, end = metadata["data_offsets"]
            if not 0 <= begin <= end == begin + bytes_each <= len(content) - start:
                raise ValueError(f"{name} has bytes {begin} to {end} of {len(content) - start} for shape {shape}")
        starts = {name: start + metadata["data_offsets"][0] for name, metadata in header.items()}
        return LatentFile(content, starts, form, mirror, shift, shape, dtype)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
        raise ArtifactError(
            f"{path} is not a shard of latents, mean and logvar in float32 or bfloat16 or codes in uint16 or int32 "
            f"({error}): restore it with `dvc checkout {path.parent}`, or run encode_latents again."
        ) from error


def write_codebook(folder: Path, codebook: NDArray[np.float32]) -> None:
    """Write the vectors of the codes, float32 (K, C), as `codebook.safetensors`."""
    write_bytes(folder / CODEBOOK, save({"codebook": np.ascontiguousarray(codebook, dtype=np.float32)}))


def read_codebook(folder: Path, sha256: str) -> NDArray[np.float32]:
    """Return the vectors of the codes in `folder`, float32 (K, C).

    Raises:
        ArtifactError: missing or corrupted; the message names the file.
    """
    check_file(folder / CODEBOOK, sha256)
    codebook: NDArray[np.float32] = load_file(folder / CODEBOOK)["codebook"]
    return codebook
