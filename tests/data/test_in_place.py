import errno
import io
import json
import os
import pickle
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow.parquet as pq
import pytest

from darkroom.artifacts.manifest import ArtifactError, sha256_file
from darkroom.check.check import read_params
from darkroom.data import catalog_writer, latent_writer
from darkroom.data.images import ImageSpec
from darkroom.data.parts import tars_of, write_part
from darkroom.data.pipeline import outcomes
from darkroom.data.preparing import Preparation
from darkroom.data.reader import ImageShards
from darkroom.data.sources.webdataset import Webdataset
from darkroom.data.splits import SPLITS
from darkroom.errors import DarkroomError
from data.making import contents, flip, policy, preparation
from data.making_tars import img2dataset, picture, settings, tar

HOW = preparation(ImageSpec(6, "RGB", "png"), crop="random", resample="bicubic")


@pytest.fixture(autouse=True)
def _cache_in_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "checkout"))


@pytest.fixture
def laion(tmp_path: Path) -> Path:
    img2dataset(tmp_path / "laion", shards=3, rows=16)
    return tmp_path / "laion"


def ingest(
    root: Path, part: str, path: Path | None, how: Preparation = HOW, processes: int = 1, **changes: Any
) -> dict[str, Any]:
    """Do what the stage does with a part."""
    source = Webdataset(settings(**changes), path)
    tars = tars_of(source)
    found = outcomes(source, source.entries(0, None), how, processes, store=tars is None)
    folder = root / part
    folder.mkdir(parents=True)
    rule = policy()
    metadata = source.metadata()
    return write_part(folder, part, found, metadata, how, rule, shard_size=9, mirror=False, logs=root, tars=tars)


def rows(root: Path, part: str, split: str) -> dict[str, tuple[bytes, str | None, str | None]]:
    reader = ImageShards.open_parts([part], split, root)
    images = [reader[row].tobytes() for row in range(len(reader))]
    texts = zip(images, reader.labels, reader.captions, strict=True)
    return dict(zip(reader.keys, texts, strict=True))


def test_reading_in_place_is_reading_what_was_repacked(tmp_path: Path, laion: Path) -> None:
    ours = ingest(tmp_path, "here", laion)
    stored = ingest(tmp_path, "stored", laion, repack=True)
    total = 0
    for split in SPLITS:
        assert rows(tmp_path, "here", split) == rows(tmp_path, "stored", split)
        total += len(rows(tmp_path, "here", split))
        for fact in ("images", "labels", "unlabelled"):
            assert ours["splits"][split][fact] == stored["splits"][split][fact]
    assert total == 3 * 14
    assert ours["quarantine"] == stored["quarantine"]


def test_no_image_is_copied_and_no_tar_is_touched(tmp_path: Path, laion: Path) -> None:
    before = contents(laion)
    manifest = ingest(tmp_path, "here", laion)
    ImageShards.open_parts(["here"], "train", tmp_path)[0]
    assert contents(laion) == before
    assert sorted(contents(tmp_path / "here")) == [
        "manifest.json",
        "quarantine.parquet",
        *sorted(f"{split}/index.parquet" for split in SPLITS),
    ]
    assert (manifest["in_place"], manifest["image"]["format"]) == (True, "original")
    assert Preparation.of(manifest).crop == "random"
    for split, metadata in manifest["splits"].items():
        table = pq.ParquetFile(tmp_path / "here" / split / "index.parquet")
        assert table.num_row_groups == len(metadata["shards"])
        for number, entry in enumerate(metadata["shards"]):
            path = laion / f"{entry['name']}.tar"
            expected = {"tar": str(path), "bytes": path.stat().st_size, "sha256": sha256_file(path)}
            assert {name: entry[name] for name in expected} == expected
            group = table.read_row_group(number).to_pylist()
            assert len(group) == entry["images"]
            assert [row["key"] for row in group] == sorted(row["key"] for row in group)
            data = path.read_bytes()
            for row in group:
                shard, image = int(row["key"][:5]), int(row["key"][5:])
                assert data[row["offset"] :][: row["size"]] == picture(100 * shard + image)
                assert (row["width"], row["original_width"], row["original_height"]) == (6, 12, 9)


