"""The sections that `report` reads."""

from darkroom.models.decoder.settings import Names
from darkroom.params.parts import Parts
from darkroom.params.run import Run
from darkroom.params.section import NO_FILE, Section


class Report(Section):
    """The report page."""

    title: str | None = None
    """Heading of the page; null: "Darkroom on" the names of the parts, or of sources that read no file."""


class Params(Section):
    """The parameters of `report`, as dvc.yaml lists them."""

    run: Run
    parts: Parts
    train_decoder: Names
    report: Report

    @property
    def heading(self) -> str:
        """The heading of the page."""
        data = dict.fromkeys(part.source if part.path == NO_FILE else name for name, part in self.parts.items())
        return self.report.title or f"Darkroom on {', '.join(data)}"
