"""The network that reads pictures of scenes: which things are there, and where.

It is trained by `train_scene_reader` on renders of its own. It judges, and nothing that generates may learn from it.
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
from darkroom.artifacts.networks import open_network, write_network
from darkroom.metrics.batches import Images, batched
from darkroom.models.evaluators.scene_reader.settings import GRID
from darkroom.models.tokenizers.perceptual import to_rgb

WORDS = ("colour", "form", "size")
_THERE = 0.5  # probability from which a thing is one


class Seen(NamedTuple):
    """A thing in a picture; x, y: its centre, as fractions of the picture's side, to the right and downwards."""

    colour: str
    form: str
    size: str
    x: float
    y: float


class Answer(NamedTuple):
    """What the network says of each cell.

    there: logit of a centre in it, (N, P), P cells row by row.
    place: how far right and down the centre lies in it, in cells, (N, P, 2), float, about 0 to 1.
    words: logits of colour, form and size, each (N, P, values).
    """

    there: Tensor
    place: Tensor
    words: tuple[Tensor, ...]


def _block(inputs: int, width: int, stride: int) -> nn.Sequential:
    """Return convolution, group norm, SiLU: no batch norm, so what is read does not depend on the other images."""
    size = 3 if stride == 1 else 5
    return nn.Sequential(
        nn.Conv2d(inputs, width, size, stride=stride, padding=size // 2, bias=False),
        nn.GroupNorm(math.gcd(8, width), width),
        nn.SiLU(),
    )


class SceneReader(nn.Module):
    """A detector of things on a grid, after YOLO (Redmon et al., 2016, arXiv 1506.02640), without boxes.

    Args:
        words: the values of `colour`, `form` and `size`.
        channels: width of each level; each halves the resolution.
        layers: convolutions behind them, at the resolution of the grid.
    """

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
            self.head.bias[0] = -math.log(GRID**2 / 2 - 1)  # type: ignore[index]  # of the cells about two hold a centre

    def forward(self, x: Tensor) -> Tensor:
        """Return what is said of each cell, (N, P, K), of RGB images x (N, 3, H, H) in [-1, 1]; see `answer`.

        H: a multiple of the cells in height times two to the power of the levels.
        """
        maps = self.levels(x)
        maps = functional.avg_pool2d(maps, maps.shape[2] // GRID)
        return self.head(self.layers(maps)).flatten(2).transpose(1, 2)

    def answer(self, said: Tensor) -> Answer:
        """Return the parts of what is said of each cell, (N, P, K)."""
        there, place, *words = said.float().split(self.sizes, dim=2)
        return Answer(there[..., 0], place, tuple(words))

    def read(self, said: Tensor) -> list[list[Seen]]:
        """Return the things in each picture, of what is said of its cells, (N, P, K); row by row of their cells.

        A thing is in a cell that is likelier than its eight neighbours to hold a centre, where the nine together are
        more likely than not to hold one: a centre on a border is shared between two cells.
        """
        answer = self.answer(said)
        there = answer.there.unflatten(1, (GRID, GRID))  # (N, 8, 8)
        together = 9 * functional.avg_pool2d(there.sigmoid(), 3, 1, 1)
        # By logits: the probabilities of two neighbours may both be rounded to 1.
        found = ((there == functional.max_pool2d(there, 3, 1, 1)) & (together > _THERE)).flatten(1)
        numbers = [each.argmax(dim=2) for each in answer.words]
        things: list[list[Seen]] = [[] for _ in said]
        for picture, cell in found.nonzero().tolist():
            colour, form, size = (
                values[int(each[picture, cell])] for each, values in zip(numbers, self.words.values(), strict=True)
            )
            right, down = answer.place[picture, cell].tolist()
            x, y = (cell % GRID + right) / GRID, (cell // GRID + down) / GRID
            things[picture].append(Seen(colour, form, size, x, y))
        return things

    def prepared(self, images: Tensor) -> Tensor:
        """Return uint8 images (N, C, H, W) as the network sees them, (N, 3, H, W) in [-1, 1]; RGBA over white."""
        return to_rgb(images.float() / 127.5 - 1)

    def save_pretrained(self, folder: Path) -> None:
        """Write `config.json` and `model.safetensors`; equal networks give equal bytes."""
        write_network(folder, self.config, self.state_dict())

    @classmethod
    def from_pretrained(cls, folder: Path) -> "SceneReader":
        """Read a network that `save_pretrained` wrote, in evaluation mode, on the CPU.

        Raises:
            ArtifactError: a file is missing, damaged, or does not fit the other; names it.
        """
        return open_network(folder, lambda config: cls(**config), "reader", "train_scene_reader")


def things_in(
    reader: SceneReader, images: Iterable[Images], batch: int, device: torch.device
) -> Iterator[list[list[Seen]]]:
    """Yield the things seen in each of some uint8 images, which come in groups (n, C, H, W), `batch` at once."""
    network = reader.to(device).eval()
    for said in batched(lambda group: network(network.prepared(group)), images, batch, device):
        yield reader.read(said)


def open_scene_reader(folder: Path, image_shape: tuple[int, int, int]) -> SceneReader:
    """Return the reader in `folder`, in evaluation mode, for images of shape (C, H, W).

    Raises:
        ArtifactError: missing, not trained, damaged, or trained on images of another size.
    """
    manifest = open_artifact(folder, SCENE_READER)
    if not manifest["trained"]:
        raise ArtifactError(
            f"{folder} holds a reader without weights, which was not trained since {manifest['reason']}: run "
            "`dvc repro train_scene_reader`."
        )
    if manifest["image_shape"] != list(image_shape):
        raise ArtifactError(
            f"{folder} was trained for images of shape {manifest['image_shape']}, and these are {list(image_shape)}: "
            "train it for them (`dvc repro train_scene_reader`)."
        )
    return SceneReader.from_pretrained(folder)
