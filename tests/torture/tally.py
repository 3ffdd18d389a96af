"""What happened to all trainings together."""

import threading
from collections import Counter
from dataclasses import dataclass, field
from itertools import zip_longest

import psutil

ORPHANS = 30  # seconds after which the workers of a killed trainer must be gone; torch looks every 5

# What the bytes of a result are, by the beginning of their path below the training's folder.
KINDS = {
    "results/weights": "weights",
    "checkpoint/modules": "weights",
    "results/ema": "EMA",
    "checkpoint/ema": "EMA",
    "checkpoint/best": "EMA",
    "checkpoint/optimizers": "optimizer",
    "results/records": "records",
    "curves/": "records",
    "checkpoint/manifest": "records",
}


def kind(path: str) -> str:
    """Return what a file of a result holds."""
    return next((name for start, name in KINDS.items() if path.startswith(start)), "other state")


def differing(one: bytes, other: bytes) -> int:
    """Return how many bytes differ; what one has more differs too."""
    return 0 if one == other else sum(a != b for a, b in zip_longest(one, other))


@dataclass
class Tally:
    """What happened, over all stories; several threads add to it."""

    counts: Counter[str] = field(default_factory=Counter)
    differing: Counter[str] = field(default_factory=Counter)
    crashes: dict[str, str] = field(default_factory=dict)
    flips: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)  # what is not as it must be, in sentences
    disk: str = "not tried"
    orphans: set[psutil.Process] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, **counts: int) -> None:
        with self.lock:
            self.counts.update(counts)

    def fault(self, sentence: str) -> None:
        with self.lock:
            self.faults.append(sentence)
