"""Sources that misbehave; in a module of their own, since other processes import them."""

import os
import signal
from collections.abc import Iterator

from darkroom.data.damage import DamageError, Reason
from darkroom.data.images import encode
from darkroom.data.sample import Entry, Raw
from data.making import Noise


class Mixed(Noise):
    """Every third is damaged."""

    def read(self, entry: Entry) -> Raw:
        if entry.payload % 3 == 0:
            raise DamageError(Reason.UNREADABLE, f"number {entry.payload}")
        raw = super().read(entry)
        return Raw(encode(raw.image, "png"), raw.label, raw.caption)


class Deadly(Noise):
    """One image takes its process with it, as a full memory does."""

    def read(self, entry: Entry) -> Raw:
        if entry.payload == 20:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().read(entry)


class Endless(Noise):
    """Counts the entries that were taken."""

    taken = 0

    def entries(self, start: int, stop: int | None) -> Iterator[Entry]:
        for number in range(10**9):
            self.taken += 1
            yield Entry(f"noise-{number}", "", number)
