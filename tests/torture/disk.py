"""A small disk that somebody else fills while a checkpoint is written."""

import contextlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from torture.story import Story, checkpoints, contents

MEGABYTES = 64
WHOLE = "continued bit for bit"


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Mount a small disk of memory at `folder`.

    Raises:
        OSError: it cannot be mounted here; says why.
    """
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise OSError((done.stderr.strip() or "mount fails").splitlines()[0])
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill_the_disk(story: Story) -> None:
    """Kill a training, fill its disk in the middle of its next save, start it on the full disk, free it, continue."""
    disk = story.state.parent
    story.kill_at(story.arguments.updates // 3)
    before = _kept(story)
    # The first life is refused by the kernel, in the middle of a file; the next looks first, and does not begin.
    good = _refused(story, before, "No space left on device", crash="full_disk", at=1)
    good &= _refused(story, before, "Errno 28")
    (disk / "ballast").unlink()
    good &= story.finish()
    with story.tally.lock:
        story.tally.disk = WHOLE if good else "see below"


def _kept(story: Story) -> dict[str, bytes]:
    return {
        f"{folder.name}/{path}": data for folder in checkpoints(story.state) for path, data in contents(folder).items()
    }


def _refused(story: Story, before: dict[str, bytes], reason: str, **changes: object) -> bool:
    """Let a life meet the full disk: it must fail with a sentence that says so, and leave all checkpoints alone.

    Args:
        story: whose life.
        before: the checkpoints as they were.
        reason: what must stand beside the state folder in one line of the log.
        changes: to the life's arguments.
    """
    spoken = len(story.log())
    life = story.live(max_lost_seconds=1e-3, keep=2, **changes)
    life.wait()
    words = story.log()[spoken:]
    left = shutil.disk_usage(story.state).free
    wrong = []
    if life.status != 1:
        wrong.append(f"the exit status is {life.status}")
    if not re.search(f"{reason}.*{re.escape(str(story.state))}", words):
        wrong.append(f"no sentence says that the disk of {story.state} is full: {words[-600:]}")
    if (now := _kept(story)) != before:
        wrong.append(f"the checkpoints are not what they were: {sorted(before)} became {sorted(now)}")
    for each in wrong:
        story.tally.fault(f"{story.name}: on a full disk ({left:,} bytes free) {each}")
    return not wrong
