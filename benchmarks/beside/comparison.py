"""What is compared: a training of ours and a step of its original."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
THREADS = 2

Step = Callable[[], None]


class Comparison(NamedTuple):
    """A training of ours beside its original.

    label: what both train, and on what.
    recipe: makes ours anew, in float32.
    training: its settings, of a training that does not end.
    theirs: takes a step of the original's.
    """

    label: str
    recipe: Callable[[], Any]
    training: Any
    theirs: Step
