"""The attribute classifier of rendered scenes: a detector of things and their positions.

It is an evaluator: `train_scene_reader` trains it on renders of its own, and no generator may be trained with it.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from darkroom.artifacts.manifest import ArtifactError, open_artifact
from darkroom.artifacts.models import SCENE_READER
from darkroom.artifacts.networks import SavedNetwork
from darkroom.metrics.batches import Images, batched
from darkroom.models.evaluators.scene_reader.settings import GRID
from darkroom.models.tokenizers.perceptual import to_rgb

WORDS = ("colour", "form", "size")
_THERE = 0.5  # minimum probability of a detected thing


class Detection(NamedTuple):
    """A detected thing; x, y: its centre, as fractions of the picture's side, from the left and from the top."""

    colour: str
    form: str
    size: str
    x: float
    y: float


class CellOutputs(NamedTuple):
    """The output of the network for each cell.

    there: the logit of a centre in the cell, (N, P), P cells row by row.
    place: the position x, y of the centre within the cell, in cells, (N, P, 2), about 0 to 1.
    words: the logits of colour, form and size, each (N, P, values).
    """

    there: Tensor
    place: Tensor
    words: tuple[Tensor, ...]


def _block(inputs: int, width: int, stride: int) -> nn.Sequential:
    """Return convolution, group norm, SiLU: no batch norm, so outputs do not depend on the other images of a batch."""
    size = 3 if stride == 1 else 5
    return nn.Sequential(
        nn.Conv2d(inputs, width, size, stride=stride, padding=size // 2, bias=False),
        nn.GroupNorm(math.gcd(8, width), width),
        nn.SiLU(),
    )


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
        self.levels = nn.Sequential(*(_block(*widths, 2) for widths in pairwise([3, *channels])))
        self.layers = nn.Sequential(*(_block(channels[-1], channels[-1], 1) for _ in range(layers)))
        self.sizes = [1, 2, *(len(values) for values in self.words.values())]
        self.head = nn.Conv2d(channels[-1], sum(self.sizes), 1)
        with torch.no_grad():
            self.head.bias[0] = -math.log(GRID**2 / 2 - 1)  # type: ignore[index]  # about two of the cells hold a centre

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of each cell, (N, P, K), for RGB images x (N, 3, H, H) in [-1, 1]; see `answer`.

        H must be a multiple of `GRID` times two to the power of the number of levels.
        """
        maps = self.levels(x)
        maps = functional.avg_pool2d(maps, maps.shape[2] // GRID)
        return self.head(self.layers(maps)).flatten(2).transpose(1, 2)

    def answer(self, said: Tensor) -> CellOutputs:
        """Split the outputs of each cell, (N, P, K), into their parts."""
        there, place, *words = said.float().split(self.sizes, dim=2)
        return CellOutputs(there[..., 0], place, tuple(words))

    def read(self, said: Tensor) -> list[list[Detection]]:
        """Return the detected things of each picture from the outputs (N, P, K), in the order of their cells.

        A thing is detected in a cell with a higher probability of a centre than its eight neighbours, where the
        probability of a centre in the nine cells together is above one half: a centre on a border belongs to two cells.
        """
        answer = self.answer(said)
        there = answer.there.unflatten(1, (GRID, GRID))  # (N, 8, 8)
        together = 9 * functional.avg_pool2d(there.sigmoid(), 3, 1, 1)
        # By logits: the probabilities of two neighbours may both be rounded to 1.
        found = ((there == functional.max_pool2d(there, 3, 1, 1)) & (together > _THERE)).flatten(1)
        numbers = [each.argmax(dim=2) for each in answer.words]
        things: list[list[Detection]] = [[] for _ in said]
        for picture, cell in found.nonzero().tolist():
            colour, form, size = (
                values[int(each[picture, cell])] for each, values in zip(numbers, self.words.values(), strict=True)
            )
            right, down = answer.place[picture, cell].tolist()
            x, y = (cell % GRID + right) / GRID, (cell // GRID + down) / GRID
            things[picture].append(Detection(colour, form, size, x, y))
        return things

    def prepared(self, images: Tensor) -> Tensor:
        """Return uint8 images (N, C, H, W) as network input, (N, 3, H, W) in [-1, 1]; RGBA is composited over white."""
        return to_rgb(images.float() / 127.5 - 1)


def things_in(
    reader: SceneReader, images: Iterable[Images], batch: int, device: torch.device
) -> Iterator[list[list[Detection]]]:
    """Yield the detected things of uint8 images in groups (n, C, H, W), computed at a fixed batch size."""
    network = reader.to(device).eval()
    for said in batched(lambda group: network(network.prepared(group)), images, batch, device):
        yield reader.read(said)


def open_scene_reader(folder: Path, image_shape: tuple[int, int, int]) -> SceneReader:
    """Return the attribute classifier in `folder`, in evaluation mode, for images of shape (C, H, W).

    Raises:
        ArtifactError: missing, not trained, damaged, or trained on images of another size.
    """
    manifest = open_artifact(folder, SCENE_READER)
    if not manifest["trained"]:
        raise ArtifactError(
            f"{folder} holds an attribute classifier that was not trained, because {manifest['reason']}: run "
            "`dvc repro train_scene_reader`."
        )
    if manifest["image_shape"] != list(image_shape):
        raise ArtifactError(
            f"{folder} was trained for images of shape {manifest['image_shape']}, and these are {list(image_shape)}: "
            "train it for them (`dvc repro train_scene_reader`)."
        )
    return SceneReader.from_pretrained(folder)
