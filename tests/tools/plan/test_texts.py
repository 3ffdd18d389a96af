"""Plans of the decoder's and the texts' stages: what they count, and that nothing is planned of what is idle."""

import json

import pytest
import yaml

from darkroom.check.check import read_params
from darkroom.tools.plan import passes, plan

IDLE = [
    *("train_clip", "embed_clip@first", "train_decoder@base", "train_decoder@up", "sample_decoder"),
    *("train_scene_reader", "score_decoder", "train_prior", "sample_text", "score_text"),
]


@pytest.fixture
def planned(quick, clone):
    """Returns what plans some stages under some changes of params.yaml: the plans by name."""

    def plans(stages, **changes):
        values = read_params(clone / "params.yaml")
        for path, value in changes.items():
            *above, last = path.split("__")
            place = values
            for key in above:
                place = place[key]
            place[last] = value
        (clone / "params.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
        quick(stages, stages)
        found = json.loads(plan.plan(in_json=True))["stages"]
        return {stage["stage"]: stage for stage in found}

    return plans


def test_without_clip_nothing_below_it_takes_time(planned):
    change = {"train_clip__source": "none", "train_decoder__unets__up__trained": False}
    for stage in planned(IDLE, **change).values():
        assert (stage["work"], stage["parameters"], stage["source"]) == (0, None, "measured"), stage["stage"]


def test_a_u_net_that_is_told_nothing_is_planned_without_clip(planned):
    found = planned(
        ["train_decoder@base", "train_decoder@up", "sample_decoder", "sample_text"], train_clip__source="none"
    )
    assert found["train_decoder@base"]["work"] == found["sample_text"]["work"] == 0
    assert found["sample_decoder"]["parameters"] == found["train_decoder@up"]["parameters"] > 0


def test_without_a_u_net_that_is_told_of_texts_none_becomes_an_image(planned):
    found = planned(["sample_decoder", "sample_text", "score_text"], train_decoder__unets__base__trained=False)
    assert found["sample_decoder"]["parameters"] > 0
    assert found["sample_text"]["parameters"] is found["score_text"]["parameters"] is None


def test_few_steps_of_noise_are_planned(planned):
    """The network is asked of a step that there is."""
    change = {f"train_decoder__unets__{name}__diffusion__target": "eps" for name in ("base", "up")}
    planned(["sample_decoder"], train_decoder__timesteps=10, **change)


def test_the_judges_that_are_asked_are_counted(planned):
    stages = ["train_scene_reader", "score_decoder"]
    scenes = {"parts__first__source": "shapes", "parts__second__source": "shapes"}
    plain = planned(stages, **scenes)
    asked = planned(stages, **scenes, score_decoder__attributes="scenes")
    assert plain["train_scene_reader"]["work"] == 0 and asked["train_scene_reader"]["backward"] > 0
    reader = asked["train_scene_reader"]["parameters"]
    assert asked["score_decoder"]["parameters"] == plain["score_decoder"]["parameters"] + reader


def test_passes_are_counted_by_hand(planned, monkeypatch):
    """24 images in batches of 12: 2 passes; 8 varied, 8 between and one filled in twice: 1 + 1 + 2; of 2 steps each."""
    calls = []

    def counted(self, function, batch, count, images, scale=1):
        calls.append((len(batch), count, images, scale))

    monkeypatch.setattr(passes.Passes, "add", counted)
    planned(["sample_decoder"], sample_decoder__pictures__resamples=2, sample_decoder__unets__up__steps=3)
    assert calls == [(12, 6, 24, 2), (12, 6, 24, 3)]
    calls.clear()
    change = {"sample_text__prior__candidates": 4, "sample_text__prior__batch": 10, "sample_text__prior__steps": 5}
    planned(["sample_text"], **change)
    assert calls == [(10, 10, 24, 5), (12, 2, 24, 2), (12, 2, 24, 3)]


def test_the_prior_reads_encodings_where_they_are_stored(planned):
    plain = planned(["train_prior"])["train_prior"]
    more = planned(["train_prior"], embed_clip__encodings=True)["train_prior"]
    assert more["parameters"] > plain["parameters"] > 0 and more["forward"] > 2 * plain["forward"]
