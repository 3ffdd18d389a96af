"""A training of Toy as one of several processes: `python together.py FOLDER PROCESSES IMAGES [STOP_AT]`.

The environment holds RANK and WORLD_SIZE, as torchrun would set them. Prints what it trained on, and the records.
"""

import json
import os
import signal
import sys
from pathlib import Path

from darkroom.training.loop import train
from helpers import run, training
from training.toy import Toy, places, weights


class Without(Toy):
    """No dropout, whose draws follow from the shape of a pass, and a spy on positions and on the data they meet."""

    def __init__(self, stop_at: int | None) -> None:
        super().__init__()
        self.modules["first"][1].p = 0.0
        self.met: dict[int, list[float]] = {}
        self.stop_at = stop_at

    def one(self, batch):
        for position, row in zip(batch.positions.tolist(), batch.data["x"].tolist(), strict=True):
            self.met[position] = row
        if self.stop_at is not None and self.stop_at in batch.positions:
            os.kill(os.getpid(), signal.SIGTERM)
        return super().one(batch)


folder, processes, images = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
stop_at = int(sys.argv[4]) if len(sys.argv) > 4 else None
recipe = Without(stop_at)
found = folder / f"met-{os.environ.get('RANK', 0)}.json"
try:
    trainer = train(recipe, training(processes=processes, images=images), run(at_risk=1e9), places(folder))
finally:
    found.write_text(json.dumps(recipe.met))
values = {name: value.hex() for name, value in weights(trainer).items()}
(folder / "result.json").write_text(json.dumps({"records": trainer.records, "weights": values}))
