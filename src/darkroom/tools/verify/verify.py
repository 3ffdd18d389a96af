"""`darkroom verify`: checks the data and every output byte by byte, and reports every error, not only the first."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from darkroom.artifacts.manifest import NAME, manifest_hash, read_manifest
from darkroom.data.catalog import CATALOG, SELECTION
from darkroom.data.embedding_file import KIND as EMBEDDINGS_KIND
from darkroom.data.latent_file import KIND as LATENTS_KIND
from darkroom.data.layout import SHARDS
from darkroom.terminal.numbers import bytes_of
from darkroom.terminal.terminal import with_progress
from darkroom.tools.verify.derived_check import MADE, check_catalog, check_derived, check_selection
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
    makers: dict[str, dict[str, str]] = {made.kind: {} for made in MADE}
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
        readable += [name] if result.manifest else []
        derived = {made.kind: check_derived(made, name, result, processors) for made in MADE}
        for made in MADE:
            if manifest := derived[made.kind].manifest:
                makers[made.kind][name] = manifest[made.maker.lower()]
        found = [*result.faults, *(fault for each in derived.values() for fault in each.faults)]
        print(f"{name:<{width}}  {_line(result, derived, time.monotonic() - began)}: {_verdict(found)}")
        reported += _print(found)
    found = [*_others(makers)]
    if CATALOG.is_dir():
        found += check_catalog(parts, readable, sound=not reported and readable == parts)
        found += check_selection(readable) if SELECTION.is_dir() else ()
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


def _line(images: Result, derived: Mapping[str, Result], seconds: float) -> str:
    size = sum(each.bytes for each in (images, *derived.values()))
    text = f"{images.images:,} images in {images.shards:,} shards"
    text += "".join(f", {each.images:,} {kind}" for kind, each in derived.items() if each.images)
    if images.skipped:
        text += f", {images.skipped:,} remote shards not read (`--remote` reads them)"
    return f"{text}, {bytes_of(size)} at {bytes_of(size / max(seconds, 1e-9))}/s"


def _verdict(faults: Sequence[Problem]) -> str:
    return f"{len(faults):,} fault{'' if len(faults) == 1 else 's'}" if faults else "sound"


def _print(faults: Sequence[Problem]) -> Sequence[Problem]:
    """Print errors and return them."""
    for line in lines(faults):
        print(f"  {line}")
    return faults


def _others(makers: Mapping[str, Mapping[str, str]]) -> Iterator[Problem]:
    """Yield an error for each part made by another tokenizer or CLIP than the present one or the first part's.

    Imported embeddings count as made by the CLIP that `train_clip.pretrained` names, as in `embed_clip`.

    Args:
        makers: for latents and embeddings the fingerprint of what made them, by part.
    """
    now = {kind: next(iter(of.values()), None) for kind, of in makers.items()}
    if (_TOKENIZER / NAME).is_file():
        now[LATENTS_KIND] = manifest_hash(_TOKENIZER)
    if (_CLIP / NAME).is_file():
        now[EMBEDDINGS_KIND] = read_manifest(_CLIP, "clip")["weights"] or ""
    for made in MADE:
        for name in (name for name, maker in makers[made.kind].items() if maker != now[made.kind]):
            problem = f"was made by another {made.maker} than the others or than is there"
            yield Problem(made.root / name / NAME, problem, f"make it again with `dvc repro {made.stage}`")
