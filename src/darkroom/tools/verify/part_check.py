"""Checks the data by their hashes: image shards, latents and embeddings of a part, the catalog and the selection.

The seal of a manifest covers all of its entries, among them the hashes of the indexes, the tars and the other files.
So equal hashes mean that every byte is as its stage wrote it. Of a damaged tar, the index names the damaged images.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import fsspec
import pyarrow.parquet as pq

from darkroom.artifacts.atomic import json_bytes
from darkroom.artifacts.manifest import NAME, manifest_hash, read_manifest, sha256_file
from darkroom.data.catalog import CATALOG, SELECTION, SELECTION_KIND
from darkroom.data.catalog import KIND as CATALOG_KIND
from darkroom.data.damage import QUARANTINE
from darkroom.data.embedding_file import KIND as EMBEDDINGS_KIND
from darkroom.data.embedding_file import file_name
from darkroom.data.embeddings import EMBEDDING_PARTS
from darkroom.data.index import NAME as INDEX
from darkroom.data.latent_file import CODEBOOK
from darkroom.data.latent_file import KIND as LATENTS_KIND
from darkroom.data.latents import LATENT_PARTS
from darkroom.data.layout import KIND, SHARDS
from darkroom.data.splits import SPLITS
from darkroom.errors import DarkroomError
from darkroom.remote import is_remote, local_path, redacted, telling
from darkroom.terminal.terminal import with_progress
from darkroom.tools.verify.problems import Problem, check_hash, remake, sealed

_WORKERS = 8  # maximum number of tars that are read at once; hashing releases the interpreter lock


@dataclass
class Result:
    """The result of the check of a part.

    images: the number of images; of latents or embeddings, of their rows.
    skipped: the number of remote tars that were not read.
    manifest: the manifest; None where it is damaged.
    """

    faults: list[Problem] = field(default_factory=list)
    images: int = 0
    shards: int = 0
    bytes: int = 0
    skipped: int = 0
    manifest: dict[str, Any] | None = None


class Tar(NamedTuple):
    """A tar: its path or URL, its hash in the manifest, what to do where it is damaged, and where its images are.

    groups: the valid indexes that have images of it, each with the number of the row group.
    """

    place: str
    sha256: str
    remedy: str
    groups: list[tuple[Path, int]]


def check_part(name: str, processors: int, also_remote: bool) -> Result:
    """Check every byte of the image shards of a part, and report progress.

    Args:
        name: the name of the part.
        processors: the number of threads that read tars.
        also_remote: whether to read remote tars.
    """
    folder = SHARDS / name
    again = f"delete {folder} and make it again with `dvc repro ingest@{name}`"
    remedy = f"the rest of the part cannot be checked without it; {again}"
    part = sealed(folder, KIND, remedy, "part", "splits", "quarantine", "in_place")
    if isinstance(part, Problem):
        return Result([part])
    result = Result(_of_part(folder, part, name, again), manifest=part)
    damaged = remake(folder, f"ingest@{name}")
    changed = (
        f"it changed since it was indexed; put the old file back, or index it again with `dvc repro ingest@{name}`"
    )
    result.faults += check_hash(folder / QUARANTINE, part["quarantine"]["sha256"], damaged)
    result.bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.suffix != ".tar" and path.is_file())
    tars: dict[str, Tar] = {}  # a tar with images of several splits is read once
    for split in SPLITS:
        metadata, index = part["splits"][split], folder / split / INDEX
        result.images += metadata["images"]
        faults = check_hash(index, metadata["index_sha256"], damaged)
        result.faults += faults
        for number, entry in enumerate(metadata["shards"]):
            stem = folder / split / entry["name"]
            place = entry["tar"] if part["in_place"] else f"{stem}.tar"
            if not part["in_place"]:
                result.faults += _statistics(Path(f"{stem}_stats.json"), entry, damaged)
            if place not in tars:
                result.bytes += entry["bytes"] if also_remote or not is_remote(place) else 0
                tars[place] = Tar(place, entry["sha256"], changed if part["in_place"] else damaged, [])
            if not faults:
                tars[place].groups.append((index, number))
    chosen = [tar for tar in tars.values() if also_remote or not is_remote(tar.place)]
    result.shards, result.skipped = len(tars), len(tars) - len(chosen)
    with ThreadPoolExecutor(max(1, min(_WORKERS, processors))) as pool:
        checked = ([faults] for faults in pool.map(check_tar, chosen))
        result.faults += [fault for (found,) in with_progress(checked, len(chosen), name, "shards") for fault in found]
    return result


def _of_part(folder: Path, manifest: Mapping[str, Any], name: str, remedy: str) -> list[Problem]:
    if manifest["part"] == name:
        return []
    return [Problem(folder / NAME, "is of another part", remedy, detail=manifest["part"])]


def _statistics(path: Path, entry: Mapping[str, Any], remedy: str) -> Iterator[Problem]:
    if not path.is_file():
        yield Problem(path, "is missing", remedy)
    elif path.read_bytes() != json_bytes({key: entry[key] for key in ("images", "bytes", "sha256")}):
        yield Problem(path, "says something else than the manifest", remedy)


def check_tar(tar: Tar) -> list[Problem]:
    """Return the errors of a tar, and of its images where it is on this machine."""
    shown = redacted(tar.place) if is_remote(tar.place) else tar.place
    try:
        if is_remote(tar.place):
            # Network clients raise errors of many types, whose texts may contain signed links.
            with telling("cannot be read"), fsspec.open(tar.place, "rb") as stream:
                sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
        else:
            sha256 = sha256_file(local_path(tar.place))
        if sha256 == tar.sha256:
            return []
        keys = [] if is_remote(tar.place) else list(_damaged_images(tar))
    except FileNotFoundError:
        return [Problem(shown, "is missing", tar.remedy)]
    except (OSError, DarkroomError) as error:
        return [Problem(shown, "cannot be read", tar.remedy, detail=redacted(str(error)).rstrip("."))]
    what = "is damaged: its sha256 is not that of the {}"
    whole = Problem(shown, what.format("manifest"), tar.remedy)
    return [whole, *(Problem(shown, what.format("index"), tar.remedy, key) for key in keys)]


def _damaged_images(tar: Tar) -> Iterator[str]:
    """Yield the keys of the images whose bytes in a local tar are not those of the index."""
    with local_path(tar.place).open("rb") as file:
        for index, number in tar.groups:
            rows = pq.ParquetFile(index).read_row_group(number, columns=["key", "offset", "size", "sha256"])
            for row in rows.to_pylist():
                file.seek(row["offset"])
                if hashlib.sha256(file.read(row["size"])).digest() != row["sha256"]:
                    yield row["key"]


class Derived(NamedTuple):
    """What is made of the images of a part, a row for each image.

    root: the folder with a folder for each part.
    kind: the kind in the manifest.
    maker: what it is made with; the manifest holds its fingerprint under this name in lower case.
    stage: the stage that makes it.
    """

    root: Path
    kind: str
    maker: str
    stage: str


LATENTS = Derived(LATENT_PARTS, LATENTS_KIND, "tokenizer", "encode_latents")
EMBEDDINGS = Derived(EMBEDDING_PARTS, EMBEDDINGS_KIND, "CLIP", "embed_clip")
_TOKENIZER, _CLIP = Path("models/tokenizer"), Path("models/clip")


def check_derived(made: Derived, name: str, images: Result, processors: int) -> Result:
    """Check every byte of the latents or embeddings of a part; nothing where they are not there.

    Args:
        made: what is checked.
        name: the name of the part.
        images: the result of the check of its images.
        processors: the number of threads that read files.
    """
    folder = made.root / name
    if not folder.is_dir():
        return Result()
    damaged = remake(folder, f"{made.stage}@{name}")
    again = f"make them again with `dvc repro {made.stage}@{name}`"
    manifest = sealed(folder, made.kind, damaged, "part", "shards", "splits", made.maker.lower())
    if isinstance(manifest, Problem):
        return Result([manifest])
    result = Result(_of_part(folder, manifest, name, again), manifest=manifest)
    result.bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if images.manifest is not None and manifest["shards"] != manifest_hash(SHARDS / name):
        what = f"says that they were made from other images than {SHARDS / name}"
        result.faults.append(Problem(folder / NAME, what, again))
    files = {folder / CODEBOOK: manifest["codebook"]["sha256"]} if manifest.get("codebook") else {}
    for split, metadata in manifest["splits"].items():
        if not metadata.get("stored", True):
            continue
        files[folder / split / INDEX] = metadata["index_sha256"]
        for entry in metadata["shards"]:
            result.images += entry["images"]
            hashes = entry["sha256"]  # of latents one, of embeddings one for each kind of file
            if isinstance(hashes, str):
                files[folder / split / f"{entry['name']}.safetensors"] = hashes
            else:
                files |= {folder / split / file_name(what, entry["name"]): sha for what, sha in hashes.items()}
    with ThreadPoolExecutor(max(1, processors)) as pool:
        for found in pool.map(lambda file: check_hash(file[0], file[1], damaged), files.items()):
            result.faults += found
    return result


def check_makers(made: Derived, makers: Mapping[str, str]) -> Iterator[Problem]:
    """Yield an error for each part made by another tokenizer or CLIP than the present one or the first part's.

    Imported embeddings count as made by the CLIP that `train_clip.pretrained` names, as in `embed_clip`.

    Args:
        made: latents or embeddings.
        makers: the fingerprint of what made them, by part.
    """
    now = next(iter(makers.values()), None)
    if made is LATENTS and (_TOKENIZER / NAME).is_file():
        now = manifest_hash(_TOKENIZER)
    if made is EMBEDDINGS and (_CLIP / NAME).is_file():
        now = read_manifest(_CLIP, "clip")["weights"] or ""
    for name, maker in makers.items():
        if maker != now:
            problem = f"was made by another {made.maker} than the others or than is there"
            yield Problem(made.root / name / NAME, problem, f"make it again with `dvc repro {made.stage}`")


def check_catalog(parts: Sequence[str], checked: Sequence[str]) -> Iterator[Problem]:
    """Yield the errors of data/catalog and data/selection, where they exist.

    Args:
        parts: all parts in params.yaml.
        checked: the requested parts whose manifest is valid.
    """
    again = "make it again with `dvc repro catalog`"
    for folder, kind in ((CATALOG, CATALOG_KIND), (SELECTION, SELECTION_KIND)):
        if not folder.is_dir():
            continue
        manifest = sealed(folder, kind, remake(folder, "catalog"), "parts")
        if isinstance(manifest, Problem):
            yield manifest
            continue
        known: Mapping[str, Any] = {part["name"]: part["sha256"] for part in manifest["parts"]}
        if folder == CATALOG and list(known) != list(parts):
            detail = f"{', '.join(known)}; params.yaml: {', '.join(parts)}"
            yield Problem(folder / NAME, "is of other parts than params.yaml names", again, detail=detail)
            continue
        for part in checked:
            if part in known and manifest_hash(SHARDS / part) != known[part]:
                yield Problem(folder / NAME, "was made from other images of a part", again, detail=part)
