"""Embeddings as they are stored and read, row by row, and what does not fit together."""

import gc
import hashlib
import json
import pickle
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from darkroom.artifacts.manifest import ArtifactError
from darkroom.data.embeddings import EmbeddingShards, map_embeddings, require_same_images, stored
from darkroom.data.reader import ImageShards
from darkroom.data.splits import SPLITS
from darkroom.errors import DarkroomError
from data.embeddings_made import ENCODING, NAMES, embed, image_rows, make_embeddings, text_row
from data.making import contents, flip, make_part

PARTS = ["second", "first"]


@pytest.fixture(scope="module")
def template(parts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("embeddings")
    for part in PARTS:
        make_embeddings(parts, folder, part)
    return folder


@pytest.fixture
def made(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "embeddings")


def test_row_i_is_the_embedding_of_image_i(root: Path, made: Path) -> None:
    for split in SPLITS:
        images = ImageShards.open_parts(PARTS, split, root)
        reader = EmbeddingShards.open_parts(PARTS, split, made)
        assert (len(reader), reader.keys, reader.labels, reader.captions) == (
            *(len(images), images.keys, images.labels),
            images.captions,
        )
        require_same_images(reader, images)
        rows = np.random.default_rng(0).permutation(len(images))
        found = reader.__getitems__(rows, NAMES)
        texts = [images.captions[row] for row in rows]
        assert (found["image"] == image_rows(images.__getitems__(rows)).astype(np.float16)).all()
        assert (found["text"] == np.stack([text_row(text) for text in texts]).astype(np.float16)).all()
        encodings = np.stack([text_row(text, 6).reshape(ENCODING) for text in texts])
        assert (found["encoding"] == encodings.astype(np.float16)).all()
        assert {each.dtype for each in found.values()} == {np.dtype(np.float16)}
        assert any(text is None for text in texts) or split == "val"
    assert (reader.clip, reader.normalised, reader.dim, reader.encoding_shape) == ("c" * 64, False, 4, ENCODING)
    assert list(reader.__getitems__([0])) == ["image"]


def test_two_writes_give_the_same_bytes(root: Path, made: Path) -> None:
    before = contents(made)
    for part in PARTS:
        make_embeddings(root, made, part)  # replaces what is there
    assert contents(made) == before


def test_numpy_reads_the_files(root: Path, made: Path) -> None:
    found = np.load(made / "first" / "train" / "img_emb_00000.npy")
    images = ImageShards.open_parts(["first"], "train", root)
    assert (found == image_rows(images.__getitems__(range(7))).astype(np.float16)).all()


@pytest.mark.parametrize("dtype", ["<f2", "<f4", ">f8"])
def test_files_of_others_are_mapped(tmp_path: Path, dtype: str) -> None:
    values = np.random.default_rng(0).standard_normal((3, 5)).astype(dtype)
    np.save(tmp_path / "a.npy", values)
    assert (map_embeddings(tmp_path / "a.npy").array == values).all()


@pytest.mark.parametrize("values", [np.zeros((2, 3), np.int64), np.asfortranarray(np.zeros((2, 3))), np.array(["a"])])
def test_what_is_no_array_of_rows_is_refused(tmp_path: Path, values: np.ndarray) -> None:
    np.save(tmp_path / "a.npy", values)
    with pytest.raises(ArtifactError, match=f"{tmp_path / 'a.npy'} is not a NumPy file of embeddings"):
        map_embeddings(tmp_path / "a.npy")


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.zeros((4, 3)))
    for size in (path.stat().st_size - 1, 100, 5, 0):
        path.write_bytes(path.read_bytes()[:size])
        with pytest.raises(ArtifactError, match="is not a NumPy file of embeddings"):
            map_embeddings(path)


def test_a_split_that_is_not_stored_is_told(root: Path) -> None:
    folder = root.parent / "embeddings"
    make_embeddings(root, folder, "first", store=["test"])
    assert [stored("first", split, folder) for split in SPLITS] == [False, False, True]
    assert sorted(path.name for path in (folder / "first").iterdir()) == ["manifest.json", "test"]
    assert len(EmbeddingShards.open_parts(["first"], "test", folder)) > 0
    with pytest.raises(ArtifactError, match=r"has no embeddings of the split train.*embed_clip\.store"):
        EmbeddingShards.open_parts(["first"], "train", folder)
    images = json.loads((folder / "first" / "manifest.json").read_text())["splits"]["train"]
    assert images == {"stored": False, "images": len(ImageShards.open_parts(["first"], "train", root))}


def test_a_part_without_captions_has_images_alone(root: Path) -> None:
    folder = root.parent / "embeddings"
    make_embeddings(root, folder, "first", names=["image"])
    reader = EmbeddingShards.open_parts(["first"], "train", folder)
    assert (reader.names, reader.encoding_shape) == (("image",), None)
    with pytest.raises(ArtifactError, match="the embeddings of first have no text: one of the parts has no cap"):
        reader.__getitems__([0], ["text"])
    make_embeddings(root, folder, "second")
    assert EmbeddingShards.open_parts(PARTS, "train", folder).names == ("image",)


@pytest.mark.parametrize("name", NAMES)
def test_a_flipped_bit_is_found_when_it_is_read(made: Path, name: str) -> None:
    prefix = {"image": "img_emb", "text": "text_emb", "encoding": "text_enc"}[name]
    path = made / "first" / "train" / f"{prefix}_00001.npy"
    file = map_embeddings(path)
    flip(path, file.start + file.array[:4].nbytes - 1)  # the last byte of the fourth row
    reader = EmbeddingShards.open_parts(["first"], "train", made)
    reader.__getitems__([row for row in range(len(reader)) if row != 10], NAMES)
    reader.__getitems__([10], [each for each in NAMES if each != name])
    with pytest.raises(ArtifactError, match=f"{path}: the {name} embedding of the image {reader.keys[10]} is corr"):
        reader.__getitems__([10], [name])
    with pytest.raises(ArtifactError, match="is corrupted"):  # a copy in another process checks anew
        pickle.loads(pickle.dumps(reader)).__getitems__([10], [name])
    assert len(pickle.dumps(reader)) < 5000


