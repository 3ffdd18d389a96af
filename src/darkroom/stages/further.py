"""What a measurement adds to the scores of samples and to their card."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Further:
    """Scores that other samples have not, and what the card says of them under these names."""

    scores: dict[str, float] = field(default_factory=dict)
    protocol: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    baselines: dict[str, Any] = field(default_factory=dict)
