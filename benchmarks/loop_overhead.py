"""What the loop costs beside forward, backward and optimizer, for the DiT of the digits, against a bare PyTorch loop.

Both train the same model on the same latents with the same batch, precision and threads in one process, in turns of a
few updates, so that they meet the same machine. The bare loop is what a person would write: `torch.randn` for the
noise, a shuffled DataLoader over tensors, the loss, backward, clipping, fused AdamW, an average of the weights in one
`_foreach_lerp_`, and nothing else: no order or noise that survives a kill, no logged norms, no checkpoint. The loop's
own turns hold all of that: `train` as a stage calls it, with checkpoints as its cadence wants them.

The latents are random numbers in the shape of those of the preset `digits`, as many as it trains on, read from
shards of the stage's own format.

Run it on a quiet machine: `.venv/bin/python benchmarks/loop_overhead.py`. Prints a Markdown table.
"""

import argparse
import contextlib
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))
os.chdir(ROOT)
THREADS = 2
os.environ |= {"OMP_NUM_THREADS": str(THREADS), "MKL_NUM_THREADS": str(THREADS)}

import numpy as np  # noqa: E402
import torch  # noqa: E402
from beside.digits import digits  # noqa: E402
from latent_reads import write_darkroom  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from darkroom.check.check import read_params, schema  # noqa: E402
from darkroom.data.catalog import Catalog  # noqa: E402
from darkroom.data.images import ImageSpec  # noqa: E402
from darkroom.data.latents import LatentShards  # noqa: E402
from darkroom.device import set_up_device  # noqa: E402
from darkroom.diffusion.flow import Flow  # noqa: E402
from darkroom.diffusion.scalers import LatentScaler  # noqa: E402
from darkroom.models.generators.data import LabelledLatents  # noqa: E402
from darkroom.models.generators.dit.network import DiT  # noqa: E402
from darkroom.models.generators.dit.recipe import DiTRecipe, config_of  # noqa: E402
from darkroom.params.section import validate  # noqa: E402
from darkroom.params.stage import lookup  # noqa: E402
from darkroom.training import loop  # noqa: E402
from darkroom.training.start import OutputPaths  # noqa: E402
from darkroom.training.train_state import TrainState  # noqa: E402

# x (B, C, S, S), times (B,) and labels, int64 (B,), to the prediction, (B, C, S, S)
Network = Callable[[Tensor, Tensor, Tensor], Tensor]
CLASSES, IMAGES = 10, 1437  # of scikit-learn's digits, the train split


class Labelled(LatentShards):
    """Latents of ten classes in turn."""

    @property
    def label_column(self) -> list[str]:  # type: ignore[override]
        """The class of each."""
        return [str(row % CLASSES) for row in range(len(self))]


class WithoutPictures(DiTRecipe):
    """Draws nothing while it trains: there is no tokenizer."""

    def sample_evolution(self) -> None:  # type: ignore[override]
        """Return no images."""


def latents_of(root: Path, shape: tuple[int, int, int], images: int, dtype: str = "bfloat16") -> LabelledLatents:
    """Write and open random latents (images, *shape), shape (C, H, W), of ten classes in turn, stored as dtype."""
    mean = np.random.default_rng(0).standard_normal((images, *shape), dtype=np.float32)
    write_darkroom(root, mean, mean - 5, dtype, 8)
    names = [str(number) for number in range(CLASSES)]
    spec, numbers = ImageSpec(shape[1], "L", "png"), {name: number for number, name in enumerate(names)}
    catalog = Catalog(tuple(names), {}, spec, {}, {}, "", None, numbers)
    return LabelledLatents(Labelled.open_parts(["part"], "train", root), catalog)


def latents(root: Path) -> LabelledLatents:
    """Write and open random latents in the shape that the tokenizer of params.yaml gives them."""
    values = read_params(ROOT / "params.yaml")
    kl = lookup(values, "train_tokenizer.kl")
    side = lookup(values, "ingest.image_size") // 2 ** (len(kl["channels"]) - 1)
    return latents_of(root, (kl["latent_channels"], side, side), IMAGES, lookup(values, "encode_latents.dtype"))


