"""A person's own folder as a part: adding it costs that part, changing it runs it alone, renaming leaves no trace."""

import json
import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from dag.sandbox import ENGINES, NOTHING, Sandbox, side_by_side

# Most of the DAG twice: minutes. What a folder becomes is tested without the engines in tests/data and tests/stages.
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


@pytest.fixture(scope="module")
def larger(committed: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Sandbox, list[str]]]:
    """Copies in which a folder of 100 images was added as a part and each engine ran, and the bodies that ran."""
    pictures = tmp_path_factory.mktemp("my pictures")
    draw(pictures)
    roots = {engine: tmp_path_factory.mktemp(f"larger-{engine}") / "a clone with spaces" for engine in ENGINES}

    def grow(engine: str) -> tuple[Sandbox, list[str]]:
        sandbox = committed.copy(roots[engine])
        add_part(sandbox, "third", pictures)
        with sandbox.bodies() as ran:
            sandbox.run(*ENGINES[engine])
        return sandbox, ran

    told = side_by_side({engine: partial(grow, engine) for engine in ENGINES})
    return {engine: metadata.result() for engine, metadata in told.items()}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_folder_added_costs_that_folder_and_the_trainings(
    larger: dict[str, tuple[Sandbox, list[str]]], committed: Sandbox, engine: str
) -> None:
    sandbox, ran = larger[engine]
    assert len(ran) == len(set(ran)) and set(ran) == BELOW
    sandbox.assert_nothing_to_do()
    manifest = json.loads((sandbox.root / "data/shards/third/manifest.json").read_text())
    assert sum(split["images"] for split in manifest["splits"].values()) == IMAGES
    for kept in ("ingest@first", "encode_latents@second", "train_tokenizer"):
        assert sandbox.hashes(kept) == committed.hashes(kept)


def test_both_engines_make_the_same_of_it(larger: dict[str, tuple[Sandbox, list[str]]]) -> None:
    one, other = (larger[engine][0].hashes() for engine in ENGINES)
    assert one == other


def test_a_changed_file_makes_its_part_stale_and_no_other(
    larger: dict[str, tuple[Sandbox, list[str]]], tmp_path: Path
) -> None:
    sandbox = larger["dvc"][0].copy(tmp_path / "a clone with spaces")
    pictures = tmp_path / "my pictures"
    draw(pictures)
    add_part(sandbox, "third", pictures)
    with sandbox.bodies() as ran:
        sandbox.dvc("repro", "catalog")
    assert ran == ["ingest@third", "catalog"]
    assert sandbox.hashes("catalog") == larger["dvc"][0].hashes("catalog"), "it depends on where the folder lies"
    assert sandbox.stale() == set(), "the same files in another place must train nothing"
    one = next(pictures.rglob("*.png"))
    os.utime(one, (1, 1))
    assert sandbox.stale("catalog") == set(), "a time is no change"
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(one)
    assert sandbox.stale() == {"ingest@third"}
    with sandbox.bodies() as ran:
        sandbox.snakemake("data/catalog")
    assert ran == ["ingest@third", "catalog"]


def test_a_renamed_part_leaves_nothing_that_is_read(
    larger: dict[str, tuple[Sandbox, list[str]]], tmp_path: Path
) -> None:
    sandbox = larger["snakemake"][0].copy(tmp_path / "a clone with spaces")
    draw(tmp_path / "pictures")
    add_part(sandbox, "autumn", tmp_path / "pictures")
    with sandbox.bodies() as ran:
        sandbox.dvc("repro", "catalog")
    assert ran == ["ingest@autumn", "catalog"]
    manifest = json.loads((sandbox.root / "data/catalog/manifest.json").read_text())
    assert [part["name"] for part in manifest["parts"]] == ["autumn", "first", "second"]
    assert manifest["duplicates"]["images"] == 0, "the old part is still read"
    checked = sandbox.run("env", "PYTHONPATH=src", "python", "-m", "darkroom", "check")
    assert "data/shards/third" in checked and "nothing reads it" in checked


def test_a_part_that_is_gone_leaves_no_trace(
    larger: dict[str, tuple[Sandbox, list[str]]], committed: Sandbox, tmp_path: Path
) -> None:
    sandbox = larger["snakemake"][0].copy(tmp_path / "a clone with spaces")
    assert sandbox.hashes("catalog") != committed.hashes("catalog")
    sandbox.run("git", "checkout", "--quiet", "params.yaml")
    with sandbox.bodies() as ran:
        sandbox.dvc("repro", "catalog")
    assert ran == ["catalog"], "it was not made anew from two parts"
    assert any((sandbox.root / "data/shards/third").rglob("*.tar")), "nothing was left over"
    assert sandbox.hashes("catalog") == committed.hashes("catalog")
    assert sandbox.stale("catalog") == set()
    assert NOTHING in sandbox.snakemake("--dry-run", "data/catalog")
