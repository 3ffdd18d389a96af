"""What a training tells: curves that DVC draws, JSON lines, and a plain line for the person."""

import importlib.util
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from darkroom.artifacts.atomic import atomic_folder
from darkroom.errors import DarkroomError

Record = dict[str, Any]


def write_curves(folder: Path, records: Sequence[Record]) -> None:
    """Write the records of a training as DVCLive curves (`FOLDER/plots/metrics/NAME.tsv`, step = images seen).

    The curves are a declared output: they hold results, nothing of time or machine, and appear whole, when the training
    is done. While it runs, the journal tells the same.
    """
    from dvclive import Live

    with atomic_folder(folder) as temporary:
        live = Live(str(temporary), dvcyaml=None, report=None, save_dvc_exp=False, monitor_system=False)
        for record in records:
            live.step = record["images"]
            for name, value in record.items():
                if name != "images":
                    live.log_metric(name, value)
        live.make_summary()
        live.end()


class Journal:
    """JSON lines and plain lines of a training's progress, with speed and time left; for people, not for stages."""

    def __init__(self, path: Path, images: int, total: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a" if images else "w")
        self._start, self._total = images, total
        self._began = time.monotonic()

    def add(self, record: Record) -> None:
        """Write one record to the file and to the terminal."""
        elapsed = time.monotonic() - self._began
        images = record["images"]
        speed = (images - self._start) / max(elapsed, 1e-9)
        left = (self._total - images) / max(speed, 1e-9)
        self._file.write(
            json.dumps({**record, "images_per_second": round(speed, 1), "seconds_left": round(left)}) + "\n"
        )
        self._file.flush()
        shown = "  ".join(f"{name} {value:.4g}" for name, value in record.items() if name != "images")
        print(f"{images:>9,} / {self._total:,} images  {shown}  {speed:,.0f} images/s  {left:.0f} s left")
        sys.stdout.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def start_trackers(accelerator: Accelerator, name: str, trackers: Sequence[str]) -> None:
    """Open the trackers that `run.trackers` names, for a run called `name`. Nothing leaves the machine unasked.

    Weights & Biases writes beside the others, offline, unless WANDB_MODE says otherwise.

    Raises:
        DarkroomError: a tracker is not installed.
    """
    for tracker in trackers:
        if importlib.util.find_spec(tracker) is None:
            raise DarkroomError(
                f"`run.trackers` names {tracker}, which is not installed: `pip install {tracker}`, or take it out."
            )
    if trackers:
        folder = Path(accelerator.project_dir)
        folder.mkdir(parents=True, exist_ok=True)
        os.environ.setdefault("WANDB_MODE", "offline")
        os.environ.setdefault("WANDB_DIR", str(folder))
        accelerator.init_trackers(name)
