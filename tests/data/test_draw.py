"""A draw of images begins as any shorter one, takes none twice, and leaves no part of the data out."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from darkroom.artifacts.manifest import ArtifactError, write_manifest
from darkroom.data.draw import drawn, original_rows, repeats
from darkroom.data.reader import ImageShards
from darkroom.data.sample import Sample
from darkroom.data.shards import write_shards
from data.making import SPEC, make_part, samples


@given(st.integers(0, 500), st.integers(0, 600), st.integers(0, 600), st.integers(0, 9))
def test_a_longer_draw_begins_with_a_shorter_one(total: int, one: int, other: int, seed: int) -> None:
    few, many = sorted((one, other))
    assert drawn(total, many, seed)[: min(few, total)] == drawn(total, few, seed)
    assert sorted(drawn(total, None, seed)) == list(range(total))
    assert len(set(drawn(total, many, seed))) == min(many, total)


def test_a_draw_is_not_the_first_ones_and_follows_the_seed() -> None:
    classes = np.repeat(np.arange(5), [600, 200, 100, 50, 50])
    found = np.bincount(classes[drawn(1000, 200)], minlength=5)
    assert abs(found - 200 * np.array([0.6, 0.2, 0.1, 0.05, 0.05])).max() < 25  # 3.6 sd of the largest class
    assert drawn(1000, 50, 1) != drawn(1000, 50, 2)


def test_equal_keys_are_told_apart_by_what_comes_before() -> None:
    keys, captions = ["a", "b", "a", "a", "b"], ["x", None, "x", "y", None]
    assert repeats(keys, captions, [2, 3, 4, 0]) == {"0": 1, "2": 1}


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
    with pytest.raises(ArtifactError, match=r"^samples/x: nobody was .*, but no image of the split.*dvc repro"):
        original_rows(made_of(tmp_path / "samples", [originals.keys[0], "nobody"]), originals, {}, Path("samples/x"))


def test_a_sample_of_another_caption_is_refused_with_its_key(tmp_path, originals):
    key = originals.keys[0]
    with pytest.raises(ArtifactError, match=rf"^samples/x: {key} was made for the caption 'another', but no image"):
        original_rows(made_of(tmp_path / "samples", [key], "another"), originals, {}, Path("samples/x"))


def test_parts_that_share_keys_keep_their_own_originals(tmp_path):
    for part in ("one", "two"):
        make_part(tmp_path / "data/shards", part)
    both = ImageShards.open_parts(["one", "two"], "test", tmp_path / "data/shards")
    assert len(set(both.keys)) == len(both) // 2
    rows = drawn(len(both), len(both) // 2)
    made = made_of(tmp_path / "samples", both.keys_of(rows))
    assert original_rows(made, both, repeats(both.keys, both.captions, rows), Path("samples")) == rows
