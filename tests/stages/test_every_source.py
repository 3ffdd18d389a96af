"""Each source, from files in its real format to an update of a training: stage functions, in this process."""

import importlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

from dag.sandbox import TINY, overlay
from darkroom.check.check import check, read_params, schema
from darkroom.data.catalog import load_catalog
from darkroom.data.colours import card_entry
from darkroom.data.reader import ImageShards
from darkroom.params.parts import SECTIONS
from darkroom.params.section import validate
from darkroom.params.stage import stage_params
from helpers import DIGITS
from stages.sources_made import COUNT, MAKERS
from stages.sources_made import part as scenes

ROOT = Path(__file__).parents[2]
TRAININGS = ("train_teacher", "train_tokenizer", "train_extractor", "train_generator")
# What images without captions need: then nothing reads them.
CAPTIONLESS = {"train_clip": {"source": "none"}, "train_decoder": {"unets": {"up": {"trained": False}}}}
ONE_UPDATE = {"images": 8, "batch": 8, "warmup": 0, "log_every": 8, "validate_every": 8}


BELOW = (
    ("train_decoder", "up"),
    *((stage, None) for stage in ("sample_decoder", "score_decoder", "train_prior", "sample_text", "score_text")),
)


def run(stage: str, part: str | None = None) -> None:
    """Call a stage's body with what params.yaml gives it."""
    params: Any = validate(schema(stage), stage_params(stage, part))
    body = importlib.import_module(f"darkroom.stages.{stage}").run
    body(params, part) if part else body(params)


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the stages read of a clone, and no network."""
    (tmp_path / "clone" / "data").mkdir(parents=True)
    shutil.copy(ROOT / "dvc.yaml", tmp_path / "clone")
    (tmp_path / "clone" / "data" / "none").touch()
    for name in ("src", "docs"):
        (tmp_path / "clone" / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path / "clone")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return tmp_path / "clone"


def train_once(clone: Path, part: dict[str, Any], changes: dict[str, Any], every: bool = True) -> None:
    """Ingest one part and take every training, or the one that reads pixels and classes alone, to one update."""
    values = read_params(DIGITS)
    overlay(values, yaml.safe_load(TINY.read_text()))
    overlay(values, {"parts": {"only": part}, "train_tokenizer": {"parts": None}})
    overlay(values, changes)
    for stage, section in zip(TRAININGS, ("training",) * 4, strict=True):
        values[stage][section] |= ONE_UPDATE
    values["train_tokenizer"]["kl"]["training"] = {}
    (clone / "params.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    check()

    run("ingest", "only")
    run("catalog")
    run("train_extractor")
    if every:
        run("train_teacher")
        run("train_tokenizer")
        run("encode_latents", "only")
        run("train_generator")


# Digits and shapes take the same way through the engines, in `dag`.
@pytest.mark.parametrize(
    "source",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name == "hub"))
        for name in MAKERS
        if name not in ("digits", "shapes")
    ],
)
def test_a_source_runs_from_ingest_to_one_update(clone: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    part, changes = MAKERS[source](clone.parent / "collection", monkeypatch)
    if source == "hub":  # it has no captions
        changes = {**changes, **CAPTIONLESS}
    perceptual = {"network": "teacher", "weight": 0.1}  # so that there is a teacher
    every = source in ("folder", "hub")  # with captions and without
    train_once(clone, part, {**changes, "train_tokenizer": {"kl": {"perceptual": perceptual}}}, every)
    catalog = load_catalog()
    assert sum(catalog.images.values()) == COUNT
    captions = ImageShards.open_parts(["only"], "train").captions
    assert (None in captions) == (source == "hub")
    for model in ("teacher", "tokenizer", "extractor", "generator") if every else ("extractor",):
        assert any((clone / "models" / model).rglob("*.safetensors"))
        assert f'"images_seen": {ONE_UPDATE["images"]}' in (clone / "models" / model / "manifest.json").read_text()
    if source == "hub":
        for stage, item in (("train_clip", None), ("embed_clip", "only"), ("train_decoder", "base"), *BELOW):
            run(stage, item)
        assert '"trained": false' in (clone / "models/prior/manifest.json").read_text()
        assert '"images": 0' in (clone / "samples/text/manifest.json").read_text()
        assert (clone / "metrics/decoder.json").read_text().strip() == "{}"


@pytest.mark.slow
def test_grey_images_without_a_class_train_all_the_same(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part, _ = MAKERS["folder"](clone.parent / "collection", monkeypatch)
    part["settings"]["label"] = "none"
    train_once(clone, part, {"ingest": {"channels": "L", "default_label": "digit"}})
    assert load_catalog().classes == ("digit",)
    assert load_catalog().image_shape[0] == 1


def test_transparent_scenes_run_from_ingest_to_scores(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = scenes("shapes", stop=COUNT, size=32, transparent=True)
    perceptual = {"network": "teacher", "weight": 0.1}
    changes = {"ingest": {"channels": "RGBA"}, "train_tokenizer": {"kl": {"perceptual": perceptual}}}
    train_once(clone, part, {**changes, "sample_generator": {"common": {"images": 12, "batch": 12}}})
    assert f"{COUNT} with transparent pixels: stored with alpha" in capsys.readouterr().out
    stored = next(ImageShards.open_parts(["only"], "train").batches(COUNT))
    assert stored.shape[1] == 4 and not stored[:, :3][stored[:, 3:].repeat(3, axis=1) == 0].any()
    for stage in ("reference_stats", "score_tokenizer", "sample_generator", "score_generator"):
        run(stage)
    scores, card = (json.loads(Path(folder, "tokenizer.json").read_text()) for folder in ("metrics", "cards"))
    assert {"psnr_visible", "alpha_error", "alpha_edge_error", "transparent_kept"} < scores.keys()
    assert card["formulas"].keys() >= {"psnr_visible", "transparent_kept"}
    protocol = json.loads(Path("cards/generator.json").read_text())["protocol"]
    assert {"transparency": protocol["transparency"]} == card_entry(4)
    for grid in ("generator/grid.png", "reconstructions/grid.png", "nearest/generator/real.png"):
        with Image.open(Path("samples", grid)) as image:
            assert image.mode == "RGBA", grid


def test_every_source_is_tried() -> None:
    assert set(MAKERS) == set(SECTIONS)
