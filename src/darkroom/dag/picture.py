"""`darkroom dag`: keeps docs/dag.svg, the picture of dvc.yaml.

The picture is committed, because the page shows it, and DVC refuses dvc.yaml as a dependency of a stage.
"""

from pathlib import Path

from darkroom.artifacts.atomic import write_bytes
from darkroom.dag.drawing import draw
from darkroom.dag.graph import read_graph
from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.stage import DVC, read_yaml

PICTURE = Path("docs/dag.svg")


def dag(write: bool) -> str:
    """Write docs/dag.svg, or check that it is up to date; return a line for the terminal.

    Raises:
        DarkroomError: params.yaml or dvc.yaml cannot be read, or the picture is missing or out of date.
    """
    graph = read_graph(read_yaml(PARAMS), read_yaml(DVC))
    picture = draw(graph).encode()
    if write:
        write_bytes(PICTURE, picture)
    elif not PICTURE.is_file() or PICTURE.read_bytes() != picture:
        raise DarkroomError(f"{PICTURE} is not the picture of {DVC}: run `darkroom dag --write` and commit it.")
    stages = f"the {len(graph.stages)} stages of {DVC} behind `code`"
    return f"{PICTURE} shows {stages} and the {len(graph.edges)} edges between them."
