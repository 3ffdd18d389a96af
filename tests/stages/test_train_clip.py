"""The stage `train_clip`: what it writes, from captions of its own or weights of others."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import clip
import pytest
import torch
from torch.nn.functional import normalize

from darkroom.artifacts.manifest import read_manifest
from darkroom.data.catalog_writer import write_catalog
from darkroom.data.embeddings import EmbeddingShards
from darkroom.data.reader import ImageShards
from darkroom.errors import DarkroomError
from darkroom.models.clip.load import load_clip
from darkroom.models.clip.openclip import read_open_clip
from darkroom.models.clip.scores import CaptionedImages, prompts_of
from darkroom.models.clip.settings import EmbedClip, EmbedParams, Params, unfit
from darkroom.params.section import validate
from darkroom.stages import embed_clip, train_clip
from data.making import Noise, contents, make_part
from helpers import run, training
from models.clip.clip_made import make_clip
from models.clip.clips import SIZE
from models.clip.openclip_made import published

WORDS = ("nought", "one", "two")


class Digits(Noise):
    """Noise with labels 0 to 2, and a caption for each of two ways of saying so; every fifth has none."""

    def read(self, entry: Any) -> Any:
        label = entry.payload % 3
        caption = None if entry.payload % 5 == 4 else f"{'a' if entry.payload % 4 else 'the'} {WORDS[label]}"
        return replace(super().read(entry), label=str(label), caption=caption)


def section(**changes: Any) -> dict:
    """Return `train_clip` for images of 6 pixels: changes of its keys."""
    return {
        "source": "trained",
        "long_captions": "stop",
        "trained": {"equal_captions": "positives", "model": {**SIZE, "image_size": 4, "patch": 2}},
        "pretrained": {"name": None, "file": "model.pt"},
        "training": training(images=32, batch=8).model_dump(),
        "evaluate": {"split": "test", "images": 100, "batch": 4, "prompts": [], "captions": 2},
        **changes,
    }


def params(**changes: Any) -> Params:
    return validate(Params, {"run": run().model_dump(), "train_clip": section(**changes)})


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the data, in which no training leaves a state."""
    import contextlib

    monkeypatch.chdir(tmp_path)
    make_part(Path("data/shards"), "first", 0, 60, source=Digits())
    Path("data/catalog").mkdir()
    write_catalog(Path("data/catalog"), ["first"])
    monkeypatch.setattr(
        "darkroom.training.stage.open_state", lambda *_: contextlib.nullcontext(tmp_path / "state" / "train_clip-0")
    )
    return tmp_path


def written() -> dict[str, bytes]:
    folders = ("models/clip", "curves/clip", "metrics", "cards")
    return {f"{folder}/{name}": data for folder in folders for name, data in contents(Path(folder)).items()}


def test_it_writes_what_clip_opens_and_how_good_it_is(clone: Path) -> None:
    """The same bytes in another training."""
    train_clip.run(params())
    network, _ = clip.load("models/clip/model.pt", device="cpu")
    ours = load_clip()
    assert all(torch.equal(value, ours.network.state_dict()[name]) for name, value in network.state_dict().items())
    manifest = read_manifest(Path("models/clip"), "clip")
    assert (manifest["source"], manifest["images_seen"], manifest["weights"]) == ("trained", 32, ours.fingerprint)
    assert manifest["prompts"]["1"] == ["a one", "the one"]
    scores, card = (json.loads(Path(f"{name}/clip.json").read_text()) for name in ("metrics", "cards"))
    images = CaptionedImages(ImageShards.open_parts(["first"], "test"), 8, False)
    assert (
        (scores["images"], scores["captions"])
        == (len(images), 6)
        == (card["protocol"]["images"], card["protocol"]["captions"])
    )
    assert {"zero_shot_accuracy", "image_to_text_r1", "text_to_image_r5", "text_to_image_r5_se"} <= set(scores)
    assert (card["treatment"]["clip"], card["protocol"]["classes"]) == (ours.fingerprint, 3)
    # Zero-shot accuracy by clip-anytorch alone: prompts of a class, their mean, the nearest.
    with torch.no_grad():
        classes = []
        for own in manifest["prompts"].values():
            text = network.encode_text(clip.tokenize(own, 8))
            classes.append((text / text.norm(dim=1, keepdim=True)).mean(dim=0))
        classes = torch.stack([each / each.norm() for each in classes])
        image = ours.images(torch.from_numpy(images.__getitems__(range(len(images)))["images"]))
    right = (image @ classes.T).argmax(dim=1) == torch.tensor([int(label) for label in images.labels()])
    assert scores["zero_shot_accuracy"] == pytest.approx(right.float().mean().item())
    first = written()
    shutil.rmtree("state")
    train_clip.run(params())
    assert written() == first and len(first) > 6


