"""Files behind a URL, by fsspec, kept once by their content.

`.darkroom/downloads/SHA256.safetensors`: what stands in params.yaml is the hash, so a file that was fetched once is
found again without a network, and another file behind the same URL is never read.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import fsspec

from darkroom.artifacts.hashing import sha256_file
from darkroom.errors import DarkroomError
from darkroom.remote import require_no_password, telling
from darkroom.training.state import root

_BLOCK = 8 * 2**20


def downloads() -> Path:
    """Return the folder of all downloads: in the main checkout, also from a queued experiment's copy of it."""
    return root().parent / "downloads"


def _blocks(url: str) -> Iterator[bytes]:
    """Yield the bytes behind a URL. Only what the network does is caught here: a full disk has a sentence elsewhere."""
    with telling(f"{url} cannot be read"), fsspec.open(url, "rb") as file:
        while block := file.read(_BLOCK):
            yield block


def _download(url: str) -> tuple[Path, str]:
    """Fetch a URL, and return where it lies and its SHA-256, under which it lies."""
    downloads().mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    print(f"downloads {url}")
    handle, name = tempfile.mkstemp(prefix=".part-", dir=downloads())
    try:
        with os.fdopen(handle, "wb") as file:
            for block in _blocks(url):
                digest.update(block)
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        path = downloads() / f"{digest.hexdigest()}.safetensors"
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return path, digest.hexdigest()


def fetched(url: str, sha256: str | None) -> Path:
    """Return the file behind `url`, downloaded unless it is here already.

    Args:
        url: anything fsspec opens; `hf://OWNER/NAME@REVISION/FILE` is the Hub.
        sha256: of the file. None is refused, after the download, with the hash to write down.

    Raises:
        DarkroomError: the URL cannot be read or holds a password, no hash is given, or the file has another one.
    """
    require_no_password(url, "init.url")
    if sha256 is not None:
        path = downloads() / f"{sha256}.safetensors"
        if path.is_file() and sha256_file(path) == sha256:
            return path
    path, found = _download(url)
    if sha256 is None:
        raise DarkroomError(
            f"{url} has the sha256 {found}: write it to `init.sha256` in params.yaml, since a URL alone does not say "
            "which weights a training began with. The file is kept and will not be downloaded again."
        )
    if found != sha256:
        raise DarkroomError(
            f"{url} has the sha256 {found}, and `init.sha256` in params.yaml is {sha256}: the file behind the URL is "
            "another one now. Nothing was read from it; find the right file, or name its hash if you trust it."
        )
    return path
