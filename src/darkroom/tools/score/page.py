"""The page of `darkroom score`: one self-contained HTML file, with samples beside the images nearest to them.

These are for people, to look for copies and for faults.
"""

import base64
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from jinja2 import ChoiceLoader, Environment, FileSystemLoader, StrictUndefined
from torch import Tensor

from darkroom import report
from darkroom.artifacts.atomic import json_bytes
from darkroom.data.draw import drawn
from darkroom.data.grid import captioned_grid
from darkroom.metrics.manifold import centred, nearest
from darkroom.metrics.score import Score
from darkroom.report.numbers import Number
from darkroom.tools.score.images import Images, Pixels

if TYPE_CHECKING:
    from darkroom.tools.score.options import Request


NEIGHBOURS, SHOWN = 5, 8
_WIDTH = 1200  # maximum width of a grid, in pixels


class Grid(NamedTuple):
    """A PNG as a data URL, its size, its title and what it shows."""

    url: str
    width: int
    height: int
    title: str
    text: str


class Neighbours(NamedTuple):
    """Grids, and the median distances, in features, to the nearest reference image."""

    grids: list[Grid]
    samples: float
    reference: float


def neighbours(images: Images, features: Tensor, others: Images, reference: Tensor) -> Neighbours:
    """Return the samples that lie nearest to a reference image, and some drawn ones, each with its 5 nearest ones.

    From N samples and M reference images, at least 6, and their features, (N, D) and (M, D).
    """
    real, made = centred(reference, features)
    squares, which = nearest(made, real, NEIGHBOURS)
    own, _ = nearest(real, real, 1, same=True)
    closest = squares[:, 0].argsort(stable=True)[:SHOWN].tolist()
    grids = []
    for title, rows, text in (
        (
            "The samples nearest to a reference image",
            closest,
            "Of a model that copies they are the same picture twice.",
        ),
        ("Samples drawn at random", drawn(len(made), SHOWN, seed=1), "Not chosen by eye."),
    ):
        grids.append(_grid(images, others, rows, which, squares, title, text))
    return Neighbours(grids, float(squares[:, 0].sqrt().median()), float(own[:, 0].sqrt().median()))


def _grid(
    images: Images, others: Images, rows: list[int], which: Tensor, squares: Tensor, title: str, text: str
) -> Grid:
    left, right = taken(images, rows), taken(others, torch.unique(which[rows]).tolist())
    groups = []
    for row in rows:
        found = [right[number] for number in which[row].tolist()]
        groups.append(np.stack([_like(left[row], found[0].shape), *found]))
    captions = [f"distance {squares[row, 0].sqrt().item():.4g}" for row in rows]
    picture = captioned_grid(groups, captions, columns=1)
    picture.thumbnail((_WIDTH, 100 * _WIDTH))
    buffer = BytesIO()
    picture.save(buffer, "PNG", optimize=True)
    url = f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
    return Grid(url, *picture.size, title, text)


def taken(images: Images, rows: list[int]) -> dict[int, Pixels]:
    """Return some images, uint8 (C, H, W), by their numbers."""
    ascending = sorted(set(rows))
    pixels = (image for group in images.batches(64, ascending) for image in group)
    return dict(zip(ascending, pixels, strict=True))


def _like(image: Pixels, shape: tuple[int, ...]) -> Pixels:
    """Return a sample as a reference image is, for a row of a grid: its size by repetition, and its channels.

    A picture for people: scores see images as they are.
    """
    channels, height, width = shape
    rows, columns = (np.arange(to) * of // to for to, of in ((height, image.shape[1]), (width, image.shape[2])))
    image = image[:, rows][:, :, columns]
    if len(image) == channels:
        return image
    if channels == 1:
        return image[:3].mean(axis=0, keepdims=True).astype(np.uint8)
    colour = image[:3] if len(image) >= 3 else image.repeat(3, axis=0)
    return colour if channels == 3 else np.concatenate([colour, np.full_like(colour[:1], 255)])


class Head(NamedTuple):
    """A column: what is scored, how many images, and against how many; for people."""

    title: str
    made: str
    real: str


Row = tuple[Score, Sequence[Number | None]]  # a score, and its value in each column


def page(
    request: "Request",
    heads: Sequence[Head],
    rows: Sequence[Row],
    result: Mapping[str, Any],
    pictures: Neighbours | None,
) -> str:
    """Return the page.

    `heads` are the columns of the table: all samples and, where there is a floor, as many samples as real images, and
    these; `result` is the content of scores.json. `pictures` None: there are no reference images.
    """
    here, common = Path(__file__).parent, Path(str(report.__file__)).parent
    environment = Environment(
        loader=ChoiceLoader([FileSystemLoader(here), FileSystemLoader(common)]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    return environment.get_template("score.html").render(
        request=request,
        heads=heads,
        rows=rows,
        result=result,
        card=json_bytes(result["card"]).decode(),
        pictures=pictures,
        protocol=result["card"]["protocol"],
    )
