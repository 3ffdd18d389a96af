"""The stages `score_decoder` and `score_text`: samples of scenes against their originals and captions."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from additions.brightness import Brightness
from darkroom.artifacts.atomic import write_json
from darkroom.artifacts.manifest import ArtifactError, file_hashes, manifest_hash, sha256_file, write_manifest
from darkroom.cli import main
from darkroom.data.catalog import load_catalog
from darkroom.data.catalog_writer import write_catalog
from darkroom.data.images import ImageSpec, to_array, to_pil
from darkroom.data.reader import ImageShards
from darkroom.data.sample import Sample
from darkroom.data.scenes.attributes import ATTRIBUTES
from darkroom.data.scenes.rendering import render
from darkroom.data.scenes.scene import COLOURS, scene
from darkroom.data.shards import write_shards
from darkroom.data.sources.shapes import Shapes
from darkroom.errors import DarkroomError
from darkroom.metrics.frechet import few_jackknife
from darkroom.metrics.image import psnr
from darkroom.metrics.reference import Reference
from darkroom.metrics.sample_scores import SPACES
from darkroom.metrics.table import formulas
from darkroom.models.clip.load import load_clip, save_clip
from darkroom.models.clip.network import Contrastive
from darkroom.models.decoder import settings as of_decoder
from darkroom.models.evaluators.dinov2 import open_dinov2
from darkroom.models.evaluators.extractor import Classifier
from darkroom.models.evaluators.scene_reader import WORDS, SceneReader
from darkroom.models.prior import settings as of_text
from darkroom.params import reference_stats as of_reference
from darkroom.params.parts import Shapes as Settings
from darkroom.params.section import validate
from darkroom.stages import diversity, reference_stats, score_decoder, score_text, scoring_pairs
from darkroom.tools.compare.revisions import Results
from darkroom.tools.compare.verdicts import compare
from data.making import make_part
from helpers import run
from models.evaluators.weights import random_dinov2
from stages.test_new_metric import added  # noqa: F401

SIDE = 16
WIDTHS = {"image_network": "vit", "image_width": 64, "text_width": 64, "image_layers": 1, "text_layers": 1}
SIZE = {**WIDTHS, "image_size": SIDE, "patch": 8, "context_length": 32, "embed_dim": 8}
INCEPTION = {"weights": "data/none", "sha256": "0" * 64}
HOW = {"threads": 1, "batch": 8, "blocks": 2}
ALWAYS = {"fd", "fd_debiased", "fd_se", "kid", "kid_se", "label_accuracy", "confident", "rarest_class", "n"}
ALWAYS |= {f"{what}_{space}" for what in ("copies", "ct") for space in SPACES} | {
    f"copies_{space}_se" for space in SPACES
}
ALWAYS |= {
    f"{name}{error}" for name in ("precision", "recall", "density", "coverage", "diversity") for error in ("", "_se")
}
PAIRS = {"psnr", "psnr_se"}
CLIPS = {f"{name}{error}" for name in ("clip_image", "clip_text", "clip_text_real") for error in ("", "_se")}
SCENES = {f"{name}{error}" for name in ATTRIBUTES for error in ("", "_se")}


class Means:
    """In CLIP's place: an image is the means of its quarters, a text its length and the number of its words."""

    fingerprint = "c" * 64

    def to(self, device):
        return self

    def images(self, images):
        return torch.nn.functional.adaptive_avg_pool2d(images.float(), 2).flatten(1)

    def texts(self, texts):
        found = torch.tensor([[float(len(text)), text.count(" "), 1.0] for text in texts])
        return torch.cat([found, found], dim=1).repeat(1, 2), torch.zeros(len(texts), 1, 1)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A clone with scenes, a catalog, an untrained extractor, a reference and a reader's manifest."""
    folder = tmp_path_factory.mktemp("clone")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        source = Shapes(Settings(seed=0, size=SIDE, kinds=["position", "count", "relation"], transparent=False))
        make_part(Path("data/shards"), "one", 0, 80, ImageSpec(SIDE, "RGB", "png"), source=source)
        Path("data/catalog").mkdir()
        write_catalog(Path("data/catalog"), ["one"])
        judge, classes = Path("models/extractor"), load_catalog().classes
        judge.mkdir(parents=True)
        torch.manual_seed(0)
        Classifier(3, len(classes), [4, 4], 3, 0.0).save_pretrained(judge)
        files = file_hashes(judge)
        write_manifest(judge, "extractor", image_shape=[3, SIDE, SIDE], classes=list(classes), files=files)
        settings = {**HOW, "split": "train", "held_out": "test", "kid_images": 100, "extractors": ["in_domain"]}
        values = {"run": run().model_dump(), "reference_stats": {**settings, "inception": INCEPTION}}
        reference_stats.run(validate(of_reference.Params, values))
        reader = Path("models/scene_reader")
        reader.mkdir()
        SceneReader(WORDS, [8], 1).save_pretrained(reader)
        metadata = {"trained": True, "image_shape": [3, SIDE, SIDE], "kinds": ["position", "count", "relation"]}
        write_manifest(reader, "scene_reader", accuracy={"colour": 0.99}, **metadata, files=file_hashes(reader))
        clip = Path("models/clip")
        clip.mkdir()
        said = save_clip(clip, Contrastive(SIZE))
        write_manifest(clip, "clip", long_captions="stop", **said, files=file_hashes(clip))
    return folder


