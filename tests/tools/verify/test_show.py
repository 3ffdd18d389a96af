import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from darkroom.artifacts.manifest import read_manifest
from darkroom.cli import main
from darkroom.data.catalog_writer import write_catalog
from darkroom.data.damage import DamageError, Finding, Reason
from darkroom.data.images import ImageSpec, to_pil
from darkroom.data.index import IMAGES, IndexWriter
from darkroom.data.layout import KIND, SHARDS
from darkroom.data.reader import ImageShards
from darkroom.data.sample import Entry, Raw
from darkroom.data.splits import SPLITS, split_of
from darkroom.stages.catalog import summary as catalog_log
from darkroom.tools.verify.show import summary
from darkroom.tools.verify.text import text_of
from data.making import SHARES, Noise, make_part, pixels
from tools.verify.making import configure, said


def facts_of(*words: str) -> dict:
    code, text = said("data", "--json", *words)
    assert code == 0
    return json.loads(text)


def test_counts_of_every_part_and_split(made: Path) -> None:
    metadata = facts_of()
    for part, total in zip(metadata["parts"], (30, 12), strict=True):
        manifest = read_manifest(SHARDS / part["name"], KIND)
        assert part["images"] == {split: manifest["splits"][split]["images"] for split in SPLITS}
        assert sum(part["images"].values()) == total
        assert part["shards"] == len(list((SHARDS / part["name"]).rglob("*.tar")))
        assert part["bytes"] == sum(path.stat().st_size for path in (SHARDS / part["name"]).rglob("*.tar"))
    assert metadata["images"] == 42
    text = said("data")[1]
    head, _, first, second, _, total = text.splitlines()[:6]
    assert head.split()[:5] == ["part", "source", "train", "val", "test"]
    assert first.split()[:2] == ["first", "noise"] and second.split()[0] == "second"
    assert [int(word) for word in total.split()[1:4]] == [
        sum(part["images"][split] for part in metadata["parts"]) for split in SPLITS
    ]
    assert len({len(line) for line in (head, first, second, total)}) == 1  # aligned


def test_one_split_of_one_part(made: Path) -> None:
    metadata = facts_of("second", "--split", "test")
    labels = ImageShards.open_parts(["second"], "test").labels
    assert [part["images"] for part in metadata["parts"]] == [{"test": len(labels)}]
    assert metadata["classes"]["counts"] == {name: labels.count(name) for name in labels if name is not None}
    assert metadata["classes"]["unlabelled"] == labels.count(None)
    assert {image["split"] for row in metadata["grid"]["rows"] for image in row} == {"test"}


class Mess(Noise):
    """A source of which something is wrong with every third sample, and whose sizes and captions differ."""

    def read(self, entry: Entry) -> Raw:
        number = entry.payload
        if number in (3, 6, 9):
            raise DamageError(Reason.TRUNCATED, f"after {number} bytes")
        image = to_pil(pixels(10 if number == 12 else number, ImageSpec(6, "RGB", "png")))
        findings = (Finding(Reason.CAPTION_NOT_UTF8, "read as Windows-1252"),) if number == 15 else ()
        sizes = {0: (60, 20), 1: (5, 4)}
        caption = {0: "one", 1: "two of\nthem, schön", 2: "\x1b[31mred"}.get(number)
        label = "even" if number % 4 == 0 else "odd"
        return Raw(image.resize(sizes.get(number, (6, 6))), label, caption, findings=findings)


