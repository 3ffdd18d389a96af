"""Stored images and latents as trainings see them: mirrored by position, labels as numbers, an order where remote."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image

from darkroom.data.catalog import Catalog
from darkroom.data.images import ImageSpec
from darkroom.data.latent_file import SHIFTS, to_float32
from darkroom.data.latents import LatentShards
from darkroom.data.reader import ImageShards
from darkroom.data.streaming import StreamingOrder
from darkroom.errors import DarkroomError
from darkroom.models.generators.data import LabelledLatents
from darkroom.rng import order
from darkroom.training.data import (
    Augmentation,
    Classes,
    Images,
    LabelledImages,
    label_numbers,
    mirrored,
    random_crop,
)
from data.making import make_latents, make_part

NAMES = tuple(str(number) for number in range(12))
NUMBERS = {name: at for at, name in enumerate(NAMES)}
CATALOG = Catalog(NAMES, {}, ImageSpec(6, "RGB", "png"), {}, {}, "", None, NUMBERS)


@pytest.fixture
def shards(tmp_path: Path) -> ImageShards:
    """Two parts, of which only `true` has mirror images."""
    make_part(tmp_path / "shards", "true", 0, 40, mirror=True)
    make_part(tmp_path / "shards", "false", 40, 60)
    return ImageShards.open_parts(["true", "false"], "train", tmp_path / "shards")


# --- mirror images ---


def test_half_are_mirrored_where_a_mirror_image_is_as_true() -> None:
    mirrors = np.arange(4) < 2
    rows = np.arange(4000) % 4
    found = mirrored(7, mirrors, rows.tolist(), np.arange(4000))
    assert not found[rows >= 2].any()
    assert abs(found[rows < 2].mean() - 0.5) < 4 * 0.5 / np.sqrt(2000)


def test_a_draw_follows_from_seed_and_position_alone() -> None:
    mirrors = np.ones(10, dtype=bool)
    whole = mirrored(7, mirrors, [3] * 200, np.arange(200))
    assert (mirrored(7, mirrors, [5] * 50, np.arange(100, 150)) == whole[100:150]).all()
    assert (mirrored(8, mirrors, [3] * 200, np.arange(200)) != whole).any()
    assert not mirrored(7, mirrors, [3] * 200, None).any()


@pytest.mark.parametrize("made", [Images, lambda shards, seed: LabelledImages(shards, CATALOG, seed)])
def test_images_are_mirrored_from_left_to_right(shards: ImageShards, made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageShards, "label_column", pa.chunked_array([["1"] * len(shards)]))
    rows = [0, len(shards) - 1, *range(10)]
    positions = np.arange(1000, 1012)
    plain = shards.__getitems__(rows)
    seen = made(shards, 5).__getitems__(rows, positions)["images"]
    turned = mirrored(5, shards.mirrors, rows, positions)
    assert turned.any() and not turned.all() and not turned[1]
    for image, stored, turn in zip(seen, plain, turned, strict=True):
        assert (image == (stored[:, :, ::-1] if turn else stored)).all()
    assert (made(shards, 5).__getitems__(rows)["images"] == plain).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_latents_of_the_mirror_image_are_read_by_the_same_draw(shards: ImageShards, tmp_path: Path, dtype: str) -> None:
    for part in ("true", "false"):
        make_latents(tmp_path / "shards", tmp_path / "latents", part, dtype)
    reader = LatentShards.open_parts(["true", "false"], "train", tmp_path / "latents")
    reader.__class__ = type("Labelled", (LatentShards,), {"label_column": pa.chunked_array([["1"] * len(reader)])})
    rows, positions = list(range(len(reader))), np.arange(500, 500 + len(reader))
    data = LabelledLatents(reader, CATALOG, 5).__getitems__(rows, positions)
    expected = reader.__getitems__(rows, len(SHIFTS) * mirrored(5, reader.mirrors, rows, positions))
    plain = LabelledLatents(reader, CATALOG, 5).__getitems__(rows)
    for name in ("mean", "logvar"):
        assert data[name].dtype == getattr(torch, dtype)
        assert (data[name].float().numpy() == to_float32(expected[name])).all()
        assert (plain[name].float().numpy() == to_float32(reader.__getitems__(rows)[name])).all()
    assert (data["mean"] != plain["mean"]).any()


def test_without_mirror_images_nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("darkroom.training.data.random_numbers", None)
    assert not mirrored(0, np.zeros(3, dtype=bool), [0, 1], np.arange(2)).any()


# --- labels ---


def test_labels_are_numbers_of_the_catalog() -> None:
    labels = ["3", "11", "0", "3"]
    column = pa.chunked_array([["3"], ["11", "0", "3"]])
    for given in (labels, column):
        found = label_numbers(given, CATALOG)
        assert found.tolist() == [3, 11, 0, 3] and found.dtype == np.int64
    assert label_numbers([], CATALOG).shape == (0,)


def test_a_missing_or_unknown_label_is_refused() -> None:
    with pytest.raises(DarkroomError, match=r"2 of 4 images have no label \(the first is row 2\)"):
        label_numbers(["1", "2", None, None], CATALOG)
    told = r"but `train_x` needs labels: set `classes` to false, add labels, or set `ingest.rules"
    with pytest.raises(DarkroomError, match=told):
        label_numbers([None], CATALOG, None, "`train_x`", "set `classes` to false")
    with pytest.raises(DarkroomError, match="but `train_x` needs labels: add labels, or"):
        label_numbers([None], CATALOG, None, "`train_x`")
    with pytest.raises(DarkroomError, match="'owl' is not among"):
        label_numbers(["1", "owl"], CATALOG)


# --- order ---


def test_local_images_are_permuted_as_a_whole(shards: ImageShards) -> None:
    images = Images(shards)
    assert images.order(3, np.arange(40)).tolist() == order(3, len(shards), np.arange(40)).tolist()
    images.prefetch(3, 0)  # nothing to fetch


def test_remote_images_are_streamed_and_fetched_window_by_window(
    shards: ImageShards, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[list[str]] = []
    monkeypatch.setattr(ImageShards, "remote", True)
    monkeypatch.setattr(ImageShards, "prefetch", lambda _, some: fetched.append([shard.name for shard in some]))
    images = Images(shards)
    streaming = StreamingOrder([shard.images for shard in shards.shards])
    assert images.order(3, np.arange(40)).tolist() == streaming.order(3, np.arange(40)).tolist()
    for position in (0, 1, 2):
        images.prefetch(3, position)
    expected = [shards.shards[number].name for number in streaming.upcoming(3, 0)]
    assert fetched == [expected]  # once, as the window stays


def test_keys_are_those_of_the_rows(shards: ImageShards) -> None:
    assert Images(shards).keys([5, 0]) == [shards.keys[5], shards.keys[0]]


# --- the classes of some parts ---


def test_classes_of_some_parts_are_numbered_by_name(tmp_path: Path) -> None:
    make_part(tmp_path / "shards", "named", default_label="none")
    shards = ImageShards.open_parts(["named"], "train", tmp_path / "shards")
    classes = Classes.of([pa.chunked_array([["b", None, "a"]]), pa.chunked_array([["c", "a"]])])
    assert classes.classes == ("a", "b", "c") and [classes.number(name) for name in "cab"] == [2, 0, 1]
    own = Classes.of([shards.label_column])
    rows = LabelledImages(shards, own)
    assert rows.classes == own.classes
    assert [own.classes[number] for number in rows.labels] == list(shards.labels)


# --- random resized crops ---


def test_a_random_crop_is_the_part_that_was_drawn_at_the_size_of_the_image() -> None:
    """Against a loop in plain numbers, and torchvision's crop and resize of it."""
    from torchvision.transforms.functional import resized_crop

    image = np.random.default_rng(0).integers(0, 256, (3, 32, 32), dtype=np.uint8)
    for seed in range(50):
        uniform = np.random.default_rng(seed).random(22)
        box = (0, 0, 32, 32)
        for area, ratio in zip(uniform[2::2], uniform[3::2], strict=True):
            size, shape = 32 * 32 * (0.3 + 0.7 * area), 0.5 * 4.0**ratio  # from 1/2 to 2, evenly in the logarithm
            width, height = round((size * shape) ** 0.5), round((size / shape) ** 0.5)
            if width <= 32 and height <= 32:
                box = int(uniform[0] * (33 - height)), int(uniform[1] * (33 - width)), height, width
                break
        expected = resized_crop(Image.fromarray(image.transpose(1, 2, 0)), *box, [32, 32])
        assert (random_crop(image, (0.3, 1.0), (0.5, 2.0), uniform) == np.asarray(expected).transpose(2, 0, 1)).all()


