import hashlib
import json
import os
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from darkroom.artifacts.manifest import write_manifest
from darkroom.data.images import ImageSpec, to_pil
from darkroom.data.parts import write_part
from darkroom.data.pipeline import outcomes
from darkroom.data.reader import ImageShards
from darkroom.data.sample import Sample
from darkroom.data.shards import write_shards
from darkroom.data.splits import split_of
from darkroom.errors import DarkroomError
from data.making import SHARES, Noise, contents, make_part, pixels, policy, preparation, samples


def test_two_writes_give_the_same_bytes(tmp_path: Path) -> None:
    one, two = make_part(tmp_path / "a", "first"), make_part(tmp_path / "b", "first")
    for path in two.rglob("*.tar"):
        os.utime(path, (1, 1))
    assert contents(one) == contents(two)
    assert len(contents(one)) > 10


def test_the_layout_is_that_of_img2dataset(tmp_path: Path) -> None:
    metadata = write_shards(tmp_path, samples(0, 16), 7, "png")
    entries = metadata["shards"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["index.parquet", *(f"0000{n}{end}" for n in range(3) for end in (".tar", "_stats.json"))]
    )
    index = tmp_path / "index.parquet"
    assert metadata["index_sha256"] == hashlib.sha256(index.read_bytes()).hexdigest()
    metadata = pq.read_metadata(index)  # a row group a shard
    assert [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)] == [7, 7, 2]
    assert [entry["images"] for entry in entries] == [7, 7, 2]
    for entry in entries:
        tar = tmp_path / f"{entry['name']}.tar"
        assert entry["bytes"] == tar.stat().st_size
        assert entry["sha256"] == hashlib.sha256(tar.read_bytes()).hexdigest()
        stats = json.loads((tmp_path / f"{entry['name']}_stats.json").read_text())
        assert stats == {name: entry[name] for name in entry if name != "name"}
    with tarfile.open(tmp_path / "00000.tar") as tar:
        members = tar.getmembers()
        assert [m.name for m in members[:6]] == [
            *(f"noise-0000.{end}" for end in ("cls", "json", "png", "txt")),
            *(f"noise-0001.{end}" for end in ("cls", "json")),
        ]
        # noise-0004 has neither label nor caption
        assert [m.name for m in members if "0004" in m.name] == ["noise-0004.json", "noise-0004.png"]
        assert {(m.mtime, m.uid, m.gid, m.uname, m.gname, m.mode) for m in members} == {(0, 0, 0, "", "", 0o644)}
        offsets = {m.name.removesuffix(".png"): (m.offset_data, m.size) for m in members if m.name.endswith(".png")}
    rows = pq.ParquetFile(index).read_row_group(0).to_pylist()
    assert [(row["key"], (row["offset"], row["size"])) for row in rows] == list(offsets.items())
    assert (rows[4]["label"], rows[4]["caption"]) == (None, None)
    assert (rows[0]["width"], rows[0]["height"], rows[0]["label"]) == (6, 6, "0")


def test_webdataset_reads_the_tars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WDS_SECURE", "1")  # before the import: no pickles, no commands in addresses
    from webdataset.autodecode import Decoder, basichandlers, imagehandler
    from webdataset.tariterators import group_by_keys, tar_file_iterator

    write_shards(tmp_path, (s for s in samples(0, 9) if s.label is not None), 100, "png")
    decoder = Decoder([imagehandler("rgb8"), basichandlers])
    with (tmp_path / "00000.tar").open("rb") as file:
        members = [{**member, "__url__": "00000.tar"} for member in tar_file_iterator(file)]
    found = [decoder(sample) for sample in group_by_keys(members)]
    expected = [sample for sample in samples(0, 9) if sample.label is not None]
    assert [sample["__key__"] for sample in found] == [sample.key for sample in expected]
    for got, sample in zip(found, expected, strict=True):
        assert (got["png"] == np.asarray(sample.image)).all()
        assert (got["cls"], got["txt"], got["json"]["key"]) == (int(sample.label or -1), sample.caption, sample.key)


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.none() | st.text(max_size=9), st.none() | st.text(max_size=9)), max_size=12),
    st.integers(1, 5),
    st.sampled_from(["png", "webp"]),
    st.sampled_from(["L", "RGB", "RGBA"]),
)
def test_packing_and_unpacking_is_the_identity(
    tmp_path_factory: pytest.TempPathFactory, texts: list, shard_size: int, format: str, channels: str
) -> None:
    folder = tmp_path_factory.mktemp("packed")
    spec = ImageSpec(5, channels, format)
    given_samples = [Sample(f"{n:03d}", to_pil(pixels(n, spec)), *text) for n, text in enumerate(texts)]
    metadata = write_shards(folder, given_samples, shard_size, format)
    write_manifest(folder, "samples", image_shape=list(spec.shape), **metadata)
    reader = ImageShards.open_folder(folder)
    assert (len(reader), len(metadata["shards"])) == (len(texts), -(-len(texts) // shard_size))
    assert reader.keys == [sample.key for sample in given_samples]
    assert list(zip(reader.labels, reader.captions, strict=True)) == texts
    for row in range(len(texts)):
        assert (reader[row] == pixels(row, spec)).all()


def test_every_sample_lands_in_the_split_of_its_key(root: Path) -> None:
    total = 0
    for split in SHARES:
        keys = ImageShards.open_parts(["first", "second"], split, root).keys
        assert all(split_of(key, SHARES, 0) == split for key in keys)
        total += len(keys)
    assert total == 60


def test_the_manifest_counts_labels(root: Path) -> None:
    splits = json.loads((root / "first" / "manifest.json").read_text())["splits"]
    for split, metadata in splits.items():
        labels = ImageShards.open_parts(["first"], split, root).labels
        assert metadata["images"] == len(labels)
        assert metadata["unlabelled"] == labels.count(None)
        assert metadata["labels"] == {name: labels.count(name) for name in set(labels) - {None}}


def test_an_empty_split_has_no_shards(tmp_path: Path) -> None:
    source, how = Noise(), preparation()
    rule = policy(fractions={"train": 1.0, "val": 0.0, "test": 0.0})
    found = outcomes(source, source.entries(0, 3), how, processes=1)
    write_part(tmp_path / "p", "p", found, {}, how, rule, shard_size=7, mirror=False, logs=tmp_path)
    empty = ImageShards.open_parts(["p"], "val", tmp_path)
    assert (len(empty), empty.labels, empty.shards, list(empty.batches(4))) == (0, [], [], [])
    assert empty.__getitems__([]).shape == (0, 3, 6, 6)


@pytest.mark.parametrize("key", ["a.b", "a/b", "../a", "", "x" * 81, "ä"])
def test_keys_that_would_break_a_tar_are_refused(tmp_path: Path, key: str) -> None:
    sample = replace(next(samples(0, 1)), key=key)
    with pytest.raises(DarkroomError, match="cannot name a file"):
        write_shards(tmp_path, [sample], 7, "png")


def test_images_of_two_sizes_are_refused(tmp_path: Path) -> None:
    first, second = samples(0, 2)
    with pytest.raises(DarkroomError, match="noise-0001"):
        write_shards(tmp_path, [first, replace(second, image=second.image.resize((5, 5)))], 7, "png")
