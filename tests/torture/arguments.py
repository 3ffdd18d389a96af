"""What a life is told, and what it leaves of each pass; nothing here takes long to import."""

import json
import struct
from dataclasses import asdict, dataclass

BATCH = 16
SEEN = struct.Struct("<iid")  # what the diary holds of each pass: number of the phase, first position, loss


@dataclass(frozen=True)
class Arguments:
    """What a life is told. Only `model`, `data` and `updates` decide a bit of the result.

    model: gan, dit or a kind of tokenizer; or latents, a life that writes the DiT's data into `data`.
    state: the state folder, where it does not lie in `folder`.
    crash: one of `faults.CRASHES`, committed in the save number `at`.
    """

    model: str
    folder: str
    data: str
    updates: int
    state: str | None = None
    max_lost_seconds: float = 1e9
    keep: int = 2
    crash: str | None = None
    at: int = 3

    def json(self) -> str:
        return json.dumps(asdict(self))
