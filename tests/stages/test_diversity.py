"""Diversity in the stages: of samples and of held-out images, whatever labels there are."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from darkroom.artifacts.manifest import file_hashes, write_manifest
from darkroom.data.catalog_writer import write_catalog
from darkroom.data.images import ImageSpec, to_pil
from darkroom.data.reader import ImageShards
from darkroom.data.sample import Sample
from darkroom.data.shards import write_shards
from darkroom.metrics.batches import Views
from darkroom.metrics.measure import Measurement, Samples
from darkroom.models.evaluators.extractor import Classifier
from darkroom.models.evaluators.pairs import in_domain_measure
from darkroom.models.generators import sample_settings
from darkroom.params import reference_stats as of_reference
from darkroom.params.section import validate
from darkroom.stages import diversity, reference_stats, score_generator
from darkroom.stages.diversity import Diversity, pairs
from data.making import Noise, make_part
from helpers import run

SPEC = ImageSpec(8, "L", "png")
HOW = {"threads": 1, "batch": 8, "blocks": 2}
INCEPTION = {"weights": "data/none", "sha256": "0" * 64}


class Labelled(Noise):
    """Grey noise of three classes: of some images the rare one."""

    def __init__(self, rare):
        super().__init__(SPEC)
        self.rare = set(rare)

    def read(self, entry):
        label = "rare" if entry.key in self.rare else "even" if entry.payload % 2 == 0 else "odd"
        return replace(super().read(entry), label=label)


def make(rare):
    make_part(Path("data/shards"), "one", 0, 90, SPEC, source=Labelled(rare))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Images of which no held-out one is of the rare class, an untrained extractor, and the reference."""
    folder = tmp_path_factory.mktemp("clone")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        make([])
        train = ImageShards.open_parts(["one"], "train").keys
        shutil.rmtree("data/shards")
        make(train[:10])
        Path("data/catalog").mkdir()
        write_catalog(Path("data/catalog"), ["one"])
        judge = Path("models/extractor")
        judge.mkdir(parents=True)
        torch.manual_seed(0)
        Classifier(1, 3, [4, 4], 3).save_pretrained(judge)
        classes = ["even", "odd", "rare"]
        write_manifest(judge, "extractor", image_shape=[1, 8, 8], classes=classes, files=file_hashes(judge))
        settings = {**HOW, "split": "train", "held_out": "test", "kid_images": 100, "extractors": ["in_domain"]}
        values = {"run": run().model_dump(), "reference_stats": {**settings, "inception": INCEPTION}}
        reference_stats.run(validate(of_reference.Params, values))
    return folder


@pytest.fixture
def clone(made, tmp_path, monkeypatch):
    shutil.copytree(made, tmp_path / "clone")
    monkeypatch.chdir(tmp_path / "clone")


def write(labels, distribution="frequency"):
    """Write real images as if they had been generated, asked to be of these classes."""
    shards, place = ImageShards.open_parts(["one"], "train"), Path("samples/generator")
    chosen = [Sample(f"{row:08d}", to_pil(shards[row]), label) for row, label in enumerate(labels)]
    metadata = write_shards(place, chosen, 100, "png")
    said = {"condition": "class", "model": "m", "sampler": {"seed": 1}, "distribution": distribution}
    write_manifest(place, "samples", image_shape=[1, 8, 8], images=len(chosen), files={}, **said, **metadata)


def score(**changes):
    section = validate(
        sample_settings.ScoreParams,
        {
            "run": run().model_dump(),
            "reference_stats": {"inception": INCEPTION},
            "score_generator": {**HOW, "copies": {"images": 0}, **changes},
        },
    )
    score_generator.run(section)
    return tuple(json.loads(path.read_text()) for path in (score_generator.METRICS, score_generator.CARD))


def expected(labels, count=500):
    shards = ImageShards.open_parts(["one"], "train")
    images = torch.from_numpy(shards.__getitems__(range(len(labels))))
    chosen = pairs(labels, count)
    measure = in_domain_measure(Classifier.from_pretrained(Path("models/extractor")), torch.device("cpu"))
    return float(measure(images[chosen[:, 0]], images[chosen[:, 1]]).mean())


