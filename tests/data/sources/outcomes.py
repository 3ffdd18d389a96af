"""What becomes of the samples of a source."""

import pickle

from darkroom.data.damage import DamageError, Reason
from darkroom.data.sample import Raw
from darkroom.data.sources import Source


def outcomes(source: Source, start: int = 0, stop: int | None = None) -> list[tuple[str, str, Raw | Reason]]:
    """Return key, place, and what was read of each sample, or the reason why it cannot be."""
    found: list[tuple[str, str, Raw | Reason]] = []
    reader = pickle.loads(pickle.dumps(source))  # as the processes that read get it
    for entry in source.entries(start, stop):
        try:
            found.append((entry.key, entry.where, reader.read(entry)))
        except DamageError as error:
            found.append((entry.key, entry.where, error.reason))
    return found
