"""A project with shards of parts, latents of them and a catalog, in the working folder."""

import io
import shutil
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml
from dvc.cli import main as dvc

from darkroom.check.check import read_params
from darkroom.cli import main
from darkroom.data.catalog_writer import write_catalog
from darkroom.data.latents import LATENT_PARTS
from darkroom.data.layout import SHARDS
from darkroom.data.parts import write_part
from darkroom.data.pipeline import outcomes
from darkroom.data.sources.webdataset import Webdataset
from data.making import RULES, SHARES, make_latents, make_part, policy, preparation
from data.making_tars import settings
from helpers import DIGITS

ROOT = Path(__file__).parents[3]
CATALOG = Path("data/catalog")


def configure(*parts: str) -> None:
    """Write params.yaml, the clone's with these parts and the splits of `make_part`, and dvc.yaml."""
    shutil.copy(ROOT / "dvc.yaml", "dvc.yaml")
    values = read_params(DIGITS)
    values["parts"] = {part: {"source": "digits", "path": "data/none"} for part in parts}
    values["ingest"]["splits"] = SHARES
    Path("params.yaml").write_text(yaml.safe_dump(values))


def catalogue(*parts: str) -> None:
    """Write the catalog."""
    CATALOG.mkdir(parents=True, exist_ok=True)
    write_catalog(CATALOG, sorted(parts))


def record(**stages: dict[str, Any]) -> None:
    """Write the shards of all parts, and the outputs of further stages, to dvc.lock and DVC's cache."""
    ingest = {"cmd": "true", "outs": ["data/shards/${key}"]}
    stages["ingest"] = {"foreach": "${parts}", "do": ingest}
    Path("dvc.yaml").write_text(yaml.safe_dump({"stages": stages}))
    assert dvc(["init", "-q", "--no-scm"]) == dvc(["commit", "-q", "-f"]) == 0


def project(**parts: tuple[int, int]) -> None:
    """Write params.yaml, and for each part shards of the noise images in a range, latents, and the catalog."""
    configure(*parts)
    for part, (start, stop) in parts.items():
        make_part(SHARDS, part, start, stop)
        make_latents(SHARDS, LATENT_PARTS, part)
    catalogue(*parts)


def index_in_place(part: str, path: Path | None, rules: Mapping[str, str] = RULES, **changes: Any) -> None:
    """Write a part whose images stay in the tars of `path`, or of a URL."""
    source, how = Webdataset(settings(**changes), path), preparation()
    (SHARDS / part).mkdir(parents=True)
    found = outcomes(source, source.entries(0, None), how, processes=1, store=False)
    rule, metadata = policy(rules=rules), {"name": "webdataset", **source.metadata()}
    write_part(SHARDS / part, part, found, metadata, how, rule, 1, False, Path("logs"), source.tars)


def rows_of(part: str, split: str) -> list[dict[str, Any]]:
    """Return the rows of an index."""
    return pq.read_table(SHARDS / part / split / "index.parquet").to_pylist()


def said(*words: str) -> tuple[int, str]:
    """Return the exit code of `darkroom verify …` or `darkroom data …`, and what it printed."""
    stream = io.StringIO()
    with redirect_stdout(stream):
        code = main(words)
    return code, stream.getvalue()
