"""A project with shards of parts, latents of them and a catalog, in the working folder."""

import io
from contextlib import redirect_stdout
from pathlib import Path

import yaml

from darkroom.cli import main
from darkroom.data.catalog_writer import write_catalog
from darkroom.data.latents import LATENT_PARTS
from darkroom.data.layout import SHARDS
from data.making import SHARES, make_latents, make_part

ROOT = Path(__file__).parents[2]
CATALOG = Path("data/catalog")


def configure(*parts: str) -> None:
    """Write params.yaml, the clone's with these parts and the splits of `make_part`."""
    values = yaml.safe_load((ROOT / "params.yaml").read_text())
    values["parts"] = {part: {"source": "digits", "path": "data/none"} for part in parts}
    values["ingest"]["splits"] = SHARES
    Path("params.yaml").write_text(yaml.safe_dump(values))


def catalogue(*parts: str) -> None:
    """Write the catalog."""
    CATALOG.mkdir(parents=True, exist_ok=True)
    write_catalog(CATALOG, sorted(parts), 9)


def project(**parts: tuple[int, int]) -> None:
    """Write params.yaml, and for each part shards of the noise images in a range, latents, and the catalog."""
    configure(*parts)
    for part, (start, stop) in parts.items():
        make_part(SHARDS, part, start, stop)
        make_latents(SHARDS, LATENT_PARTS, part)
    catalogue(*parts)


def said(*words: str) -> tuple[int, str]:
    """Return the exit code of `darkroom data …`, and what it printed on the standard output."""
    stream = io.StringIO()
    with redirect_stdout(stream):
        code = main(["data", *words])
    return code, stream.getvalue()
