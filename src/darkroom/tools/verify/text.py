"""The text that `darkroom data` prints."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from darkroom.dag.hashable import printable
from darkroom.data.sources.walk import passed_over_text
from darkroom.report.numbers import DONE
from darkroom.terminal.numbers import aligned, bytes_of

_CLASSES = 20  # number of classes with a bar
_BAR = 40  # characters of the longest bar
_SPREAD = ("least", "median", "greatest")
_WIDEST = 100  # maximum characters of a caption, a label or a path


def text_of(metadata: Mapping[str, Any]) -> str:
    """Return a summary (`darkroom.tools.verify.show.summary`) as lines of text."""
    blocks = [
        _parts(metadata),
        _classes(metadata),
        _sizes(metadata),
        _captions(metadata),
        _quarantine(metadata),
        _passed_over(metadata),
        _twice(metadata),
    ]
    if grid := metadata.get("grid"):
        blocks.append(_grid(grid))
    return "\n\n".join(text for block in blocks if (text := "\n".join(block)))


def _parts(metadata: Mapping[str, Any]) -> Iterator[str]:
    splits = metadata["splits"]

    def row(name: str, source: str, *parts: Mapping[str, Any]) -> tuple[str, ...]:
        counts = [sum(part["images"][split] for part in parts) for split in splits]
        damage = [sum(sum(part["quarantine"][action].values()) for part in parts) for action in DONE]
        shards, size = (sum(part[key] for part in parts) for key in ("shards", "bytes"))
        return (name, source, *(f"{n:,}" for n in (*counts, shards)), bytes_of(size), *(f"{n:,}" for n in damage))

    rows = [("part", "source", *splits, "shards", "bytes", *DONE.values())]
    rows += [row(part["name"], part["source"], part) for part in metadata["parts"]]
    if len(rows) > 2:
        rows.append(row("total", "", *metadata["parts"]))
    lines = aligned(rows, left=(0, 1))
    rule = "-" * max(map(len, lines))
    yield from [lines[0], rule, *([*lines[1:-1], rule, lines[-1]] if len(rows) > 2 else lines[1:])]
    image = metadata["parts"][0]["image"]
    formats = sorted({part["image"]["format"] for part in metadata["parts"]})
    yield f"{image['size']} x {image['size']} pixels, {image['channels']}, stored as {', '.join(formats)}"
    facts = [
        *(("read where they lie, not copied", part["name"]) for part in metadata["parts"] if part["in_place"]),
        *(("half of them are seen mirrored", part["name"]) for part in metadata["parts"] if part["mirror"]),
    ]
    for what in dict.fromkeys(what for what, _ in facts):
        yield f"{what}: {', '.join(name for other, name in facts if other == what)}"


def _classes(metadata: Mapping[str, Any]) -> Iterator[str]:
    classes = metadata["classes"]
    counts: dict[str, int] = classes["counts"]
    missing = classes["unlabelled"]
    without = f", {missing:,} images without a label" if missing else ""
    if not counts:
        yield "classes: none, no image has a label"
        return
    most, least = max(counts.values()), min(counts.values())
    of_each = f"of {least:,} images each"
    if most > least:
        of_each = f"of {least:,} to {most:,} images (the largest is {classes['imbalance']:.3g} times the smallest)"
    yield f"classes: {len(counts):,}, {of_each}{without}"
    shown = list(counts.items())[:_CLASSES]
    rows = [(f"  {_short(name)}", f"{count:,}", "#" * max(1, round(_BAR * count / most))) for name, count in shown]
    yield from aligned(rows, left=(0, 2))
    if (more := len(counts) - len(shown)) > 0:
        yield f"  and {more:,} more"
    yield from (f"  {printable(line)}" for line in metadata["class_warnings"])


def _sizes(metadata: Mapping[str, Any]) -> Iterator[str]:
    sizes, size = metadata["sizes"], metadata["parts"][0]["image"]["size"]
    if sizes["shorter_side"] is None:
        yield "originals: none"
        return
    sides = [f"{value:,}" for value in sizes["shorter_side"]]
    ratios = [f"{value:.2f}" for value in sizes["aspect_ratio"]]
    yield from aligned([("originals", *_SPREAD), ("  shorter side, pixels", *sides), ("  width / height", *ratios)])
    yield f"  enlarged, as the shorter side is below {size} pixels: {sizes['enlarged']:,}"


def _captions(metadata: Mapping[str, Any]) -> Iterator[str]:
    captions = metadata["captions"]
    if not captions["images"]:
        yield "captions: none"
        return
    words, characters = ([f"{value:,}" for value in captions[key]] for key in ("words", "characters"))
    yield from aligned([("captions", *_SPREAD), ("  words", *words), ("  characters", *characters)])
    yield f"  of {captions['images']:,} images; without one: {captions['without']:,}"
    yield from aligned([(f"  {one['key']}", _short(one["caption"])) for one in captions["examples"]], left=(0, 1))


def _quarantine(metadata: Mapping[str, Any]) -> Iterator[str]:
    if not metadata["quarantine"]:
        yield "damage: none, every sample of the source is there as it was"
        return
    yield "damage, listed in data/shards/PART/quarantine.parquet"
    yield from _damage(metadata["quarantine"], metadata.get("every_row"))


def failed_text(metadata: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines on parts that were not written, since no sample of them could be used."""
    names = dict.fromkeys(one["part"] for one in metadata["failed"])
    lists = ", ".join(f"logs/ingest-{name}/quarantine.parquet" for name in names)
    yield f"no part was written of {', '.join(names)}, since no sample could be used; damage, listed in {lists}"
    yield from _damage(metadata["failed"], metadata["every_row"])


