"""Toy: score and samples in, a page out."""

from pathlib import Path

from darkroom.artifacts.atomic import atomic_folder
from darkroom.params.run import Run
from darkroom.params.section import Section
from darkroom.toy import hold, read


class Settings(Section):
    """The section of this stage."""

    title: str


class Params(Section):
    """What dvc.yaml gives to it."""

    run: Run
    report: Settings


def run(params: Params) -> None:
    """Write reports/index.html."""
    hold("report")
    with atomic_folder(Path("reports")) as folder:
        (folder / "index.html").write_bytes(params.report.title.encode() + read("metrics") + read("samples"))
