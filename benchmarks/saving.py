"""What checkpoints cost a training, for small and large models: the share of its time, as the loop's cadence has it.

For each size a DiT trains on random latents. Updates are timed without a checkpoint, and while one
is written beside them: what the updates lose, the wait for the copy included, is what a checkpoint costs. The cadence
that the Saver derives from its own measurement then gives the share. For comparison the same state is written the
usual way, by `torch.save` in the training's own thread without a flush or a hash, every time the cadence says.

Run it in a clone on a quiet machine: `.venv/bin/python benchmarks/saving.py`. Prints a Markdown table.
"""

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]
THREADS = 2
os.environ |= {"OMP_NUM_THREADS": str(THREADS), "MKL_NUM_THREADS": str(THREADS)}

import numpy as np  # noqa: E402
import torch  # noqa: E402

from darkroom.diffusion.scalers import LatentScaler  # noqa: E402
from darkroom.models.generators.dit.config import DiTConfig  # noqa: E402
from darkroom.models.generators.dit.network import DiT  # noqa: E402
from darkroom.models.generators.dit.recipe import DiTRecipe  # noqa: E402
from darkroom.models.generators.dit.settings import DiTDiffusion, DiTSampling  # noqa: E402
from darkroom.training import checkpoint  # noqa: E402
from darkroom.training.loop import remaining_batches  # noqa: E402
from darkroom.training.saver import Saver  # noqa: E402
from darkroom.training.start import OutputPaths, open_training  # noqa: E402
from darkroom.training.train_state import TrainState  # noqa: E402
from helpers import run, training  # noqa: E402

# Width, depth, heads, images in an update.
MODELS = {"1.3M": (128, 4, 4, 64), "33M": (384, 12, 6, 8), "130M": (768, 12, 12, 4)}
CHANNELS, SIZE, CLASSES, ROWS = 4, 16, 10, 256


class Latents:
    """Random latents."""

    def __init__(self) -> None:
        shape = (ROWS, CHANNELS, SIZE, SIZE)
        self.mean = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)

    def __len__(self) -> int:
        return ROWS

    def __getitems__(self, rows: list[int], positions: object = None) -> dict[str, np.ndarray]:
        """Return some rows."""
        return {"mean": self.mean[rows], "logvar": self.mean[rows] - 5, "labels": np.array(rows) % CLASSES}

    def keys(self, rows: list[int]) -> list[str]:
        """Return names."""
        return [str(row) for row in rows]


SAMPLING = DiTSampling(solver="euler", steps=25, guidance=1.5)


def timed(trainer: TrainState, batches: object, until: float) -> list[float]:
    """Take updates for some seconds, or while a writer is busy, and return what each took."""
    taken = []
    end = time.perf_counter() + until
    while time.perf_counter() < end:
        began = time.perf_counter()
        trainer.step(next(batches))  # type: ignore[call-overload]
        taken.append(time.perf_counter() - began)
    return taken


def measure(name: str, folder: Path, saves: int, seconds: float) -> str:
    """Return a row of the table, from `saves` checkpoints and so many seconds of updates before each."""
    width, depth, heads, batch = MODELS[name]
    torch.manual_seed(0)
    model = DiT(DiTConfig(CHANNELS, SIZE, CLASSES, width, depth, heads, 2))
    diffusion = DiTDiffusion(normalise="channel", time="logit_normal", time_mean=0.0, time_std=1.0, label_dropout=0.1)
    scaler = LatentScaler([0.0] * CHANNELS, [1.0] * CHANNELS)
    recipe = DiTRecipe(model, diffusion, 0, Latents(), Latents(), scaler, None, SAMPLING)  # type: ignore[arg-type]
    settings = training(images=10**6 * batch, batch=batch, threads=THREADS, log_every=10**9, validate_every=10**9)
    places = OutputPaths(*(folder / part for part in ("state", "curves", "logs")))
    trainer = open_training(recipe, settings, run(max_lost_seconds=300), places)
    batches = remaining_batches(trainer)
    timed(trainer, batches, min(3.0, seconds))
    size = checkpoint.size(trainer.state_dict()[0])
    saver = Saver(places.state, run(max_lost_seconds=300), size)
    places.state.mkdir(parents=True)
    lost, stalls, writing, plain = [], [], [], []
    for _ in range(saves):
        usual = statistics.median(timed(trainer, batches, seconds))
        began = time.perf_counter()
        groups, facts = trainer.state_dict()
        saver.save(trainer.images, groups, facts, wait=False)
        stalls.append(time.perf_counter() - began)
        updates = 0
        while saver._busy():
            trainer.step(next(batches))
            updates += 1
        writing.append(time.perf_counter() - began)
        saver.finish()
        # The update in which the writer ended counts whole: it lost less than that.
        lost.append(max(stalls[-1], time.perf_counter() - began - updates * usual))
        began = time.perf_counter()
        torch.save(trainer.state_dict(), folder / "plain.pt")
        plain.append(time.perf_counter() - began)
    cost, interval = statistics.median(lost), saver.interval
    count = sum(parameter.numel() for parameter in model.parameters())
    return (
        f"| {count / 1e6:,.1f} M | {size / 1e6:,.0f} MB | {1e3 * usual:,.0f} ms | {statistics.median(stalls):.2f} s | "
        f"{statistics.median(writing):.2f} s | {cost:.2f} s | {interval:.0f} s | "
        f"{100 * cost / (interval + cost):.2f} % | {100 * statistics.median(plain) / interval:.2f} % |"
    )


def main() -> None:
    """Measure each size."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("models", nargs="*", help=f"of {', '.join(MODELS)}; all of them")
    options.add_argument("--saves", type=int, default=3, help="checkpoints that are timed")
    options.add_argument("--seconds", type=float, default=12.0, help="of updates without a checkpoint, before each")
    chosen = options.parse_args()
    torch.set_num_threads(THREADS)
    heads = (
        "parameters",
        "checkpoint",
        "update",
        "copy",
        "written in",
        "training loses",
        "every",
        "share",
        "`torch.save`",
    )
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for name in chosen.models or MODELS:
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
            row = measure(name, Path(folder), chosen.saves, chosen.seconds)
        print(row, flush=True)


if __name__ == "__main__":
    main()