def _damage(found: Sequence[Mapping[str, Any]], every_row: bool | None) -> Iterator[str]:
    rows = [("  part", "what was done", "reason", "samples")]
    rows += [(f"  {one['part']}", DONE[one["action"]], one["reason"], f"{one['samples']:,}") for one in found]
    yield from aligned(rows, left=(0, 1, 2))
    listed = [
        (f"  {one['part']}", one["reason"], row["key"], _short(row["source"]), _short(row["detail"]))
        for one in found
        for row in one["first"]
    ]
    yield "all of them:" if every_row else "the first of each (`--quarantine` lists all):"
    yield from aligned([tuple(map(printable, row)) for row in listed], left=range(5))


def _passed_over(metadata: Mapping[str, Any]) -> Iterator[str]:
    parts = {part["name"]: passed_over_text(part["passed_over"]) for part in metadata["parts"]}
    if any(parts.values()):
        yield "passed over, in no list:"
    yield from aligned([(f"  {name}", printable(line)) for name, lines in parts.items() for line in lines], left=(0, 1))


def _twice(metadata: Mapping[str, Any]) -> Iterator[str]:
    copies, keys = metadata["duplicates"], metadata["shared_keys"]
    if not copies["images"]:
        yield "duplicates: none, no stored image repeats another"
    else:
        yield (
            f"duplicates: {copies['images']:,} stored images repeat an earlier one; of them {copies['across_parts']:,} "
            f"one in another part, {copies['across_splits']:,} one in another split"
        )
        yield from (f"  {' = '.join(group)}" for group in copies["first"])
    if keys["keys"]:
        first = " and ".join(keys["first"][0])
        yield f"keys in more than one part: {keys['keys']:,}, which is allowed; the first: {first}"


def _grid(grid: Mapping[str, Any]) -> Iterator[str]:
    yield f"{grid['file']}: {grid['images']:,} images, evenly over all; row by row, KEY (label):"
    columns = len(grid["rows"][0])
    rows = []
    for number, row in enumerate(grid["rows"], start=1):
        names = [one["key"] if one["label"] is None else f"{one['key']} ({_short(one['label'])})" for one in row]
        rows.append((f"  {number}", *names, *[""] * (columns - len(names))))
    yield from aligned(rows, left=range(columns + 1))


def _short(text: str) -> str:
    """Return a text on one line, without its middle where it is long."""
    line = printable(" ".join(text.split()))
    half = (_WIDEST - 3) // 2
    return line if len(line) <= _WIDEST else f"{line[:half]} … {line[-half:]}"
