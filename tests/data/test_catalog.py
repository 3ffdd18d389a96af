from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from darkroom.artifacts.manifest import ArtifactError, manifest_hash, read_manifest
from darkroom.data.catalog import load_catalog
from darkroom.data.catalog_writer import natural_order, write_catalog
from darkroom.data.images import ImageSpec
from darkroom.data.latents import LatentShards
from darkroom.data.parts import write_part
from darkroom.data.reader import ImageShards
from darkroom.data.sample import Sample
from darkroom.data.splits import SPLITS, split_of
from darkroom.errors import DarkroomError
from data.making import SHARES, SPEC, contents, make_latents, make_part, samples

PARTS = ["first", "second"]


def catalogue(root: Path, parts: list[str] | None = None, grid_images: int = 9) -> Path:
    folder = root.parent / "catalog"
    folder.mkdir(exist_ok=True)
    write_catalog(folder, parts or PARTS, grid_images, root)
    return folder


def test_classes_are_numbered_as_a_person_would(root: Path) -> None:
    catalog = load_catalog(catalogue(root), root)
    assert catalog.classes == tuple(str(number) for number in range(12))  # "2" before "10"
    assert [catalog.number(str(number)) for number in range(12)] == list(range(12))
    assert catalog.image_shape == (3, 6, 6)
    with pytest.raises(DarkroomError, match="'12' is not in"):
        catalog.number("12")


def test_natural_order() -> None:
    assert natural_order(["b10", "b2", "b", "a", "10", "2", "02"]) == ["02", "2", "10", "a", "b", "b2", "b10"]


@given(st.lists(st.text(st.sampled_from("a1029-٣²"), max_size=5)), st.randoms())
def test_natural_order_does_not_depend_on_the_order_given(names: list[str], random) -> None:
    shuffled = list(names)
    random.shuffle(shuffled)
    assert natural_order(shuffled) == natural_order(names)


def test_images_are_counted(root: Path) -> None:
    folder = catalogue(root)
    catalog = load_catalog(folder, root)
    for split in SPLITS:
        labels = ImageShards.open_parts(PARTS, split, root).labels
        assert catalog.images[split] == len(labels)
        assert catalog.counts[split] == {name: labels.count(name) for name in catalog.classes}
        assert read_manifest(folder, "catalog")["unlabelled"][split] == labels.count(None)
    assert catalog.parts == {part: manifest_hash(root / part) for part in PARTS}
    assert list(catalog.parts) == PARTS
    assert catalog.identity == manifest_hash(folder)


def test_only_the_parts_named_are_read(root: Path) -> None:
    catalog = load_catalog(catalogue(root, ["second"]), root)
    assert list(catalog.parts) == ["second"]
    assert sum(catalog.images.values()) == 20


def test_the_grid_shows_images_from_the_first_to_the_last(root: Path) -> None:
    grid = Image.open(catalogue(root, grid_images=9) / "grid.png")
    scale = 64 // 6
    assert grid.size == (3 * (6 * scale + 2) + 2, 3 * (6 * scale + 2) + 2)
    train = ImageShards.open_parts(PARTS, "train", root)
    corner = [grid.getpixel((2, 2)), grid.getpixel((grid.width - 3, grid.height - 3))]
    assert corner == [tuple(train[0][:, 0, 0]), tuple(train[len(train) - 1][:, -1, -1])]
    catalogue(root, grid_images=1000)  # more than there are


def test_two_runs_give_the_same_bytes(root: Path) -> None:
    before = contents(catalogue(root))
    assert contents(catalogue(root)) == before


def with_copies() -> Iterator[Sample]:
    """Twenty images, of which two repeat one of part `first`, and one repeats one of these twenty."""
    originals = {sample.key: sample for sample in samples(0, 10)}
    for number, sample in enumerate(samples(60, 80)):
        source = {3: "noise-0002", 4: "noise-0002", 9: "noise-0006"}.get(number)
        yield replace(sample, image=originals[source].image) if source else sample


def test_duplicates_are_counted_and_named(root: Path) -> None:
    write_part(root / "third", "third", with_copies(), {}, SPEC, "box", 7, SHARES, 0)
    found = read_manifest(catalogue(root, [*PARTS, "third"]), "catalog")["duplicates"]

    def path(part: str, key: str) -> str:
        return f"{part}/{split_of(key, SHARES, 0)}/{key}"

    pairs = {"noise-0063": "noise-0002", "noise-0064": "noise-0002", "noise-0069": "noise-0006"}
    assert (found["images"], found["across_parts"]) == (3, 3)
    assert found["across_splits"] == sum(split_of(a, SHARES, 0) != split_of(b, SHARES, 0) for a, b in pairs.items())
    assert found["across_splits"] == 2
    groups = [set(group) for group in found["first"]]
    assert {path("first", "noise-0006"), path("third", "noise-0069")} in groups
    assert {path("first", "noise-0002"), path("third", "noise-0063"), path("third", "noise-0064")} in groups
    alone = read_manifest(catalogue(root, ["third"]), "catalog")["duplicates"]
    assert (alone["images"], alone["across_parts"]) == (1, 0)


def test_a_part_written_again_is_refused(root: Path) -> None:
    folder = catalogue(root)
    (root / "second" / "manifest.json").unlink()
    with pytest.raises(ArtifactError, match=r"second/manifest\.json is missing"):
        load_catalog(folder, root)
    make_part(root.parent / "again", "second", 40, 61)
    (root / "second").rename(root / "away")
    (root.parent / "again" / "second").rename(root / "second")
    with pytest.raises(ArtifactError, match="does not fit the part `second`, which was written again"):
        load_catalog(folder, root)
    assert len(load_catalog(folder, shards=None).classes) == 12


def test_latents_of_other_parts_are_refused(root: Path) -> None:
    catalog = load_catalog(catalogue(root, ["first"]), shards=None)
    for part in PARTS:
        make_latents(root, root.parent / "latents", part)
    catalog.require_parts(LatentShards.open_parts(["first"], "train", root.parent / "latents").sources)
    with pytest.raises(ArtifactError, match="part `second`, which is not in it"):
        catalog.require_parts(LatentShards.open_parts(PARTS, "train", root.parent / "latents").sources)


def test_parts_whose_images_differ_are_refused(root: Path) -> None:
    make_part(root, "other", 60, 70, ImageSpec(6, "RGB", "webp"))
    with pytest.raises(ArtifactError, match="`first` and `other` do not fit"):
        catalogue(root, ["first", "other"])


def test_no_training_image_is_refused(tmp_path: Path) -> None:
    shares = {"train": 0.0, "val": 0.0, "test": 1.0}
    write_part(tmp_path / "shards" / "p", "p", samples(0, 3), {}, SPEC, "box", 7, shares, 0)
    with pytest.raises(DarkroomError, match="train split"):
        catalogue(tmp_path / "shards", ["p"])
