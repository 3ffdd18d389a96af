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
        raise OSError(done.stderr.strip() or "mount fails")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill_the_disk(story: Story) -> None:
    """Kill a training, fill its disk in the middle of its next save, start it on the full disk, free it, continue."""
    disk = story.state.parent
    story.kill_at(story.arguments.updates // 3)
    before = _kept(story)
    said = [_refused(story, before, crash="full_disk", at=1), _refused(story, before)]
    (disk / "ballast").unlink()
    story.finish()
    with story.tally.lock:
        story.tally.disk = WHOLE if all(said) else "see below"


def _kept(story: Story) -> dict[str, bytes]:
    return {
        f"{folder.name}/{path}": data for folder in checkpoints(story.state) for path, data in contents(folder).items()
    }


def _refused(story: Story, before: dict[str, bytes], **changes: object) -> bool:
    """Let a life meet the full disk: it must fail with a sentence that says so, and leave all checkpoints alone."""
    spoken = len(story.log())
    life = story.live(at_risk=1e-3, keep=2, **changes)
    life.wait()
    words = story.log()[spoken:]
    left = shutil.disk_usage(story.state).free
    wrong = []
    if life.status != 1:
        wrong.append(f"the exit status is {life.status}")
    if not re.search(r"(disk is full|\[Errno 28\]).*" + re.escape(str(story.state)), words):
        wrong.append(f"no sentence says that the disk of {story.state} is full: {words[-600:]}")
    if (now := _kept(story)) != before:
        wrong.append(f"the checkpoints are not what they were: {sorted(before)} became {sorted(now)}")
    for each in wrong:
        story.tally.fault(f"{story.name}: on a full disk ({left:,} bytes free) {each}")
    return not wrong
