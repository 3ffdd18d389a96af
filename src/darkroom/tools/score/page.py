"""The page of `darkroom score`: one self-contained HTML file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, StrictUndefined

from darkroom import report
from darkroom.artifacts.atomic import json_bytes
from darkroom.report.numbers import Number
from darkroom.tools.score.nearest import Neighbours

if TYPE_CHECKING:
    from darkroom.tools.score.command import Request


class Head(NamedTuple):
    """A column: what is scored, how many images, and against how many; for people."""

    title: str
    made: str
    real: str


class Row(NamedTuple):
    """A score: its name in the JSON file, its title, its value in each column, and its meaning."""

    name: str
    title: str
    cells: Sequence[Number | None]
    meaning: str


def page(
    request: "Request",
    heads: Sequence[Head],
    rows: Sequence[Row],
    result: Mapping[str, Any],
    pictures: Neighbours | None,
) -> str:
    """Return the page.

    Args:
        request: what was asked for.
        heads: the columns of the table: all samples and, where there is a floor, as many samples as real images, and
            these.
        rows: the scores.
        result: the content of scores.json.
        pictures: samples with their nearest reference images; None: there are no reference images.
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