def test_weights_of_others_are_taken_as_they_are(clone: Path) -> None:
    make_clip(clone / "theirs")
    train_clip.run(params(source="pretrained", pretrained={"name": None, "file": "theirs/model.pt"}))
    assert load_clip().fingerprint == load_clip(clone / "theirs").fingerprint
    assert (clone / "theirs/model.pt").read_bytes() == Path("models/clip/model.pt").read_bytes()
    assert json.loads(Path("metrics/clip.json").read_text())["image_to_text_r1"] >= 0
    assert not list(Path("curves/clip").rglob("*.tsv"))


def test_a_training_begins_with_the_weights_of_another(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_clip(clone / "theirs")
    init = {"folder": "theirs", "url": None, "sha256": None, "skip": []}
    size = {"equal_captions": "positives", "model": {**SIZE, "image_size": 8, "patch": 4}}
    rest = training(images=8, batch=8, learning_rate=1e-9, ema_decay=0.0, init=init).model_dump()
    train_clip.run(params(trained=size, training=rest))
    assert "initialised from theirs" in capsys.readouterr().out
    before, after = (load_clip(folder).network.state_dict() for folder in (clone / "theirs", Path("models/clip")))
    assert all(torch.allclose(after[name], value, atol=1e-3) for name, value in before.items())


class Silent(Noise):
    def read(self, entry: Any) -> Any:
        return replace(super().read(entry), label="a", caption=None if self.says is None else self.says)


@pytest.mark.parametrize(("says", "told"), [(None, "no image has a caption"), ("same", "all captions are 'same'")])
def test_captions_that_teach_nothing_are_told(clone: Path, says: str | None, told: str) -> None:
    shutil.rmtree("data")
    source = Silent()
    source.says = says
    make_part(Path("data/shards"), "first", 0, 20, source=source)
    Path("data/catalog").mkdir()
    write_catalog(Path("data/catalog"), ["first"])
    with pytest.raises(DarkroomError, match=f"{told}, so CLIP cannot be trained"):
        train_clip.run(params())


def test_a_caption_that_is_too_long_is_told_before_any_work(clone: Path) -> None:
    images = ImageShards.open_parts(["first"], "train")
    with pytest.raises(DarkroomError, match=r"the text 'a one' of the image noise-0001 is longer than CLIP's context"):
        CaptionedImages(images, 3, truncate=False)
    assert CaptionedImages(images, 3, truncate=True).tokens([0])[0, -1] == 49407


def test_images_without_a_caption_are_left_out(clone: Path) -> None:
    shards = ImageShards.open_parts(["first"], "train")
    images = CaptionedImages(shards, 8, False)
    rows = [row for row, caption in enumerate(shards.captions) if caption is not None]
    assert 0 < len(rows) == len(images) < len(shards)
    found = images.__getitems__(range(len(images)))
    assert (found["images"] == shards.__getitems__(rows)).all()
    assert images.keys([2, 0]) == [shards.keys[rows[2]], shards.keys[rows[0]]]
    assert images.labels() == [shards.labels[row] for row in rows]
    texts = [images.texts[number].as_py() for number in found["captions"]]
    assert texts == [shards.captions[row] for row in rows]
    assert (found["tokens"] == clip.tokenize(texts, 8).numpy()).all()


def test_a_class_is_called_by_its_most_frequent_captions(clone: Path) -> None:
    images = CaptionedImages(ImageShards.open_parts(["first"], "train"), 8, False)
    pairs = [(label, images.texts[n].as_py()) for label, n in zip(images.labels(), images.numbers, strict=True)]
    found = prompts_of(images, ["0", "1", "unknown"], [], 1)
    assert list(found) == ["0", "1"]
    for label, (text,) in found.items():
        counts = {other: pairs.count((label, other)) for _, other in pairs}
        assert counts[text] == max(counts.values())
    assert prompts_of(images, ["0"], ["a {label}", "{label}!"], 1) == {"0": ["a 0", "0!"]}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"image_width": 96}, r"image_width \(96\) must be a multiple of 64, the width of a head"),
        ({"text_width": 32}, r"text_width \(32\) must be a multiple of 64"),
        ({"patch": 3}, r"patch \(3\) must divide image_size \(4\)"),
        ({"context_length": 78}, r"context_length` is 78"),
    ],
)
def test_sizes_that_clip_cannot_load_are_refused(changes: dict, told: str) -> None:
    model = {**SIZE, "image_size": 4, "patch": 2, **changes}
    with pytest.raises(DarkroomError, match=told):
        params(trained={"equal_captions": "positives", "model": model})


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"source": "pretrained", "pretrained": None}, "the section `pretrained` is missing"),
        ({"pretrained": {"name": "ViT-B/33", "file": "data/none"}}, r"did you mean `ViT-B/32`\?"),
        ({"pretrained": {"name": "ViT-B/32", "file": "a.pt"}}, "give one of name, open_clip and file"),
        ({"pretrained": {"name": None, "file": "data/none"}}, "give one of name, open_clip and file"),
        (
            {"source": "pretrained", "training": training(processes=2).model_dump()},
            "set `train_clip.training.processes` to 1",
        ),
        ({"evaluate": {**section()["evaluate"], "prompts": ["a photo"]}}, "prompts"),
    ],
)
def test_sections_that_make_no_sense_are_refused(changes: dict, told: str) -> None:
    with pytest.raises(DarkroomError, match=told):
        params(**changes)


