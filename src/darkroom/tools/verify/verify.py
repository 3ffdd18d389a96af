"""`darkroom verify`: checks the data and every output byte by byte, and reports every error, not only the first."""

import os
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from darkroom.artifacts.manifest import NAME, manifest_hash, read_manifest
from darkroom.data.catalog import CATALOG
from darkroom.data.embeddings import EMBEDDING_PARTS
from darkroom.data.latents import LATENT_PARTS
from darkroom.data.layout import SHARDS
from darkroom.data.selection import SELECTION
from darkroom.terminal.numbers import bytes_of
from darkroom.terminal.terminal import with_progress
from darkroom.tools.verify.catalog_check import check_catalog, check_selection
from darkroom.tools.verify.derived_check import EMBEDDING_LAYOUT, LATENT_LAYOUT, Found, check_derived
from darkroom.tools.verify.manifests import Embeddings, Latents
from darkroom.tools.verify.outputs import Cache, Output, check_output, recorded_outputs
from darkroom.tools.verify.params import left_over, read_params, require_known
from darkroom.tools.verify.part_check import Result, check_part
from darkroom.tools.verify.problems import Problem, lines

_TOKENIZER, _CLIP = Path("models/tokenizer"), Path("models/clip")


def verify(names: Sequence[str], also_remote: bool = False) -> bool:
    """Check the data and the outputs, printing a line for each part and each error; return whether there is no error.

    Args:
        names: the names of the parts; empty: all parts in params.yaml, and the outputs of all stages.
        also_remote: whether to read remote tars.

    Raises:
        DarkroomError: params.yaml is not valid, or has no such part.
    """
    params = read_params()
    parts = list(params.parts)
    chosen = require_known(names, parts)
    outputs = [each for each in recorded_outputs() if not names or each.stage.partition("@")[2] in names]
    width = max(map(len, (*chosen, "catalog")))
    processors, reported = os.cpu_count() or 1, list[Problem]()
    tokenizers: dict[str, str] = {}
    clips: dict[str, str] = {}
    readable: list[str] = []
    for name in chosen:
        if not (SHARDS / name).is_dir():
            print(f"{name:<{width}}  not there: `dvc repro ingest@{name}` makes it")
            continue
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
        reported += _print(found)
    found = [*_others(tokenizers, clips)]
    if CATALOG.is_dir():
        found += check_catalog(CATALOG, parts, readable, sound=not reported and readable == parts)
        found += check_selection(SELECTION, readable) if SELECTION.is_dir() else ()
        print(f"{'catalog':<{width}}  {len(parts)} part{'' if len(parts) == 1 else 's'}: {_verdict(found)}")
    else:
        print(f"{'catalog':<{width}}  not there: `dvc repro catalog` makes it")
    reported += _print(found)
    reported += _check_outputs(outputs, width)
    if gone := left_over(parts):
        print(f"{', '.join(gone)}: of no part in params.yaml; nothing reads it, remove it.")
    return not reported


def _check_outputs(outputs: Sequence[Output], width: int) -> Sequence[Problem]:
    """Check outputs, print a line for them and for each error, and return the errors."""
    if not outputs:
        print(f"{'outputs':<{width}}  none in dvc.lock, as no stage has run")
        return []
    cache = Cache()
    missing = [output for output in outputs if cache.never_had(output)]
    present = [output for output in outputs if output not in missing]
    with ThreadPoolExecutor() as pool:
        checks = pool.map(lambda output: check_output(output, cache), present)
        found = [fault for faults in checks for fault in faults]
    print(f"{'outputs':<{width}}  {len(present)} of dvc.lock: {_verdict(found)}")
    if missing:
        stages = ", ".join(dict.fromkeys(output.stage for output in missing))
        print(f"  not made here, so not checked: {stages}; `dvc repro` makes them, or `dvc pull` fetches them.")
    return _print(found)


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


def _print(faults: Sequence[Problem]) -> Sequence[Problem]:
    """Print errors and return them."""
    for line in lines(faults):
        print(f"  {line}")
    return faults


def _others(tokenizers: dict[str, str], clips: dict[str, str]) -> Iterable[Problem]:
    """Yield an error for each part made by another tokenizer or CLIP than the present one or the first part's.

    Imported embeddings count as made by the CLIP that `train_clip.pretrained` names, as in `embed_clip`.
    """
    tokenizer = manifest_hash(_TOKENIZER) if (_TOKENIZER / NAME).is_file() else next(iter(tokenizers.values()), None)
    clip = next(iter(clips.values()), None)
    if (_CLIP / NAME).is_file():
        clip = read_manifest(_CLIP, "clip")["weights"] or ""
    for folder, makers, now, what, stage in (
        (LATENT_PARTS, tokenizers, tokenizer, "tokenizer", "encode_latents"),
        (EMBEDDING_PARTS, clips, clip, "CLIP", "embed_clip"),
    ):
        for name in (name for name, maker in makers.items() if maker != now):
            problem = f"was made by another {what} than the others or than is there"
            yield Problem(folder / name / NAME, problem, f"make it again with `dvc repro {stage}`")
