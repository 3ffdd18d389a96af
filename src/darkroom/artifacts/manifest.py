"""The manifest of an artifact: its metadata, and the hashes of its inputs.

Every artifact is a folder with a `manifest.json` that holds `kind`, `format`, and the metadata that a consumer must
check before it does any work: counts, shapes, dtypes, statistics, class names, hashes of inputs. A manifest holds no
time, host, path outside the artifact, device or git revision, so equal work gives equal bytes. Its `seal` is a hash of
all other entries, since a changed digit of a statistic would still be valid JSON. Hashes are SHA-256.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from darkroom.artifacts.atomic import json_bytes, write_json
from darkroom.errors import DarkroomError

FORMAT = 2
NAME = "manifest.json"


class ArtifactError(DarkroomError):
    """An artifact is missing, damaged, or does not fit its consumer."""


def write_manifest(folder: Path, kind: str, **metadata: Any) -> None:
    """Write `folder/manifest.json` with `kind`, the format version, the metadata (JSON values) and the seal."""
    content = json.loads(json_bytes({"kind": kind, "format": FORMAT, **metadata}))
    write_json(folder / NAME, {**content, "seal": sha256_json(content)})


def check_seal(folder: Path) -> None:
    """Check that the manifest in `folder` is byte for byte as `write_manifest` wrote it.

    Raises:
        ArtifactError: missing or damaged; the message names the file.
    """
    path = folder / NAME
    if not path.is_file():
        raise ArtifactError(f"{path} is missing: run `dvc repro`, or `dvc pull` where others have run it.")
    data = path.read_bytes()
    try:
        content = json.loads(data)
        seal = content.pop("seal")
        sound = seal == sha256_json(content) and data == json_bytes({**content, "seal": seal})
    except (ValueError, AttributeError, KeyError, TypeError):  # no JSON, no mapping, no seal
        sound = False
    if not sound:
        raise ArtifactError(f"{path} is damaged (its seal is not the hash of its content).")


def read_manifest(folder: Path, kind: str) -> dict[str, Any]:
    """Return the metadata of the artifact in `folder`, after checking its kind and format version.

    Raises:
        ArtifactError: the manifest is missing, not JSON, or of another kind or format version; names the file.
    """
    path = folder / NAME
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ArtifactError(f"{path} is missing: run `dvc repro`, or `dvc pull` where others have run it.") from error
    except ValueError as error:
        raise ArtifactError(f"{path} is damaged ({error}): restore it with `dvc checkout {folder}`.") from error
    actual = manifest.get("kind"), manifest.get("format")
    if actual != (kind, FORMAT):
        raise ArtifactError(
            f"{path} describes {actual[0]!r} in format {actual[1]!r}, but {kind!r} in format {FORMAT} is needed: "
            "run `dvc repro`."
        )
    return manifest


def check_file(path: Path, sha256: str) -> None:
    """Check a file against a hash from a manifest or an index.

    Raises:
        ArtifactError: the file is missing, or has another content; the message names it.
    """
    if not path.is_file():
        raise ArtifactError(f"{path} is missing: restore it with `dvc checkout {path.parent}`.")
    if sha256_file(path) != sha256:
        raise ArtifactError(
            f"{path} is corrupted (its sha256 is not the recorded {sha256[:12]}…): delete it and restore it with "
            f"`dvc checkout {path.parent}`, or run the stage that writes it again."
        )


def file_hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of all files below `folder` except the manifest, by relative path: a manifest's `files`."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / NAME)
    return {path.relative_to(folder).as_posix(): sha256_file(path) for path in paths}


def open_artifact(folder: Path, kind: str, image_shape: Sequence[int] | None = None) -> dict[str, Any]:
    """Return the metadata of the artifact in `folder`, after checking its manifest and the hashes of its `files`.

    Raises:
        ArtifactError: as `read_manifest`; or a file is missing or corrupted, or `train_KIND` trained it on images whose
            shape is not `image_shape`, (C, H, W).
    """
    manifest = read_manifest(folder, kind)
    for name, sha256 in manifest["files"].items():
        check_file(folder / name, sha256)
    if image_shape is not None and manifest.get("image_shape", list(image_shape)) != list(image_shape):
        raise ArtifactError(
            f"{folder} was trained on images of shape {manifest['image_shape']}, but these are {list(image_shape)}: "
            f"train it again (`dvc repro train_{kind}`)."
        )
    return manifest


def manifest_hash(folder: Path) -> str:
    """Return the SHA-256 of the manifest: the fingerprint of the artifact, since it holds the hashes of all files."""
    return sha256_file(folder / NAME)


def sha256_bytes(data: bytes) -> str:
    """Return the SHA-256 of `data` as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of the content of a file, read in blocks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_json(value: Any) -> str:
    """Return the SHA-256 of a JSON value, independent of the order of its keys."""
    return sha256_bytes(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())
