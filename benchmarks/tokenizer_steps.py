"""What one training step of a tokenizer takes, against the package that it comes from, at the same shapes.

The original packages are installed on demand from PyPI, by name, into `.venv.originals`, which sees what this
repository's environment holds, so that both run the same torch. Both train in one process with 2 threads, in turns of
four steps, on the same images. A step of ours is an update of the real loop: with its clipping,
averages of weights, logged norms and the codebook that moves after it.

Run it on a quiet machine: `.venv/bin/python benchmarks/tokenizer_steps.py [KIND …]`. Prints a Markdown table.
"""

import contextlib
import importlib
import importlib.util
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
import types
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / ".venv.originals"
TURNS, STEPS, THREADS = 5, 4, 2  # four steps a turn: a gradient penalty that is due every fourth is in each

# By kind: the package, and what its autoencoder imports that this repository may not have. Not all that they declare,
# which are the text encoders and trainers of whole systems: `part` loads the one module that is compared.
PACKAGES = {"vqgan": ["muse-maskgit-pytorch==0.3.5", "ema-pytorch"]}

Step = Callable[[], None]


def inside(kinds: list[str]) -> None:
    """Make the environment of the originals, with the packages of some kinds, and start this file again in it."""
    python = HOME / "bin" / "python"
    if not python.exists():
        venv.create(HOME, with_pip=True)
        found = subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            capture_output=True,
            text=True,
            check=True,
        )
        Path(found.stdout.strip(), "ours.pth").write_text(sysconfig.get_path("purelib") + "\n")
    packages = [package for kind in kinds for package in PACKAGES[kind]]
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", *packages], check=True)
    threads = {"OMP_NUM_THREADS": str(THREADS), "MKL_NUM_THREADS": str(THREADS)}
    os.execve(python, [str(python), __file__, *kinds], {**os.environ, **threads, "DARKROOM_ORIGINALS": "1"})


def part(package: str, name: str) -> Any:
    """Return a module of a package, whose `__init__` is not run: it would import all of the package."""
    if package in sys.modules:
        return importlib.import_module(f"{package}.{name}")
    spec = importlib.util.find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        raise SystemExit(f"{package} is not there: remove {HOME}, and try again.")
    bare = types.ModuleType(package)
    bare.__path__ = list(spec.submodule_search_locations)
    sys.modules[package] = bare
    return importlib.import_module(f"{package}.{name}")


class Noise:
    """Images of noise, by row number."""

    def __init__(self, images: int, size: int) -> None:
        import torch

        self.images = torch.randint(0, 256, (images, 3, size, size), dtype=torch.uint8)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.images)

    def __getitems__(self, rows: Any, positions: Any = None) -> dict[str, Any]:
        """Return some of them."""
        return {"images": self.images[list(rows)].numpy()}

    def keys(self, rows: Any) -> list[str]:
        """Return their names."""
        return [str(row) for row in rows]


@contextlib.contextmanager
def ours(recipe: Any, training: Any) -> Iterator[Step]:
    """Give an update of the loop, of `training.batch` images."""
    from darkroom.check import schema
    from darkroom.params import given, validate
    from darkroom.training.trainer import Places, Trainer

    run = validate(schema("train_tokenizer"), given("train_tokenizer")).run  # type: ignore[attr-defined]
    run = run.model_copy(update={"device": "cpu", "micro_batch": None})
    with tempfile.TemporaryDirectory() as folder:
        places = Places(*(Path(folder) / name for name in ("state", "curves", "logs")))
        trainer = Trainer(recipe, training, run, places)
        batches = trainer.batches()
        yield lambda: trainer.update(next(batches))


