"""The sections that `report` reads."""

from darkroom.models.decoder.settings import Names
from darkroom.params.run import Run
from darkroom.params.section import Section


class Report(Section):
    """What stands on the page."""

    title: str = "Darkroom"
    """Heading of the page."""


class Params(Section):
    """What dvc.yaml gives to `report`."""

    run: Run
    train_decoder: Names
    report: Report
