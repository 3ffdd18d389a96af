"""How long the whole DAG was expected to take when its parameters were written, to say how much of it is left."""

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from darkroom.artifacts.atomic import write_json
from darkroom.params.section import PARAMS

_PLACE = Path(".darkroom/expected.json")


def write_expected(params: str, left: Mapping[str, float]) -> None:
    """Keep what is left of the DAG as each stage begins.

    Args:
        params: the text of params.yaml that it is said of.
        left: seconds from the beginning of a stage to the end of the DAG, by its name.
    """
    write_json(_PLACE, {"params": _key(params.encode()), "left": {name: round(value) for name, value in left.items()}})


def expected_left(stage: str) -> float | None:
    """Return the seconds from the beginning of a stage to the end of the DAG; None: unknown for this params.yaml."""
    try:
        kept = json.loads(_PLACE.read_text())
        found: float | None = kept["left"].get(stage)
        return found if kept["params"] == _key(PARAMS.read_bytes()) else None
    except (OSError, ValueError, KeyError, AttributeError, TypeError):  # not there, or of another version
        return None


def _key(params: bytes) -> str:
    return sha256(params).hexdigest()
