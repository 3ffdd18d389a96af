"""The recipe of the attribute classifier of scenes, trained on renders that are in no data set."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from darkroom.data.images import to_array
from darkroom.data.scenes.attributes import canonical, rightness
from darkroom.data.scenes.captions import describe
from darkroom.data.scenes.rendering import render
from darkroom.data.scenes.scene import COLOURS, FORMS, RADII, Scene, scene
from darkroom.device import to_device
from darkroom.models.evaluators.scene_reader.network import SceneReader, things_in
from darkroom.models.evaluators.scene_reader.settings import GRID, Augment
from darkroom.models.tokenizers.protocol import to_network
from darkroom.rng import normal, random_numbers
from darkroom.training.recipe import Batch, IndexedDataset, Losses, Phase, Recipe

_STREAM = "scene_reader"
_REACH = 2  # radius of the blur kernel in pixels


WORDS: dict[str, tuple[str, ...]] = {"colour": tuple(COLOURS), "form": FORMS, "size": tuple(RADII)}


class Renders:
    """A dataset of scenes, rendered on access: `images` uint8 (N, 3, size, size), `things` float32 (N, 3, 6).

    A thing is 1, x, y and the indices of its colour, form and size in `WORDS`; unused rows are zeros. Each split has
    its own random stream, so the scenes are never those of the source `shapes`. Every other scene is rendered at twice
    the size and reduced, as `ingest` reduces larger images.
    """

    def __init__(self, seed: int, split: str, count: int, size: int, kinds: Sequence[str]) -> None:
        self.seed, self.stream, self.count, self.size, self.kinds = seed, f"{_STREAM}/{split}", count, size, kinds

    def __len__(self) -> int:
        return self.count

    def scene(self, row: int) -> Scene:
        """Return the scene of a row."""
        return scene(self.seed, row, self.kinds, self.stream)

    def __getitems__(self, rows: Sequence[int], positions: NDArray[np.int64] | None = None) -> dict[str, Any]:
        """Return the pictures and the things of some scenes, without augmentation."""
        scenes = [self.scene(int(row)) for row in rows]
        things = np.zeros((len(rows), 3, 6), dtype=np.float32)
        for place, each in enumerate(scenes):
            for number, thing in enumerate(each.objects):
                numbers = (values.index(getattr(thing, name)) for name, values in WORDS.items())
                things[place, number] = 1, thing.x, thing.y, *numbers
        pictures = [
            render(each, 2 * self.size).resize((self.size, self.size), Image.Resampling.BICUBIC)
            if row % 2
            else render(each, self.size)
            for each, row in zip(scenes, rows, strict=True)
        ]
        return {"images": np.stack([to_array(picture) for picture in pictures]), "things": things}

    def keys(self, rows: Sequence[int]) -> list[str]:
        """Return the stream and number of each scene."""
        return [f"{self.stream}/{row}" for row in rows]


def accuracy(model: SceneReader, renders: Renders, batch: int, device: torch.device) -> dict[str, float]:
    """Return for each attribute the fraction of renders for which the prediction agrees with the caption."""
    said = [canonical(describe(renders.scene(row))) for row in range(len(renders))]
    groups = (range(at, min(at + batch, len(renders))) for at in range(0, len(renders), batch))
    images = (renders.__getitems__(group)["images"] for group in groups)
    seen = (each for group in things_in(model, images, batch, device) for each in group)
    return {name: fmean(values) for name, values in rightness(said, seen).items()}


def blurred(x: Tensor, sigma: Tensor) -> Tensor:
    """Return images x (N, C, H, W), each blurred by a Gaussian with its own sigma (N,) in pixels, cut at 2 pixels.

    A sigma of 0 means no blur; the padding repeats the edge.
    """
    offsets = torch.arange(-_REACH, _REACH + 1, device=x.device)
    weights = torch.exp(-(offsets**2) / (2 * sigma.clamp(min=0.05)[:, None] ** 2))  # (N, 5)
    weights = (weights / weights.sum(dim=1, keepdim=True))[..., None, None, None]
    for axis in (2, 3):
        size, edges = x.shape[axis], [0, 0, _REACH, _REACH] if axis == 2 else [_REACH, _REACH, 0, 0]
        wide = functional.pad(x, edges, mode="replicate")
        x = torch.stack([weights[:, at] * wide.narrow(axis, at, size) for at in range(len(offsets))]).sum(dim=0)
    return x


class SceneReaderRecipe(Recipe):
    """L = Σ_cells BCE(there) + mean over things of |place - target|² + CE(colour) + CE(form) + CE(size).

    `accuracy` is the fraction of a picture's things whose colour, form and size are right, at the cell of their centre.

    Args:
        model: the network.
        augment: the augmentation of training pictures, since generated pictures are not perfectly clean.
        seed: the seed of the training.
        train: the training dataset, with `images` and `things`.
        val: the validation dataset, with the same columns.
    """

    knows_length = True  # each picture is rendered once

    def __init__(
        self, model: SceneReader, augment: Augment, seed: int, train: IndexedDataset, val: IndexedDataset
    ) -> None:
        self.model, self.augment, self.seed = model, augment, seed
        self.train, self.val = train, val
        self.modules: dict[str, nn.Module] = {_STREAM: model}
        self.phases = (Phase(_STREAM, self.loss),)

    def loss(self, batch: Batch) -> Losses:
        """Return the loss and the accuracy of augmented pictures."""
        x = self.augmented(to_network(batch.data["images"]), batch.positions.tolist())
        return {name: values.mean() for name, values in self._scores(x, batch.data["things"]).items()}

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """Return loss and accuracy of each picture, (N,), without augmentation."""
        return self._scores(to_network(batch.data["images"]), batch.data["things"])

    def augmented(self, x: Tensor, positions: Sequence[int]) -> Tensor:
        """Return pictures (N, 3, H, W) in [-1, 1] with blur, changed colours and noise of random strengths.

        Each channel v becomes (1 + a) v + b, |a| and |b| up to `colour`.
        """
        numbers = random_numbers(self.seed, f"{_STREAM}/augment", positions, 0, 8)[1].astype(np.float32)
        sigma, deviation, gain, offset = to_device(numbers, x.device).split([1, 1, 3, 3], dim=1)
        x = blurred(x, self.augment.blur * sigma[:, 0])
        gain, offset = (self.augment.colour * (2 * each[..., None, None] - 1) for each in (gain, offset))
        grain = to_device(normal(self.seed, f"{_STREAM}/noise", positions, tuple(x.shape[1:])), x.device)
        return ((1 + gain) * x + offset + self.augment.noise * deviation[..., None, None] * grain).clamp(-1, 1)

    def _scores(self, x: Tensor, things: Tensor) -> dict[str, Tensor]:
        answer = self.model.answer(self.modules[_STREAM](x))
        there, centre = things[..., 0], things[..., 1:3] * GRID  # (N, 3), (N, 3, 2)
        cell = centre.floor().long()
        # By products with zeros and ones: on CUDA, picking by index has no gradient that is the same each time.
        at = functional.one_hot(cell[..., 1] * GRID + cell[..., 0], GRID**2).float()  # (N, 3, P)
        wanted = (at * there[..., None]).sum(dim=1)
        found = functional.binary_cross_entropy_with_logits(answer.there, wanted, reduction="none").sum(dim=1)
        errors, right = (at @ answer.place - (centre - cell)).square().sum(dim=2), torch.ones_like(there)
        for logits, number in zip(answer.words, things[..., 3:].long().unbind(dim=2), strict=True):
            here = at @ logits  # (N, 3, values)
            missed = functional.cross_entropy(here.flatten(0, 1), number.flatten(), reduction="none")
            errors = errors + missed.view_as(errors)
            right = right * (here.argmax(dim=2) == number)
        count = there.sum(dim=1)
        return {"loss": found + (errors * there).sum(dim=1) / count, "accuracy": (right * there).sum(dim=1) / count}
