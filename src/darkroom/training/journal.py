"""The log of a training: JSON lines always, a bar on a terminal, plain lines elsewhere.

Nothing here changes a byte of an output, and no stage reads what it writes.
"""

# No effect on any output: logs how far a training is

import json
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from darkroom.artifacts.atomic import require_writable, write_bytes
from darkroom.terminal.numbers import time_of
from darkroom.terminal.terminal import Tee
from darkroom.training.curves import Record

WINDOW = 60.0  # seconds over which the speed is measured
REDRAW = 0.1  # seconds between two drawings of the bar, at least
SHOWN = {"train/loss": ("loss", "#.4g"), "val/loss": ("val", "#.4g"), "learning_rate": ("lr", ".3g")}


def summary(record: Record, names: Sequence[str] = tuple(SHOWN)) -> str:
    """Return the numbers of a record that a person follows; what it does not hold is left out."""
    return "  ".join(f"{SHOWN[name][0]} {record[name]:{SHOWN[name][1]}}" for name in names if name in record)


def kept(path: Path, images: int, records: Sequence[Record] | None = None) -> list[Record]:
    """Return the lines of a journal that a training resumed at `images` images goes on from.

    Lines beyond it will be written again. The end of a line that a kill left behind goes, and so does, where `records`
    are given, what is not among them: another training wrote here in between.
    """
    known = {record["images"]: record for record in records or []}
    lines: list[Record] = []
    for text in path.read_text(errors="replace").splitlines() if path.is_file() else []:
        try:
            line = json.loads(text)
            place = line["images"]
            ours = place <= images and (records is None or known[place].items() <= line.items())
        except (ValueError, TypeError, KeyError):
            continue
        if ours:
            lines.append(line)
    return lines


class Speed:
    """Images a second over the last minute, and over all since the start."""

    def __init__(self, images: int) -> None:
        self._start = (time.monotonic(), images)
        self._seen = deque([self._start])

    def add(self, images: int) -> None:
        """Take the images seen by now."""
        now = time.monotonic()
        if len(self._seen) > 1 and self._seen[-1][1] == images:
            self._seen.pop()  # the same images, a validation later
        self._seen.append((now, images))
        # Two stay: an optimizer step may take longer than the window.
        while len(self._seen) > 2 and now - self._seen[0][0] > WINDOW:
            self._seen.popleft()

    def _since(self, moment: tuple[float, int]) -> float:
        began, images = moment
        now, reached = self._seen[-1]
        return (reached - images) / max(now - began, 1e-9)

    @property
    def seconds(self) -> float:
        """Seconds from the start to the last images seen."""
        return self._seen[-1][0] - self._start[0]

    @property
    def recent(self) -> float:
        """Images a second of late."""
        return self._since(self._seen[0])

    @property
    def mean(self) -> float:
        """Images a second since the start."""
        return self._since(self._start)


class Journal:
    """JSON lines, and what a person sees on the way.

    Each line of the file is a record with `seconds` (of training up to here, all starts of it together),
    `images_per_second` (of late, validations and checkpoints included), `mean_images_per_second` (since this start) and
    `seconds_left`.

    Args:
        path: the file. A training that resumes continues it after the last record that its checkpoint knows.
        images: images seen so far.
        total: images of the whole training.
        records: the records of the checkpoint; lines that are not among them came from another training, and go.

    Raises:
        DarkroomError: the file cannot be written.
    """

    def __init__(self, path: Path, images: int, total: int, records: Sequence[Record] | None = None) -> None:
        require_writable(path)
        lines = kept(path, images, records) if images else []
        write_bytes(path, "".join(json.dumps(line) + "\n" for line in lines).encode())
        self._before = float(lines[-1].get("seconds", 0)) if lines else 0.0
        self._file = path.open("a")
        self._total = total
        self._speed = Speed(images)
        self._bar = sys.stdout if isinstance(sys.stdout, Tee) and sys.stdout.has_bar else None
        self._drawn = 0.0
        self._last: Record = {}

    def step(self, images: int) -> None:
        """Take the number of images seen, after every optimizer step; reads no tensor, and draws ten times a second."""
        now = time.monotonic()
        if now - self._drawn < REDRAW:
            return
        self._drawn = now
        self._speed.add(images)
        self._draw(images)

    def _left(self, images: int) -> float:
        return (self._total - images) / max(self._speed.recent, 1e-9)

    def _pace(self, images: int) -> str:
        speed = self._speed.recent
        return f"{speed:,.{0 if speed >= 10 else 1}f} images/s  {time_of(self._left(images))} left"

    def _draw(self, images: int) -> None:
        if self._bar is not None:
            last = summary(self._last, ("train/loss", "learning_rate"))
            self._bar.draw(images / self._total, f"{last}  {self._pace(images)}".strip())

    def add(self, record: Record) -> None:
        """Write one record to the file, and print it: below a bar only validations, without one all."""
        images = record["images"]
        self._speed.add(images)
        pace = {
            "seconds": round(self._before + self._speed.seconds, 3),
            "images_per_second": round(self._speed.recent, 3),
            "mean_images_per_second": round(self._speed.mean, 3),
            "seconds_left": round(self._left(images), 1),
        }
        self._file.write(json.dumps({**record, **pace}) + "\n")
        self._file.flush()
        self._last = record
        if self._bar is None or "val/loss" in record:
            place = f"{images:>{len(f'{self._total:,}')},} / {self._total:,}"
            print(f"{place}  {summary(record)}  {self._pace(images)} of this training", flush=True)
        self._draw(images)

    def close(self) -> None:
        """Close the file and take the bar away."""
        self._file.close()
        if self._bar is not None:
            self._bar.clear()
