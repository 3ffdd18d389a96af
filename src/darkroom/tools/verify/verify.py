"""`darkroom data verify`: checks every hash and count of the data, and reports every error, not only the first."""

import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from darkroom.artifacts.manifest import NAME, manifest_hash, read_manifest
from darkroom.data.catalog import CATALOG
from darkroom.data.catalog_writer import PICTURES
from darkroom.data.embeddings import EMBEDDING_PARTS
from darkroom.data.latents import LATENT_PARTS
from darkroom.data.layout import SHARDS
from darkroom.data.selection import SELECTION
from darkroom.terminal.progress import with_progress
from darkroom.terminal.tables import bytes_of
from darkroom.tools.verify.catalog_check import check_catalog, check_pictures, check_selection
from darkroom.tools.verify.derived_check import Found, check_derived
from darkroom.tools.verify.embeddings_check import EMBEDDING_LAYOUT
from darkroom.tools.verify.latents_check import LATENT_LAYOUT
from darkroom.tools.verify.manifests import Embeddings, Latents
from darkroom.tools.verify.params import left_over, read_params, require_known
from darkroom.tools.verify.part_check import Result, check_part
from darkroom.tools.verify.problems import Problem, lines

_TOKENIZER, _CLIP = Path("models/tokenizer"), Path("models/clip")


def verify(names: Sequence[str], also_remote: bool = False) -> bool:
    """Check parts of the data, printing a line for each part and each error; return whether there is no error.

    Args:
        names: the names of the parts; empty: all parts in params.yaml.
        also_remote: whether to read remote tars.

    Raises:
        DarkroomError: params.yaml is not valid, or has no such part.
    """
    params = read_params()
    parts = list(params.parts)
    chosen = require_known(names, parts)
    width = max(map(len, (*chosen, "catalog")))
    processors, faults = os.cpu_count() or 1, 0
    tokenizers: dict[str, str] = {}
    clips: dict[str, str] = {}
    readable: list[str] = []
    for name in chosen:
        began = time.monotonic()
        result = check_part(
            SHARDS / name,
            name,
            params.ingest,
            processors,
            also_remote,
            lambda tars, images, name=name: with_progress(tars, images, name),  # type: ignore[misc]
        )
        shards = None if result.manifest is None else SHARDS / name
        readable += [name] if shards else []
        latents = check_derived(LATENT_LAYOUT, LATENT_PARTS / name, name, shards, result.indexes, processors)
        if latents.manifest is not None:
            tokenizers[name] = latents.manifest.tokenizer
        embeddings = check_derived(EMBEDDING_LAYOUT, EMBEDDING_PARTS / name, name, shards, result.indexes, processors)
        if embeddings.manifest is not None:
            clips[name] = embeddings.manifest.clip
        found = [*result.faults, *latents.faults, *embeddings.faults]
        print(f"{name:<{width}}  {_line(result, latents, embeddings, time.monotonic() - began)}: {_verdict(found)}")
        faults += _print(found)
    found = [*_tokenizers(tokenizers), *_clips(clips)]
    if CATALOG.is_dir():
        found += check_catalog(CATALOG, parts, readable, sound=not faults and chosen == parts)
        found += check_selection(SELECTION, readable) if SELECTION.is_dir() else ()
        found += check_pictures(PICTURES, CATALOG) if PICTURES.is_dir() else ()
        print(f"{'catalog':<{width}}  {len(parts)} part{'' if len(parts) == 1 else 's'}: {_verdict(found)}")
    else:
        print(f"{'catalog':<{width}}  not there: `dvc repro catalog` makes it")
    faults += _print(found)
    if gone := left_over(parts):
        print(f"{', '.join(gone)}: of no part in params.yaml; nothing reads it, remove it.")
    return not faults


def _line(result: Result, latents: Found[Latents], embeddings: Found[Embeddings], seconds: float) -> str:
    size = result.bytes + latents.bytes + embeddings.bytes
    text = f"{result.images:,} images in {result.shards:,} shards"
    if latents.rows:
        text += f", {latents.rows:,} latents"
    if embeddings.rows:
        text += f", {embeddings.rows:,} embeddings"
    if result.skipped:
        text += f", {result.skipped:,} remote shards not read (`--remote` reads them)"
    return f"{text}, {bytes_of(size)} at {bytes_of(size / max(seconds, 1e-9))}/s"


def _verdict(faults: Sequence[Problem]) -> str:
    return f"{len(faults):,} fault{'' if len(faults) == 1 else 's'}" if faults else "sound"


def _print(faults: Iterable[Problem]) -> int:
    """Print errors and return their number."""
    listed = list(faults)
    for line in lines(listed):
        print(f"  {line}")
    return len(listed)


def _tokenizers(found: dict[str, str]) -> Iterable[Problem]:
    """Yield an error for each part whose latents are not those of the first part's or the present tokenizer."""
    remedy = "encode them again with `dvc repro encode_latents`"
    now = manifest_hash(_TOKENIZER) if (_TOKENIZER / NAME).is_file() else next(iter(found.values()), None)
    for name, tokenizer in found.items():
        if tokenizer != now:
            yield Problem(
                LATENT_PARTS / name / NAME, "was made by another tokenizer than the others or than is there", remedy
            )


def _clips(found: dict[str, str]) -> Iterable[Problem]:
    """Yield an error for each part whose embeddings are not those of the first part's or the present CLIP.

    Imported embeddings count as made by the CLIP that `train_clip.pretrained` names, as in `embed_clip`.
    """
    remedy = "make them again with `dvc repro embed_clip`"
    now = next(iter(found.values()), None)
    if (_CLIP / NAME).is_file():
        now = read_manifest(_CLIP, "clip")["weights"] or ""
    for name, clip in found.items():
        if clip != now:
            yield Problem(
                EMBEDDING_PARTS / name / NAME, "was made by another CLIP than the others or than is there", remedy
            )
