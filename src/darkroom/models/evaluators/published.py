"""Published weights: a file by its path, or a download into torch hub's cache, checked by its hash.

The hash of a file is checked before it is read, and it is read as tensors only, so that no code in it runs.
"""

import io
import pickle
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from darkroom.artifacts.manifest import sha256_bytes
from darkroom.errors import DarkroomError
from darkroom.params.section import NO_FILE


class Published(NamedTuple):
    """The source of published weights.

    name: for messages, as in "the weights of Inception".
    url: of the file.
    sha256: of the file, 64 hexadecimal digits.
    """

    name: str
    url: str
    sha256: str

    @property
    def cached(self) -> Path:
        """The path of the file in torch hub's cache, which other programs fill too."""
        return Path(torch.hub.get_dir()) / "checkpoints" / self.url.rpartition("/")[2]


class Keys(NamedTuple):
    """Names of the settings of weights for messages.

    weights: of the path, as in "`reference_stats.inception.weights` in params.yaml".
    sha256: of the hash.
    instead: an alternative, after "or".
    """

    weights: str
    sha256: str
    instead: str


def of_section(section: str, name: str) -> Keys:
    """Return the keys of an extractor's weights in a section of params.yaml."""
    return Keys(
        f"`{section}.{name}.weights` in params.yaml",
        f"`{section}.{name}.sha256` in params.yaml",
        f"take `{name}` out of `{section}.extractors`",
    )


def _download(source: Published, sha256: str, keys: Keys) -> None:
    path = source.cached
    print(f"downloading {source.url} to {path}", file=sys.stderr, flush=True)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.hub.download_url_to_file(source.url, str(path), hash_prefix=sha256, progress=sys.stderr.isatty())
    except OSError as error:  # also URLError, HTTPError and timeouts
        raise DarkroomError(
            f"{source.name} cannot be downloaded from {source.url} to {path} ({error}): copy that file there, or to "
            f"another path and set {keys.weights} to it; or {keys.instead}."
        ) from error
    except RuntimeError as error:  # torch's error for another hash, which names both hashes
        raise DarkroomError(
            f"{source.url} does not have the hash of {keys.sha256} ({error}): set {keys.weights} to a file."
        ) from error


def read_published(
    weights: Path, sha256: str | None, source: Published, keys: Keys, download: bool = True
) -> tuple[Mapping[str, Tensor], str, Path]:
    """Return the tensors of a file, its SHA-256 and its path.

    Args:
        weights: a file in the format of `source`; `data/none`: that file, downloaded once into torch hub's cache.
        sha256: the SHA-256 that the file must have; None: any.
        source: its publication.
        keys: for messages.
        download: whether to download a file that is not in the cache; False: raise.

    Raises:
        DarkroomError: there is no file, the hash differs, or the file does not hold tensors by their names.
    """
    path = weights
    if weights == Path(NO_FILE):
        path = source.cached
        if not path.is_file():
            if not download:
                raise DarkroomError(
                    f"{source.name} are not on this machine: download {source.url} (sha256 {source.sha256}) to {path}, "
                    f"or to another path and set {keys.weights} to it; or {keys.instead}."
                )
            _download(source, sha256 or source.sha256, keys)
    try:
        content = path.read_bytes()  # one copy in memory is hashed and read: the file cannot change in between
    except OSError as error:
        if weights == Path(NO_FILE):
            raise DarkroomError(f"{path} cannot be read ({error.strerror}): delete it to download it again.") from error
        raise DarkroomError(
            f"{keys.weights} names {path}, which cannot be read ({error.strerror}): use the published file, "
            f"{source.url}, or {NO_FILE} to download it."
        ) from error
    digest = sha256_bytes(content)
    if sha256 is not None and digest != sha256:
        raise DarkroomError(
            f"{path} has the sha256 {digest}, not {sha256} ({keys.sha256}): delete it, or correct the hash."
        )
    try:
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
            raise TypeError("not a mapping of names to tensors")
    except (pickle.UnpicklingError, RuntimeError, TypeError, EOFError, ValueError) as error:
        raise other_file(path, source, keys, error) from error
    return state, digest, path


def other_file(path: Path, source: Published, keys: Keys, error: Exception) -> DarkroomError:
    """Return the error of a file that does not hold the tensors of its network."""
    reason = " ".join(str(error).split())[:200]
    return DarkroomError(
        f"{path} does not hold {source.name} ({reason}): set {keys.weights} to the published file, {source.url}."
    )
