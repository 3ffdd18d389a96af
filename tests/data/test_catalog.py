from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from darkroom.artifacts.manifest import ArtifactError, manifest_hash, read_manifest
from darkroom.data.catalog import class_warnings, load_catalog
from darkroom.data.catalog_writer import find_duplicates, natural_order, write_catalog, write_picture
from darkroom.data.damage import DamageError, Finding, Reason
from darkroom.data.images import ImageSpec, to_pil
from darkroom.data.index import Index
from darkroom.data.latents import LatentShards
from darkroom.data.reader import ImageShards
from darkroom.data.sample import Entry, Raw
from darkroom.data.splits import SPLITS, split_of
from darkroom.errors import DarkroomError
from data.making import SHARES, SPEC, Noise, contents, make_latents, make_part, pixels

PARTS = ["first", "second"]


def catalogue(root: Path, parts: list[str] | None = None) -> Path:
    folder = root.parent / "catalog"
    folder.mkdir(exist_ok=True)
    write_catalog(folder, parts or PARTS, root)
    return folder


def picture(root: Path, parts: list[str] | None = None, images: int = 9) -> Path:
    folder = root.parent / "picture"
    folder.mkdir(exist_ok=True)
    write_picture(folder, catalogue(root, parts), images, root)
    return folder


def test_classes_are_numbered_as_a_person_would(root: Path) -> None:
    catalog = load_catalog(catalogue(root), root)
    assert catalog.classes == tuple(str(number) for number in range(12))  # "2" before "10"
    assert [catalog.number(str(number)) for number in range(12)] == list(range(12))
    assert catalog.image_shape == (3, 6, 6)
    with pytest.raises(DarkroomError, match="'12' is not among"):
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
    assert catalog.fingerprint == manifest_hash(folder)


def test_captions_are_counted(root: Path) -> None:
    folder = catalogue(root)
    for split in SPLITS:
        captions = ImageShards.open_parts(PARTS, split, root).captions
        assert read_manifest(folder, "catalog")["captions"][split] == len(captions) - captions.count(None)


class Damaged(Noise):
    """Noise of which some is missing, twice there, or of another size."""

    def read(self, entry: Entry) -> Raw:
        if entry.payload % 7 == 3:
            raise DamageError(Reason.EMPTY)
        raw = super().read(entry)
        findings = (Finding(Reason.CAPTION_MISSING),) if entry.payload % 5 == 4 else ()
        size = {60: (9, 30), 61: (4, 3)}.get(entry.payload, (6, 6))
        return replace(raw, findings=findings, image=raw.image.resize(size))


def test_what_was_left_out_and_how_large_the_originals_were(root: Path) -> None:
    manifest = make_part(root, "third", 60, 80, source=Damaged(), mirror=True)
    assert read_manifest(manifest, "shards")["quarantine"]["rows"] == 6
    metadata = read_manifest(catalogue(root, [*PARTS, "third"]), "catalog")
    first, _, third = metadata["parts"]
    assert third["quarantine"] == {"quarantine": {"empty": 2}, "repair": {}, "keep": {"caption_missing": 4}}
    assert first["quarantine"] == {"quarantine": {}, "repair": {}, "keep": {}}
    assert metadata["quarantine"] == third["quarantine"]
    assert (first["mirror"], third["mirror"]) == (False, True)
    assert (third["shorter_side"], third["enlarged"]) == ([3, 6, 9], 1)
    assert (first["images"], first["shards"], first["enlarged"]) == (40, 7, 0)
    assert first["bytes"] == sum(path.stat().st_size for path in (root / "first").rglob("*.tar"))


def test_keys_in_two_parts_are_counted(root: Path) -> None:
    make_part(root, "third", 38, 43, ImageSpec(6, "RGB", "png"), source=Brighter())
    metadata = read_manifest(catalogue(root, [*PARTS, "third"]), "catalog")
    assert metadata["shared_keys"]["keys"] == 5 and metadata["duplicates"]["images"] == 0
    split = split_of("noise-0041", SHARES, 0)
    assert [f"second/{split}/noise-0041", f"third/{split}/noise-0041"] in metadata["shared_keys"]["first"]
    assert read_manifest(catalogue(root), "catalog")["shared_keys"] == {"keys": 0, "first": []}


class Brighter(Noise):
    """Other images under the same keys."""

    def read(self, entry: Entry) -> Raw:
        return replace(super().read(entry), image=to_pil(pixels(1000 + entry.payload, self.spec)))


class Unlabelled(Noise):
    """Images alone."""

    def read(self, entry: Entry) -> Raw:
        return replace(super().read(entry), label=None, caption=None)


def test_images_without_any_label(root: Path) -> None:
    make_part(root, "third", 60, 80, source=Unlabelled())
    catalog = load_catalog(catalogue(root, ["third"]), root)
    assert catalog.classes == () and sum(catalog.images.values()) == 20
    assert catalog.counts == {split: {} for split in SPLITS}


