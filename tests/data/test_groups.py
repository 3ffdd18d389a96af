"""Groups of images, splits by group, and leakage, on frames of units and through the stage `ingest`."""

import io
import itertools
import json
import pickle
import re
import shutil
from collections import defaultdict
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from darkroom.artifacts.manifest import read_manifest
from darkroom.data.catalog import leakage_warnings
from darkroom.data.catalog_writer import write_catalog
from darkroom.data.embeddings import EmbeddingShards
from darkroom.data.grouping import Looks, leakage, near_twins, split_by_group
from darkroom.data.groups import SIZE, THUMB, Groups, by_look, by_name, descriptor, distance, in_order, neighbours
from darkroom.data.index import IMAGES, LATENTS, NAME
from darkroom.data.latents import LatentShards
from darkroom.data.layout import KIND, SHARDS
from darkroom.data.reader import ImageShards
from darkroom.data.splits import SPLITS, split_of
from darkroom.errors import DarkroomError
from darkroom.params.ingest import Params
from darkroom.stages import ingest
from data.embeddings_made import make_embeddings
from data.frames import name_of, unit_image, write_frames
from data.making import contents, make_latents
from data.making_tars import tar

FRACTIONS = {"train": 0.7, "val": 0.1, "test": 0.2}


def ingested(part: dict[str, Any], group: str, name: str = "units", processes: int = 1, **section: Any) -> dict:
    """Run the stage, and return the manifest of the part."""
    how = {"image_size": 16, "group": group, "splits": FRACTIONS, "rules": {"label_missing": "keep"}}
    values = {"run": {"ingest_processes": processes}, "parts": {name: part}, "ingest": how, part["source"]: section}
    ingest.run(Params.model_validate(values), name)
    return read_manifest(SHARDS / name, KIND)


def unit_of(key: str) -> str:
    return re.findall(r"[a-h][k-r]orc", key)[0]


def splits_of_units(part: str = "units") -> dict[str, set[str]]:
    splits = defaultdict(set)
    for split in SPLITS:
        for key in ImageShards.open_parts([part], split).keys:
            splits[unit_of(key)].add(split)
    return splits


def measured(*parts: str) -> dict[str, Any]:
    folder = Path("catalog")
    folder.mkdir(exist_ok=True)
    return write_catalog(folder, parts)["leakage"]