@pytest.fixture
def clone(made, tmp_path, monkeypatch):
    shutil.copytree(made, tmp_path / "clone")
    monkeypatch.chdir(tmp_path / "clone")


def originals():
    return ImageShards.open_parts(["one"], "test")


def write_samples(folder="samples/decoder", change=lambda key, image: image, caption=lambda text: text, count=12):
    """Write what was made of the first test images: the images themselves, changed, under their keys."""
    shards, place = originals(), Path(folder)
    chosen = [
        Sample(key, to_pil(change(key, shards[row])), shards.labels[row], caption(shards.captions[row]))
        for row, key in enumerate(shards.keys[:count])
    ]
    metadata = write_shards(place, chosen, 5, "png")
    sampler = {"seed": 3, "solver": "ddim", "steps": 20}
    said = {"split": "test", "condition": "image", "clip": "c" * 64, "model": "m" * 64, "sampler": sampler}
    write_manifest(place, "samples", image_shape=[3, SIDE, SIDE], images=count, files={}, **said, **metadata)


def score(stage=score_decoder, networks=None, **judges):
    values = {"run": run().model_dump(), "reference_stats": {"inception": INCEPTION, **(networks or {})}}
    judges = {"lpips": "none", "vgg16": "data/none", "clip": "data/none", "attributes": "none", **judges}
    if stage is score_text:
        params = validate(of_text.ScoreParams, {**values, "score_text": HOW, "score_decoder": judges})
    else:
        params = validate(of_decoder.ScoreParams, {**values, "score_decoder": {**HOW, **judges}})
    stage.run(params)
    return tuple(json.loads(path.read_text()) for path in (stage.METRICS, stage.CARD))


def recoloured(key, image):
    """Return the picture of the same scene with all things of another colour, of every third scene."""
    number = int(key.rpartition("-")[2])
    return to_array(render(other_colour(number), SIDE)) if number % 3 == 0 else image


def other_colour(number):
    found = scene(0, number)
    names = list(COLOURS)
    things = (replace(each, colour=names[(names.index(each.colour) + 3) % 8]) for each in found.objects)
    return replace(found, objects=tuple(things))


@pytest.fixture
def oracle(monkeypatch):
    """A reader that knows every picture: those of the data, and those of other colours."""
    known = {}
    for number in range(80):
        for found in (scene(0, number), other_colour(number)):
            known[to_array(render(found, SIDE)).tobytes()] = list(found.objects)

    def things_in(reader, images, batch, device):
        for group in images:
            yield [known[image.tobytes()] for image in group]

    monkeypatch.setattr(scoring_pairs, "open_scene_reader", lambda folder, shape: torch.nn.Identity())
    monkeypatch.setattr(scoring_pairs, "things_in", things_in)