def test_any_number_of_processes_gives_the_same_bytes(tmp_path: Path, laion: Path) -> None:
    ingest(tmp_path / "one", "here", laion)
    ingest(tmp_path / "two", "here", laion, processes=2)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_each_tar_is_hashed_once(tmp_path: Path, laion: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = []

    def counting(path: Path) -> str:
        hashed.append(path)
        return sha256_file(path)

    monkeypatch.setattr("darkroom.data.parts.sha256_file", counting)
    ingest(tmp_path, "here", laion)
    assert sorted(hashed) == sorted(laion.glob("*.tar"))


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_names_in_any_encoding_are_indexed_and_read(tmp_path: Path, format: int) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=format, encoding="latin-1") as file:
        for number in range(9):
            info = tarfile.TarInfo(f"größe{number}.jpg")
            info.size = len(picture(number))
            file.addfile(info, io.BytesIO(picture(number)))
    ingest(tmp_path, "here", path, label=None, caption=None)
    assert sum(len(rows(tmp_path, "here", split)) for split in SPLITS) == 9


def test_damaged_images_are_found_and_those_that_repeat(tmp_path: Path) -> None:
    members = {f"{number}.jpg": picture(number) for number in range(8)}
    members |= {"8.jpg": picture(3), "9.jpg": picture(9)[:-40], "a.jpg": b"", "b.jpg": b"no image"}
    (tmp_path / "only").mkdir()
    tar(tmp_path / "only" / "a.tar", members)
    tar(tmp_path / "only" / "b.tar", {"0.jpg": picture(20), "c.jpg": picture(21)})
    manifest = {}
    for part, repack in (("here", False), ("stored", True)):
        manifest[part] = ingest(tmp_path, part, tmp_path / "only", repack=repack, label=None, caption=None)
    assert manifest["here"]["quarantine"] == manifest["stored"]["quarantine"]
    assert manifest["here"]["quarantine"]["quarantine"] == {
        "duplicate": 1,
        "empty": 1,
        "key_twice": 1,
        "not_an_image": 1,
        "truncated": 1,
    }


def test_parts_of_both_kinds_are_read_together(tmp_path: Path, laion: Path) -> None:
    (tmp_path / "more").mkdir()
    tar(tmp_path / "more" / "x.tar", {f"more-{number}.png": picture(500 + number, "PNG") for number in range(12)})
    ingest(tmp_path, "here", laion)
    ingest(tmp_path, "stored", tmp_path / "more", repack=True, caption=None)
    both = ImageShards.open_parts(["stored", "here"], "train", tmp_path)
    expected = {**rows(tmp_path, "stored", "train"), **rows(tmp_path, "here", "train")}
    assert both.keys == list(expected)
    assert [image.tobytes() for image in both.__getitems__(range(len(both)))] == [row[0] for row in expected.values()]
    copy = pickle.loads(pickle.dumps(both))
    assert (copy[len(both) - 1] == both[len(both) - 1]).all()
    assert np.concatenate(list(both.batches(5))).shape == (len(both), 3, 6, 6)


# --- what changed since ---


def test_a_tar_that_is_gone_or_of_another_size_is_named_on_opening(tmp_path: Path, laion: Path) -> None:
    ingest(tmp_path, "here", laion)
    path = laion / "00001.tar"
    data = path.read_bytes()
    path.write_bytes(data + bytes(512))
    with pytest.raises(
        ArtifactError, match=rf"{path} has .*bytes.* changed since the part `here` was indexed.*ingest@here"
    ):
        ImageShards.open_parts(["here"], "train", tmp_path)
    path.unlink()
    with pytest.raises(ArtifactError, match=rf"{path} is missing: it changed since.*put the old file back"):
        ImageShards.open_parts(["here"], "train", tmp_path)
    path.write_bytes(data)
    reader = ImageShards.open_parts(["here"], "train", tmp_path)
    path.unlink()
    with pytest.raises(ArtifactError, match=rf"{path}: .* changed since"):
        reader.__getitems__(range(len(reader)))


