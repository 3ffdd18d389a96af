"""The log of a training: JSON lines in a file, and a printed line for each.

The log changes no output, and no stage reads it.
"""

# No effect on any output: logs how far a training is

import json
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from darkroom.artifacts.atomic import require_writable, write_bytes
from darkroom.terminal.numbers import time_of
from darkroom.training.curves import Record

WINDOW = 60.0  # seconds over which the speed is measured
_WATCHED, _SLOWER = 10.0, 1.5  # seconds over which waiting for cores is measured, and the ratio that is reported
SHOWN = {"train/loss": ("loss", "#.4g"), "val/loss": ("val", "#.4g"), "learning_rate": ("lr", ".3g")}


def summary(record: Record) -> str:
    """Return the main numbers of a record as text; missing ones are left out."""
    return "  ".join(f"{word} {record[name]:{form}}" for name, (word, form) in SHOWN.items() if name in record)


def kept_records(path: Path, images: int, records: Sequence[Record] | None = None) -> list[Record]:
    """Return the lines of a journal that a training resumed at `images` images keeps.

    Later lines will be written again. Partial lines of a killed training are dropped, and so are, if `records` are
    given, lines that are not among them: another training wrote them.
    """
    recorded = {record["images"]: record.items() for record in records or []}
    lines: list[Record] = []
    for text in path.read_text(errors="replace").splitlines() if path.is_file() else []:
        with suppress(ValueError, TypeError, KeyError):
            line = json.loads(text)
            if line["images"] <= images and (records is None or recorded[line["images"]] <= line.items()):
                lines.append(line)
    return lines


def thread_times() -> dict[str, tuple[float, float]]:
    """Return the seconds that each thread of this process has run and has waited for a core; on Linux only."""
    times = {}
    for path in Path("/proc/self/task").glob("*/schedstat"):
        with suppress(OSError, ValueError):  # the thread has ended
            run, waited, _ = map(int, path.read_text().split())
            times[path.parent.name] = (run / 1e9, waited / 1e9)
    return times


def slowdown(before: Mapping[str, tuple[float, float]], now: Mapping[str, tuple[float, float]]) -> float | None:
    """Return how many times longer the slowest computing thread took than with a core of its own.

    Threads share each operation, so all wait for the slowest. Threads that wanted a core for less than half as long as
    the busiest one do not compute. None: no thread has wanted one for `_WATCHED` seconds.
    """
    starts = {name: before.get(name, (0.0, 0.0)) for name in now}
    spent = [(run - starts[name][0], waited - starts[name][1]) for name, (run, waited) in now.items()]
    most = max((run + waited for run, waited in spent), default=0.0)
    if most < _WATCHED:
        return None
    return max(1 + waited / run for run, waited in spent if run > 0 and run + waited > most / 2)


class Journal:
    """JSON lines, and a printed line for each.

    Each line of the file is a record with `seconds` (of training so far, over all starts),
    `images_per_second` (recent, validations and checkpoints included), `mean_images_per_second` (since this start) and
    `seconds_left`. A training that resumes continues the file after the last of `records`, those of its checkpoint;
    other lines are removed. If other processes take the cores, it prints a notice and sets `slower` to the ratio of
    `slowdown`; it looks again when `slower` is None.

    Raises:
        DarkroomError: the file cannot be written.
    """

    def __init__(self, path: Path, images: int, total: int, records: Sequence[Record] | None = None) -> None:
        require_writable(path)
        lines = kept_records(path, images, records) if images else []
        write_bytes(path, "".join(json.dumps(line) + "\n" for line in lines).encode())
        self._before = float(lines[-1].get("seconds", 0)) if lines else 0.0
        self._file = path.open("a")
        self._total = total
        self._start = (time.monotonic(), images)
        self._moments = deque([self._start])
        self._watched = thread_times()
        self.slower: float | None = None

    def _speed(self, moment: tuple[float, int]) -> float:
        """Return the images per second from a moment to the last record."""
        (began, images), (now, reached) = moment, self._moments[-1]
        return (reached - images) / max(now - began, 1e-9)

    def add(self, record: Record) -> None:
        """Write one record to the file, and print it."""
        images, now = record["images"], time.monotonic()
        self._moments.append((now, images))
        while len(self._moments) > 2 and now - self._moments[0][0] > WINDOW:  # at least two: a step may take longer
            self._moments.popleft()
        speed = self._speed(self._moments[0])
        seconds_left = (self._total - images) / max(speed, 1e-9)
        pace = {
            "seconds": round(self._before + now - self._start[0], 3),
            "images_per_second": round(speed, 3),
            "mean_images_per_second": round(self._speed(self._start), 3),
            "seconds_left": round(seconds_left, 1),
        }
        self._file.write(json.dumps({**record, **pace}) + "\n")
        self._file.flush()
        place = f"{images:>{len(f'{self._total:,}')},} / {self._total:,}"
        rate = f"{speed:,.{0 if speed >= 10 else 1}f} images/s  {time_of(seconds_left)} left of this training"
        print(f"{place}  {summary(record)}  {rate}", flush=True)
        self._watch()

    def _watch(self) -> None:
        """Print that other processes slow this training down, if they do, unless `slower` says so."""
        if self.slower is not None or (ratio := slowdown(self._watched, times := thread_times())) is None:
            return
        self._watched = times
        if ratio >= _SLOWER:
            self.slower = ratio
            print(
                f"other work uses the cores: optimizer steps take at least {ratio:.1f} times as long as on a quiet "
                "machine. Stop the other work; with several threads, set `threads: 1`.",
                flush=True,
            )

    def close(self) -> None:
        """Close the file."""
        self._file.close()
