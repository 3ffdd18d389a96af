"""The sections that `report` reads."""

from darkroom.models.decoder.settings import Names
from darkroom.params.parts import Parts
from darkroom.params.run import Run
from darkroom.params.section import NO_FILE, Section


class Report(Section):
    """What stands on the page."""

    title: str | None = None
    """Heading of the page; null: Darkroom on the data, by the names of parts, or of sources that read no file."""


class Params(Section):
    """What dvc.yaml gives to `report`."""

    run: Run
    parts: Parts
    train_decoder: Names
    report: Report

    @property
    def heading(self) -> str:
        """The heading of the page."""
        data = dict.fromkeys(part.source if part.path == NO_FILE else name for name, part in self.parts.items())
        return self.report.title or f"Darkroom on {', '.join(data)}"
