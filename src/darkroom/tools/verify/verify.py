"""`darkroom verify`: checks the data and every output byte by byte, and reports every error, not only the first."""

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from darkroom.data.catalog import CATALOG
from darkroom.data.layout import SHARDS
from darkroom.terminal.numbers import bytes_of, counted
from darkroom.tools.verify.outputs import Cache, Output, check_output, recorded_outputs
from darkroom.tools.verify.part_check import (
    EMBEDDINGS,
    LATENTS,
    Result,
    check_catalog,
    check_derived,
    check_makers,
    check_part,
)
from darkroom.tools.verify.problems import Problem, left_over, lines, read_parts


def verify(names: Sequence[str], also_remote: bool = False) -> bool:
    """Check the data and the outputs, printing a line for each part and each error; return whether there is no error.

    Args:
        names: the names of the parts; empty: all parts in params.yaml, and the outputs of all stages.
        also_remote: whether to read remote tars.

    Raises:
        DarkroomError: params.yaml is not valid, or has no such part.
    """
    parts, chosen = read_parts(names)
    outputs = [each for each in recorded_outputs() if not names or each.stage.partition("@")[2] in names]
    width = max(map(len, (*chosen, "catalog")))
    processors, faults = os.cpu_count() or 1, 0
    makers: dict[str, dict[str, str]] = {LATENTS.kind: {}, EMBEDDINGS.kind: {}}
    readable: list[str] = []
    for name in chosen:
        if not (SHARDS / name).is_dir():
            print(f"{name:<{width}}  not there: `dvc repro ingest@{name}` makes it")
            continue
        began = time.monotonic()
        result = check_part(name, processors, also_remote)
        readable += [name] if result.manifest else []
        derived = {made.kind: check_derived(made, name, result, processors) for made in (LATENTS, EMBEDDINGS)}
        for made in (LATENTS, EMBEDDINGS):
            if manifest := derived[made.kind].manifest:
                makers[made.kind][name] = manifest[made.maker.lower()]
        found = [*result.faults, *(fault for each in derived.values() for fault in each.faults)]
        faults += _print(f"{name:<{width}}  {_line(result, derived, time.monotonic() - began)}", found)
    found = [fault for made in (LATENTS, EMBEDDINGS) for fault in check_makers(made, makers[made.kind])]
    found += check_catalog(parts, readable)
    if CATALOG.is_dir() or found:
        faults += _print(f"{'catalog':<{width}}  {counted(len(parts), 'part')}", found)
    else:
        print(f"{'catalog':<{width}}  not there: `dvc repro catalog` makes it")
    faults += _check_outputs(outputs, width)
    if gone := left_over(parts):
        print(f"{', '.join(gone)}: of no part in params.yaml; nothing reads it, remove it.")
    return not faults


def _check_outputs(outputs: Sequence[Output], width: int) -> int:
    """Check outputs, print a line for them and for each error, and return the number of errors."""
    if not outputs:
        print(f"{'outputs':<{width}}  none in dvc.lock, as no stage has run")
        return 0
    cache = Cache()
    missing = [output for output in outputs if cache.never_had(output)]
    present = [output for output in outputs if output not in missing]
    with ThreadPoolExecutor() as pool:
        checks = pool.map(lambda output: check_output(output, cache), present)
        found = [fault for faults in checks for fault in faults]
    faults = _print(f"{'outputs':<{width}}  {len(present)} of dvc.lock", found)
    if missing:
        stages = ", ".join(dict.fromkeys(output.stage for output in missing))
        print(f"  not made here, so not checked: {stages}; `dvc repro` makes them, or `dvc pull` fetches them.")
    return faults


def _line(images: Result, derived: Mapping[str, Result], seconds: float) -> str:
    size = sum(each.bytes for each in (images, *derived.values()))
    text = f"{images.images:,} images in {images.shards:,} shards"
    text += "".join(f", {each.images:,} {kind}" for kind, each in derived.items() if each.images)
    if images.skipped:
        text += f", {images.skipped:,} remote shards not read (`--remote` reads them)"
    return f"{text}, {bytes_of(size)} at {bytes_of(size / max(seconds, 1e-9))}/s"


def _print(line: str, faults: Sequence[Problem]) -> int:
    """Print what was checked and its errors, and return the number of errors."""
    print(f"{line}: {counted(len(faults), 'fault') if faults else 'sound'}")
    for text in lines(faults):
        print(f"  {text}")
    return len(faults)