def bare(
    network: Network,
    parameters: list[nn.Parameter],
    latents: LabelledLatents,
    null_label: int,
    batch: int,
    precision: str = "fp32",
) -> Iterator[None]:
    """Train with a loop as a person would write it; yields after each update.

    network: with precision bf16 called under autocast.
    parameters: its own, float32, on the device that it runs on.
    null_label: of guidance.
    batch: images.
    """
    rows, flow, device = latents.__getitems__(range(len(latents))), Flow(), parameters[0].device
    channels = latents.shards.shape[0]
    scaler = LatentScaler([0.0] * channels, [1.0] * channels)
    tensors = [torch.as_tensor(rows[name]) for name in ("mean", "logvar", "labels")]
    loader = DataLoader(TensorDataset(*tensors), batch, shuffle=True, drop_last=True, pin_memory=device.type == "cuda")
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0, fused=True)
    averages = [parameter.detach().clone() for parameter in parameters]
    total: float | Tensor = 0.0
    for number in itertools.count(1):
        for found in loader:
            mean, logvar, labels = (each.to(device, non_blocking=True) for each in found)
            noise = torch.randn(mean.shape, device=device)
            data = scaler(mean.float() + (0.5 * logvar.float()).exp() * torch.randn(mean.shape, device=device))
            t = torch.randn(len(data), device=device).sigmoid()
            labels = torch.where(torch.rand(len(data), device=device) < 0.1, null_label, labels)
            x = flow.add_noise(data, noise, t)
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16"):
                output = network(x, flow.timesteps(t), labels)
            loss = flow.losses(output, data, noise, x, t)["loss"].mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            with torch.no_grad():
                torch._foreach_lerp_(averages, list[Tensor](parameters), 0.005)
            total += loss.detach()
            yield
        if number % 2 == 0:
            print(f"{float(total):.3f}", end="\r", file=sys.stderr)


class Clock:
    """Lets the bare loop run between turns of the real one, and keeps the seconds that each turn took."""

    def __init__(self, other: Iterator[None], turn: int) -> None:
        self.other, self.turn, self.updates = other, turn, 0
        self.seconds: dict[str, list[float]] = {"bare": [], "loop": []}
        self.began = 0.0

    def tick(self) -> None:
        """Count an update of the real loop, and give the bare one its turn after `turn` of them."""
        if self.updates % self.turn == 0:
            if self.updates:
                self.seconds["loop"].append(time.perf_counter() - self.began)
            began = time.perf_counter()
            for _ in range(self.turn):
                next(self.other)
            self.seconds["bare"].append(time.perf_counter() - began)
            self.began = time.perf_counter()
        self.updates += 1


def main() -> None:
    """Train in turns and print what an update takes in each loop."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--turns", type=int, default=12, help="of each loop; the first does not count")
    options.add_argument("--updates", type=int, default=25, help="in a turn")
    chosen = options.parse_args()
    params = validate(schema("train_generator"), digits("train_generator"))
    settings = params.train_generator  # type: ignore[attr-defined]
    set_up_device(THREADS, "cpu")
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        rows = latents(Path(folder) / "latents")
        channels, size, _ = rows.shards.shape
        config = config_of(settings.chosen, channels, size, CLASSES)
        scaler = LatentScaler([0.0] * channels, [1.0] * channels)
        recipe = WithoutPictures(
            DiT(config), settings.chosen.diffusion, 0, rows, rows, scaler, None, settings.chosen.sampling
        )  # type: ignore[arg-type]
        batch = settings.training.batch
        other = DiT(config)
        clock = Clock(bare(other, list(other.parameters()), rows, other.null_label, batch), chosen.updates)
        update = TrainState.step

        def counted(trainer: TrainState, piece: object) -> None:
            clock.tick()
            update(trainer, piece)  # type: ignore[arg-type]

        TrainState.step = counted  # type: ignore[method-assign, assignment]
        images = batch * (chosen.turns * chosen.updates + 1)
        training = settings.training.model_copy(
            update={"images": images, "warmup": batch, "validate_every": 10 * images, "threads": THREADS}
        )
        run = params.run.model_copy(update={"device": "cpu", "grid_every": 0, "trackers": []})  # type: ignore[attr-defined]
        places = OutputPaths(*(Path(folder) / name for name in ("state", "curves", "logs")))
        loop.train(recipe, training, run, places)
    taken = {name: [1e3 * value / chosen.updates for value in values[1:]] for name, values in clock.seconds.items()}
    middle = {name: statistics.median(values) for name, values in taken.items()}
    best = {name: min(values) for name, values in taken.items()}
    turns = f"{chosen.turns - 1} turns of {chosen.updates}"
    print(f"| an update of {batch} latents, ms | best | median of {turns} |\n|---|---|---|")
    for name, label in (("bare", "a bare PyTorch loop"), ("loop", "`darkroom train_generator`")):
        print(f"| {label} | {best[name]:.2f} | {middle[name]:.2f} |")
    extra = {name: 100 * (each["loop"] / each["bare"] - 1) for name, each in (("best", best), ("middle", middle))}
    print(f"| more | {extra['best']:+.1f} % | {extra['middle']:+.1f} % |")


if __name__ == "__main__":
    main()
