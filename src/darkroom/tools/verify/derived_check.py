"""Checks what is made of the parts: latents and embeddings, the catalog and the selection."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from darkroom.artifacts.manifest import NAME, manifest_hash
from darkroom.data.catalog import CATALOG, SELECTION, SELECTION_KIND
from darkroom.data.catalog import KIND as CATALOG_KIND
from darkroom.data.catalog_writer import catalog_facts
from darkroom.data.embedding_file import KIND as EMBEDDINGS_KIND
from darkroom.data.embedding_file import file_name
from darkroom.data.embeddings import EMBEDDING_PARTS
from darkroom.data.index import EMBEDDINGS, LATENTS
from darkroom.data.index import NAME as INDEX
from darkroom.data.latent_file import CODEBOOK
from darkroom.data.latent_file import KIND as LATENTS_KIND
from darkroom.data.latents import LATENT_PARTS
from darkroom.data.layout import SHARDS
from darkroom.errors import DarkroomError
from darkroom.tools.verify.part_check import Result, read_index
from darkroom.tools.verify.problems import Problem, check_hash, remake, sealed

_AGAIN = "make it again with `dvc repro catalog`"


class Derived(NamedTuple):
    """What is made of the images of a part, a row for each image.

    root: the folder with a folder for each part.
    kind: the kind in the manifest.
    schema: the schema of the index of a split.
    maker: what it is made with; the manifest holds its fingerprint under this name in lower case.
    stage: the stage that makes it.
    again: the remedy where the images have changed, as an imperative.
    """

    root: Path
    kind: str
    schema: pa.Schema
    maker: str
    stage: str
    again: str


MADE = (
    Derived(LATENT_PARTS, LATENTS_KIND, LATENTS, "tokenizer", "encode_latents", "encode them again"),
    Derived(EMBEDDING_PARTS, EMBEDDINGS_KIND, EMBEDDINGS, "CLIP", "embed_clip", "make them again"),
)


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
    again = f"{made.again} with `dvc repro {made.stage}@{name}`"
    manifest = sealed(folder, made.kind, damaged, "part", "shards", "splits", made.maker.lower())
    if isinstance(manifest, Problem):
        return Result([manifest])
    result = Result(manifest=manifest)
    result.bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if manifest["part"] != name:
        result.faults.append(Problem(folder / NAME, "is of another part", again, detail=manifest["part"]))
    if images.manifest is not None and manifest["shards"] != manifest_hash(SHARDS / name):
        what = f"says that they were made from other images than {SHARDS / name}"
        result.faults.append(Problem(folder / NAME, what, again))
    splits = {split: metadata for split, metadata in manifest["splits"].items() if metadata.get("stored", True)}
    for split, metadata in splits.items():
        result.images += sum(entry["images"] for entry in metadata["shards"])
        table = read_index(folder / split, made.schema, metadata, damaged)
        if isinstance(table, Problem):
            result.faults.append(table)
            continue
        if metadata["images"] != table.num_rows:
            result.faults.append(Problem(folder / NAME, "has other counts than its index", damaged, detail=split))
        if (rows := images.indexes.get(split)) is not None:
            result.faults += _other_rows(folder / split / INDEX, table, rows, again)
    files = {folder / CODEBOOK: manifest["codebook"]["sha256"]} if manifest.get("codebook") else {}
    for split, metadata in splits.items():
        for entry in metadata["shards"]:
            hashes = entry["sha256"]  # of latents one, of embeddings one for each kind of file
            if isinstance(hashes, str):
                files[folder / split / f"{entry['name']}.safetensors"] = hashes
            else:
                files |= {folder / split / file_name(what, entry["name"]): sha for what, sha in hashes.items()}
    with ThreadPoolExecutor(max(1, processors)) as pool:
        for found in pool.map(lambda file: check_hash(file[0], file[1], damaged), files.items()):
            result.faults += found
    return result


def _other_rows(path: Path, made: pa.Table, images: pa.Table, remedy: str) -> Iterator[Problem]:
    """Yield an error for each row that belongs to another image than the same row of the image shards."""
    if made.num_rows != images.num_rows:
        detail = f"{made.num_rows:,}, and {images.num_rows:,} images"
        yield Problem(path, "has another number of rows than the image shards", remedy, detail=detail)
        return
    for column in ("key", "label"):
        if made[column].equals(images[column]):
            continue
        pairs = zip(made[column].to_pylist(), images[column].to_pylist(), strict=True)
        for row, (one, other) in enumerate(pairs):
            if one != other:
                detail = f"row {row:,}: {one}, and {other}"
                what = f"has another {column} than the same row of the image shards"
                yield Problem(path, what, remedy, made["key"][row].as_py(), detail)


def check_catalog(parts: Sequence[str], checked: Sequence[str], sound: bool) -> Iterator[Problem]:
    """Yield the errors of data/catalog, which exists.

    Args:
        parts: all parts in params.yaml.
        checked: the requested parts whose manifest is valid.
        sound: whether all parts are valid, so that the catalog can be computed again and compared.
    """
    manifest = sealed(CATALOG, CATALOG_KIND, remake(CATALOG, "catalog"), "parts")
    if isinstance(manifest, Problem):
        yield manifest
        return
    known: Mapping[str, Any] = {part["name"]: part["sha256"] for part in manifest["parts"]}
    if list(known) != list(parts):
        detail = f"{', '.join(known)}; params.yaml: {', '.join(parts)}"
        yield Problem(CATALOG / NAME, "is of other parts than params.yaml names", _AGAIN, detail=detail)
        return
    others = [part for part in checked if manifest_hash(SHARDS / part) != known[part]]
    for part in others:
        what = "is not the manifest that the catalog was made from"
        yield Problem(SHARDS / part / NAME, what, f"{remake(SHARDS / part, f'ingest@{part}')}, then {_AGAIN}")
    if not sound or others:
        return
    try:
        facts = catalog_facts(parts)
    except DarkroomError as error:
        yield Problem(CATALOG / NAME, "cannot be compared with its parts", _AGAIN, detail=str(error).rstrip("."))
        return
    for name, value in facts.items():
        if manifest.get(name) != value:
            yield Problem(CATALOG / NAME, f"has other `{name}` than its parts", _AGAIN)


def check_selection(checked: Sequence[str]) -> Iterator[Problem]:
    """Yield the errors of data/selection, which exists; `checked` as for `check_catalog`."""
    manifest = sealed(SELECTION, SELECTION_KIND, remake(SELECTION, "catalog"), "parts")
    if isinstance(manifest, Problem):
        yield manifest
        return
    for part in manifest["parts"]:
        if part["name"] in checked and manifest_hash(SHARDS / part["name"]) != part["sha256"]:
            yield Problem(SELECTION / NAME, "was made from another part", _AGAIN, detail=part["name"])
