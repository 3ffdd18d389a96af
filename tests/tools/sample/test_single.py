"""`darkroom sample --out DIR`: single images with their origin, and how near each is to the training images."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from darkroom.artifacts.manifest import manifest_hash
from darkroom.cli import main
from darkroom.data.catalog_writer import write_catalog
from darkroom.data.images import ImageSpec
from darkroom.data.reader import ImageShards
from darkroom.tools.sample.single import Origin, nearness, write_singles
from darkroom.tools.sample.texts import unknown_words
from data.making import make_part
from tools.sample.test_classes import clone  # noqa: F401, a fixture

ORIGIN = Origin(7, {"steps": 2}, {"models/generator": "a" * 64})


@pytest.fixture
def parts(tmp_path, monkeypatch):
    """Two parts of RGBA noise images, and their catalog."""
    monkeypatch.chdir(tmp_path)
    for part, start in (("one", 0), ("two", 100)):
        make_part(Path("data/shards"), part, start, start + 60, ImageSpec(16, "RGBA", "png"))
    write_catalog(Path("data/catalog"), ["one", "two"])
    return ImageShards.open_parts(["one", "two"], "train")


def fresh(count, seed=1000):
    return np.random.default_rng(seed).integers(0, 256, (count, 4, 16, 16), dtype=np.uint8)


def test_a_copy_is_named_by_its_original_and_a_fresh_image_is_new(parts):
    row = len(parts) - 1
    original = parts[row]
    moved = np.roll(original, 1, axis=2)[..., ::-1]  # also mirrored
    blend = (0.5 * original + 0.5 * fresh(1)[0]).astype(np.uint8)
    verdicts, real = nearness(np.stack([original, moved, blend, *fresh(4)]))
    key = f"two/{parts.keys_of([row])[0]}"
    assert verdicts == [*[("a copy of", key)] * 2, ("near", key), *[("new",)] * 4]
    assert real.startswith("Of ") and "0.0% are copies" in real


def test_a_single_image_holds_its_origin_and_keeps_its_transparency(parts, tmp_path):
    rows = [("a größer orc", fresh(2)), ("an elf", fresh(1, 1001))]
    (tmp_path / "out").mkdir()
    said = write_singles(tmp_path / "out", "caption", rows, ORIGIN).splitlines()
    image = Image.open(tmp_path / "out/7-1.png")
    assert image.mode == "RGBA" and (np.asarray(image).transpose(2, 0, 1) == rows[0][1][1]).all()
    own = {"caption": "a größer orc", "number": 1, "seed": 7, "settings": {"steps": 2}}
    assert json.loads(image.text["darkroom"]) == {**own, "models": {"models/generator": "a" * 64}}
    assert [line.split() for line in said[2:4]] == [
        ["7-1.png", "a", "größer", "orc", "new"],
        ["7-2.png", "an", "elf", "new"],
    ]


def test_many_images_are_counted(parts, tmp_path):
    images = np.concatenate([fresh(20), parts.__getitems__([0, 1])])
    said = write_singles(tmp_path, "class", [("a", images)], ORIGIN)
    assert "2 copies, 20 new" in said and "7-3.png " not in said


def test_the_same_seed_gives_the_same_bytes_and_no_image_is_overwritten(clone, capsys):  # noqa: F811
    for out in ("x", "y"):
        assert main(["sample", "--labels", "3,5", "--images", "2", "--out", out]) == 0
    assert "not compared with the training images: data/catalog" in capsys.readouterr().out
    names = [f"1-{number}.png" for number in range(4)]
    assert sorted(path.name for path in Path("x").iterdir()) == [*names, "1-grid.png"]
    assert all(Path("x", name).read_bytes() == Path("y", name).read_bytes() for name in names)
    facts = json.loads(Image.open("x/1-3.png").text["darkroom"])
    assert (facts["class"], facts["number"], facts["settings"]["steps"]) == ("5", 1, 2)
    assert facts["models"]["models/generator"] == manifest_hash(Path("models/generator"))
    assert main(["sample", "--labels", "3", "--out", "x"]) == 1
    assert "holds images of the seed 1: choose another folder" in capsys.readouterr().err
    assert main(["sample", "--labels", "3", "--out", "x.jpg"]) == 1
    assert "ends in .png" in capsys.readouterr().err


def test_unknown_words_are_named_with_the_nearest_ones():
    words = {"orcs", "archer", "skeleton"}
    known = "the training captions have only these words: archer, orcs, skeleton"
    assert unknown_words("Orc archer, ORC", words) == ['"orc" is not in the training captions; nearest: "orcs"', known]
    assert unknown_words("zzz", words) == ['"zzz" is not in the training captions', known]
    assert unknown_words("orcs", words) == unknown_words("x", set()) == []
    assert [len(unknown_words("zzz", {f"word{number}" for number in range(count)})) for count in (60, 61)] == [2, 1]