def test_what_does_not_fit_the_images_is_told(tmp_path: Path) -> None:
    assert unfit(params().train_clip, 6) is None
    assert "is 4, but the images have 3 pixels a side" in str(unfit(params().train_clip, 3))
    changes = {"source": "pretrained", "pretrained": {"name": None, "file": str(tmp_path / "gone.pt")}}
    assert "which is not a file" in str(unfit(params(**changes).train_clip, 6))


def test_a_clip_of_open_clip_embeds_images_and_captions(clone: Path) -> None:
    folder = published(Path("theirs"))
    train_clip.run(params(source="pretrained", pretrained={"name": None, "file": "theirs"}, long_captions="truncate"))
    clip, theirs = load_clip(), read_open_clip(str(folder))
    manifest = read_manifest(Path("models/clip"), "clip")
    assert manifest["weights"] == clip.fingerprint == theirs.fingerprint and manifest["images_seen"] == 0
    assert 0 <= json.loads(Path("metrics/clip.json").read_text())["image_to_text_r1"] <= 1
    settings = EmbedClip(batch=4, encodings=True)
    embed_clip.run(EmbedParams(run=run(), parts={"first": {"embeddings": "data/none"}}, embed_clip=settings), "first")
    stored = EmbeddingShards.open_parts(["first"], "train")
    images = ImageShards.open_parts(["first"], "train")
    found = stored.__getitems__([0, 1, 2], ("image", "encoding"))
    expected = theirs.images(torch.from_numpy(images.__getitems__([0, 1, 2])))
    assert torch.allclose(torch.from_numpy(found["image"]).float(), normalize(expected, dim=1), atol=2e-3)
    assert stored.clip == theirs.fingerprint and stored.encoding_shape == (12, 24)


def test_images_that_are_too_small_are_refused_where_they_may_not_be_enlarged(clone: Path) -> None:
    torch.save(make_clip(Path("theirs")).network.state_dict(), "theirs.pt")  # sees 8 pixels, and the images have 6
    given = {"name": None, "file": "theirs.pt", "enlarge": False}
    with pytest.raises(DarkroomError, match="takes 8 pixels a side, but the images have 6, and `train_clip"):
        train_clip.run(params(source="pretrained", pretrained=given))
