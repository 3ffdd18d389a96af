"""Sections of U-Nets that cannot be trained are refused before anything is read."""

from typing import Any

import pytest
from pydantic import ValidationError

from darkroom.models.decoder.unet_settings import UNet
from models.decoder.small_decoder import section, up_sampler

NOT_TOLD = {"image_tokens": 0, "image_to_time": False, "image_map": 0, "text_tokens": False}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": {"attention": [True]}}, "attention has 1 levels, but channels 2"),
        ({"model": {"norm_groups": 3}}, r"norm_groups \(3\) must divide each of channels \(8\)"),
        ({"model": {"head_dim": 5}}, r"head_dim \(5\) must divide the channels of a level with attention"),
        ({"model": {"attention": [False, False]}}, "need attention, but no level has it"),
        ({"diffusion": {"p2_gamma": 0.5, "min_snr": 5.0}}, "p2_gamma and min_snr weight the same loss"),
        ({"low": {"blur_sigma": [0.6, 0.4]}}, "the smallest and the largest"),
        ({"low": {"blur_kernel": 4}}, r"blur_kernel \(4\) must be odd"),
        ({"low": {"crop": 8}}, "low.crop is for up-samplers"),
        ({"model": NOT_TOLD}, "`embeddings` is data/embeddings, but none of model.image_tokens"),
        ({"embeddings": "data/none"}, "need CLIP: set either `embeddings`"),
        ({"clip": "models/clip"}, "and the other to data/none"),
        (
            {"model": NOT_TOLD, "embeddings": "data/none", "diffusion": {"embedding_noise": 0.1}},
            "diffusion.embedding_noise needs an image embedding",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        section(**changes)


@pytest.mark.parametrize(
    ("low", "changes", "said"),
    [
        ({}, {"low_size": 16}, "must be below size"),
        ({}, {"low_size": 6}, "and divide it"),
        ({"crop": 32}, {}, r"low.crop \(32\) must be at most size"),
        ({"crop": 7}, {}, "a multiple of size / low_size"),
        ({"blur": 0.5, "blur_kernel": 17}, {}, r"low.blur_kernel \(17\) must be 15 at most"),
        (
            {"crop": 8},
            {"model": {"image_map": 2}, "embeddings": "data/embeddings"},
            "model.image_map needs whole images",
        ),
    ],
)
def test_what_cannot_enlarge_is_refused(low: dict[str, Any], changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        up_sampler(low, **changes)


@pytest.mark.parametrize("way", [{"image_tokens": 2}, {"image_to_time": True}, {"image_map": 2}])
def test_each_way_by_itself_tells_a_u_net_the_embedding(way: dict[str, Any]) -> None:
    told: UNet = section(model={**NOT_TOLD, **way})
    assert told.image_conditioned and told.conditioned
