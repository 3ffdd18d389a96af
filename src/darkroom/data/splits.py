"""Split images by their keys only, so the split of an image does not change when data are added."""

import hashlib
from collections.abc import Mapping

SPLITS = ("train", "val", "test")


def uniform_hash(seed: int, key: str) -> float:
    """Return a number in [0, 1), uniform over keys: the first 53 bits of BLAKE2b(seed/key) as a fraction."""
    digest = hashlib.blake2b(f"{seed}/{key}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest) >> 11) / 2**53


def split_of(key: str, fractions: Mapping[str, float], seed: int) -> str:
    """Return "train", "val" or "test".

    With u = uniform_hash(seed, key): train where u < train, test where u >= 1 - test, val between. So a split that
    grows keeps all its images, unless another split grows too.
    """
    u = uniform_hash(seed, key)
    if u < fractions["train"]:
        return "train"
    return "test" if u >= 1 - fractions["test"] else "val"
