"""Checks the catalog and the selection against the parts."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from darkroom.artifacts.manifest import NAME, ArtifactError, check_seal, manifest_hash, read_manifest
from darkroom.data.catalog import KIND, SELECTION_KIND
from darkroom.data.catalog_writer import catalog_facts
from darkroom.data.layout import SHARDS
from darkroom.errors import DarkroomError
from darkroom.tools.verify.problems import Problem, remake, unreliable

_AGAIN = "make it again with `dvc repro catalog`"


def check_catalog(folder: Path, parts: Sequence[str], checked: Sequence[str], sound: bool) -> Iterator[Problem]:
    """Yield the errors of the catalog.

    Args:
        folder: data/catalog, which exists.
        parts: all parts in params.yaml.
        checked: the requested parts whose manifest is valid.
        sound: whether all parts are valid, so that the catalog can be computed again and compared.
    """
    try:
        check_seal(folder)
        manifest = read_manifest(folder, KIND)
    except ArtifactError as error:
        yield unreliable(folder, error, remake(folder, "catalog"))
        return
    known: Mapping[str, Any] = {part["name"]: part["sha256"] for part in manifest["parts"]}
    if list(known) != list(parts):
        detail = f"{', '.join(known)}; params.yaml: {', '.join(parts)}"
        yield Problem(folder / NAME, "is of other parts than params.yaml names", _AGAIN, detail=detail)
        return
    others = [part for part in checked if manifest_hash(SHARDS / part) != known[part]]
    for part in others:
        what = "is not the manifest that the catalog was made from"
        yield Problem(SHARDS / part / NAME, what, f"{remake(SHARDS / part, f'ingest@{part}')}, then {_AGAIN}")
    if not sound or others:
        return
    try:
        metadata = catalog_facts(parts)
    except DarkroomError as error:
        yield Problem(folder / NAME, "cannot be compared with its parts", _AGAIN, detail=str(error).rstrip("."))
        return
    for name, value in metadata.items():
        if manifest.get(name) != value:
            yield Problem(folder / NAME, f"has other `{name}` than its parts", _AGAIN)


def check_selection(folder: Path, checked: Sequence[str]) -> Iterator[Problem]:
    """Yield the errors of data/selection, which exists; `checked` as for `check_catalog`."""
    try:
        check_seal(folder)
        manifest = read_manifest(folder, SELECTION_KIND)
    except ArtifactError as error:
        yield unreliable(folder, error, remake(folder, "catalog"))
        return
    for part in manifest["parts"]:
        if part["name"] in checked and manifest_hash(SHARDS / part["name"]) != part["sha256"]:
            yield Problem(folder / NAME, "was made from another part", _AGAIN, detail=part["name"])
