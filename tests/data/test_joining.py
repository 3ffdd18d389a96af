"""Samples find the images that they were made of by their keys."""

from pathlib import Path

import pytest

from darkroom.artifacts.manifest import ArtifactError, write_manifest
from darkroom.data.draw import drawn, original_rows, repeats
from darkroom.data.reader import ImageShards
from darkroom.data.sample import Sample
from darkroom.data.shards import write_shards
from data.making import SPEC, make_part, samples


@pytest.fixture
def originals(tmp_path):
    make_part(tmp_path / "data/shards", "one")
    return ImageShards.open_parts(["one"], "test", tmp_path / "data/shards")


def made_of(folder: Path, keys, caption=None):
    """Write samples under some keys, with the captions of the images, or with one for all."""
    known = {sample.key: sample for sample in samples(0, 40)}
    found = [known.get(key, known["noise-0000"]) for key in keys]
    chosen = [Sample(key, one.image, one.label, caption or one.caption) for key, one in zip(keys, found, strict=True)]
    metadata = write_shards(folder, chosen, 5, "png")
    write_manifest(folder, "samples", image_shape=list(SPEC.shape), images=len(keys), files={}, **metadata)
    return ImageShards.open_folder(folder, "samples")


def test_each_sample_finds_its_original(tmp_path, originals):
    keys = originals.keys[::-1]
    rows = original_rows(made_of(tmp_path / "samples", keys), originals, {}, Path("samples"))
    assert rows == list(range(len(originals)))[::-1]


def test_a_sample_of_no_image_is_refused_with_its_key(tmp_path, originals):
    with pytest.raises(ArtifactError, match=r"^samples/x holds nobody, and no image of the split.*dvc repro"):
        original_rows(made_of(tmp_path / "samples", [originals.keys[0], "nobody"]), originals, {}, Path("samples/x"))


def test_a_sample_of_another_caption_is_refused_with_its_key(tmp_path, originals):
    key = originals.keys[0]
    with pytest.raises(ArtifactError, match=rf"^samples/x: {key} was made for the caption 'another', and its original"):
        original_rows(made_of(tmp_path / "samples", [key], "another"), originals, {}, Path("samples/x"))


def test_parts_that_share_keys_keep_their_own_originals(tmp_path):
    for part in ("one", "two"):
        make_part(tmp_path / "data/shards", part)
    both = ImageShards.open_parts(["one", "two"], "test", tmp_path / "data/shards")
    assert len(set(both.keys)) == len(both) // 2
    rows = drawn(len(both), len(both) // 2)
    made = made_of(tmp_path / "samples", both.keys_of(rows))
    assert original_rows(made, both, repeats(both.keys, both.captions, rows), Path("samples")) == rows
