"""A person's own folder as a part, through the whole DAG: adding it costs that part."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from dag.sandbox import ENGINES, Sandbox

# Most of the DAG: minutes. What a folder becomes is tested without the engines in tests/data and tests/stages.
pytestmark = pytest.mark.slow

IMAGES = 100
# All but the tokenizer, which is trained on the parts that params.yaml names, the latents of these, their
# embeddings, as CLIP learns nothing of images without captions, and the reader of scenes, which no score asks for.
BELOW = {
    "ingest@third",
    "encode_latents@third",
    "catalog",
    "score_tokenizer",
    "score_tokenizer_samples",
    "train_extractor",
    "reference_stats",
    "train_generator",
    "sample_generator",
    "score_generator",
    "train_clip",
    "embed_clip@third",
    "train_decoder@base",
    "train_decoder@up",
    "sample_decoder",
    "score_decoder",
    "train_prior",
    "sample_text",
    "score_text",
    "report",
}


def draw(folder: Path, first: int = 1500) -> None:
    """Write 100 real digits as PNG files into class folders."""
    images, labels = load_digits(return_X_y=True)
    for number in range(first, first + IMAGES):
        path = folder / str(labels[number]) / f"digit {number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((images[number].reshape(8, 8) * 15).astype(np.uint8)).save(path)


def add_part(sandbox: Sandbox, name: str, folder: Path) -> None:
    """Add a folder to `parts`."""
    parts = {
        part: {"source": "digits", "path": "data/none", "start": at, "stop": at + 120, "embeddings": "data/none"}
        for part, at in (("first", 0), ("second", 120))
    }
    parts[name] = {
        "source": "folder",
        "path": str(folder),
        "start": 0,
        "stop": None,
        "embeddings": "data/none",
        "settings": {},
    }
    sandbox.edit({"parts": parts})


def test_a_folder_added_costs_that_folder_and_the_trainings_and_renamed_leaves_nothing_that_is_read(
    fresh: Sandbox, committed: Sandbox, tmp_path: Path
) -> None:
    pictures = tmp_path / "my pictures"
    draw(pictures)
    add_part(fresh, "third", pictures)
    ran = fresh.ran(*ENGINES["snakemake"])
    assert len(ran) == len(set(ran)) and set(ran) == BELOW
    fresh.assert_nothing_to_do()
    manifest = json.loads((fresh.root / "data/shards/third/manifest.json").read_text())
    assert sum(split["images"] for split in manifest["splits"].values()) == IMAGES
    for kept in ("ingest@first", "encode_latents@second", "train_tokenizer"):
        assert fresh.hashes(kept) == committed.hashes(kept)

    pictures.rename(moved := pictures.with_name("moved"))
    add_part(fresh, "third", moved)
    before = fresh.hashes("catalog")
    assert fresh.ran("dvc", "repro", "catalog") == ["ingest@third", "catalog"]
    assert fresh.hashes("catalog") == before and fresh.stale() == set(), "it depends on where the folder lies"

    add_part(fresh, "autumn", moved)
    assert fresh.ran("dvc", "repro", "catalog") == ["ingest@autumn", "catalog"]
    manifest = json.loads((fresh.root / "data/catalog/manifest.json").read_text())
    assert [part["name"] for part in manifest["parts"]] == ["autumn", "first", "second"]
    assert manifest["duplicates"]["images"] == 0, "the old part is still read"
    checked = fresh.darkroom("check")
    assert "data/shards/third" in checked and "nothing reads it" in checked
