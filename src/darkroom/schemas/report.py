"""The sections that `report` reads."""

from darkroom.params import Section
from darkroom.schemas.run import Run
from darkroom.schemas.unet_names import Names


class Report(Section):
    """What stands on the page."""

    title: str


class Params(Section):
    """What dvc.yaml gives to `report`."""

    run: Run
    train_decoder: Names
    report: Report
