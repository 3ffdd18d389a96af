"""Stage `report`: read scores, cards, curves and pictures, and write `reports/index.html`."""

from pathlib import Path

from darkroom.artifacts.atomic import atomic_folder, require_writable, write_bytes
from darkroom.artifacts.manifest import file_hashes, write_manifest
from darkroom.report.inputs import read_inputs
from darkroom.report.page import render
from darkroom.report.settings import Params

OUT = Path("reports")


def run(params: Params) -> None:
    """Write the page as one self-contained HTML file."""
    require_writable(OUT)
    page = render(params.heading, read_inputs(list(params.train_decoder.unets))).encode()
    with atomic_folder(OUT) as folder:
        write_bytes(folder / "index.html", page)
        write_manifest(folder, "report", title=params.heading, files=file_hashes(folder))
    print(f"{OUT / 'index.html'}: {len(page) / 1e3:,.0f} kB")
