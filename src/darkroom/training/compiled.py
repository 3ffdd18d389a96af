"""Keeps what torch.compile has made for the next training of the same network."""

# No effect on any output: the same code, found again

import os

from darkroom.training.state import root


def keep_compiled() -> None:
    """Let torch keep in the main checkout what `compile: true` has compiled, before torch is loaded.

    A person who sets TORCHINDUCTOR_CACHE_DIR decides. Under a folder with spaces torch's own place stays: it does not
    quote what it hands to the compiler.
    """
    place = str(root().parent.absolute() / "cache" / "compiled")
    if not any(letter.isspace() for letter in place):
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", place)
