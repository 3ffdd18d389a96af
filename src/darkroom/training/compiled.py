"""Keeps what torch.compile has made for the next training of the same network."""

import os

from darkroom.training.state import root


def keep_compiled() -> None:
    """Let torch keep in the main checkout what `compile: true` has compiled, before torch is loaded.

    A person who sets TORCHINDUCTOR_CACHE_DIR decides. torch's own place stays in a read-only checkout, and under a
    folder with spaces: it does not quote what it hands to the compiler.
    """
    kept = root().parent.absolute()
    place = str(kept / "cache" / "compiled")
    if os.access(kept.parent, os.W_OK) and not any(letter.isspace() for letter in place):
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", place)
