import json
import multiprocessing
import pickle
from pathlib import Path

import numpy as np
import pytest

from darkroom.artifacts.manifest import ArtifactError, manifest_hash
from darkroom.data import tar_files
from darkroom.data.images import ImageSpec
from darkroom.data.reader import ImageShards, same_spec
from data.making import SPEC, flip, make_part, pixels


def numbers(reader: ImageShards) -> list[int]:
    return [int(key.removeprefix("noise-")) for key in reader.keys]


def test_rows_are_those_of_the_index_part_after_part(root: Path) -> None:
    reader = ImageShards.open_parts(["second", "first"], "train", root)
    found = numbers(reader)
    second, first = [n for n in found if n >= 40], [n for n in found if n < 40]
    assert found == sorted(second) + sorted(first)
    assert second and first
    for row, number in enumerate(found):
        assert (reader[row] == pixels(number)).all()
        assert reader.labels[row] == (None if number % 5 == 4 else str(number % 12))
        assert reader.captions[row] == (None if number % 5 == 4 else f"number {number}, größer")
    assert reader.sources == {part: manifest_hash(root / part) for part in ("second", "first")}


def test_many_rows_come_in_the_order_asked_for(root: Path) -> None:
    reader = ImageShards.open_parts(["first", "second"], "train", root)
    rows = np.random.default_rng(0).integers(0, len(reader), 50)
    images = reader.__getitems__(rows)
    assert (images.dtype, images.shape) == (np.uint8, (50, *reader.image_shape))
    assert all((image == pixels(numbers(reader)[row])).all() for image, row in zip(images, rows, strict=True))
    assert (np.concatenate(list(reader.batches(11))) == reader.__getitems__(range(len(reader)))).all()


@pytest.mark.parametrize("row", [-1, 10_000])
def test_a_row_outside_is_an_index_error(root: Path, row: int) -> None:
    with pytest.raises(IndexError):
        ImageShards.open_parts(["first"], "train", root)[row]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes_read_too(root: Path, method: str) -> None:
    reader = ImageShards.open_parts(["first", "second"], "train", root)
    rows = range(0, len(reader), 9)
    expected = reader.__getitems__(rows)  # opens the files here first
    with multiprocessing.get_context(method).Pool(2) as pool:
        found = pool.map_async(reader.__getitem__, rows, chunksize=1).get(timeout=60)
    assert (np.stack(found) == expected).all()
    assert (reader.__getitems__(rows) == expected).all()


def test_few_files_stay_open(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tar_files, "_OPEN", 2)
    reader = ImageShards.open_parts(["first"], "train", root)
    assert len(reader.shards) > 2
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        reader.__getitems__(range(len(reader)))
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 2


def test_a_pickled_reader_opens_its_own_files(root: Path) -> None:
    reader = ImageShards.open_parts(["first"], "train", root)
    image = reader[3]
    copy = pickle.loads(pickle.dumps(reader))
    assert (reader[3] == image).all()  # the copy did not take, and close, the files of the original
    assert (copy[3] == image).all()


# --- damage ---


def row_in_tar(reader: ImageShards, row: int) -> tuple[Path, int, int, str]:
    shard = next(s for s in reader.shards if s.first <= row < s.first + s.images)
    return shard.path, int(reader._offset[row]), int(reader._size[row]), reader.keys[row]


@pytest.mark.parametrize("place", [0.0, 0.5, 0.999])
def test_a_flipped_bit_in_an_image_names_shard_and_key(root: Path, place: float) -> None:
    reader = ImageShards.open_parts(["first"], "train", root)
    path, offset, size, key = row_in_tar(reader, 9)
    flip(path, offset + int(place * size))
    with pytest.raises(ArtifactError, match=rf"{path}: the image {key} is corrupted \(its sha256.*dvc checkout"):
        reader[9]
    reader[8]  # the others are whole


def test_a_flipped_bit_in_the_index_is_found_on_opening(root: Path) -> None:
    index = root / "first" / "train" / "index.parquet"
    flip(index, 100)
    with pytest.raises(ArtifactError, match=f"{index} is corrupted"):
        ImageShards.open_parts(["first"], "train", root)


def test_a_truncated_tar_is_found_on_opening(root: Path) -> None:
    """Cut at a member's boundary, where tar readers see the end of the archive and no error."""
    reader = ImageShards.open_parts(["first"], "train", root)
    path, offset, _, _ = row_in_tar(reader, 3)
    data = path.read_bytes()
    path.write_bytes(data[: offset - 512])
    with pytest.raises(ArtifactError, match=f"{path} has {offset - 512} bytes, but the manifest says {len(data)}"):
        ImageShards.open_parts(["first"], "train", root)
    with pytest.raises(ArtifactError, match=reader.keys[3]):
        reader[3]


def test_missing_files_are_named(root: Path) -> None:
    reader = ImageShards.open_parts(["first"], "train", root)
    reader.shards[0].path.unlink()
    with pytest.raises(ArtifactError, match=rf"{reader.shards[0].path}.*{reader.keys[0]}"):
        reader[0]
    with pytest.raises(ArtifactError, match=f"{reader.shards[0].path} is missing"):
        ImageShards.open_parts(["first"], "train", root)
    with pytest.raises(ArtifactError, match=r"third/manifest\.json is missing"):
        ImageShards.open_parts(["third"], "train", root)


def test_a_manifest_that_counts_otherwise_is_refused(root: Path) -> None:
    path = root / "first" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["splits"]["train"]["shards"][0]["images"] += 1
    path.write_text(json.dumps(manifest))
    with pytest.raises(ArtifactError, match=r"index\.parquet has \d+ rows in \d shards, but the manifest says \d+ in"):
        ImageShards.open_parts(["first"], "train", root)


def test_a_manifest_that_says_another_shape_is_refused(root: Path) -> None:
    path = root / "first" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["image"]["size"] = 5
    path.write_text(json.dumps(manifest))
    with pytest.raises(ArtifactError, match=r"shape is \(3, 6, 6\)"):
        ImageShards.open_parts(["first"], "train", root)[0]


@pytest.mark.parametrize("spec", [ImageSpec(8, "RGB", "png"), ImageSpec(6, "L", "png")])
def test_parts_whose_images_differ_are_refused(root: Path, spec: ImageSpec) -> None:
    make_part(root, "other", 60, 70, spec)
    assert spec != SPEC
    with pytest.raises(ArtifactError, match="`first` and `other` differ"):
        ImageShards.open_parts(["first", "other"], "train", root)


def test_parts_in_two_formats_are_read_together(root: Path) -> None:
    make_part(root, "other", 60, 70, ImageSpec(6, "RGB", "webp"))
    reader = ImageShards.open_parts(["first", "other"], "train", root)
    assert [(reader[row] == pixels(number)).all() for row, number in enumerate(numbers(reader))] == [True] * len(reader)
    manifests = {part: json.loads((root / part / "manifest.json").read_text()) for part in ("first", "other")}
    assert same_spec(manifests) == ImageSpec(6, "RGB", "mixed")
    assert same_spec({"other": manifests["other"]}) == ImageSpec(6, "RGB", "webp")


def test_no_parts_are_refused(root: Path) -> None:
    with pytest.raises(ArtifactError, match="no part"):
        ImageShards.open_parts([], "train", root)