@pytest.fixture
def mess(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    configure("mess")
    make_part(SHARDS, "mess", 0, 20, source=Mess())
    return tmp_path


def test_classes_sizes_and_captions(mess: Path) -> None:
    metadata = facts_of()
    assert metadata["classes"] == {"unlabelled": 0, "imbalance": 12 / 5, "counts": {"odd": 12, "even": 5}}
    assert metadata["sizes"]["shorter_side"] == [4, 6, 20]
    assert metadata["sizes"]["aspect_ratio"] == [1.0, 1.0, 3.0]
    assert metadata["sizes"]["enlarged"] == 1
    captions = metadata["captions"]
    assert (captions["images"], captions["without"]) == (3, 14)
    assert (captions["words"], captions["characters"]) == ([1, 1, 4], [3, 8, 18])
    assert {one["caption"] for one in captions["examples"]} == {"one", "two of\nthem, schön", "\x1b[31mred"}
    text = said("data")[1]
    assert "classes: 2, of 5 to 12 images (the largest is 2.4 times the smallest)" in text
    lengths = {line.split()[0]: line.count("#") for line in text.splitlines() if "##" in line}
    assert lengths == {"odd": 40, "even": round(40 * 5 / 12)}
    assert "two of them, schön" in text and "\x1b" not in text


class Names(Noise):
    """A source whose classes nearly agree, and one of which has a single image, in no train split."""

    def read(self, entry: Entry) -> Raw:
        label = {0: "Cat", 1: "lone"}.get(entry.payload, "cat")
        return Raw(to_pil(pixels(entry.payload, ImageSpec(6, "RGB", "png"))), label)


def test_classes_that_look_wrong_are_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    configure("names")
    keys = [f"noise-{number:04d}" for number in range(20)]
    seed = next(seed for seed in range(100) if split_of(keys[1], SHARES, seed) == "test")
    make_part(SHARDS, "names", 0, 20, source=Names(), split_seed=seed)
    near, alone = facts_of()["class_warnings"]
    assert "'Cat' and 'cat'" in near and "without a training image" in alone and "'lone'" in alone
    assert f"  {near}" in said("data")[1].splitlines() and f"  {alone}" in said("data")[1].splitlines()
    (tmp_path / "catalog").mkdir()
    log = catalog_log(write_catalog(tmp_path / "catalog", ["names"]))
    assert f"warning: {near}" in log and f"warning: {alone}" in log


def test_what_was_wrong_and_where(mess: Path) -> None:
    metadata = facts_of()
    left_out, mended = metadata["quarantine"]
    assert (left_out["action"], left_out["reason"], left_out["samples"]) == ("quarantine", "truncated", 3)
    assert left_out["first"][0] == {"key": "noise-0003", "source": "noise 3", "detail": "after 3 bytes"}
    assert (mended["action"], mended["reason"], mended["samples"]) == ("repair", "caption_not_utf8", 1)
    text = said("data")[1]
    assert "left out       truncated" in text and "noise-0009" in text
    assert metadata["duplicates"]["images"] == 1 and "duplicates: 1 stored images repeat an earlier one" in text
    ((one, other),) = metadata["duplicates"]["first"]
    assert {one[-4:], other[-4:]} == {"0010", "0012"} and f"  {one} = {other}" in text.splitlines()


def test_what_was_passed_over(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Folder(Noise):
        def metadata(self) -> dict:
            hidden = {"folders": 2, "files": 0, "within": 1500, "images": 900}
            return {"hidden": hidden, "ignored": {".pdf": 3, "\x1b": 1}, "loops": 1}

    assert "passed over" not in said("data")[1]
    configure("aside")
    make_part(SHARDS, "aside", 0, 20, source=Folder())
    lines = said("data")[1].splitlines()
    at = lines.index("passed over, in no list:")
    assert lines[at + 1 : at + 4] == [
        "  aside  hidden: 2 folders with 1,500 files; with an image's ending 900",
        "  aside  other endings: .pdf 3, \ufffd 1",
        "  aside  links to a folder that contains them: 1",
    ]
    (part,) = facts_of()["parts"]
    assert part["passed_over"]["loops"] == 1


def test_the_whole_list_where_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Empty(Noise):
        def read(self, entry: Entry) -> Raw:
            if entry.payload % 2:
                raise DamageError(Reason.EMPTY)
            return super().read(entry)

    monkeypatch.chdir(tmp_path)
    configure("half")
    make_part(SHARDS, "half", 0, 20, source=Empty())
    keys = {f"noise-{number:04d}" for number in range(1, 20, 2)}
    shown = {word for line in said("data", "--images", "0")[1].splitlines() for word in line.split()} & keys
    assert shown == {"noise-0001", "noise-0003", "noise-0005"}
    text = said("data", "--images", "0", "--quarantine")[1]
    assert {word for line in text.splitlines() for word in line.split()} & keys == keys
    assert not Path("logs").exists()


def test_the_grid_shows_what_the_lines_name(made: Path) -> None:
    metadata = facts_of("first", "--grid", "deep/some.png", "--images", "9")
    assert [len(row) for row in metadata["grid"]["rows"]] == [3, 3, 3]
    grid, scale = Image.open("deep/some.png"), 96 // 6
    readers = {split: ImageShards.open_parts(["first"], split) for split in SPLITS}
    for y, row in enumerate(metadata["grid"]["rows"]):
        for x, shown in enumerate(row):
            reader = readers[shown["split"]]
            image = reader[reader.keys.index(shown["key"])]
            corner = 2 + x * (6 * scale + 2), 2 + y * (6 * scale + 2)
            assert grid.getpixel(corner) == tuple(image[:, 0, 0])
    lines = said("data", "first", "--images", "9")[1].splitlines()[-4:]
    assert lines[0].startswith("logs/data/grid.png: 9 images")
    for number, (line, row) in enumerate(zip(lines[1:], metadata["grid"]["rows"], strict=True), start=1):
        assert line.split()[0] == str(number)
        assert [word for word in line.split() if word.startswith("noise")] == [shown["key"] for shown in row]
    assert Path("logs/data/grid.png").is_file()


def test_images_without_labels_and_captions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Bare(Noise):
        def read(self, entry: Entry) -> Raw:
            return Raw(super().read(entry).image)

    monkeypatch.chdir(tmp_path)
    configure("bare")
    make_part(SHARDS, "bare", 0, 5, ImageSpec(6, "RGBA", "png"), source=Bare(ImageSpec(6, "RGBA", "png")))
    text = said("data")[1]
    assert "classes: none, no image has a label" in text and "captions: none" in text
    assert "damage: none" in text and "duplicates: none" in text
    assert Image.open("logs/data/grid.png").mode == "RGB"


def test_what_cannot_be_shown(made: Path, capsys: pytest.CaptureFixture) -> None:
    (SHARDS / "first/val/index.parquet").unlink()
    assert main(["data"]) == 1
    assert "data/shards/first/val/index.parquet is missing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("logs", "is a PNG"),
        ("folder.png", "is a PNG"),
        ("grid.jpg", "is a PNG"),
        ("params.yaml/grid.png", "params.yaml is not a writable folder"),
        ("data/catalog/grid.png", "which the stage catalog writes"),
    ],
)
def test_where_a_grid_cannot_be_written(small: Path, path: str, reason: str, monkeypatch, capsys) -> None:
    monkeypatch.chdir(small)
    Path("folder.png").mkdir(exist_ok=True)
    monkeypatch.setattr("darkroom.tools.verify.show.summary", None)  # refused before anything is read
    assert main(["data", "--grid", path]) == 1
    printed = capsys.readouterr().err
    assert f"--grid {path}" in printed and reason in printed


