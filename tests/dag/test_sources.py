"""Each source through both engines: the whole DAG, then nothing to do."""

import json
from functools import partial
from pathlib import Path

import pytest

from dag.sandbox import NOTHING, Sandbox
from stages.sources_made import COUNT, MAKERS, make_eurosat

BODIES = 24


@pytest.mark.slow
@pytest.mark.parametrize("source", MAKERS)
def test_a_source_runs_through_the_whole_dag(tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Other processes know nothing of checksums patched in this one.
    make = make_eurosat if source == "torchvision" else partial(MAKERS[source], patch=monkeypatch)
    part, changes = make(tmp_path / "collection")
    sandbox = Sandbox.clone(tmp_path / "a clone with spaces")
    sandbox.environment["HF_HUB_OFFLINE"] = "1"
    clip = {"train_clip": {"source": "none"}} if source == "hub" else {}  # which has no captions
    sandbox.edit({**changes, **clip, "parts": {"only": part}, "train_tokenizer": {"parts": None}})
    sandbox.commit(source)
    with sandbox.bodies() as ran:
        if source in ("digits", "folder", "hub"):
            sandbox.snakemake()
        else:
            sandbox.dvc("repro")
    assert len(ran) == len(set(ran)) == BODIES
    sandbox.assert_nothing_to_do()
    assert NOTHING in sandbox.snakemake("--dry-run")
    manifest = json.loads((sandbox.root / "data/shards/only/manifest.json").read_text())
    assert sum(split["images"] for split in manifest["splits"].values()) == COUNT
    shown = sandbox.darkroom("data")
    assert "only" in shown and source in shown