def test_samples_beside_held_out_images_of_their_classes(clone):
    labels = ["even"] * 21 + ["odd"] * 9
    write(labels)
    scores, card = score()
    assert scores["diversity"] == pytest.approx(expected(labels), rel=1e-4)
    assert scores["diversity_se"] > 0 and set(card["formulas"]) >= {"diversity", "diversity_se"}
    real = card["baselines"]["diversity"]
    there = ImageShards.open_parts(["one"], "test").labels
    assert real["n"] == sum(min(count, there.count(name) // 2) for name, count in (("even", 10), ("odd", 4)))
    assert card["protocol"]["diversity"] == {"pairs": 14, "pairs_held_out": real["n"], "seed": 0}
    assert abs(real["diversity"] - scores["diversity"]) < 4 * np.hypot(real["diversity_se"], scores["diversity_se"])


def test_lpips_is_measured_of_the_same_pairs_by_the_weights_that_are_named(clone, monkeypatch):
    monkeypatch.setattr(
        diversity,
        "perceptual_measure",
        lambda path, shape, key, device: (lambda a, b: (a != b).double().mean((1, 2, 3)), f"{path} {key} {shape}"),
    )
    write(["even"] * 21 + ["odd"] * 9)
    scores, card = score(lpips="lpips", vgg16="vgg.pth")
    assert 0.9 < scores["lpips_diversity"] < 1 and scores["lpips_diversity_se"] > 0
    assert 0.9 < card["baselines"]["diversity"]["lpips_diversity"] < 1 and "lpips_diversity" in card["formulas"]
    assert card["protocol"]["lpips"] == "vgg.pth score_generator.vgg16 (1, 8, 8)"


def test_without_labels_any_two_are_a_pair_on_both_sides(clone):
    write([None] * 30)
    scores, card = score()
    assert scores["diversity"] == pytest.approx(expected([None] * 30), rel=1e-4)
    held_out = len(ImageShards.open_parts(["one"], "test"))
    assert card["protocol"]["diversity"] == {"pairs": 15, "pairs_held_out": min(15, held_out // 2), "seed": 0}
    assert "label_accuracy" not in scores


def test_one_class_and_none_wanted(clone):
    write(["odd"] * 20, {"odd": 20})
    scores, card = score()
    assert card["protocol"]["diversity"]["pairs"] == 10 and scores["diversity"] > 0
    scores, card = score(diversity={"pairs": 0})
    assert "diversity" not in scores and "diversity" not in card["protocol"] | card["baselines"]
    scores, _ = score(diversity={"pairs": 3})
    assert scores["diversity"] == pytest.approx(expected(["odd"] * 20, 3), rel=1e-4)


def test_classes_of_one_sample_have_no_diversity_and_the_card_says_so(clone):
    write(["even", "odd", "rare"], "balanced")
    made, judge = (
        ImageShards.open_folder(Path("samples/generator")),
        Classifier.from_pretrained(Path("models/extractor")),
    )
    samples = Samples("in_domain", Views(torch.zeros(3, 3)), 2, classifier=judge)
    found = Diversity(made, sample_settings.ScoreGenerator(), None, "test", []).measure(samples, None)
    assert found == Measurement(notes=["diversity is left out: no two samples are of one class"])


def test_a_class_that_held_out_images_lack_has_no_floor_and_the_card_says_so(clone):
    write(["even"] * 8 + ["odd"] * 8 + ["rare"] * 8, "balanced")
    _, card = score()
    assert card["baselines"]["held_out"] == {"in_domain": {}}
    assert any("no noise floor: the split test has too few images" in note for note in card["notes"])
    assert any(note.startswith("diversity: no two images of the split test are of rare") for note in card["notes"])
    assert card["protocol"]["diversity"]["pairs"] == 12 and np.isfinite(card["baselines"]["diversity"]["diversity"])
    write(["rare"] * 8, {"rare": 8})
    scores, card = score()
    assert "diversity" in scores and "diversity" not in card["baselines"]