def test_a_row_is_hashed_once_a_process(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = EmbeddingShards.open_parts(["first"], "train", made)
    hashed, real = [], hashlib.sha256
    monkeypatch.setattr(hashlib, "sha256", lambda data: hashed.append(data) or real(data))
    for rows in ([3, 5], [5, 3, 4]):
        reader.__getitems__(rows, ["image"])
    assert len(hashed) == 3


@pytest.mark.parametrize("rows", [[-1], [0, 10_000]])
def test_rows_outside_are_index_errors(made: Path, rows: list[int]) -> None:
    with pytest.raises(IndexError):
        EmbeddingShards.open_parts(["first"], "train", made).__getitems__(rows)


# --- refusals ---


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"clip": "d" * 64}, r"`second` and `first` have different CLIPs \(d+ and c+\)"),
        ({"normalised": True}, r"`second` and `first` have different normalisations \(True and False\)"),
    ],
)
def test_parts_that_differ_are_refused(root: Path, made: Path, changes: dict, told: str) -> None:
    make_embeddings(root, made, "second", **changes)
    with pytest.raises(ArtifactError, match=told):
        EmbeddingShards.open_parts(PARTS, "train", made)


def remade(root: Path, stop: int) -> ImageShards:
    """Return the images of `first` written again with others."""
    make_part(root.parent / "others", "first", 0, stop)
    return ImageShards.open_parts(["first"], "train", root.parent / "others")


@pytest.mark.parametrize("stop", [50, 30])
def test_missing_and_extra_rows_are_named(root: Path, made: Path, stop: int) -> None:
    """Against images of which there are some more, or some fewer, than when the embeddings were made."""
    reader = EmbeddingShards.open_parts(["first"], "train", made)
    images = remade(root, stop)
    row = min(len(reader), len(images))
    ours, theirs = ([*keys, "missing"][row] for keys in (reader.keys, images.keys))
    told = f"row {row} of the embeddings is {ours}, but of the images {theirs}: "
    with pytest.raises(ArtifactError, match=told):
        require_same_images(reader, images)


def test_parts_in_another_order_are_refused(root: Path, made: Path) -> None:
    reader = EmbeddingShards.open_parts(PARTS, "train", made)
    images = ImageShards.open_parts(PARTS[::-1], "train", root)
    with pytest.raises(
        ArtifactError, match=r"img_emb_00000\.npy: row 0 of the embeddings is \S+, but of the images \S+: open"
    ):
        require_same_images(reader, images)


def test_images_that_were_changed_under_their_keys_are_refused(root: Path, made: Path) -> None:
    make_part(root.parent / "others", "first", 0, 40, mirror=True)
    images = ImageShards.open_parts(["first"], "train", root.parent / "others")
    reader = EmbeddingShards.open_parts(["first"], "train", made)
    with pytest.raises(ArtifactError, match="of `first` were made from other images with the same keys"):
        require_same_images(reader, images)


def test_another_header_than_the_manifest_says_is_refused(made: Path) -> None:
    path = made / "first" / "train" / "img_emb_00000.npy"
    np.save(path, np.zeros((7, 4), np.float32))
    with pytest.raises(ArtifactError, match=rf"{path} has float32 \(7, 4\), but the manifest says float16 \(7, 4\)"):
        EmbeddingShards.open_parts(["first"], "train", made)


@pytest.mark.parametrize("value", [np.nan, 1e6])
def test_what_float16_cannot_hold_is_named_by_shard_and_key(root: Path, value: float) -> None:
    images = ImageShards.open_parts(["first"], "train", root)

    def broken(reader: ImageShards, shard: object) -> dict:
        found = embed(reader, shard)
        if reader.keys[0] == images.keys[0] and shard.name == "00001":
            found["text"][2, 1] = value
        return found

    with pytest.raises(DarkroomError, match=rf"00001\.tar: the text embedding of the image {images.keys[9]} is not"):
        make_embeddings(root, root.parent / "embeddings", "first", embed=broken)
    assert not (root.parent / "embeddings" / "first").exists()


def test_too_few_rows_are_refused(root: Path) -> None:
    def fewer(reader: ImageShards, shard: object) -> dict:
        return {name: values[:-1] for name, values in embed(reader, shard).items()}

    with pytest.raises(DarkroomError, match=r"00000\.tar: its image embeddings have shape \(6, 4\), not \(7, 4\)"):
        make_embeddings(root, root.parent / "embeddings", "first", embed=fewer)


class _Litter:
    """Garbage that lets other threads go on as it is collected, and leaves more."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        time.sleep(0)
        if gc.get_threshold()[0] == 1:
            _Litter()


def test_many_files_are_mapped_at_once(tmp_path: Path) -> None:
    """NumPy parses a header as Python, at which CPython 3.11 fails where threads change in the midst of it."""
    paths = [tmp_path / f"{number}.npy" for number in range(4)]
    for path in paths:
        np.save(path, np.zeros((3, 4), np.float16))
    before = gc.get_threshold()
    gc.set_threshold(1)
    _Litter()
    try:
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(map_embeddings, paths * 250))
    finally:
        gc.set_threshold(*before)
    assert len(found) == 1000
