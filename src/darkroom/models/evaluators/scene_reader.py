"""The attribute classifier of rendered scenes: a detector of things and their positions, and its training.

It is an evaluator: `train_scene_reader` trains it on its own renders, which are in no data set, and no generator may
be trained with it.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from darkroom.artifacts.manifest import ArtifactError, open_artifact
from darkroom.artifacts.models import SCENE_READER
from darkroom.artifacts.networks import SavedNetwork
from darkroom.data.images import to_array
from darkroom.data.scenes.attributes import Detection, canonical, rightness
from darkroom.data.scenes.captions import describe
from darkroom.data.scenes.rendering import render
from darkroom.data.scenes.scene import COLOURS, FORMS, RADII, Scene, scene
from darkroom.device import to_device
from darkroom.metrics.batches import Images, batched
from darkroom.models.evaluators.extractor import block
from darkroom.models.evaluators.settings import GRID, ReaderAugment
from darkroom.models.tokenizers.perceptual import to_rgb
from darkroom.models.tokenizers.protocol import to_network
from darkroom.rng import normal, random_numbers
from darkroom.training.recipe import Batch, IndexedDataset, Losses, Phase, Recipe

WORDS: dict[str, tuple[str, ...]] = {"colour": tuple(COLOURS), "form": FORMS, "size": tuple(RADII)}
_THERE = 0.5  # minimum probability of a detected thing


class CellOutputs(NamedTuple):
    """The output of the network for each cell.

    centre: the logit of a centre in the cell, (N, P), P cells row by row.
    place: the position x, y of the centre within the cell, in cells, (N, P, 2), about 0 to 1.
    words: the logits of colour, form and size, each (N, P, values).
    """

    centre: Tensor
    place: Tensor
    words: tuple[Tensor, ...]


class SceneReader(SavedNetwork):
    """A detector of things on a grid, after YOLO (Redmon et al., 2016, arXiv 1506.02640), without boxes.

    Args:
        words: the values of `colour`, `form` and `size`.
        channels: the width of each level; each level halves the resolution.
        layers: the number of convolutions after the levels, at the resolution of the grid.
    """

    made_by = ("reader", "train_scene_reader")

    def __init__(self, words: Mapping[str, Sequence[str]], channels: list[int], layers: int) -> None:
        super().__init__()
        self.words = {name: tuple(words[name]) for name in WORDS}
        self.config: dict[str, Any] = {
            "words": {name: list(values) for name, values in self.words.items()},
            "channels": list(channels),
            "layers": layers,
        }
        self.levels = nn.Sequential(*(block(*widths, 2, 5) for widths in pairwise([3, *channels])))
        self.layers = nn.Sequential(*(block(channels[-1], channels[-1], 1) for _ in range(layers)))
        self.sizes = [1, 2, *(len(values) for values in self.words.values())]
        self.head = nn.Conv2d(channels[-1], sum(self.sizes), 1)
        with torch.no_grad():
            self.head.bias[0] = -math.log(GRID**2 / 2 - 1)  # type: ignore[index]  # about two of the cells hold a centre

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of each cell, (N, P, K), for RGB images x (N, 3, H, H) in [-1, 1]; see `answer`.

        Other sizes than multiples of `GRID` times two to the power of the number of levels are enlarged to the next.
        """
        if gap := -x.shape[2] % (GRID * 2 ** len(self.levels)):
            x = functional.interpolate(x, size=x.shape[2] + gap, mode="bilinear")
        maps = self.levels(x)
        maps = functional.avg_pool2d(maps, maps.shape[2] // GRID)
        return self.head(self.layers(maps)).flatten(2).transpose(1, 2)

    def answer(self, outputs: Tensor) -> CellOutputs:
        """Split the outputs of each cell, (N, P, K), into their parts."""
        centre, place, *words = outputs.float().split(self.sizes, dim=2)
        return CellOutputs(centre[..., 0], place, tuple(words))

    def read(self, outputs: Tensor) -> list[list[Detection]]:
        """Return the detected things of each picture from the outputs (N, P, K), in the order of their cells.

        A thing is detected in a cell with a higher probability of a centre than its eight neighbours, where the
        probability of a centre in the nine cells together is above one half: a centre on a border belongs to two cells.
        """
        answer = self.answer(outputs)
        centre = answer.centre.unflatten(1, (GRID, GRID))  # (N, 8, 8)
        together = 9 * functional.avg_pool2d(centre.sigmoid(), 3, 1, 1)
        # By logits: the probabilities of two neighbours may both be rounded to 1.
        detected = ((centre == functional.max_pool2d(centre, 3, 1, 1)) & (together > _THERE)).flatten(1)
        numbers = [each.argmax(dim=2) for each in answer.words]
        things: list[list[Detection]] = [[] for _ in outputs]
        for picture, cell in detected.nonzero().tolist():
            colour, form, size = (
                values[int(each[picture, cell])] for each, values in zip(numbers, self.words.values(), strict=True)
            )
            right, down = answer.place[picture, cell].tolist()
            x, y = (cell % GRID + right) / GRID, (cell // GRID + down) / GRID
            things[picture].append(Detection(colour, form, size, x, y))
        return things

    def prepared(self, images: Tensor) -> Tensor:
        """Return uint8 images (N, C, H, W) as network input, (N, 3, H, W) in [-1, 1]; RGBA is composited on white."""
        return to_rgb(to_network(images))


def things_in(
    reader: SceneReader, images: Iterable[Images], batch: int, device: torch.device
) -> Iterator[list[list[Detection]]]:
    """Yield the detected things of uint8 images in groups (n, C, H, W), computed at a fixed batch size."""
    network = reader.to(device).eval()
    for outputs in batched(lambda group: network(network.prepared(group)), images, batch, device):
        yield reader.read(outputs)


def open_scene_reader(folder: Path, image_shape: tuple[int, int, int]) -> SceneReader:
    """Return the attribute classifier in `folder`, in evaluation mode, for images of shape (C, H, W).

    Raises:
        ArtifactError: missing, not trained, damaged, or trained on images of another size.
    """
    manifest = open_artifact(folder, SCENE_READER, image_shape)
    if not manifest["trained"]:
        raise ArtifactError(
            f"{folder} was not trained, because {manifest['reason']}: run `dvc repro train_scene_reader`."
        )
    return SceneReader.from_pretrained(folder)


_STREAM = "scene_reader"
_REACH = 2  # radius of the blur kernel in pixels


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
    """Return the fraction of renders whose prediction agrees with the caption, for each attribute."""
    captions = [canonical(describe(renders.scene(row))) for row in range(len(renders))]
    groups = (range(at, min(at + batch, len(renders))) for at in range(0, len(renders), batch))
    images = (renders.__getitems__(group)["images"] for group in groups)
    detections = (each for group in things_in(model, images, batch, device) for each in group)
    return {name: fmean(values) for name, values in rightness(captions, detections).items()}


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
    """L = Σ_cells BCE(centre) + mean over things of |place - target|² + CE(colour) + CE(form) + CE(size).

    `accuracy` is the fraction of a picture's things whose colour, form and size are right, at the cell of their centre.

    Args:
        augment: the augmentation of training pictures, since generated pictures are not perfectly clean.
        train, val: datasets with `images` and `things`.
    """

    knows_length = True  # each picture is rendered once

    def __init__(
        self, model: SceneReader, augment: ReaderAugment, seed: int, train: IndexedDataset, val: IndexedDataset
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
        present, centre = things[..., 0], things[..., 1:3] * GRID  # (N, 3), (N, 3, 2)
        cell = centre.floor().long()
        # By products with zeros and ones: on CUDA, picking by index has no gradient that is the same each time.
        at = functional.one_hot(cell[..., 1] * GRID + cell[..., 0], GRID**2).float()  # (N, 3, P)
        targets = (at * present[..., None]).sum(dim=1)
        loss = functional.binary_cross_entropy_with_logits(answer.centre, targets, reduction="none").sum(dim=1)
        errors, right = (at @ answer.place - (centre - cell)).square().sum(dim=2), torch.ones_like(present)
        for logits, number in zip(answer.words, things[..., 3:].long().unbind(dim=2), strict=True):
            here = at @ logits  # (N, 3, values)
            missed = functional.cross_entropy(here.flatten(0, 1), number.flatten(), reduction="none")
            errors = errors + missed.view_as(errors)
            right = right * (here.argmax(dim=2) == number)
        count = present.sum(dim=1)
        return {"loss": loss + (errors * present).sum(dim=1) / count, "accuracy": (right * present).sum(dim=1) / count}
