"""A training of about fifteen seconds, to be killed, and what its log and its checkpoints say."""

import re
import subprocess
import time
from collections.abc import Callable

from dag.sandbox import Sandbox

# The catalog before it changes too, so that a run has something to finish.
LONG = {
    "run": {"at_risk": 1},
    "catalog": {"grid_images": 2},
    "train_extractor": {"training": {"images": 64_000, "log_every": 3_200, "validate_every": 16_000}},
}
TRAIN = ("dvc", "repro", "train_extractor")


def wait_until(true: Callable[[], bool], run: subprocess.Popen[bytes]) -> None:
    """Wait until something is true of a run that goes on."""
    while not true():
        assert run.poll() is None, "the run ended before it was killed"
        time.sleep(0.05)


def told(sandbox: Sandbox) -> str:
    """Return what the training has told in its log."""
    log = sandbox.root / "logs/train_extractor.log"
    return log.read_text() if log.exists() else ""


def checkpoints(sandbox: Sandbox) -> set[str]:
    """Return the names of the checkpoints of the training, one of which may be on its way out."""
    return {path.parent.name for path in (sandbox.root / ".darkroom/state").glob("train_extractor-*/images-*/*.json")}


def resumed_at(log: str) -> int:
    """Return the image at which a training went on, 0 where it began anew."""
    found = re.search(r"resumes at image ([\d,]+)", log)
    return int(found[1].replace(",", "")) if found else 0
