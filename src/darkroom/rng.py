"""Counter-based randomness: every draw is a function of (seed, stream, position).

Nothing here keeps a state, so order, augmentation, noise and timesteps of the image at position p are the same on
every run, after every resume, and for every number of processes. The bits are Philox4x64-10 (Salmon et al., "Parallel
random numbers: as easy as 1, 2, 3", 2011), from NumPy.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 4


def _key(seed: int, stream: str) -> NDArray[np.uint64]:
    digest = hashlib.blake2b(f"{seed}/{stream}".encode(), digest_size=16).digest()
    return np.frombuffer(digest, dtype=np.uint64)


def derive(seed: int, stream: str, position: int = 0) -> int:
    """Return a 63-bit seed for a generator that is not ours (torch's global one), from (seed, stream, position)."""
    return int(_key(seed, f"{stream}/{position}")[0] >> np.uint64(1))


def generator(seed: int, stream: str, position: int = 0) -> np.random.Generator:
    """Return the generator of one position of a stream; streams and positions are independent."""
    counter = np.array([0, 0, 0, position], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=_key(seed, stream), counter=counter))


def generators(seed: int, stream: str, positions: Iterable[int]) -> Iterator[np.random.Generator]:
    """Yield the generator of each position, as `generator` returns it; each is valid until the next is taken.

    One generator is moved from position to position, which takes half the time of building one for each.
    """
    bits = np.random.Philox(key=_key(seed, stream))
    mover = np.random.Generator(bits)
    fresh = bits.state
    for position in positions:
        fresh["state"]["counter"][:] = 0, 0, 0, position
        bits.state = fresh
        yield mover


def normal(seed: int, stream: str, positions: Sequence[int], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return standard normal noise, one block per position.

    Shape (len(positions), *shape), float32. A position's block does not depend on the other positions.
    """
    return random_numbers(seed, stream, positions, math.prod(shape), 0)[0].reshape(len(positions), *shape)


def random_numbers(
    seed: int, stream: str, positions: Sequence[int], normals: int, uniforms: int
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Return standard normal and uniform [0, 1) numbers, a fixed number of each per position.

    Shapes (len(positions), normals), float32, and (len(positions), uniforms), float64. All of a position's numbers come
    from one generator: moving it costs more than drawing, so this is faster than a stream for each purpose.
    """
    normal_rows = np.empty((len(positions), normals), dtype=np.float32)
    uniform_rows = np.empty((len(positions), uniforms))
    for row, uniform_row, source in zip(normal_rows, uniform_rows, generators(seed, stream, positions), strict=True):
        source.standard_normal(dtype=np.float32, out=row)
        source.random(out=uniform_row)
    return normal_rows, uniform_rows


def _mix(value: NDArray[np.uint64], key: np.uint64) -> NDArray[np.uint64]:
    """Return the finaliser of SplitMix64 of value + key: each output bit depends on every input bit."""
    value = value + key
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def _permute(values: NDArray[np.uint64], half: np.uint64, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a balanced Feistel network over 2 * half bits: a bijection whatever the round function is."""
    mask = (np.uint64(1) << half) - np.uint64(1)
    left, right = values >> half, values & mask
    for key in keys:
        left, right = right, left ^ (_mix(right, key) & mask)
    return (left << half) | right


@lru_cache(maxsize=64)
def _round_keys(seed: int, size: int, epoch: int) -> NDArray[np.uint64]:
    """Return the keys of an epoch's permutation."""
    return generator(seed, f"order/{size}", epoch).integers(0, 2**64, _ROUNDS, dtype=np.uint64)


def order(seed: int, size: int, positions: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the image, below `size`, at each position of an endless, shuffled sequence.

    Position p lies in epoch p // size; each epoch is a separate permutation that contains every image once. Memory
    and time grow with len(positions) only: the permutation is a Feistel network with cycle-walking (Black and Rogaway,
    "Ciphers with arbitrary finite domains", 2002), never a stored list.

    Raises:
        ValueError: size is not positive, or a position is negative.
    """
    flat = np.asarray(positions, dtype=np.int64)
    if size <= 0:
        raise ValueError(f"an order needs at least one image, but size is {size}")
    if flat.size and flat.min() < 0:
        raise ValueError("positions must not be negative")
    rows = np.empty(flat.shape, dtype=np.int64)
    half = np.uint64(max(1, ((size - 1).bit_length() + 1) // 2))
    for epoch in np.unique(flat // size):
        inside = flat // size == epoch
        keys = _round_keys(seed, size, int(epoch))
        permuted = _permute((flat[inside] % size).astype(np.uint64), half, keys)
        while (outside := permuted >= size).any():
            permuted[outside] = _permute(permuted[outside], half, keys)
        rows[inside] = permuted.astype(np.int64)
    return rows
