"""Read, check, prepare and encode the samples of a source, in several processes and in order.

The main process lists entries and writes outcomes; worker processes do the work between. Any number of workers gives
the same outcomes in the same order, and only a few chunks are in memory at one time.
"""

import hashlib
import itertools
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from darkroom.data.damage import DamageError, Finding
from darkroom.data.decoding import open_image
from darkroom.data.groups import descriptor
from darkroom.data.images import encode
from darkroom.data.preparing import Preparation, alpha_range, blank, prepare, upright_size
from darkroom.data.sample import Entry, Extent
from darkroom.data.sources import Source
from darkroom.errors import DarkroomError

_CHUNK = 16  # entries that a process receives at once
_NO_MEMORY = "probably memory ran out. Lower `run.ingest_processes` or `ingest.max_pixels`, and run the command again."
_AHEAD = 3  # chunks in flight for each process


@dataclass(frozen=True)
class Outcome:
    """The result of reading and preparing an entry.

    data: the encoded image; None where it cannot be stored, or, with `original_size`, where it is indexed in place.
    sha256: the hash of `data`, or of the bytes in the source where the image is indexed in place.
    original_size: width and height of the upright image in the source; None where no image was found.
    identity: 16 bytes that are equal for duplicates; None: the sample is never a duplicate.
    extent: the location in the source, see `Raw`.
    transparent: whether a pixel of the image in the source is not opaque.
    name, group: see `Entry` and `Raw`.
    look: the descriptor of the image, if it was asked for.
    """

    key: str
    where: str
    data: bytes | None = None
    sha256: bytes | None = None
    original_size: tuple[int, int] | None = None
    label: str | None = None
    caption: str | None = None
    identity: bytes | None = None
    findings: tuple[Finding, ...] = ()
    extent: Extent | None = None
    transparent: bool = False
    name: str | None = None
    group: str | None = None
    look: NDArray[np.float32] | None = None


def outcome(
    source: Source, entry: Entry, preparation: Preparation, store: bool = True, describe: bool = False
) -> Outcome:
    """Return the outcome of an entry that `source` listed; without `store` it is checked, to be indexed in place.

    With `describe` it holds the descriptor of the image.
    """
    try:
        raw = source.read(entry)
        image = open_image(raw.image, preparation.max_pixels) if isinstance(raw.image, bytes) else raw.image
        prepared = prepare(image, preparation, entry.key)
    except DamageError as error:
        return Outcome(entry.key, entry.where, findings=(*entry.findings, Finding(error.reason, error.detail)))
    except MemoryError as error:  # of this machine at this moment: the image is not damaged
        raise DarkroomError(f"{entry.where}: {_NO_MEMORY}") from error
    data = encode(prepared, preparation.spec.format, preparation.quality) if store else None
    stored = data if data is not None else raw.image if isinstance(raw.image, bytes) else b""
    return Outcome(
        entry.key,
        entry.where,
        data,
        hashlib.sha256(stored).digest(),
        upright_size(image),
        raw.label,
        raw.caption,
        None if raw.identity is None else hashlib.blake2b(raw.identity, digest_size=16).digest(),
        (*entry.findings, *raw.findings, *filter(None, [blank(image, prepared)])),
        raw.extent,
        alpha_range(image)[0] < 255,
        entry.name,
        raw.group,
        descriptor(image) if describe else None,
    )


def outcomes(
    source: Source,
    entries: Iterable[Entry],
    preparation: Preparation,
    processes: int,
    store: bool = True,
    describe: bool = False,
) -> Iterator[Outcome]:
    """Yield the outcome of each entry, in the order of the entries; see `outcome`.

    Raises:
        DarkroomError: a worker process was killed, as by the system when memory runs out.
    """
    if processes == 1:
        for entry in entries:
            yield outcome(source, entry, preparation, store, describe)
        return
    # spawn: a fork would copy this process's threads half-way.
    pool = ProcessPoolExecutor(
        processes, multiprocessing.get_context("spawn"), _begin, (source, preparation, store, describe, os.getpid())
    )
    waiting: deque[Future[list[Outcome]]] = deque()
    try:
        remaining = iter(entries)
        while chunk := list(itertools.islice(remaining, _CHUNK)):
            waiting.append(pool.submit(_work, chunk))
            if len(waiting) >= _AHEAD * processes:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    except BrokenProcessPool as error:
        raise DarkroomError(f"a process that prepared images was killed: {_NO_MEMORY}") from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_job: tuple[Source, Preparation, bool, bool]


def _begin(source: Source, preparation: Preparation, store: bool, describe: bool, parent: int) -> None:
    """Set up a worker process: it ignores Ctrl-C, which its parent handles, and ends when its parent has ended."""
    global _job
    _job = source, preparation, store, describe
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def follow() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _work(entries: list[Entry]) -> list[Outcome]:
    source, preparation, store, describe = _job
    return [outcome(source, entry, preparation, store, describe) for entry in entries]