FRAMES = {"source": "folder", "path": "frames"}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Frames, the parts `keyed` and `units` of them, split by key and by name, and what the second one printed."""
    folder = tmp_path_factory.mktemp("template")
    with chdir(folder):
        write_frames(Path("frames"))
        ingested(FRAMES, "key", "keyed")
        with redirect_stdout(io.StringIO()) as printed:
            ingested(FRAMES, "name")
        Path("printed").write_text(printed.getvalue())
    return folder


@pytest.fixture
def frames(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Go to a folder with the frames alone."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(template / "frames", "frames")
    return FRAMES


@pytest.fixture
def parted(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Go to a folder with the frames and both parts."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    return FRAMES


def test_no_unit_lies_in_two_splits_by_name_and_by_look(parted) -> None:
    before, named = (read_manifest(SHARDS / part, KIND) for part in ("keyed", "units"))
    assert "groups" not in before and sum(len(splits) > 1 for splits in splits_of_units("keyed").values()) > 20
    assert all(len(splits) == 1 for splits in splits_of_units().values())
    printed = Path("printed").read_text()
    rule = "the first word of the file name, and near copies"
    assert f"split by group, by {rule}: 48 groups, the largest of 14 images, as diverse as 34 of equal size" in printed
    sizes = np.array([14 if unit % 3 == 0 else 4 for unit in range(48)])
    effective = round(float(sizes.sum() ** 2 / (sizes**2).sum()), 1)
    facts = {"rule": rule, "groups": 48, "largest": 14, "effective": effective, "salt": named["groups"]["salt"]}
    assert named["groups"] == facts and effective == 34
    for split, fraction in FRACTIONS.items():
        assert abs(named["splits"][split]["images"] / sizes.sum() - fraction) <= 0.03
    assert set(named["splits"]["train"]["labels"]) == {"dwarves", "elves"}
    looks = ingested(parted, "similar", "alike")
    assert "similar images" in looks["groups"]["rule"] and looks["groups"]["groups"] >= 48
    assert sum(len(splits) > 1 for splits in splits_of_units("alike").values()) <= 2

    keyed, unit = measured("keyed"), measured("units")
    assert keyed["near"] > 0.5 and keyed["nearest_label"] > keyed["nearest_label_other_group"] + 0.2
    (line,) = leakage_warnings(keyed)
    assert "of the held-out images have a near twin in training (5% would be chance)" in line
    assert line.endswith("set `ingest.group: name`")
    assert unit["near"] <= 0.25 and unit["setting"] is None and not leakage_warnings(unit)
    assert 5 < unit["groups"] < 15 < len(leakage_warnings({**unit, "near": 0.5})[0])
    both = measured("keyed", "units")  # the parts share images, and only one is split by group
    assert both["near"] > 0.5 and both["images"] == keyed["images"] + unit["images"]


def frame_of(key: str) -> str:
    return re.findall(r"[a-h][k-r]orc-\w+-\d+", key)[0]


def test_twins_in_other_parts_can_be_left_out(parted) -> None:
    """A second part has every third frame of some units, and its own splits."""
    for number, path in enumerate(sorted(Path("frames").rglob("*.png"))):
        if number % 3 == 0 and path.stem[0] in "abc":
            Path("keyed").mkdir(exist_ok=True)
            shutil.copy(path, f"keyed/{path.name}")
    ingested({**parted, "path": "keyed"}, "key", "keyed")
    parts = ["keyed", "units"]
    leaky = measured(*parts)
    assert leaky["near"] > 0.2
    assert "set `reference_stats.twins: quarantine`" in leakage_warnings({**leaky, "setting": None})[0]
    train, whole, others = (ImageShards.open_parts(parts, split) for split in ("train", "test", "test"))
    rows = near_twins(train, whole)
    others.leave_out(rows)
    kept = [row for row in range(len(whole)) if row not in rows]
    trained = set(map(frame_of, train.keys))
    assert trained & set(map(frame_of, whole.keys)) and not trained & set(map(frame_of, others.keys))
    assert {unit_of(key) for key in others.keys} - {unit_of(key) for key in train.keys}
    assert others.keys == whole.keys_of(kept) and others.labels == [whole.labels[row] for row in kept]
    assert (others.__getitems__(range(len(others))) == whole.__getitems__(kept)).all()
    assert [others.file_of(at) for at in range(len(kept))] == [whole.file_of(row) for row in kept]
    assert [row["key"] for shard in others.shards for row in others.texts(shard)] == others.keys
    assert pickle.loads(pickle.dumps(others)).keys == others.keys


@pytest.mark.usefixtures("parted")
def test_twins_are_refused_where_too_few_images_are_left() -> None:
    train, test = (ImageShards.open_parts(["keyed"], split) for split in ("train", "test"))
    with pytest.raises(DarkroomError, match="239 of 239 held-out images have a near twin in training, and 2 others"):
        near_twins(train, train)
    test.leave_out(range(20, len(test)))
    with pytest.raises(DarkroomError, match="50 training images and 50 held-out images, but there are 239 and 20: "):
        near_twins(train, test)


@pytest.mark.usefixtures("parted")
def test_parts_by_key_stay_as_they_were_and_are_read_with_others() -> None:
    schemas = [pq.read_schema(SHARDS / part / "train" / NAME) for part in ("keyed", "units")]
    assert [schema.names for schema in schemas] == [IMAGES.names, [*IMAGES.names, "group"]]
    for split in SPLITS:
        keys = ImageShards.open_parts(["keyed"], split).keys
        assert keys and all(split_of(key, FRACTIONS, 0) == split for key in keys)
    both = ImageShards.open_parts(["keyed", "units"], "train")
    groups = both.some("group", range(len(both)))
    count = len(ImageShards.open_parts(["keyed"], "train"))
    assert groups[:count] == [None] * count and groups[count].startswith("units/")
    named = {group: unit_of(key) for group, key in zip(groups[count:], both.keys[count:], strict=True)}
    assert len(set(named.values())) == len(named)  # a group is one unit
    metadata = {
        path.split("/")[0] for path in contents(SHARDS / "units") if "outcomes" in path or path.startswith("tmp")
    }
    assert not metadata  # nothing that waited is left


@pytest.mark.usefixtures("parted")
def test_latents_and_embeddings_keep_the_groups_of_their_images() -> None:
    parts, folder = ["keyed", "units"], Path("made")
    for part in parts:
        make_latents(SHARDS, folder / "latents", part, shape=(2, 8, 8))
        make_embeddings(SHARDS, folder / "embeddings", part)
    images = ImageShards.open_parts(parts, "train")
    alone = len(ImageShards.open_parts(["keyed"], "train"))
    assert (np.bincount(images.groups) == 1).sum() >= alone and np.bincount(images.groups).max() > 2
    for stored in (LatentShards, EmbeddingShards):
        assert stored.open_parts(parts, "train", folder / stored.plural).groups.tolist() == images.groups.tolist()
    columns = pq.read_schema(folder / "latents/keyed/train" / NAME).names
    assert columns == LATENTS.names


def test_worker_processes_make_the_same_part(frames) -> None:
    ingested(frames, "auto")
    one = contents(SHARDS)
    ingested(frames, "auto", processes=2)
    assert contents(SHARDS) == one


def test_names_without_a_rule_say_what_was_tried(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plain").mkdir()
    for number in range(60):
        unit_image(number, 0).save(f"plain/IMG_{number:05d}.png")
    plain = {"source": "folder", "path": "plain"}
    with pytest.raises(DarkroomError, match=r"no rule .* holds: .*the first word of the file name \(1 groups, 20 are "):
        ingested(plain, "name")
    with pytest.raises(DarkroomError, match="is name, but images of the part `units` lack a file name: set it to sim"):
        ingested({"source": "digits", "stop": 40}, "name")
    with pytest.raises(DarkroomError, match="by the folder, makes 1 groups, each with more than 5% of the images"):
        ingested(plain, "folder")
    with pytest.raises(DarkroomError, match=r"`ingest\.group` names a column, but digits has none"):
        ingested({"source": "digits", "stop": 40}, "column:writer")
    assert ingested(plain, "auto")["groups"]["groups"] == 60


def test_groups_of_a_column_of_the_table_and_of_tars_in_place(frames) -> None:
    paths = sorted(path.relative_to("frames").as_posix() for path in Path("frames").rglob("*.png"))
    rows = [f"{path},{'' if number == 0 else unit_of(path)}" for number, path in enumerate(paths)]
    Path("frames/metadata.csv").write_text("\n".join(["file_name,unit", *rows]))
    assert ingested(frames, "column:unit")["groups"]["groups"] == 49  # and one image without a value
    members: dict[str, bytes] = {}
    for number, path in enumerate(paths):
        members |= {f"{number:04d}.png": Path("frames", path).read_bytes(), f"{number:04d}.cls": b"0"}
        members[f"{number:04d}.json"] = json.dumps({"unit": unit_of(path)}).encode()
    Path("tars").mkdir()
    for shard in range(2):  # frames of a unit lie in both
        tar(Path(f"tars/{shard}.tar"), {name: data for name, data in members.items() if int(name[:4]) % 2 == shard})
    tars = {"source": "webdataset", "path": "tars"}
    assert ingested(tars, "column:unit", "tars")["groups"]["groups"] == 48
    splits = defaultdict(set)
    for split in SPLITS:
        for key in ImageShards.open_parts(["tars"], split).keys:
            splits[unit_of(paths[int(key)])].add(split)
    assert all(len(of) == 1 for of in splits.values())
    assert ingested(tars, "similar", "tars")["groups"]["groups"] == 48 and not leakage_warnings(measured("tars"))
    with pytest.raises(DarkroomError, match="lack the column `colour`"):
        ingested(tars, "column:colour", "tars")


def test_groups_of_a_column_of_the_hub(tmp_path, monkeypatch) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.chdir(tmp_path)
    images = [unit_image(number // 2, number % 2) for number in range(60)]
    files = [io.BytesIO() for _ in images]
    for image, file in zip(images, files, strict=True):
        image.save(file, "PNG")
    rows = [{"bytes": file.getvalue(), "path": None} for file in files]
    features = datasets.Features({"image": datasets.Image(), "unit": datasets.Value("int64")})
    table = datasets.Dataset.from_dict({"image": rows, "unit": [n // 2 for n in range(60)]}, features)
    Path("hub").mkdir()
    table.to_parquet("hub/train.parquet")
    part = {"source": "hub", "path": "hub", "settings": {"label": None}}
    assert ingested(part, "column:unit")["groups"]["groups"] == 30
    with pytest.raises(DarkroomError, match=r"has no column `units`, set by `ingest\.group`, only `image`, `unit`"):
        ingested(part, "column:units")


@st.composite
def pictures(draw: st.DrawFn) -> np.ndarray:
    height, width = draw(st.integers(1, 90)), draw(st.integers(1, 90))
    seeded = np.random.default_rng(draw(st.integers(0, 10**6)))
    small = seeded.integers(0, 256, (3, 4, 4), dtype=np.uint8)
    small[..., 3] = draw(st.sampled_from([255, small[..., 3], np.where(small[..., 3] < 128, 0, 255)]))
    return np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.NEAREST))


@settings(max_examples=60, deadline=None)
@given(pictures(), st.integers(0, 10**6))
def test_hidden_colours_mirroring_and_an_empty_border_do_not_matter(pixels: np.ndarray, seed: int) -> None:
    look = descriptor(Image.fromarray(pixels))
    other = pixels.copy()
    hidden = pixels[..., 3] == 0
    other[hidden, :3] = np.random.default_rng(seed).integers(0, 256, (hidden.sum(), 3))
    assert np.array_equal(descriptor(Image.fromarray(other)), look)
    assert np.array_equal(descriptor(Image.fromarray(np.pad(pixels, ((3, 9), (5, 2), (0, 0))))), look)
    assert look.shape == (SIZE,) and look.dtype == np.float32
    if hidden.all():
        assert not look.any()
        return
    turned = descriptor(ImageOps.mirror(Image.fromarray(pixels)))
    # Pillow rounds each pixel of the thumbnail to 1/255.
    assert distance(look, turned) <= 0.001 and abs(distance(look, turned) - distance(turned, look)) < 1e-6


@pytest.mark.parametrize("few", [0, 512])
def test_the_distance_is_small_for_frames_and_large_for_other_units(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also among candidates by principal components, as in larger parts."""
    monkeypatch.setattr("darkroom.data.groups._FEW", few)
    looks = np.stack([descriptor(unit_image(unit, frame)) for unit in range(40) for frame in range(3)])
    units = np.repeat(np.arange(40), 3)
    near, far = neighbours(looks)
    nearest = near[np.arange(120), far.argmin(1)]
    assert (units[nearest] == units).mean() > 0.95
    candidates = far.min(1)
    exact = np.array(
        [min(distance(looks[row], looks[other]) for other in range(120) if other != row) for row in range(12)]
    )
    np.testing.assert_allclose(candidates[:12], exact, atol=1e-5)
    photo = descriptor(unit_image(3, 0).resize((1600, 1600), Image.Resampling.NEAREST))
    assert distance(photo, looks[9]) < 0.02  # of any size
    assert distance(descriptor(Image.new("L", (9, 9), 40)), descriptor(Image.new("RGB", (20, 5), (40, 40, 40)))) < 1e-3


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=4, max_size=120), st.integers(0, 1000), st.integers(0, 99))
def test_no_group_lies_in_two_splits_and_large_ones_train(sizes: list[int], seed: int, shuffled: int) -> None:
    numbers = np.random.default_rng(shuffled).permutation(np.repeat(np.arange(len(sizes)), sizes))
    groups = Groups(in_order(numbers.tolist()), "size")
    keys = [f"key-{number}" for number in range(len(numbers))]
    labels = ["rare" if number % 7 == 0 else "common" for number in groups.numbers.tolist()]
    large = groups.sizes > max(1, 0.05 * len(keys))
    if large.all():
        with pytest.raises(DarkroomError, match="they all train"):
            split_by_group(groups, keys, labels, FRACTIONS, seed)
        return
    splits, salt = split_by_group(groups, keys, labels, FRACTIONS, seed)
    of = defaultdict(set)
    for split, number in zip(splits, groups.numbers.tolist(), strict=True):
        of[number].add(split)
    assert all(len(each) == 1 for each in of.values())
    assert all(of[number] == {"train"} for number in np.flatnonzero(large))
    if salt == 0:  # what a group's first key says
        for number in np.flatnonzero(~large).tolist():
            first = int(np.flatnonzero(groups.numbers == number)[0])
            assert of[number] == {split_of(keys[first], FRACTIONS, seed)}
    if len(keys) >= 400 and not large.any():
        assert "rare" in {label for label, split in zip(labels, splits, strict=True) if split == "train"}
        assert abs(splits.count("test") / len(keys) - 0.2) < 0.05


