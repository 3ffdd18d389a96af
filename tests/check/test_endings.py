"""`darkroom check` on trainings that end by themselves: each is judged, and often enough."""

from pathlib import Path

import pytest
import yaml

from darkroom.check.check import FITS, validated
from darkroom.check.needs import endings_fit as fits
from darkroom.errors import DarkroomError
from darkroom.training.plateau import levelled_off
from helpers import training

ROOT = Path(__file__).parents[2]
WSD = {"schedule": "wsd", "min_improvement": 0.1}
SCORED = {"every": 3200, "extractor": "models/extractor", "reference": "data/reference"}


def params(**sections):
    """This clone's params.yaml, with other keys in the `training` of sections, or others of the section itself."""
    values = yaml.safe_load((ROOT / "params.yaml").read_text())
    for name, changes in sections.items():
        section = values[name]
        section["training"] = {**section["training"], **changes.pop("training", {})}
        section |= changes
    return validated(values)


@pytest.mark.parametrize("batch", [8, 32, 100])
@pytest.mark.parametrize("most", [True, False])
def test_as_often_as_it_asks_is_just_often_enough(batch, most):
    """Of flat scores so many images apart one ends the training; with a step more between them none does."""
    found = training(images=200 * batch, batch=batch, **WSD)
    every = (found.decay_start - batch) // 8 + (0 if most else batch)
    steps = range(batch, found.decay_start, batch)
    scores = [(float(seen), 1.0) for seen in steps if seen // every > (seen - batch) // every]
    assert any(levelled_off(found, scores[: count + 1]) for count in range(len(scores))) == most


def test_it_is_one_of_the_checks():
    assert fits in FITS


@pytest.mark.parametrize(
    ("sections", "sentence"),
    [
        (
            {"train_generator": {"training": WSD}},
            "`train_generator.training.min_improvement` is 0.1, and no score says how good the images are, for the "
            "loss of noisy ones says little: set `train_generator.evaluate.every` above 0, `.extractor` to "
            "models/extractor and `.reference` to data/reference, or min_improvement to null.",
        ),
        ({"train_decoder": {"training": WSD}}, "`train_decoder.unets.base.training.min_improvement` is 0.1, and no"),
        (
            {"train_decoder": {"training": WSD}},
            "set `train_decoder.evaluate.every` above 0 and `.extractor` to models/extractor, or",
        ),
        (
            {"train_generator": {"training": WSD, "evaluate": {**SCORED, "every": 12800}}},
            "`images` (38400) begins after 30720: set `train_generator.evaluate.every` (12800) to 3832 at most",
        ),
        (
            {"train_tokenizer": {"training": WSD}},
            "before the decay of `images` (8000) begins after 6400: set `train_tokenizer.training.validate_every` "
            "(1600) to 796 at most",
        ),
        (
            {"train_tokenizer": {"training": {**WSD, "warmup": 3200, "validate_every": 320}}},
            "`train_tokenizer.training.min_improvement` is decided after twice the warmup (3200)",
        ),
        ({"train_prior": {"training": WSD}}, "`train_prior.training.validate_every` (6400) to 1272 at most"),
    ],
)
def test_it_names_the_key_that_would_let_a_training_end(sections, sentence):
    with pytest.raises(DarkroomError) as error:
        fits(params(**sections))
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"train_generator": {"training": WSD, "evaluate": SCORED}},
        {"train_tokenizer": {"training": {**WSD, "validate_every": 640}}},
        {"train_tokenizer": {"training": {**WSD, "validate_every": 796}}},
        {"train_generator": {"training": WSD, "kind": "none"}},
        {"train_clip": {"training": WSD | {"final_rate": 0.0}, "source": "none"}},
    ],
)
def test_what_is_judged_often_enough_or_not_trained_passes(sections):
    fits(params(**sections))
