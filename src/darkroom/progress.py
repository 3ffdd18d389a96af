"""Tells a person how far a long pass over images is. Nothing here changes a byte."""

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

Group = TypeVar("Group")

INTERVAL = 10.0  # seconds between lines


def told(groups: Iterable[Group], total: int, what: str) -> Iterator[Group]:
    """Yield groups of images, and print a line every ten seconds: how many of `total` are done, and the time left."""
    began = last = time.monotonic()
    done = 0
    for group in groups:
        yield group
        done += len(group)  # type: ignore[arg-type]
        now = time.monotonic()
        if now - last >= INTERVAL and done < total:
            speed = done / (now - began)
            print(f"{what}: {done:,} of {total:,} images, {speed:,.0f} images/s, {(total - done) / speed:,.0f} s left")
            last = now