def test_leaking_grouped_and_independent_splits_are_told_apart() -> None:
    units, frames = 100, 5
    looks = np.stack([descriptor(unit_image(unit, frame)) for unit in range(units) for frame in range(frames)])
    of = np.repeat(np.arange(units), frames)
    labels = np.array(["dwarf", "elf"])[of % 2]

    def near(held_out: np.ndarray, groups: np.ndarray = of) -> dict[str, float]:
        sides = (Looks(looks[rows], groups[rows], labels[rows].tolist()) for rows in (~held_out, held_out))
        return leakage(*sides)

    row = np.arange(len(of))
    leaking, grouped = near(row % frames == 0), near(of % 5 == 0)
    assert leaking["near"] > 0.8 and leaking["nearest_label"] > 0.95 and leaking["nearest_label_other_group"] < 0.8
    assert grouped["near"] < 0.1 and grouped["nearest_label"] == grouped["nearest_label_other_group"]
    single = row % frames == 0
    looks, labels, of = looks[single], labels[single], of[single]
    assert near(np.arange(units) % 3 == 0, of)["near"] < 0.2  # independent images, 34 held out
    copies = Looks(looks[50:], of[50:], labels[50:].tolist())
    assert leakage(copies, Looks(looks[50:60], of[50:60], labels[50:60].tolist()))["near"] == 1


