"""A training that is killed again and again, and the same training left alone."""

import random
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from torture.arguments import BATCH, Arguments
from torture.lives import Diary, Life
from torture.tally import Tally, differing, kind

Start = Callable[[Arguments], Life]


def checkpoints(state: Path) -> list[Path]:
    """Return the checkpoints that have their name, oldest first."""
    return sorted(state.glob("images-*"))


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every file below a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Story:
    """The lives of one training.

    Args:
        start: starts a life: in a fork, or in an interpreter of its own.
        arguments: what every life is told; each gets a cadence of checkpoints of its own, which changes no bit.
        whole: the folder of the training that was left alone.
        tally: where it is written down.
        seed: of the instants.
    """

    def __init__(self, start: Start, arguments: Arguments, whole: Path, tally: Tally, seed: str) -> None:
        self.start, self.arguments, self.whole, self.tally = start, arguments, whole, tally
        self.name, self.folder = seed, Path(arguments.folder)
        self.folder.mkdir(parents=True)
        self.state = Path(arguments.state or self.folder / "state")
        self.random = random.Random(seed)
        self.diary = Diary(self.folder)
        self.pace = 0.03  # seconds between two updates, as last seen
        self.lives = 0
        self.faults: list[str] = []

    def _fault(self, sentence: str) -> None:
        self.faults.append(sentence)
        self.tally.fault(f"{self.name}: {sentence}")

    def live(self, start: Start | None = None, **changes: object) -> Life:
        """Start the next life, with some cadence."""
        how = {
            "max_lost_seconds": self.random.choice([1e-3, 0.05, 0.2]),
            "keep": self.random.choice([2, 2, 3]),
            **changes,
        }
        self.lives += 1
        return (start or self.start)(replace(self.arguments, **how))

    # ------------------------------------------------------------------------------------------------------------
    # Kills

    def kills(self, count: int) -> int:
        """Kill so many lives at instants spread over the whole training; return how many died of it.

        An instant is an update, drawn from all updates, in ascending order, and a moment after it: so every part of the
        training is hit, whatever the speed of the machine. The last kill of a training comes after its last update:
        during the last save, after it, or while results are written. One in eight comes at any moment of a life's start
        instead: while it reads, hashes or sweeps.
        """
        updates = self.arguments.updates
        died = 0
        for update in [*sorted(self.random.randint(1, updates) for _ in range(count - 1)), updates]:
            life = self.live()
            if self.random.random() < 1 / 8:
                ended = life.poll(self.random.uniform(0, 1.0)) is not None
            else:
                moment = self.random.uniform(0, 0.3 if update == updates else 4 * self.pace)
                ended = self._reach(life, update) or life.poll(moment) is not None
            if ended:
                self._ended(life)
                break
            self._kill(life)
            died += 1
        return died

    def kill_at(self, update: int) -> None:
        """Let a life come to an update, with two checkpoints of its own behind it, and kill it."""
        old = set(checkpoints(self.state))  # the older of them may be half pruned, or damaged next
        self._reach(life := self.live(max_lost_seconds=1e-3, keep=2), update)
        while len(set(checkpoints(self.state)) - old) < 2 and life.poll(0.002) is None:
            pass
        life.kill(group=True)

    def _reach(self, life: Life, update: int) -> bool:
        """Wait until a life has begun an update of that number or a later one; return whether it ended before."""
        began, first = None, 0
        while True:
            if life.poll(0.002) is not None:
                return True
            passes = self.diary.passes(max(life.first, self.diary.length() - 1))
            if not passes:
                continue
            now, at = time.monotonic(), passes[-1][1] // BATCH + 1
            if began is None:
                began, first = now, at
            if at > first:
                self.pace = (now - began) / (at - first)
            if at >= update:
                return False

    def _kill(self, life: Life) -> None:
        children = life.kill(group=self.random.random() < 0.5)
        with self.tally.lock:
            self.tally.orphans |= children
        inside = list(self.state.glob(".*.tmp-*")) if self.state.exists() else []
        files = [len(list(each.iterdir())) for each in checkpoints(self.state)]
        half = [count for count in files if count < max(files)]
        self.tally.add(kills=1, during_a_save=bool(inside), while_pruning=bool(half), orphans=len(children))

    def _ended(self, life: Life) -> None:
        if life.status != 0:
            self._fault(f"a life ended with status {life.status}: {self.last_words()}")

    def log(self) -> str:
        """Return all that was said."""
        return (self.folder / "log").read_text()

    def last_words(self) -> str:
        """Return the end of it."""
        return self.log()[-600:]

    # ------------------------------------------------------------------------------------------------------------
    # Crashes in the save, and damage between lives

    def crash(self, point: str) -> None:
        """Let a life die at a point of its third save, and check that the disk looks as the point says."""
        life = self.live(crash=point, at=3, max_lost_seconds=1e-3, keep=2)
        status = life.wait()
        stumps = list(self.state.glob(".images-*"))
        inside = {path.name for stump in stumps for path in stump.iterdir()}
        named = checkpoints(self.state)
        seen = {
            "half": bool(stumps) and not any("manifest" in name for name in inside),
            "no_manifest": "manifest.json" not in inside and sum(name.endswith(".safetensors") for name in inside) >= 3,
            "not_renamed": "manifest.json" in inside,
            "not_pruned": not stumps and len(named) >= 3,
            "half_pruned": not stumps and len(named) >= 3 and len(list(named[0].iterdir())) < len(contents(named[-1])),
        }[point]
        good = status == -9 and seen
        with self.tally.lock:
            self.tally.crashes[point] = "died there" if good else f"MISSED: status {status}"
        if not good:
            self._fault(f"no crash at {point} (status {status}): {self.last_words()}")

    def flip(self, name: str, among: str | None = None) -> None:
        """Change one bit of a file of the newest checkpoint: the next life must take the one before.

        Args:
            name: of the file.
            among: a pattern; the bit lies in one of the bytes that match. None: anywhere.
        """
        self.kill_at(6)
        whole = [each for each in checkpoints(self.state) if (each / "manifest.json").exists()]
        if len(whole) < 2:
            self._fault(f"two checkpoints were written, and {len(whole)} are left")
            return
        *_, before, newest = whole
        path = newest / name
        data = bytearray(path.read_bytes())
        places = [at for found in re.finditer((among or ".").encode(), data, re.DOTALL) for at in range(*found.span())]
        at = self.random.choice(places)
        data[at] ^= 1
        path.write_bytes(data)
        life = self.live()
        self._reach(life, 1)
        life.kill(group=True)
        # Its first update follows the checkpoint before.
        first = self.diary.passes(life.first)[0][1] if self.diary.length() > life.first else None
        expected = int(before.name.removeprefix("images-"))
        good = first == expected
        where = f"{name}, byte {at} of {len(data)}"
        said = "set aside" if good else "FATAL" if first is None else "TAKEN AS GOOD"
        with self.tally.lock:
            self.tally.flips.append(f"{where}: {said}")
        if not good:
            self._fault(f"{where} flipped: the next life began at image {first}, not {expected}")

    # ------------------------------------------------------------------------------------------------------------
    # The end

    def finish(self, start: Start | None = None) -> bool:
        """Let a last life come to its end, and return whether everything is as in the training that was left alone."""
        life = self.live(start)
        life.wait()
        self._ended(life)
        return life.status == 0 and self.compare()

    def result(self) -> dict[str, bytes]:
        return result(self.folder, self.state)

    def compare(self) -> bool:
        """Count the bytes that differ, and the losses of all lives that are not those of the undisturbed one."""
        before = len(self.faults)
        mine, other = self.result(), result(self.whole, self.whole / "state")
        for path in sorted(mine.keys() | other.keys()):
            count = differing(mine.get(path, b""), other.get(path, b""))
            with self.tally.lock:
                self.tally.differing[kind(path)] += count
            if count:
                self._fault(f"{count} bytes of {path} differ")
        stumps = [path.name for path in self.state.glob(".*")]
        if stumps:
            self._fault(f"the state folder still holds {stumps}")
        truth = {(phase, position): loss for phase, position, loss in Diary(self.whole).passes()}
        passes = self.diary.passes()
        wrong = [each for each in passes if truth.get(each[:2]) != each[2]]
        if wrong:
            self._fault(f"{len(wrong)} of {len(passes)} losses differ, first (phase, image) {wrong[0]}")
        again = (len(passes) - len({each[:2] for each in passes})) / len(truth)
        if {each[:2] for each in passes} != truth.keys():
            self._fault("not every image was seen")
        repeated = round(again * self.arguments.updates * BATCH)
        self.tally.add(
            trainings=1,
            resumes=self.lives - 1,
            images=self.arguments.updates * BATCH,
            repeated=repeated,
            losses=len(passes),
            wrong_losses=len(wrong),
        )
        return len(self.faults) == before


def result(folder: Path, state: Path) -> dict[str, bytes]:
    """Return all bytes of a finished training: what it gave, its curves, and its last checkpoint."""
    found = {part: contents(folder / part) for part in ("results", "curves")}
    found["checkpoint"] = contents(checkpoints(state)[-1])
    return {f"{part}/{path}": data for part, files in found.items() for path, data in files.items()}


def left_alone(start: Start, arguments: Arguments) -> None:
    """Train without a kill and with one checkpoint, at the end.

    Raises:
        RuntimeError: it does not end well.
    """
    Path(arguments.folder).mkdir(parents=True)
    if start(arguments).wait() != 0:
        raise RuntimeError(f"the undisturbed training failed: {(Path(arguments.folder) / 'log').read_text()[-2000:]}")
