"""What the loop costs beside forward, backward and optimizer, for the default DiT, against a bare PyTorch loop.

Both train the same model on the same latents with the same batch, precision and threads in one process, in turns of a
few updates, so that they meet the same machine. The bare loop is what a person would write: `torch.randn` for the
noise, a shuffled DataLoader over tensors, the loss, backward, clipping, fused AdamW, an average of the weights in one
`_foreach_lerp_`, and nothing else: no order or noise that survives a kill, no logged norms, no checkpoint. The loop's
own turns hold all of that: `train` as a stage calls it, with checkpoints as its cadence wants them.

Run it in a clone after `make demo` (it reads data/latents), on a quiet machine: `.venv/bin/python
benchmarks/loop_overhead.py`. Prints a Markdown table.
"""

import contextlib
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))
os.chdir(ROOT)
THREADS = 2
os.environ |= {"OMP_NUM_THREADS": str(THREADS), "MKL_NUM_THREADS": str(THREADS)}

import torch  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from darkroom.check import schema  # noqa: E402
from darkroom.data.catalog import load_catalog  # noqa: E402
from darkroom.data.latents import LatentShards  # noqa: E402
from darkroom.device import set_up_device  # noqa: E402
from darkroom.diffusion.flow import flow_matching_loss, interpolate  # noqa: E402
from darkroom.generators.dit import DiT, DiTConfig  # noqa: E402
from darkroom.generators.normaliser import Normaliser  # noqa: E402
from darkroom.params import given, validate  # noqa: E402
from darkroom.recipes.dit import DiTRecipe, LabelledLatents  # noqa: E402
from darkroom.training import loop  # noqa: E402
from darkroom.training.trainer import Places, Trainer  # noqa: E402

TURNS, UPDATES = 12, 25


def bare(model: DiT, latents: LabelledLatents, normaliser: Normaliser, batch: int) -> Iterator[None]:
    """Train with a loop as a person would write it; yields after each update."""
    rows = latents.__getitems__(range(len(latents)))
    tensors = [torch.as_tensor(rows[name]) for name in ("mean", "logvar", "labels")]
    loader = DataLoader(TensorDataset(*tensors), batch, shuffle=True, drop_last=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0, fused=True)
    averages = [parameter.detach().clone() for parameter in model.parameters()]
    total: float | Tensor = 0.0
    for number in itertools.count(1):
        for mean, logvar, labels in loader:
            data = normaliser(mean + (0.5 * logvar).exp() * torch.randn_like(mean))
            noise, t = torch.randn_like(data), torch.randn(len(data)).sigmoid()
            labels = torch.where(torch.rand(len(data)) < 0.1, model.null_label, labels)
            loss = flow_matching_loss(model(interpolate(data, noise, t), t, labels), data, noise).mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            with torch.no_grad():
                torch._foreach_lerp_(averages, list(model.parameters()), 0.005)
            total += loss.detach()
            yield
        if number % 2 == 0:
            print(f"{float(total):.3f}", end="\r", file=sys.stderr)


class Clock:
    """Lets the bare loop run between turns of the real one, and keeps the seconds that each turn took."""

    def __init__(self, other: Iterator[None]) -> None:
        self.other, self.updates = other, 0
        self.seconds: dict[str, list[float]] = {"bare": [], "loop": []}
        self.began = 0.0

    def tick(self) -> None:
        """Count an update of the real loop, and give the bare one its turn after UPDATES of them."""
        if self.updates % UPDATES == 0:
            if self.updates:
                self.seconds["loop"].append(time.perf_counter() - self.began)
            began = time.perf_counter()
            for _ in range(UPDATES):
                next(self.other)
            self.seconds["bare"].append(time.perf_counter() - began)
            self.began = time.perf_counter()
        self.updates += 1


def main() -> None:
    """Train in turns and print what an update takes in each loop."""
    params = validate(schema("train_dit"), given("train_dit"))
    settings = params.train_dit  # type: ignore[attr-defined]
    set_up_device(THREADS, "cpu")
    catalog = load_catalog(shards=None)
    shards = {split: LatentShards.open_parts(list(params.parts), split) for split in ("train", "val")}  # type: ignore[attr-defined]
    train, val = (LabelledLatents(shards[split], catalog) for split in ("train", "val"))
    channels, size, _ = shards["train"].shape
    config = DiTConfig(channels, size, len(catalog.classes), **settings.model.model_dump())
    normaliser = Normaliser(*shards["train"].statistics)
    recipe = DiTRecipe(DiT(config), settings.diffusion, 0, train, val, normaliser, None)  # type: ignore[arg-type]
    batch = settings.training.batch
    clock = Clock(bare(DiT(config), train, normaliser, batch))
    update = Trainer.update

    def counted(trainer: Trainer, piece: object) -> None:
        clock.tick()
        update(trainer, piece)  # type: ignore[arg-type]

    Trainer.update = counted  # type: ignore[method-assign, assignment]
    images = batch * (TURNS * UPDATES + 1)
    training = settings.training.model_copy(update={"images": images, "warmup": batch, "validate_every": 10 * images})
    run = params.run.model_copy(update={"grid_every": 0, "trackers": []})  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        places = Places(*(Path(folder) / name for name in ("state", "curves", "logs")))
        loop.train(recipe, training, run, places)
    taken = {name: [1e3 * value / UPDATES for value in values[1:]] for name, values in clock.seconds.items()}
    middle = {name: statistics.median(values) for name, values in taken.items()}
    best = {name: min(values) for name, values in taken.items()}
    print(f"| an update of {batch} latents, ms | best | median of {TURNS - 1} turns of {UPDATES} |\n|---|---|---|")
    for name, label in (("bare", "a bare PyTorch loop"), ("loop", "`darkroom train_dit`")):
        print(f"| {label} | {best[name]:.2f} | {middle[name]:.2f} |")
    extra = {name: 100 * (each["loop"] / each["bare"] - 1) for name, each in (("best", best), ("middle", middle))}
    print(f"| more | {extra['best']:+.1f} % | {extra['middle']:+.1f} % |")


if __name__ == "__main__":
    main()