def test_rules_on_names() -> None:
    looks = np.stack([descriptor(unit_image(unit, frame)) for unit in range(40) for frame in range(6)])
    units, labels = np.repeat(np.arange(40), 6), [f"{unit // 4}" for unit in range(40) for _ in range(6)]
    words = [f"{label}/{name_of(unit)}-{frame}" for (unit, frame), label in zip(np.ndindex(40, 6), labels, strict=True)]
    named, tried = by_name([f"{word}.png" for word in words], looks, labels)
    assert named is not None and np.array_equal(named.numbers, units) and named.setting == "name"
    assert [each for each in tried if each.startswith("the folder (10 groups")]
    shuffled = np.random.default_rng(0).permutation(looks)  # images of one name are not alike
    named, tried = by_name([f"{word}.png" for word in words], shuffled, labels)
    assert named is None and any("not alike" in each for each in tried)
    sizes = [f"{name_of(unit)}/{side}/icon.png" for unit in range(40) for side in range(6)]
    assert by_name(sizes, looks, [name_of(unit) for unit in units])[0] is None  # the top folder is the class


def test_chains_of_images_are_no_group() -> None:
    """Each resembles the next, and no more: neither the whole nor a part of the chain is joined."""
    steps = np.linspace(0, 1, 200)[:, None, None, None]
    ends = np.random.default_rng(0).integers(0, 256, (2, 1, 8, 8, 3))
    blends = (ends[0] * (1 - steps) + ends[1] * steps).astype(np.uint8)
    chain = np.stack([descriptor(Image.fromarray(pixels)) for pixels in blends])
    groups = by_look(*neighbours(chain))
    assert groups.sizes.max() <= 0.15 * 200
    blocks = np.stack([descriptor(unit_image(unit, frame)) for unit in range(40) for frame in range(5)])
    found = by_look(*neighbours(blocks))
    assert len(found.sizes) <= 60 and found.effective > 30


def test_a_descriptor_has_the_trilinear_histogram_of_the_visible_colours():
    pixels = np.random.default_rng(0).integers(0, 255, (8, 8, 4), np.uint8)
    pixels[0, 0, 3] = pixels[-1, -1, 3] = 255  # the box of alpha is the whole image
    expected = np.zeros((6, 6, 6))
    for *colour, alpha in pixels.reshape(-1, 4) / 255:
        for corner in itertools.product((0, 1), repeat=3):
            near = np.floor(np.multiply(colour, 5)).astype(int) + corner
            expected[tuple(near)] += alpha * np.prod(1 - np.abs(np.multiply(colour, 5) - near))
    found = descriptor(Image.fromarray(pixels))[THUMB : THUMB + 6**3]
    np.testing.assert_allclose(found**2, (expected / expected.sum()).ravel(), atol=1e-5)
