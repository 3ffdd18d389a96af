"""The parts that a tokenizer is trained on: those that were chosen, and no others that came to lie in their place."""

import shutil
from pathlib import Path

import pytest

from darkroom.artifacts.manifest import ArtifactError, manifest_hash
from darkroom.data.catalog import load_selection
from darkroom.data.catalog_writer import write_selection
from data.making import make_part


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for part, start in (("a", 0), ("b", 40)):
        make_part(tmp_path / "shards", part, start, start + 20)
    (tmp_path / "selection").mkdir()
    write_selection(tmp_path / "selection", ["b", "a"], tmp_path / "shards")
    return tmp_path


def test_parts_are_known_by_their_manifests_in_the_order_of_their_names(root: Path) -> None:
    chosen = load_selection(root / "selection", root / "shards")
    assert list(chosen.parts.items()) == [(part, manifest_hash(root / "shards" / part)) for part in ("a", "b")]
    assert chosen.spec.shape == (3, 6, 6) and chosen.fingerprint == manifest_hash(root / "selection")


def test_a_part_written_again_is_refused(root: Path) -> None:
    shutil.rmtree(root / "shards" / "b")
    with pytest.raises(ArtifactError, match=r"shards/b/manifest\.json is missing"):
        load_selection(root / "selection", root / "shards")
    make_part(root / "shards", "b", 40, 61)
    with pytest.raises(ArtifactError, match="does not match the part `b`, which was rewritten since: run `dvc repro`"):
        load_selection(root / "selection", root / "shards")


def test_a_part_that_is_not_chosen_changes_nothing(root: Path) -> None:
    before = manifest_hash(root / "selection")
    make_part(root / "shards", "c", 80, 100)
    write_selection(root / "selection", ["a", "b"], root / "shards")
    assert manifest_hash(root / "selection") == before
