"""How long an optimizer step of a transformer waits for its latents, read, checked and sampled as in `train_generator`.

    PYTHONPATH=src python benchmarks/waiting.py

4,096 latents, 4x32x32, mean and logvar in bfloat16, in 4 shards, warm; on the CPU, with the preset `digits` but for
what the table says. Waiting is the time between asking for a batch and having it, of all batches but the first,
which with workers includes starting them; each latent is read for the first or second time, so half of them are hashed.
"""

import argparse
import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path

THREADS = 2
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = str(THREADS)

import numpy as np  # noqa: E402
from beside.digits import digits  # noqa: E402
from latent_reads import write_darkroom  # noqa: E402

from darkroom.check.check import schema  # noqa: E402
from darkroom.data.catalog import Catalog  # noqa: E402
from darkroom.data.images import ImageSpec  # noqa: E402
from darkroom.data.latents import LatentShards  # noqa: E402
from darkroom.device import set_up_device  # noqa: E402
from darkroom.diffusion.scalers import LatentScaler  # noqa: E402
from darkroom.models.generators.data import LabelledLatents  # noqa: E402
from darkroom.models.generators.dit.config import DiTConfig  # noqa: E402
from darkroom.models.generators.dit.network import DiT  # noqa: E402
from darkroom.models.generators.dit.recipe import DiTRecipe  # noqa: E402
from darkroom.params.section import validate  # noqa: E402
from darkroom.training.loop import remaining_batches  # noqa: E402
from darkroom.training.start import OutputPaths, open_training  # noqa: E402

SHAPE, IMAGES = (4, 32, 32), 4096
# Width, depth, heads, patch; images in an update.
MODELS = {"DiT-S/4": ((384, 12, 6, 4), 8), "the DiT of the digits": ((128, 4, 4, 2), 64)}


class Unlabelled(LatentShards):
    """Latents of one class."""

    label_column = ["0"] * IMAGES  # type: ignore[assignment]


def measure(root: Path, size: tuple[int, int, int, int], batch: int, workers: int, updates: int) -> tuple[float, float]:
    """Return seconds of an update and seconds that it waited, both means, after two updates."""
    params = validate(schema("train_generator"), digits("train_generator"))
    settings = params.train_generator  # type: ignore[attr-defined]
    training = settings.training.model_copy(
        update={"batch": batch, "images": batch * (updates + 2), "warmup": batch, "processes": 1, "precision": "fp32"}
    )
    run = params.run.model_copy(update={"device": "cpu", "workers": workers, "trackers": []})  # type: ignore[attr-defined]
    catalog = Catalog(("0",), {}, ImageSpec(256, "RGB", "png"), {}, {}, "", None, {"0": 0})
    rows = LabelledLatents(Unlabelled.open_parts(["part"], "train", root / "latents"), catalog)
    model = DiT(DiTConfig(*SHAPE[:2], 1, *size, 4.0))
    scaler = LatentScaler([0.0] * SHAPE[0], [1.0] * SHAPE[0])
    dit = settings.chosen
    recipe = DiTRecipe(model, dit.diffusion, 0, rows, rows, scaler, None, dit.sampling)  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        places = OutputPaths(*(Path(folder) / name for name in ("state", "curves", "logs")))
        trainer = open_training(recipe, training, run, places)
        batches, waited, began = remaining_batches(trainer), 0.0, 0.0
        for update in range(updates + 2):
            if update == 2:
                waited, began = 0.0, time.perf_counter()
            asked = time.perf_counter()
            piece = next(batches)
            waited += time.perf_counter() - asked
            trainer.step(piece)
        trainer.finite.settle(trainer.images)
    return (time.perf_counter() - began) / updates, waited / updates


def main() -> None:
    """Print a table."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("models", nargs="*", help=f"of {', '.join(MODELS)}; all of them")
    options.add_argument("--updates", type=int, default=100)
    chosen = options.parse_args()
    set_up_device(THREADS, "cpu")
    draws = np.random.default_rng(0)
    mean, logvar = (draws.standard_normal((IMAGES, *SHAPE), dtype=np.float32) for _ in range(2))
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        write_darkroom(root / "latents", mean, logvar, "bfloat16", 4)
        print("| model | images an update | workers | update, ms | waiting, ms | share |\n|---|---|---|---|---|---|")
        for model in chosen.models or MODELS:
            size, batch = MODELS[model]
            for workers in (0, 2):
                update, waited = measure(root, size, batch, workers, chosen.updates)
                share = f"{100 * waited / update:.2f} %"
                print(
                    f"| {model} | {batch} | {workers} | {1e3 * update:.1f} | {1e3 * waited:.2f} | {share} |", flush=True
                )


if __name__ == "__main__":
    main()
