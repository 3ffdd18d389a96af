"""`darkroom data`: summarise parts by their indexes: images, classes, sizes, captions, omissions and duplicates."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from typer import Argument, Option

from darkroom.artifacts.manifest import NAME, ArtifactError, read_manifest
from darkroom.dag.hashable import printable
from darkroom.data.catalog import class_warnings, leakage_warnings
from darkroom.data.catalog_writer import catalog_facts
from darkroom.data.damage import QUARANTINE as LIST
from darkroom.data.damage import SCHEMA, read_quarantine
from darkroom.data.grid import evenly_spaced
from darkroom.data.index import Index
from darkroom.data.layout import CATALOG, CATALOG_KIND, KIND, SHARDS
from darkroom.data.splits import SPLITS
from darkroom.report.numbers import DONE, passed_over_rows
from darkroom.terminal.numbers import aligned, bytes_of
from darkroom.tools import command
from darkroom.tools.verify.verify import read_parts

LOGS = Path("logs")
_EXAMPLES, _FIRST = 5, 3  # number of captions shown, and of samples for each reason
_CLASSES, _BAR = 20, 40  # number of classes shown, characters of the longest bar
_WIDEST = 100  # maximum characters of a caption, a label or a path

Parts = Sequence[Mapping[str, Any]]  # the entry `parts` of `catalog_facts`
Manifests = Mapping[str, Mapping[str, Any]]  # of each part


@command("Data", "data", "Show counts, classes, sizes, captions and what was left out.")
def show(
    names: Annotated[
        list[str] | None, Argument(metavar="PART", help="parts of params.yaml; default: all of them")
    ] = None,
    every_row: Annotated[
        bool, Option("--quarantine", help="list every sample that was quarantined or repaired")
    ] = False,
) -> str:
    """Return a summary of some parts of the data.

    Raises:
        DarkroomError: params.yaml is not valid, or has no such part.
        ArtifactError: a part is missing or damaged; the message names the file.
    """
    chosen = read_parts(names or [])
    failed = [part for part in chosen if _failed(part)]
    parts = [part for part in chosen if part not in failed]
    blocks: list[Iterator[str]] = []
    if failed:
        blocks.append(_failures(failed, every_row))
    if parts:
        facts = catalog_facts(parts)
        manifests = {part: read_manifest(SHARDS / part, KIND) for part in parts}
        blocks += [
            _parts(facts["parts"], manifests),
            _classes(facts),
            _sizes(facts["parts"], facts["image"]["size"]),
            _captions(manifests),
            _quarantine(manifests, every_row),
            _passed_over(facts["parts"]),
            _duplicates(facts["duplicates"]),
            _leakage(facts["parts"]),
        ]
    return "\n\n".join(text for block in blocks if (text := "\n".join(block)))


def _failed(part: str) -> bool:
    """Return whether the latest `ingest` of a part found no usable sample."""
    written, listed = SHARDS / part / NAME, LOGS / f"ingest-{part}" / LIST
    return listed.is_file() and not (written.is_file() and written.stat().st_mtime > listed.stat().st_mtime)


def _failures(parts: Sequence[str], every_row: bool) -> Iterator[str]:
    paths = {part: LOGS / f"ingest-{part}" / LIST for part in parts}
    lists = ", ".join(map(str, paths.values()))
    yield f"no part was written for {', '.join(parts)}, because no sample could be used; all are listed in {lists}"
    yield from _damage({part: pq.read_table(path, schema=SCHEMA) for part, path in paths.items()}, every_row)


def _parts(parts: Parts, manifests: Manifests) -> Iterator[str]:
    sources = {name: manifest["source"].get("name", "?") for name, manifest in manifests.items()}
    counts = {
        part["name"]: [
            *(manifests[part["name"]]["splits"][split]["images"] for split in SPLITS),
            *(sum(part["quarantine"][action].values()) for action in DONE),
            part["shards"],
            part["bytes"],
        ]
        for part in parts
    }
    if len(parts) > 1:
        counts["total"] = [sum(column) for column in zip(*counts.values(), strict=True)]
    rows = [
        (name, sources.get(name, ""), *(f"{count:,}" for count in numbers), bytes_of(size))
        for name, (*numbers, size) in counts.items()
    ]
    yield from aligned([("part", "source", *SPLITS, *DONE.values(), "shards", "bytes"), *rows], left=(0, 1))
    image = manifests[parts[0]["name"]]["image"]
    formats = sorted({manifest["image"]["format"] for manifest in manifests.values()})
    yield f"{image['size']} x {image['size']} pixels, {image['channels']}, stored as {', '.join(formats)}"
    for key, text in (("in_place", "read in place, not copied"), ("mirror", "mirrored half of the time")):
        if which := [name for name, manifest in manifests.items() if manifest[key]]:
            yield f"{text}: {', '.join(which)}"


def _classes(facts: Mapping[str, Any]) -> Iterator[str]:
    counts = sum(map(Counter, facts["counts"].values()), Counter[str]())
    if not counts:
        yield "classes: none; no image has a label"
        return
    missing, ranked = sum(facts["unlabelled"].values()), counts.most_common()
    most, least = ranked[0][1], ranked[-1][1]
    of_each = f"of {least:,} images each"
    if most > least:
        of_each = f"of {least:,} to {most:,} images (the largest is {most / least:.3g} times the smallest)"
    yield f"classes: {len(counts):,}, {of_each}{f', {missing:,} images without a label' if missing else ''}"
    bars = [(f"  {_short(name)}", f"{n:,}", "#" * max(1, round(_BAR * n / most))) for name, n in ranked[:_CLASSES]]
    yield from aligned(bars, left=(0, 2))
    if (more := len(ranked) - _CLASSES) > 0:
        yield f"  and {more:,} more"
    yield from (f"  {printable(line)}" for line in class_warnings(facts["counts"]))


def _sizes(parts: Parts, size: int) -> Iterator[str]:
    heads = ("shorter side of the originals, pixels", "least", "median", "greatest", f"below {size}, so enlarged")
    rows = [
        (f"  {part['name']}", *(f"{value:,}" for value in (*part["shorter_side"], part["enlarged"])))
        for part in parts
        if part["shorter_side"]
    ]
    yield from aligned([heads, *rows]) if rows else ()


def _captions(manifests: Manifests) -> Iterator[str]:
    folders = {SHARDS / part / split: facts["splits"][split] for part, facts in manifests.items() for split in SPLITS}
    index = Index(folders)
    captions = index.column("caption")
    rows = pc.indices_nonzero(pc.is_valid(captions))
    if not len(rows):
        yield "captions: none"
        return
    words = [len(text.split()) for chunk in captions.chunks for text in chunk.drop_null().to_pylist()]
    least, median, most = np.percentile(words, (0, 50, 100), method="lower").tolist()
    yield f"captions: of {len(rows):,} images, {least:,} to {most:,} words, median {median:,}"
    yield f"  without one: {captions.null_count:,}"
    shown = [rows[place].as_py() for place in evenly_spaced(_EXAMPLES, len(rows))]
    texts = zip(index.some("key", shown), index.some("caption", shown), strict=True)
    yield from aligned([(f"  {key}", _short(text)) for key, text in texts], left=(0, 1))


def _quarantine(manifests: Manifests, every_row: bool) -> Iterator[str]:
    lists = {part: read_quarantine(SHARDS / part, manifest) for part, manifest in manifests.items()}
    if not any(map(len, lists.values())):
        yield "nothing was left out or changed"
        return
    yield "left out or changed, listed in data/shards/PART/quarantine.parquet"
    yield from _damage(lists, every_row)


def _damage(tables: Mapping[str, pa.Table], every_row: bool) -> Iterator[str]:
    """Yield for each part, action and reason the number of samples, then the first of them, or all."""
    counts, listed = [("  part", "what was done", "reason", "samples")], list[tuple[str, ...]]()
    for part, table in tables.items():
        groups: dict[tuple[str, str], list[Mapping[str, str]]] = {}
        for row in table.to_pylist():
            groups.setdefault((row["action"], row["reason"]), []).append(row)
        for action, reason in sorted(groups, key=lambda pair: (list(DONE).index(pair[0]), pair[1])):
            rows = groups[action, reason]
            counts.append((f"  {part}", DONE[action], reason, f"{len(rows):,}"))
            listed += [
                (f"  {part}", reason, row["key"], _short(row["source"]), _short(row["detail"]))
                for row in rows[: None if every_row else _FIRST]
            ]
    yield from aligned(counts, left=(0, 1, 2))
    yield "all of them:" if every_row else "the first of each (`--quarantine` lists all):"
    yield from aligned([tuple(map(printable, row)) for row in listed], left=range(5))


def _passed_over(parts: Parts) -> Iterator[str]:
    rows = [(f"  {part}", printable(line)) for part, line in passed_over_rows(parts)]
    if rows:
        yield "skipped and not listed:"
    yield from aligned(rows, left=(0, 1))


def _duplicates(copies: Mapping[str, Any]) -> Iterator[str]:
    if not copies["images"]:
        yield "duplicates among the stored images: none"
        return
    yield (
        f"duplicates: {copies['images']:,} stored images repeat an earlier one; of them {copies['across_parts']:,} "
        f"one in another part, {copies['across_splits']:,} one in another split"
    )
    yield from (f"  {' = '.join(group)}" for group in copies["first"])


def _leakage(parts: Parts) -> Iterator[str]:
    """Yield how near held-out images are to training images, where `catalog` measured it on these parts."""
    with suppress(ArtifactError):
        catalog = read_manifest(CATALOG, CATALOG_KIND)
        names = [{part["name"]: part["sha256"] for part in of} for of in (catalog["parts"], parts)]
        if (leakage := catalog.get("leakage")) and names[0] == names[1]:
            of = f"{leakage['images']:,} images of the {leakage['split']} split"
            yield f"near twins: {leakage['near']:.1%} of {of} have one among {leakage['train']:,} training images"
            yield from (f"  {line}" for line in leakage_warnings(leakage))


def _short(text: str) -> str:
    """Return a text on one line, shortened in the middle if it is long."""
    line = printable(" ".join(text.split()))
    half = (_WIDEST - 3) // 2
    return line if len(line) <= _WIDEST else f"{line[:half]} … {line[-half:]}"
