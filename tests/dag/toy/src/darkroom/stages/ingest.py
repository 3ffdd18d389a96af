"""Toy: a folder of text in, a shard out."""

from pathlib import Path

from darkroom.artifacts.atomic import atomic_folder
from darkroom.params.ingest import Params
from darkroom.toy import hold


def run(params: Params, part: str) -> None:
    """Write data/shards/PART."""
    hold(f"ingest@{part}")
    texts = [path.read_text() for path in sorted(Path(params.parts[part].path).iterdir())]
    with atomic_folder(Path("data/shards") / part) as folder:
        (folder / "shard").write_text("".join([f"quality {params.ingest.quality}\n", *texts]))
