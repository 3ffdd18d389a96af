"""Toy: the model in, samples and a score out."""

from pathlib import Path

from darkroom.artifacts.atomic import atomic_folder, write_json
from darkroom.params.run import Run
from darkroom.params.section import Section
from darkroom.toy import hold, read


class Settings(Section):
    """The section of this stage."""

    seed: int


class Params(Section):
    """What dvc.yaml gives to it."""

    run: Run
    score_generator: Settings


def run(params: Params) -> None:
    """Write samples/generator and metrics/generator.json."""
    hold("score_generator")
    drawn = read("models/extractor") + params.score_generator.seed.to_bytes(4)
    with atomic_folder(Path("samples/generator")) as folder:
        (folder / "grid.png").write_bytes(drawn)
    write_json(Path("metrics/generator.json"), {"fd": sum(drawn)})