def test_formats_may_differ_and_shapes_not(root: Path) -> None:
    assert load_catalog(catalogue(root), root).spec == SPEC
    make_part(root, "other", 60, 70, ImageSpec(6, "RGB", "webp"))
    catalog = load_catalog(catalogue(root, ["first", "other"]), root)
    assert catalog.spec == ImageSpec(6, "RGB", "mixed") and catalog.image_shape == (3, 6, 6)


def test_transparent_images_are_shown_with_their_alpha(tmp_path: Path) -> None:
    make_part(tmp_path / "shards", "p", 0, 9, ImageSpec(6, "RGBA", "png"))
    assert Image.open(picture(tmp_path / "shards", ["p"]) / "grid.png").mode == "RGBA"


def test_only_the_parts_named_are_read(root: Path) -> None:
    catalog = load_catalog(catalogue(root, ["second"]), root)
    assert list(catalog.parts) == ["second"]
    assert sum(catalog.images.values()) == 20


def test_the_grid_shows_images_from_the_first_to_the_last(root: Path) -> None:
    grid = Image.open(picture(root) / "grid.png")
    scale = 96 // 6
    assert grid.size == (3 * (6 * scale + 2) + 2, 3 * (6 * scale + 2) + 2)
    train = ImageShards.open_parts(PARTS, "train", root)
    corner = [grid.getpixel((2, 2)), grid.getpixel((grid.width - 3, grid.height - 3))]
    assert corner == [tuple(train[0][:, 0, 0]), tuple(train[len(train) - 1][:, -1, -1])]
    assert Image.open(picture(root, images=1000) / "grid.png").size > grid.size  # more than there are


def test_another_picture_leaves_the_catalog_as_it_is(root: Path) -> None:
    """All trainings read the catalog."""
    picture(root, images=9)
    before = contents(root.parent / "catalog")
    assert read_manifest(root.parent / "picture", "pictures")["catalog"] == manifest_hash(root.parent / "catalog")
    first = contents(root.parent / "picture")
    picture(root, images=4)
    assert contents(root.parent / "picture") != first
    assert contents(root.parent / "catalog") == before and set(before) == {"manifest.json"}


def test_two_runs_give_the_same_bytes(root: Path) -> None:
    before = contents(catalogue(root)) | contents(picture(root))
    assert contents(catalogue(root)) | contents(picture(root)) == before


class Copies(Noise):
    """Noise, of which three images repeat others of it."""

    def read(self, entry: Entry) -> Raw:
        raw, source = super().read(entry), {63: 2, 64: 2, 69: 6}.get(entry.payload)
        return raw if source is None else replace(raw, image=to_pil(pixels(source, self.spec)))


def test_duplicates_are_counted_and_named(root: Path) -> None:
    make_part(root, "third", 60, 80, source=Copies())
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
    with pytest.raises(ArtifactError, match="does not match the part `second`, which was rewritten"):
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
    make_part(root, "other", 60, 70, ImageSpec(8, "RGB", "png"))
    with pytest.raises(ArtifactError, match="`first` and `other` differ"):
        catalogue(root, ["first", "other"])


def test_no_training_image_is_refused(tmp_path: Path) -> None:
    make_part(tmp_path / "shards", "p", 0, 3, fractions={"train": 0.0, "val": 0.0, "test": 1.0})
    with pytest.raises(DarkroomError, match="train split"):
        catalogue(tmp_path / "shards", ["p"])


def test_copies_cost_no_pass_over_the_index_each(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_part(root, "third", 0, 40)  # as where two parts name one folder
    calls = []
    digests = Index.digests
    monkeypatch.setattr(Index, "digests", lambda index, name: calls.append(name) or digests(index, name))
    manifests = {part: read_manifest(root / part, "shards") for part in (*PARTS, "third")}
    assert find_duplicates(manifests, root)["images"] == 40
    assert len(calls) <= 2 * len(SPLITS) * len(manifests)


CLEAN = ["cat", "dog", "1", "10", "100", "class 1", "class 2", "", "s", "glass", "gloss", "bus", "A", "a", "e", "é"]
CLEAN += ["май", "маи", "かき", "かぎ", "key", "kes", "toe", "to", "boxer", "box", "10y", "die", "dy"]


def test_classes_without_a_training_image() -> None:
    counts = {"train": {"a": 3, "b": 0}, "val": {"b": 1, "c": 2}, "test": {"a": 1, "d": 0}}
    (line,) = class_warnings(counts)
    assert "'b', 'c'" in line


def test_many_are_cut() -> None:
    counts = {"train": {}, "val": {f"{letter}x": 1 for letter in "abcdefghijklm"}, "test": {}}
    (line,) = class_warnings(counts)
    assert "'jx' and 3 more" in line
    assert class_warnings({"train": dict.fromkeys(CLEAN, 1), "val": {}, "test": {}}) == []