@pytest.mark.parametrize("channels", [1, 4])
def test_where_no_crop_fits_the_middle_is_taken(channels: int) -> None:
    image = np.zeros((channels, 16, 16), dtype=np.uint8)
    image[..., 6:10] = 255  # the middle quarter
    assert (random_crop(image, (1.0, 1.0), (0.25, 0.25), np.full(22, 0.5)) == 255).all()


def test_augmentation_follows_from_seed_and_position_and_leaves_validation_alone(shards: ImageShards) -> None:
    how, rows, positions = Augmentation(mirror=0.8, scale=(0.3, 0.9)), list(range(24)), np.arange(100, 124)
    whole = Images(shards, 5, how).__getitems__(rows, positions)["images"]
    assert (Images(shards, 5, how).__getitems__(rows[7:9], positions[7:9])["images"] == whole[7:9]).all()
    assert (Images(shards, 6, how).__getitems__(rows, positions)["images"] != whole).any(axis=(1, 2, 3)).sum() > 20
    assert (Images(shards, 5, how).__getitems__(rows)["images"] == shards.__getitems__(rows)).all()
    # The crop is drawn by itself, and mirrored then.
    cut = Images(shards, 5, Augmentation(mirror=0.0, scale=(0.3, 0.9))).__getitems__(rows, positions)["images"]
    turned = mirrored(5, shards.mirrors, rows, positions, 0.8)
    assert turned.any() and not turned.all()
    assert (np.where(turned[:, None, None, None], cut[..., ::-1], cut) == whole).all()


@pytest.mark.parametrize("probability", [0.0, 0.2])
def test_a_probability_mirrors_any_image(probability: float) -> None:
    found = mirrored(7, np.zeros(3, dtype=bool), [0] * 4000, np.arange(4000), probability)
    assert found.mean() == pytest.approx(probability, abs=4 * 0.5 / np.sqrt(4000))