def test_the_scores_of_the_dit_and_the_distance_from_the_original_are_always_there(clone):
    write_samples(change=lambda key, image: image // 2)
    scores, card = score()
    assert set(scores) == ALWAYS | PAIRS and set(card["formulas"]) == set(scores) - {"n"}
    images = torch.from_numpy(originals().__getitems__(range(12)))
    assert scores["psnr"] == pytest.approx(float(psnr(images, images // 2).mean()), rel=1e-12)
    treatment = card["treatment"]
    assert treatment["sampler"]["steps"] == 20 and treatment["samples"] == manifest_hash(Path("samples/decoder"))


def test_what_is_scored_of_a_text_is_scored_alike(clone):
    write_samples()
    write_samples("samples/text")
    one, other = score()[0], score(score_text)[0]
    assert one == other and Path("cards/text.json").is_file()


def test_a_wrong_colour_lowers_the_colour_alone(clone, oracle):
    write_samples(change=recoloured)
    scores, card = score(attributes="scenes")
    assert set(scores) == ALWAYS | PAIRS | SCENES and set(card["formulas"]) == set(scores) - {"n"}
    wrong = sum(int(key.rpartition("-")[2]) % 3 == 0 for key in originals().keys[:12])
    share = 1 - wrong / 12
    assert 0 < share < 1
    for name in ATTRIBUTES:
        expected = share if "colour" in name or name == "as_described" else 1
        assert scores[name] == pytest.approx(expected)
        assert scores[f"{name}_se"] == pytest.approx(np.sqrt(expected * (1 - expected) / 11), abs=1e-12)
    told = card["baselines"]["scene_reader"]
    assert told["originals"] == dict.fromkeys(ATTRIBUTES, 1) and told["renders"] == {"colour": 0.99}
    assert card["protocol"]["scene_reader"] == {"id": manifest_hash(Path("models/scene_reader")), "n": 12}


@pytest.mark.parametrize("fingerprint", ["c" * 64, "d" * 64])
def test_the_card_says_whether_the_clip_that_judges_conditioned(clone, monkeypatch, fingerprint):
    monkeypatch.setattr(scoring_pairs, "open_clip", lambda path, key: Means())
    monkeypatch.setattr(Means, "fingerprint", fingerprint)
    write_samples(change=lambda key, image: 255 - image)
    scores, card = score(clip="models/clip")
    assert set(scores) == ALWAYS | PAIRS | CLIPS and set(card["formulas"]) == set(scores) - {"n"}
    assert card["protocol"]["clip"] == fingerprint
    assert card["protocol"]["clip_is_condition"] == (fingerprint == "c" * 64)
    assert any("conditioned the samples" in note for note in card["notes"]) == (fingerprint == "c" * 64)
    images, judge = torch.from_numpy(originals().__getitems__(range(12))), Means()
    pair = [judge.images(each).double().numpy() for each in (255 - images, images)]
    cosines = (pair[0] * pair[1]).sum(1) / np.linalg.norm(pair[0], axis=1) / np.linalg.norm(pair[1], axis=1)
    assert scores["clip_image"] == pytest.approx(cosines.mean(), rel=1e-6)
    assert scores["clip_image_se"] == pytest.approx(cosines.std(ddof=1) / np.sqrt(12), rel=1e-6)
    assert scores["clip_text"] != scores["clip_text_real"] and set(card["baselines"]["clip_unrelated"]) == {
        "image_other",
        "text_other",
    }


def test_lpips_is_measured_by_the_weights_that_are_named(clone, monkeypatch):
    for stage in (scoring_pairs, diversity):
        monkeypatch.setattr(
            stage,
            "perceptual_measure",
            lambda path, shape, key, device: (lambda a, b: (a != b).double().mean((1, 2, 3)), f"{path} {key}"),
        )
    write_samples()
    scores, card = score(lpips="lpips", vgg16="vgg.pth")
    of_lpips = {f"{name}{error}" for name in ("lpips", "lpips_diversity") for error in ("", "_se")}
    assert set(scores) == ALWAYS | PAIRS | of_lpips and scores["lpips"] == 0 < scores["lpips_diversity"]
    assert card["protocol"]["lpips"] == "vgg.pth score_decoder.vgg16"
    assert {"n", "lpips_diversity", "diversity_se"} < set(card["baselines"]["diversity"])


def test_the_judges_come_from_their_folders(clone):
    """Both are untrained: the originals themselves are scored, which are as similar to themselves as can be."""
    write_samples()
    scores, card = score(clip="models/clip", attributes="scenes")
    assert set(scores) == ALWAYS | PAIRS | CLIPS | SCENES
    assert scores["clip_image"] == pytest.approx(1) and scores["clip_text"] == scores["clip_text_real"]
    assert card["protocol"]["clip"] == load_clip().fingerprint and card["protocol"]["clip_is_condition"] is False
    assert {name: scores[name] for name in ATTRIBUTES} == card["baselines"]["scene_reader"]["originals"]


def test_a_sample_without_its_original_is_refused_with_its_key(clone):
    write_samples()
    key = originals().keys[0]
    shutil.rmtree("data/shards")
    shutil.rmtree("data/catalog")
    source = Shapes(Settings(seed=0, size=SIDE, kinds=["position", "count", "relation"], transparent=False))
    start = int(key.rpartition("-")[2]) + 1
    make_part(Path("data/shards"), "one", start, 80, ImageSpec(SIDE, "RGB", "png"), source=source)
    Path("data/catalog").mkdir()
    write_catalog(Path("data/catalog"), ["one"])
    with pytest.raises(ArtifactError, match=rf"^samples/decoder: {key} was made for .*, but no image of the split"):
        score()


def test_a_caption_that_is_no_scenes_is_refused_with_its_key_before_any_work(clone, oracle, monkeypatch):
    monkeypatch.setattr(scoring_pairs, "original_rows", lambda samples, originals, repeats, where: list(range(12)))
    monkeypatch.setattr(scoring_pairs, "image_scores", lambda *_: pytest.fail("work"))
    write_samples(caption=lambda text: "a handwritten seven")
    with pytest.raises(
        DarkroomError, match=rf"^{originals().keys[0]}: 'a handwritten seven' is not the caption of a scene"
    ):
        score(attributes="scenes")


def test_a_missing_caption_is_refused_with_its_key_and_no_captions_are_noted(clone, monkeypatch):
    monkeypatch.setattr(scoring_pairs, "open_clip", lambda path, key: Means())
    monkeypatch.setattr(scoring_pairs, "original_rows", lambda samples, originals, repeats, where: list(range(12)))
    third = originals().captions[2]
    write_samples(caption=lambda text: None if text == third else text)
    with pytest.raises(ArtifactError, match=rf"^samples/decoder: {originals().keys[2]} has no caption"):
        score(clip="models/clip")
    shutil.rmtree("samples")
    write_samples(caption=lambda text: None)
    scores, card = score(clip="models/clip")
    assert "clip_image" in scores and "clip_text" not in scores
    assert any("no captions" in note for note in card["notes"])


def test_without_samples_there_is_nothing_to_tell(clone):
    Path("samples/decoder").mkdir(parents=True)
    write_manifest(Path("samples/decoder"), "samples", images=0, sampler={})
    for folder in ("metrics", "cards"):
        Path(folder).mkdir()
        write_json(Path(folder) / "decoder.json", {"fd": 1.0})
    assert score() == ({}, {})


@pytest.mark.usefixtures("added")
def test_a_new_metric_is_measured_carded_listed_and_compared(clone, capsys):
    write_samples()
    scores, card = score()
    assert scores["brightness"] == pytest.approx(originals().__getitems__(range(12)).mean())
    formula = Brightness.scores[0].formula
    assert card["formulas"]["brightness"] == formula and "deviation" in card["formulas"]["brightness_se"]
    Path("params.yaml").touch()
    assert main(["scores"]) == 0
    assert "brightness" in capsys.readouterr().out
    brighter = {**scores, "brightness": scores["brightness"] + 10 * scores["brightness_se"]}
    found = compare(
        Results("x", {"decoder": scores}, {"decoder": card}), Results("y", {"decoder": brighter}, {"decoder": card})
    )
    assert {row.name: row.verdict for row in found}["brightness"].startswith("better by 7.")


def test_of_other_extractors_than_inception_there_is_no_second_statistic(clone):
    found = Reference.load(Path("data/reference"), "in_domain")
    assert found.spatial is None and found.unseen_logits is None
    assert not list(Path("data/reference").glob("*spatial*"))
    assert "sfid" not in json.loads(Path("data/reference/manifest.json").read_text())["extractors"]["in_domain"]


def test_every_score_has_a_formula():
    assert set(formulas(dict.fromkeys(CLIPS | SCENES, 0.0))) == CLIPS | SCENES


def test_published_networks_are_extractors(clone):
    """DINOv2 and CLIP from files in the real format, checked by their hashes: the reference, scores and card."""
    torch.save(random_dinov2(64, 1), "dinov2.pth")
    files = {"dinov2": Path("dinov2.pth"), "clip": Path("models/clip/model.pt")}
    networks = {name: {"weights": str(path), "sha256": sha256_file(path)} for name, path in files.items()}
    settings = {**HOW, "split": "train", "held_out": "test", "kid_images": 100, "inception": INCEPTION, **networks}
    settings["extractors"] = ["in_domain", "dinov2", "clip"]
    reference_stats.run(validate(of_reference.Params, {"run": run().model_dump(), "reference_stats": settings}))
    write_samples(change=lambda key, image: 255 - image)
    metrics, card = score(networks=networks)
    assert ALWAYS | {"fd_dinov2", "kid_dinov2_se", "fd_clip_debiased", "cmmd", "cmmd_se"} < metrics.keys()
    assert "fd_tokenizer" not in metrics and "fid" not in metrics
    floor = card["baselines"]["held_out"]
    real = Reference.load(Path("data/reference"), "dinov2", networks["dinov2"]["sha256"])
    network, _ = open_dinov2(Path("dinov2.pth"), None)
    made = torch.from_numpy(np.concatenate(list(ImageShards.open_folder(Path("samples/decoder")).batches(8))))
    with torch.inference_mode():
        expected = few_jackknife(real.moments, real.root, network.features(made), torch.zeros(len(made))).value
    assert metrics["fd_dinov2"] == pytest.approx(expected, rel=1e-4)
    assert {"precision", "recall_se"} < floor["in_domain"].keys() and "precision" not in floor["dinov2"]
    extractors = card["protocol"]["extractors"]
    assert extractors["dinov2"]["resize"] == "torch bicubic to 224 px, antialias, in float32, not rounded"
    assert (extractors["dinov2"]["dim"], extractors["clip"]["dim"]) == (64, 8)
    networks["dinov2"]["sha256"] = "0" * 64
    with pytest.raises(DarkroomError, match=r"dinov2\.pth has the sha256 .*`reference_stats\.dinov2\.sha256`"):
        score(networks=networks)


def test_twins_are_left_out_on_the_side_of_unseen_images(clone, monkeypatch, capsys):
    monkeypatch.setattr(reference_stats, "near_twins", lambda train, unseen: [0, 2])
    settings = {**HOW, "split": "train", "held_out": "test", "kid_images": 100, "extractors": ["in_domain"]}
    settings |= {"twins": "quarantine", "inception": INCEPTION}
    reference_stats.run(validate(of_reference.Params, {"run": run().model_dump(), "reference_stats": settings}))
    images = len(originals())
    assert f"2 of {images} unseen images have a near twin in training: left out" in capsys.readouterr().out
    manifest = json.loads(Path("data/reference/manifest.json").read_text())
    assert manifest["left_out"] == [0, 2]
    assert manifest["extractors"]["in_domain"]["held_out"]["n"] == images - 2
    seen = []
    monkeypatch.setattr(ImageShards, "leave_out", lambda self, rows: seen.append((len(self), [*rows])))
    write_samples()
    score()
    assert seen == [(images, [0, 2])] * 2  # of copies, and of diversity
