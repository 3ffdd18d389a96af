"""Five updates of a paper's preset at batch 1 on rendered latents; as a program with a PRESET, times them."""

import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
sys.path[:0] = [str(ROOT / "src"), str(TESTS)]

import numpy as np  # noqa: E402

from darkroom.check.check import schema  # noqa: E402
from darkroom.params.section import validate  # noqa: E402
from darkroom.params.stage import read_yaml, stage_params  # noqa: E402
from darkroom.rng import derive, normal  # noqa: E402
from darkroom.tools import preset  # noqa: E402
from helpers import DIGITS  # noqa: E402

UPDATES, CLASSES = 5, 1000


class Rendered:
    """Latents of unit variance that follow from the row alone, as data that nobody has to download."""

    def __init__(self, shape: tuple[int, int, int]) -> None:
        self.shape = shape

    def __len__(self) -> int:
        return 8

    def __getitems__(self, rows: Sequence[int], positions: Any = None) -> dict[str, Any]:
        mean = normal(0, "rendered", rows, self.shape)
        return {"mean": mean, "logvar": np.full_like(mean, -30), "labels": np.array([57 * row for row in rows])}

    def keys(self, rows: Sequence[int]) -> list[str]:
        return [f"rendered-{row}" for row in rows]


def five_updates(name: str, depth: int | None = None) -> Any:
    """Train a preset's DiT in the working folder, a clone's bare bones; return the trainer.

    What stands in its sections stays, but for the batch of 1, the five images, one process and the CPU; and the depth,
    where one is given.
    """
    from darkroom.device import set_up_device
    from darkroom.diffusion.scalers import LatentScaler
    from darkroom.models.generators.dit.network import DiT
    from darkroom.models.generators.dit.recipe import DiTRecipe, config_of
    from darkroom.training.loop import seeded, train
    from darkroom.training.start import OutputPaths

    preset.apply(name)
    params: Any = validate(schema("train_generator"), stage_params("train_generator"))
    pixels = read_yaml(Path("params.yaml"))["train_tokenizer"]["kind"] == "identity"
    shape = (3, 256, 256) if pixels else (4, 32, 32)  # of images, or of the published autoencoder's latents of them
    settings = params.train_generator.own_training.model_copy(
        update={"processes": 1, "batch": 1, "images": UPDATES, "log_every": 1, "validate_every": UPDATES}
    )
    run = params.run.model_copy(update={"device": "cpu", "grid_every": 0, "max_lost_seconds": 1e9})
    set_up_device(settings.threads, "cpu")
    config = config_of(params.train_generator.chosen, shape[0], shape[1], CLASSES)
    with seeded(derive(settings.seed, "dit/weights")):
        model = DiT(replace(config, depth=depth or config.depth))
    ones = [1.0] * shape[0]
    data: Any = Rendered(shape)
    recipe = DiTRecipe(
        model,
        params.train_generator.chosen.diffusion,
        settings.seed,
        data,
        data,
        LatentScaler([0.0] * shape[0], ones),
        SimpleNamespace(latent_shape=shape),  # type: ignore[arg-type]  # only pictures need a tokenizer
        params.train_generator.chosen.sampling,
    )
    recipe.sample_evolution = lambda: None  # type: ignore[method-assign]  # a picture, too
    return train(recipe, settings, run, OutputPaths(Path("state"), Path("curves"), Path("logs/train_generator")))


def bare_bones(folder: Path) -> None:
    """Put into a folder what `darkroom preset` reads."""
    for file in (DIGITS, ROOT / "dvc.yaml"):
        shutil.copy(file, folder)
    for name in ("src", "docs", "presets"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "data").mkdir()
    (folder / "data/none").touch()


if __name__ == "__main__":
    import os

    with tempfile.TemporaryDirectory() as temporary:
        bare_bones(Path(temporary))
        os.chdir(temporary)
        began = time.perf_counter()
        five_updates(sys.argv[1])
        seconds = time.perf_counter() - began
        os.chdir("/")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{sys.argv[1]}: {seconds:.0f} s, {peak:.1f} GiB at the most")
