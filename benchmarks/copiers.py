"""What the panel of memorisation says of deliberate copiers, of an honest model, and of held-out images.

`.venv/bin/python benchmarks/copiers.py` prints two Markdown tables, of scikit-learn's digits at 32 pixels and of
rendered scenes, and what the search costs. The copiers make training images with noise, moved, mirrored, all of it, or
one in ten; the honest model makes images of the same distribution that nothing else holds. Features are those of a
small classifier, trained here on the training images for seconds.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_digits
from torch.nn import functional

from darkroom.data.draw import drawn
from darkroom.data.scenes.rendering import render
from darkroom.data.scenes.scene import COLOURS, scene
from darkroom.metrics.memorisation import Panel, memorisation
from darkroom.metrics.sample_scores import SPACES
from darkroom.models.evaluators.extractor import Classifier

Pixels = NDArray[np.uint8]
CPU = torch.device("cpu")
NOISE = 8.0  # grey levels
HELD_OUT = "held-out images"


@dataclass(frozen=True)
class Set:
    """Images in memory, uint8 (N, C, H, W)."""

    images: Pixels

    def __len__(self) -> int:
        return len(self.images)

    def __getitems__(self, rows: list[int]) -> Pixels:
        """Return the images of some rows."""
        return self.images[list(rows)]


def digits(count: int) -> tuple[Pixels, NDArray[np.int64]]:
    """Return digits of scikit-learn, (N, 1, 32, 32), in random order, and their classes."""
    found = load_digits()
    large = [np.asarray(Image.fromarray((one * 15).astype(np.uint8)).resize((32, 32), 3)) for one in found.images]
    rows = drawn(len(large), count)
    return np.stack(large)[rows, None], found.target[rows]


def shapes(count: int) -> tuple[Pixels, NDArray[np.int64]]:
    """Return rendered scenes, (N, 3, 32, 32), and the colour of the first thing in each."""
    scenes = [scene(0, number) for number in range(count)]
    names = list(COLOURS)
    pictures = np.stack([np.asarray(render(one, 32)) for one in scenes]).transpose(0, 3, 1, 2)
    return pictures, np.array([names.index(one.objects[0].colour) for one in scenes])


def classifier(images: Pixels, labels: NDArray[np.int64], epochs: int) -> Classifier:
    """Return a small classifier, trained on these images."""
    torch.manual_seed(0)
    network = Classifier(images.shape[1], int(labels.max()) + 1, [16, 32, 64], 64)
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
    for epoch in range(epochs):
        for rows in torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch)).split(50):
            logits = network(torch.from_numpy(images[rows.numpy()]))
            loss = functional.cross_entropy(logits, torch.from_numpy(labels[rows.numpy()]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return network.eval()


def made(train: Pixels, fresh: Pixels) -> Iterator[tuple[str, Pixels]]:
    """Yield what each model makes, as many images as `fresh` has."""
    source = train[: len(fresh)]
    noise = np.random.default_rng(0).normal(size=source.shape) * NOISE

    def noisy(images: Pixels) -> Pixels:
        return np.clip(np.round(images + noise), 0, 255).astype(np.uint8)

    moved, mirrored = np.roll(source, (2, -1), (2, 3)), source[..., ::-1].copy()
    yield "an honest model", fresh
    yield "copies with noise", noisy(source)
    yield "copies, moved by 2 and 1 pixels", moved
    yield "copies, mirrored", mirrored
    yield "copies, moved, mirrored, with noise", noisy(moved[..., ::-1])
    yield "one in ten copied, with noise", np.concatenate([noisy(source)[::10], fresh[len(source[::10]) :]])


def panels(
    images: Pixels, labels: NDArray[np.int64], train: int, count: int, epochs: int
) -> Iterator[tuple[str, Panel]]:
    """Yield what each model gets: of `images` the first `train` are trained on, 2 · `count` are held out and fresh."""
    network = classifier(images[:train], labels[:train], epochs)

    def features(batch: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return network.features(batch).clone()

    known, held_out, fresh = images[:train], images[train : train + count], images[train + count : train + 2 * count]
    for name, pixels in made(known, fresh):
        rows = list(range(count))
        yield name, memorisation(
            (Set(pixels), rows), (Set(held_out), rows), Set(known), drawn(train, count), features,
            batch=100, blocks=10, with_gaps=True, device=CPU,
        )  # fmt: skip


def table(found: list[tuple[str, Panel]]) -> str:
    """Return the panels as a Markdown table, the floor last."""
    heads = [f"copies, {space}" for space in SPACES] + [f"C_T, {space}" for space in SPACES] + ["fd gap", "kid gap"]
    names = [f"copies_{space}" for space in SPACES] + [f"ct_{space}" for space in SPACES]
    lines = [f"| images | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|"]
    for name, scores in [*((name, panel.scores) for name, panel in found), (HELD_OUT, found[0][1].floor)]:
        shares = [f"{scores[each]:.1%}" if each.startswith("copies") else f"{scores[each]:.1f}" for each in names]
        gaps = [
            f"{scores[each]:.2f} ± {scores[f'{each}_se']:.2f}" if each in scores else ""
            for each in ("fd_gap", "kid_gap")
        ]
        lines.append(f"| {name} | {' | '.join([*shares, *gaps])} |")
    return "\n".join(lines)


def cost(images: int, train: int) -> str:
    """Return how long the search takes, of random images 32 x 32 x 3 held in memory, one thread."""
    pixels = np.random.default_rng(0).integers(0, 256, (train + images, 3, 32, 32), dtype=np.uint8)
    network = Classifier(3, 10, [16, 32, 64], 64).eval()

    def features(batch: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return network.features(batch).clone()

    rows, began = list(range(images)), time.perf_counter()
    memorisation(
        (Set(pixels[train:]), rows), (Set(pixels[train:]), rows[:2]), Set(pixels[:train]), [], features,
        batch=64, blocks=10, with_gaps=False, device=CPU,
    )  # fmt: skip
    return f"{images:,} images among {train:,}: {time.perf_counter() - began:.1f} s"


def main() -> None:
    """Print the tables and the cost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=int, default=1000)
    parser.add_argument("--images", type=int, default=390, help="made by each model, held out, and honest")
    parser.add_argument("--epochs", type=int, default=6, help="of the classifier")
    parser.add_argument("--cost", type=int, nargs=2, default=(1000, 10000), help="images, and training images")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name, source in (("digits", digits), ("shapes", shapes)):
        images, labels = source(args.train + 2 * args.images)
        print(f"{name}: {args.train:,} training images, {args.images:,} of each set\n")
        print(table(list(panels(images, labels, args.train, args.images, args.epochs))), end="\n\n")
    print(cost(*args.cost))


if __name__ == "__main__":
    main()
