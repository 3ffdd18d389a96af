"""Toy: shards in, `models/extractor/` out; it stops and goes on as a real training does, 32 images an update."""

from hashlib import sha256
from pathlib import Path

from darkroom.artifacts.atomic import atomic_folder, write_bytes
from darkroom.params.run import Run
from darkroom.params.section import Section
from darkroom.processes.stopping import interruptible
from darkroom.toy import hold, read
from darkroom.training.state import open_state


class Training(Section):
    """A length, and what the result depends on."""

    images: int
    seed: int


class Settings(Section):
    """The section of this stage."""

    training: Training


class Params(Section):
    """What dvc.yaml gives to it."""

    run: Run
    train_extractor: Settings


def loss(weights: bytes, images: int) -> bytes:
    """Return the weights after an update."""
    return sha256(weights + images.to_bytes(8)).digest()


def run(params: Params) -> None:
    """Train, with a checkpoint after each update."""
    settings = params.train_extractor.training
    with open_state("train_extractor") as state, interruptible() as signals:
        images, weights = 0, read("data/shards") + settings.seed.to_bytes(4)
        for checkpoint in state.glob("images-*/weights"):
            images = max(images, int(checkpoint.parent.name.removeprefix("images-")))
        if images:
            print(f"resumes at image {images} of {settings.images}")
            weights = (state / f"images-{images:08}/weights").read_bytes()
        while images < settings.images:
            hold(f"train_extractor at {images}", lambda: bool(signals))
            if signals:
                print(f"stopped at image {images}")
                raise SystemExit(128 + signals[0])
            images += 32
            print(f"image {images}")
            weights = loss(weights, images)
            write_bytes(state / f"images-{images:08}/weights", weights)
        with atomic_folder(Path("models/extractor")) as folder:
            (folder / "weights").write_bytes(weights)
