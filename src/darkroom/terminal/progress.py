"""Prints the progress of a long pass over images."""

# No effect on any output: prints how far a stage is

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

Group = TypeVar("Group")
Item = TypeVar("Item")

INTERVAL = 10.0  # seconds between two lines


def with_progress(groups: Iterable[Group], total: int, what: str, unit: str = "images") -> Iterator[Group]:
    """Yield groups, and print a line every ten seconds: images (`unit`) done of `total`, speed, remaining time.

    The length of a group is the number of its images. A named tuple has another: wrap what it is made of.
    """
    began = last = time.monotonic()
    done = 0
    for group in groups:
        yield group
        done += len(group)  # type: ignore[arg-type]
        now = time.monotonic()
        if now - last >= INTERVAL and done < total:
            speed = done / (now - began)
            print(
                f"{what}: {done:,} of {total:,} {unit}, {speed:,.0f} {unit}/s, {(total - done) / speed:,.0f} s left",
                flush=True,
            )
            last = now


def each_with_progress(items: Iterable[Item], total: int | None, what: str) -> Iterator[Item]:
    """Yield items one by one, and print a line every ten seconds; `total` None: the number of items is unknown."""
    began = last = time.monotonic()
    for done, item in enumerate(items, start=1):
        yield item
        now = time.monotonic()
        if now - last >= INTERVAL:
            speed = done / (now - began)
            rest = "" if total is None else f" of {total:,}"
            left = "" if total is None else f", {max(0, total - done) / speed:,.0f} s left"
            print(f"{what}: {done:,}{rest} images, {speed:,.0f} images/s{left}", flush=True)
            last = now
