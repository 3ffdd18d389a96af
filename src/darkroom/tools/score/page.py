"""The page of `darkroom score`: one self-contained HTML file."""

# No effect on any output: writes where a person says

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


class Row(NamedTuple):
    """A score: its name in the JSON file, its title, its value, what real images get, and its meaning."""

    name: str
    title: str
    value: Number
    floor: Number | None
    meaning: str

    @property
    def cells(self) -> tuple[Number | None, ...]:
        """The numbers from left to right."""
        return self.value, self.floor


def page(request: "Request", rows: Sequence[Row], result: Mapping[str, Any], pictures: Neighbours | None) -> str:
    """Return the page.

    Args:
        request: what was asked for.
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
        rows=rows,
        result=result,
        card=json_bytes(result["card"]).decode(),
        pictures=pictures,
        protocol=result["card"]["protocol"],
    )