def test_a_byte_that_changed_is_found_on_reading(tmp_path: Path, laion: Path) -> None:
    ingest(tmp_path, "here", laion)
    reader = ImageShards.open_parts(["here"], "train", tmp_path)
    shard = reader.shards[1]
    flip(shard.path, int(reader._offset[shard.first]) + 20)
    with pytest.raises(ArtifactError, match=f"{shard.path}: the image {reader.keys[shard.first]} is .*changed since"):
        reader[shard.first]
    reader[shard.first + 1]


def test_damaged_samples_alone_leave_no_part(tmp_path: Path) -> None:
    path = tar(tmp_path / "a.tar", {"0.jpg": b"", "1.jpg": b""})
    with pytest.raises(DarkroomError, match="none of its 2 samples can be used"):
        ingest(tmp_path, "here", path, label=None, caption=None)
    assert not (tmp_path / "here" / "manifest.json").exists()


# --- behind URLs ---


def test_shards_behind_urls_are_read_from_the_cache(tmp_path: Path, laion: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    for file in laion.iterdir():
        memory.pipe_file(f"/bucket/{file.name}", file.read_bytes())
    manifest = ingest(tmp_path, "far", None, url="memory://bucket/{00000..00002}.tar")
    near = ingest(tmp_path, "near", laion)
    assert manifest["splits"]["train"]["shards"][0]["tar"] == "memory://bucket/00000.tar"
    for split in SPLITS:
        assert rows(tmp_path, "far", split) == rows(tmp_path, "near", split)
        for ours, theirs in zip(manifest["splits"][split]["shards"], near["splits"][split]["shards"], strict=True):
            assert {**ours, "tar": ""} == {**theirs, "tar": ""}
    memory.store.clear()
    reader = ImageShards.open_parts(["far"], "train", tmp_path)
    reader[0]  # no network: the cache knows it by its hash
    shutil.rmtree(tmp_path / "checkout")
    reader = ImageShards.open_parts(["far"], "train", tmp_path)
    with pytest.raises(DarkroomError, match=r"cannot fetch memory://bucket/00000\.tar"):
        reader[0]
    memory.pipe_file("/bucket/00000.tar", (laion / "00001.tar").read_bytes())
    with pytest.raises(ArtifactError, match=r"memory://bucket/00000\.tar differs from the file that"):
        reader[0]
    for file in laion.iterdir():
        memory.pipe_file(f"/bucket/{file.name}", file.read_bytes())
    reader.prefetch(reader.shards)
    assert reader._tars.remote._thread is not None
    reader._tars.remote._thread.join()
    memory.store.clear()
    assert reader.__getitems__(range(len(reader))).any()


def test_a_file_url_is_read_where_it_lies(tmp_path: Path, laion: Path) -> None:
    ingest(tmp_path, "here", None, url=f"file://{laion}/00000.tar")
    reader = ImageShards.open_parts(["here"], "train", tmp_path)
    assert len(reader) and reader.__getitems__(range(len(reader))).any()
    assert not (tmp_path / "checkout").exists()
    (laion / "00000.tar").unlink()
    with pytest.raises(ArtifactError, match=r"00000\.tar is missing: it changed since"):
        ImageShards.open_parts(["here"], "train", tmp_path)


def test_a_latent_that_fails_names_its_shard_without_what_signs_its_address(
    tmp_path: Path,
) -> None:
    path = tar(tmp_path / "a.tar", {f"{number}.jpg": picture(number) for number in range(9)})
    ingest(tmp_path, "here", path, label=None, caption=None)
    reader = ImageShards.open_parts(["here"], "train", tmp_path)
    shard = replace(reader.shards[0], tar="https://example.org/a.tar?signature=secret")
    nothing = np.full((shard.images, 2, 3, 3), np.nan, np.float32)
    with pytest.raises(DarkroomError, match=r"^https://example.org/a.tar: the latent of the image \d is not") as fault:
        latent_writer._check_finite(nothing, nothing, shard, reader.texts(shard))
    assert "secret" not in str(fault.value)


def test_a_grid_fetches_a_few_shards_only(tmp_path: Path, laion: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    for file in laion.iterdir():
        memory.pipe_file(f"/bucket/{file.name}", file.read_bytes())
    ingest(tmp_path, "far", None, url="memory://bucket/{00000..00002}.tar")
    ingest(tmp_path, "near", laion)
    shutil.rmtree(tmp_path / "checkout")
    monkeypatch.setattr(catalog_writer, "_FETCHED", 2)
    reader = ImageShards.open_parts(["far", "near"], "train", tmp_path)
    _, left_out, *_ = [range(shard.first, shard.first + shard.images) for shard in reader.shards]
    assert catalog_writer.shown_rows(reader).tolist() == [row for row in range(len(reader)) if row not in left_out]
    (tmp_path / "catalog").mkdir()
    catalog_writer.write_catalog(tmp_path / "catalog", ["far", "near"], tmp_path)
    (tmp_path / "picture").mkdir()
    catalog_writer.write_picture(tmp_path / "picture", tmp_path / "catalog", 100, tmp_path)
    assert len(list((tmp_path / "checkout").rglob("*.tar"))) == 2


def test_a_damaged_copy_in_the_cache_is_named_and_the_shard_is_not_blamed(tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    path = tar(tmp_path / "a.tar", {f"{number}.jpg": picture(number) for number in range(9)})
    memory.pipe_file("/bucket/a.tar", path.read_bytes())
    ingest(tmp_path, "far", None, url="memory://bucket/a.tar", label=None, caption=None)
    reader = ImageShards.open_parts(["far"], "train", tmp_path)
    copy = reader._tars(0)
    flip(copy, int(reader._offset[0]) + 20)
    with pytest.raises(ArtifactError, match=rf"^memory://bucket/a.tar: .*{reader.keys[0]}.*delete {copy},") as fault:
        reader[0]
    assert "changed" not in str(fault.value)
    copy.unlink()
    assert ImageShards.open_parts(["far"], "train", tmp_path)[0].shape == (3, 6, 6)


def test_a_disk_without_room_for_a_shard_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    path = tar(tmp_path / "a.tar", {f"{number}.jpg": picture(number) for number in range(9)})
    memory.pipe_file("/bucket/a.tar", path.read_bytes())
    ingest(tmp_path, "far", None, url="memory://bucket/a.tar", label=None, caption=None)
    shutil.rmtree(tmp_path / "checkout")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as fault:  # the runner makes a sentence of it
        ImageShards.open_parts(["far"], "train", tmp_path)[0]
    assert fault.value.errno == errno.ENOSPC


def test_the_stage_writes_either(tmp_path: Path, laion: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    from darkroom.params.ingest import Params
    from darkroom.params.section import validate
    from darkroom.stages import ingest as stage

    values = read_params(Path("params.yaml"))
    values = {name: values[name] for name in ("run", "webdataset", "ingest")}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stage, "SHARDS", tmp_path / "shards")
    for part, repack in (("here", False), ("stored", True)):
        wanted = {"repack": repack, "label": "json:label"}
        chosen = {"source": "webdataset", "path": "laion", "start": 1, "stop": 3, "settings": wanted}
        stage.run(validate(Params, {**values, "parts": {part: chosen}}), part)
        manifest = json.loads((tmp_path / "shards" / part / "manifest.json").read_text())
        assert manifest["in_place"] is not repack
        assert manifest["source"] == {"name": "webdataset", "start": 1, "stop": 3, "shards": 3}
    assert manifest["splits"]["train"]["shards"][0]["images"] > 0
    for split in SPLITS:
        here = rows(tmp_path / "shards", "here", split)
        assert here == rows(tmp_path / "shards", "stored", split)
        assert {key[:5] for key in here} <= {"00001", "00002"}
    readers = [ImageShards.open_parts(["here"], split, tmp_path / "shards") for split in SPLITS]
    assert {shard.tar for reader in readers for shard in reader.shards} == {"laion/00001.tar", "laion/00002.tar"}
