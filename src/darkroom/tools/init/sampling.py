"""Which images of a source are looked at, and how many it has."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

from darkroom.data.damage import Finding, Reason
from darkroom.data.draw import drawn
from darkroom.data.sample import Entry
from darkroom.data.sources import Source
from darkroom.data.sources.hub import Hub
from darkroom.data.sources.webdataset import Webdataset
from darkroom.errors import DarkroomError
from darkroom.tools.init.subject import Subject

_SHARDS = 10  # tars that are listed; of more, the number of images is estimated from them


def sampled(subject: Subject, count: int) -> tuple[int, list[Entry]]:
    """Return how many images a source has, and some of them in a drawn order, so that the first are a fair sample.

    Raises:
        DarkroomError: the source cannot be read, or does not know its size.
    """
    source, part = subject.source, subject.part
    if isinstance(source, Webdataset):
        return _of_shards(source, count)
    if isinstance(source, Hub):
        return _of_hub(source, count)
    size = source.size()
    stop = part.stop if part.stop is not None else size
    if stop is None:
        raise DarkroomError(
            f"{subject.name}: the source does not say how many images it has, and the part has no stop."
        )
    return stop - part.start, _drawn(source, part.start, stop, count)


def _drawn(source: Source, start: int, stop: int, count: int) -> list[Entry]:
    places = {row: place for place, row in enumerate(drawn(stop - start, count))}
    entries = _marked(source.entries(start, stop))
    rows = ((places[row], entry) for row, entry in enumerate(entries) if row in places)
    return [entry for _, entry in sorted(rows, key=lambda pair: pair[0])]


def _marked(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield entries; of those of one key `ingest` stores the first, so the others cannot be read."""
    keys = set[str]()
    for entry in entries:
        yield replace(entry, payload=Finding(Reason.KEY_TWICE)) if entry.key in keys else entry
        if not isinstance(entry.payload, Finding):
            keys.add(entry.key)


def _of_shards(source: Webdataset, count: int) -> tuple[int, list[Entry]]:
    """Return images of some tars, drawn, and how many all have by them."""
    shards = len(source.tars.names)
    chosen = drawn(shards, _SHARDS)
    found = list(_marked(entry for shard in chosen for entry in source.entries(shard, shard + 1)))
    return round(len(found) * shards / len(chosen)), [found[row] for row in drawn(len(found), count)]


def _of_hub(source: Hub, count: int) -> tuple[int, list[Entry]]:
    """Return the first images of a split, which is streamed, and how many it has by its metadata."""
    entries = list(islice(source.entries(0, None), count + 1))
    if len(entries) <= count:
        return len(entries), [entries[row] for row in drawn(len(entries))]
    return max(len(entries), _rows(source)), [entries[row] for row in drawn(count)]


def _rows(source: Hub) -> int:
    """Return the rows of a split by its metadata; where these do not say it, all are read."""
    import datasets

    facts, known = source.metadata(), None
    if target := facts.get("dataset"):
        info = datasets.load_dataset_builder(target, facts["configuration"], revision=facts["revision"]).info
        known = (info.splits or {}).get(facts["split"])
    return int(known.num_examples) if known and known.num_examples else sum(1 for _ in source.entries(0, None))