def test_left_over_folders_are_named(made: Path) -> None:
    configure("first")
    Path("data/latents/.second.tmp-7193").mkdir()  # of a stage that runs
    assert said("data")[1].endswith(
        "data/shards/second, data/latents/second: of no part in params.yaml; nothing reads it, remove it.\n"
    )
    assert facts_of()["left_over"] == ["data/shards/second", "data/latents/second"]


def test_many_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = make_part(Path("data/shards"), "many", 0, 3)
    (folder / "train/index.parquet").unlink()
    names = np.repeat(np.arange(25), np.arange(25) + 1)
    row = {"key": "k", "offset": 512, "size": 1, "sha256": bytes(32), "caption": None}
    rows = [{**row, **dict.fromkeys(IMAGES.names[4:8], 6), "label": f"c{name}"} for name in names]
    writer = IndexWriter(folder / "train", IMAGES)
    writer.add(rows)
    manifest = json.loads((folder / "manifest.json").read_text())
    metadata = {"images": len(rows), "shards": [{"name": "00000", "images": len(rows), "bytes": 9, "sha256": ""}]}
    manifest["splits"]["train"] |= {**metadata, "index_sha256": writer.close()}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    found = summary(["many"], ["train"])
    assert list(found["classes"]["counts"].items())[:2] == [("c24", 25), ("c23", 24)]
    lines = text_of(found).splitlines()
    assert sum("#" in line for line in lines) == 20 and "  and 5 more" in lines
