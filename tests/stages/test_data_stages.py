"""The stages `ingest` and `catalog`, called as the command line does."""

from pathlib import Path

import pytest
from PIL import Image
from pydantic import ValidationError

from darkroom.artifacts.manifest import read_manifest
from darkroom.check.check import read_params
from darkroom.data.catalog import load_catalog
from darkroom.data.layout import KIND
from darkroom.data.reader import ImageShards
from darkroom.errors import DarkroomError
from darkroom.params.ingest import CatalogParams
from darkroom.params.ingest import Params as IngestParams
from darkroom.params.parts import Part
from darkroom.stages import catalog, ingest
from data.making import make_part
from helpers import DIGITS
from stages.text_models import SPEC, Captioned

VALUES = read_params(DIGITS)
DIGITS = {"source": "digits", "path": "data/none"}
PARTS = {"one": {**DIGITS, "start": 0, "stop": 30}, "two": {**DIGITS, "start": 1777, "stop": None}}


def ingest_part(name: str, part: dict | None = None) -> None:
    values = {**{key: VALUES[key] for key in ("run", "digits", "ingest")}, "parts": {name: part or PARTS[name]}}
    ingest.run(IngestParams.model_validate(values), name)


def test_a_generator_of_captions_needs_some_before_any_training(tmp_path, monkeypatch) -> None:
    """The catalog counts them, before a tokenizer is trained; the second part has none."""
    monkeypatch.chdir(tmp_path)
    for part, texts in {"one": True, "two": False}.items():
        make_part(Path("data/shards"), part, 0, 30, SPEC, source=Captioned(texts))
    values = {**{key: VALUES[key] for key in ("run", "catalog")}, "train_tokenizer": {"parts": None}}
    read = {"dit": {"model": {"context_length": None}}}
    values["train_generator"] = {"captions": "data/shards", **read}
    catalog.run(CatalogParams.model_validate({**values, "parts": {"one": DIGITS, "two": DIGITS}}))
    with pytest.raises(DarkroomError, match="condition` is caption, but no image of the train split has one"):
        catalog.run(CatalogParams.model_validate({**values, "parts": {"two": DIGITS}}))
    assert len(load_catalog().parts) == 2
    values["train_generator"] = {"captions": "data/none", **read}
    catalog.run(CatalogParams.model_validate({**values, "parts": {"two": DIGITS}}))


def test_digits_become_shards_and_a_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    for name in PARTS:
        ingest_part(name)
    values = {**{key: VALUES[key] for key in ("run", "catalog")}, "parts": PARTS, "train_tokenizer": {"parts": None}}
    catalog.run(CatalogParams.model_validate(values))
    found = load_catalog()
    assert found.classes == tuple("0123456789")
    assert found.image_shape == (3, 32, 32)
    assert sum(found.images.values()) == 50
    keys = [key for split in found.images for key in ImageShards.open_parts(list(PARTS), split).keys]
    assert sorted(keys) == [f"digits-{n:04d}" for n in (*range(30), *range(1777, 1797))]
    captions = ImageShards.open_parts(["one"], "train").captions
    assert all(caption and caption.startswith("a handwritten ") for caption in captions)
    printed = capsys.readouterr().out
    assert "30 images in" in printed and "10 classes in 2 parts" in printed
    assert str(tmp_path) not in (tmp_path / "data/shards/one/manifest.json").read_text()

    def read() -> dict[Path, bytes]:
        """Return all that trainings read of the catalog."""
        folders = ("data/catalog", "data/selection")
        return {path: path.read_bytes() for name in folders for path in Path(name).rglob("*") if path.is_file()}

    before = read()
    catalog.run(CatalogParams.model_validate({**values, "catalog": {**VALUES["catalog"], "grid_images": 2}}))
    assert read() == before


def test_one_of_every_few_images_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    ingest_part("some", {**DIGITS, "start": 3, "stop": 100, "every": 10})
    manifest = read_manifest(Path("data/shards/some"), KIND)
    keys = [key for split in manifest["splits"] for key in ImageShards.open_parts(["some"], split).keys]
    assert sorted(keys) == [f"digits-{number:04d}" for number in range(3, 100, 10)]
    assert manifest["source"]["every"] == 10 and "one in 10 of images 3 to 99 of digits" in capsys.readouterr().out
    with pytest.raises(ValidationError, match="webdataset reads all shards from start to stop: set every to 1"):
        Part(source="webdataset", path="laion", every=2)


def test_a_slice_outside_the_source_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ingest_part("one")
    with pytest.raises(DarkroomError, match=r"part `one`.*with 1797"):
        ingest_part("one", {**DIGITS, "start": 0, "stop": 5000})
    assert len(ImageShards.open_parts(["one"], "train"))


def test_a_folder_that_cannot_be_written_is_named_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").write_text("a file where a folder should be")
    with pytest.raises(DarkroomError, match="cannot write data/shards/one"):
        ingest_part("one")


def test_files_that_were_passed_over_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "mine/a.png")
    for name in ("b.jpg_large", "c.jpg_large", "d"):
        (tmp_path / "mine" / name).touch()
    values = {key: VALUES[key] for key in ("run", "folder", "ingest")}
    part = {"source": "folder", "path": "mine", "settings": {"label": "none"}}
    ingest.run(IngestParams.model_validate({**values, "parts": {"one": part}}), "one")
    assert "passed over, other endings: .jpg_large 2, none 1" in capsys.readouterr().out
