import json
from pathlib import Path

import numpy as np
import pytest

from darkroom.artifacts.manifest import read_manifest
from darkroom.cli import main
from darkroom.data import catalog_writer
from darkroom.data.catalog_writer import write_catalog
from darkroom.data.damage import DamageError, Finding, Reason
from darkroom.data.images import ImageSpec, to_pil
from darkroom.data.index import IMAGES, IndexWriter
from darkroom.data.layout import CATALOG, KIND, SHARDS
from darkroom.data.sample import Entry, Raw
from darkroom.data.splits import SPLITS, split_of
from darkroom.stages.catalog import summary as catalog_log
from darkroom.terminal.numbers import bytes_of
from data.frames import LEAKING, TWINS
from data.making import SHARES, Noise, make_part, pixels
from tools.verify.making import configure, said


def test_counts_of_every_part_and_split(made: Path) -> None:
    code, text = said("data")
    assert code == 0
    head, *rows, total = text.splitlines()[:4]
    assert head.split()[:5] == ["part", "source", "train", "val", "test"]
    found = []
    for row, part, count in zip(rows, ("first", "second"), (30, 12), strict=True):
        splits = read_manifest(SHARDS / part, KIND)["splits"]
        found.append([splits[split]["images"] for split in SPLITS])
        assert sum(found[-1]) == count
        assert row.split()[:5] == [part, "noise", *map(str, found[-1])]
        tars = list((SHARDS / part).rglob("*.tar"))
        assert row.split()[8:] == [str(len(tars)), *bytes_of(sum(tar.stat().st_size for tar in tars)).split()]
    assert [int(word) for word in total.split()[1:4]] == [sum(column) for column in zip(*found, strict=True)]
    assert len({len(line) for line in (head, *rows, total)}) == 1  # aligned


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
    text = said("data")[1]
    lines = text.splitlines()
    assert "classes: 2, of 5 to 12 images (the largest is 2.4 times the smallest)" in lines
    lengths = {line.split()[0]: line.count("#") for line in lines if "##" in line}
    assert lengths == {"odd": 40, "even": round(40 * 5 / 12)}
    at = next(place for place, line in enumerate(lines) if line.startswith("shorter side"))
    assert lines[at + 1].split() == ["mess", "4", "6", "20", "1"]
    at = lines.index("captions: of 3 images, 1 to 4 words, median 1")
    assert lines[at + 1] == "  without one: 14"
    shown = {line.split(maxsplit=1)[1] for line in lines[at + 2 : at + 5]}
    assert shown == {"one", "two of them, schön", "\ufffd[31mred"}
    assert "\x1b" not in text


class Names(Noise):
    """A source of which a class has a single image, in no train split."""

    def read(self, entry: Entry) -> Raw:
        label = {1: "lone"}.get(entry.payload, "cat")
        return Raw(to_pil(pixels(entry.payload, ImageSpec(6, "RGB", "png"))), label)


def test_classes_that_look_wrong_are_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    configure("names")
    keys = [f"noise-{number:04d}" for number in range(20)]
    seed = next(seed for seed in range(100) if split_of(keys[1], SHARES, seed) == "test")
    make_part(SHARDS, "names", 0, 20, source=Names(), split_seed=seed)
    lines = said("data")[1].splitlines()
    (alone,) = (line.strip() for line in lines if "without a training image" in line and "'lone'" in line)
    (tmp_path / "catalog").mkdir()
    log = catalog_log(write_catalog(tmp_path / "catalog", ["names"]))
    assert f"warning: {alone}" in log


def test_what_was_wrong_and_where(mess: Path) -> None:
    text = said("data")[1]
    lines = [line.split() for line in text.splitlines()]
    assert ["mess", "left", "out", "truncated", "3"] in lines and ["mess", "repaired", "caption_not_utf8", "1"] in lines
    assert ["mess", "truncated", "noise-0003", "noise", "3", "after", "3", "bytes"] in lines
    assert "duplicates: 1 stored images repeat an earlier one" in text
    (one, equals, other) = lines[-1]
    assert equals == "=" and {one[-4:], other[-4:]} == {"0010", "0012"}


def test_near_twins_are_counted_where_the_catalog_is_of_these_parts(mess: Path, monkeypatch) -> None:
    monkeypatch.setattr(catalog_writer, "measure_leakage", lambda *_: LEAKING)
    CATALOG.mkdir()
    assert f"warning: {TWINS}" in catalog_log(write_catalog(CATALOG, ["mess"]))
    lines = said("data")[1].splitlines()
    counts = "near twins: 81.0% of 200 images of the test split have one among 900 training images"
    assert lines[-2:] == [counts, f"  {TWINS}"]
    configure("mess", "other")
    make_part(SHARDS, "other", 20, 30)
    assert "near twins" not in said("data")[1]


def test_what_was_passed_over(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Folder(Noise):
        def metadata(self) -> dict:
            return {"aside": {"hidden": 1500}, "aside_images": 900, "ignored": {".pdf": 3, "\x1b": 1}, "loops": 1}

    assert "passed over" not in said("data")[1]
    configure("aside")
    make_part(SHARDS, "aside", 0, 20, source=Folder())
    lines = said("data")[1].splitlines()
    at = lines.index("skipped and not listed:")
    assert lines[at + 1 : at + 4] == [
        "  aside  hidden, or in folders of the system: hidden 1,500; with an image's ending 900",
        "  aside  other endings: .pdf 3, \ufffd 1",
        "  aside  links to a folder that contains them: 1",
    ]


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
    shown = {word for line in said("data")[1].splitlines() for word in line.split()} & keys
    assert shown == {"noise-0001", "noise-0003", "noise-0005"}
    text = said("data", "--quarantine")[1]
    assert {word for line in text.splitlines() for word in line.split()} & keys == keys
    assert not Path("logs").exists()


def test_images_without_labels_and_captions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Bare(Noise):
        def read(self, entry: Entry) -> Raw:
            return Raw(super().read(entry).image)

    monkeypatch.chdir(tmp_path)
    configure("bare")
    make_part(SHARDS, "bare", 0, 5, ImageSpec(6, "RGBA", "png"), source=Bare(ImageSpec(6, "RGBA", "png")))
    text = said("data")[1]
    assert "classes: none; no image has a label" in text and "captions: none" in text
    assert "nothing was left out or changed" in text and "duplicates among the stored images: none" in text


def test_what_cannot_be_shown(made: Path, capsys: pytest.CaptureFixture) -> None:
    (SHARDS / "first/val/index.parquet").unlink()
    assert main(["data"]) == 1
    assert "data/shards/first/val/index.parquet is missing" in capsys.readouterr().err


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
    manifest["splits"]["val"]["labels"] = manifest["splits"]["test"]["labels"] = {}
    manifest["splits"]["train"]["labels"] = {f"c{number}": number + 1 for number in range(25)}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    configure("many")
    lines = said("data")[1].splitlines()
    at = next(place for place, line in enumerate(lines) if line.startswith("classes: "))
    assert [line.split()[:2] for line in lines[at + 1 : at + 3]] == [["c24", "25"], ["c23", "24"]]
    assert sum("#" in line for line in lines) == 20 and "  and 5 more" in lines