@contextlib.contextmanager
def vqgan(adversarial: bool, penalty_every: int = 1) -> Iterator[tuple[str, Step, Step]]:
    """Give a step of ours and of MUSE's VQGAN-VAE: 64 px, 1,024 codes, lookup-free; VGG16 has random weights in both.

    MUSE's gradient penalty is asked for every fourth step, and a defect makes it run in each: both are compared.
    """
    import torch
    from ema_pytorch import EMA
    from torchvision.models import vgg16

    from darkroom.metrics.perceptual import untrained
    from darkroom.params import read_yaml
    from darkroom.recipes.vqgan import VQGANRecipe
    from darkroom.schemas.train_tokenizer import TrainTokenizer

    size, batch, width, layers, codes = 64, 8, 32, 3, 1024
    images = Noise(64, size)
    values = read_yaml(Path("params.yaml"))["train_tokenizer"] | {"kind": "vqgan", "teacher": "data/none"}
    values["common"] |= {"threads": THREADS, "batch": batch, "images": 10**6, "log_every": 10**6}
    values["vqgan"] |= {
        "training": {},
        "width": width,
        "layers": layers,
        "residual_blocks": 1,
        "norm_groups": 16,
        "quantiser": "lfq",
        "codebook_size": codes,
        "reconstruction": "l1",
        "perceptual": {"network": "vgg16", "weight": 1.0} if adversarial else {"network": "none", "weight": 0.0},
    }
    values["vqgan"]["lfq"] |= {"entropy_weight": 0.1, "diversity": 4.0, "commitment_weight": 0.0}
    values["vqgan"]["adversarial"] |= {
        "weight": float(adversarial),
        "loss": "hinge_sum",
        "start": 0,
        "adaptive": "perceptual" if adversarial else "taming",
        "channels": [width, width, 2 * width, 4 * width, 8 * width],
        "gradient_penalty": 10.0,
        "gradient_penalty_every": penalty_every,
    }
    settings = TrainTokenizer.model_validate(values)
    perceptual = untrained("vgg16", size) if adversarial else None
    recipe = VQGANRecipe.build(settings.chosen, settings.training, (3, size, size), images, images, perceptual)

    network = vgg16(weights=None)
    network.classifier = network.classifier[:-2]
    for parameter in network.parameters():  # else the optimizer would train it: a defect that is not timed here
        parameter.requires_grad_(False)
    theirs = part("muse_maskgit_pytorch", "vqgan_vae").VQGanVAE(
        dim=width,
        layers=layers,
        codebook_size=codes,
        discr_layers=4,
        use_vgg_and_gan=adversarial,
        vgg=network if adversarial else None,
    )
    judged = set(theirs.discr.parameters()) if adversarial else set()
    made = [value for value in theirs.parameters() if value not in judged and value.requires_grad]
    optimizers = [torch.optim.Adam(group, lr=3e-4) for group in (made, list(judged)) if group]
    average = EMA(theirs, update_after_step=0, update_every=1, ignore_names={"_vgg"})
    data = images.images.float() / 255

    def step() -> None:
        rows = torch.randint(0, len(data), (2, batch))
        theirs(data[rows[0]], return_loss=True).backward()
        optimizers[0].step()
        optimizers[0].zero_grad()
        if adversarial:
            theirs(data[rows[1]], return_discr_loss=True, add_gradient_penalty=True).backward()
            optimizers[1].step()
            optimizers[1].zero_grad()
        average.update()

    with_what = f"VGG16, discriminator, our penalty every {penalty_every}" if adversarial else "bare"
    label = f"{batch} images of {size} px, {codes:,} codes, {with_what}"
    with ours(recipe, settings.training) as update:
        yield f"vqgan against muse-maskgit-pytorch: {label}", update, step


# By kind: what is compared, each giving a label, a step of ours, and a step of theirs.
COMPARISONS: dict[str, list[Callable[[], Any]]] = {
    "vqgan": [lambda: vqgan(False), lambda: vqgan(True), lambda: vqgan(True, 4)],
}


def seconds(step: Step) -> float:
    """Return what a step takes, the mean of a turn."""
    began = time.perf_counter()
    for _ in range(STEPS):
        step()
    return (time.perf_counter() - began) / STEPS


def main(kinds: list[str]) -> None:
    """Compare the steps of some kinds, in turns, and print a table."""
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT / "src"))
    import torch

    torch.set_num_threads(THREADS)
    print("| a training step, ms | ours | theirs | ours / theirs |\n|---|---|---|---|")
    for compare in (each for kind in kinds for each in COMPARISONS[kind]):
        torch.manual_seed(0)
        with contextlib.redirect_stdout(sys.stderr), compare() as (label, update, step):
            taken = [(seconds(update), seconds(step)) for _ in range(1 + TURNS)][1:]
        mine, their = (1e3 * statistics.median(times) for times in zip(*taken, strict=True))
        ratio = statistics.median(one / other for one, other in taken)
        print(f"| {label} | {mine:.0f} | {their:.0f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    chosen = sys.argv[1:] or list(COMPARISONS)
    if "DARKROOM_ORIGINALS" not in os.environ:
        inside(chosen)
    main(chosen)
