from pathlib import Path

import pytest
import torch
from diffusers import UNet2DConditionModel
from safetensors.torch import load_file

from darkroom.models.decoder.network import Conditions, DecoderUNet, UNetConfig
from models.decoder.small_unets import SMALL, TOLD, everything, normals, unet

ALL = {**TOLD, "text_shape": (4, 5), "low": True, "low_noise": True, "embedding_noise": True, "self_condition": True}
X, STEPS = normals(9, 2, 1, 8, 8), torch.tensor([3, 700])


@torch.no_grad()
def said(network: DecoderUNet, told: Conditions, before: torch.Tensor | None = None) -> torch.Tensor:
    return network(X, STEPS, told, before)


@pytest.mark.parametrize("changes", [{}, TOLD, ALL, {**ALL, "patch": 2}, {"attention": (True, True)}])
def test_a_fresh_network_says_nothing_and_a_learned_variance_doubles_the_channels(changes: dict) -> None:
    for learned in (False, True):
        network = DecoderUNet(UNetConfig(**{**SMALL, **changes, "learned_variance": learned}))
        found = network(X, STEPS, everything())
        assert found.shape == (2, 2 if learned else 1, 8, 8)
        assert not found.any()


@pytest.mark.parametrize("name", ["image", "text", "low", "image_noise", "low_noise"])
def test_every_condition_is_heard(name: str) -> None:
    network, told = unet(**ALL), everything()
    other = Conditions(**{**vars(told), name: getattr(told, name) * 0.5})
    assert not torch.allclose(said(network, told), said(network, other), atol=1e-5)


def test_self_conditioning_is_heard_and_nothing_is_zeros() -> None:
    network, told = unet(**ALL), everything()
    assert torch.equal(said(network, told), said(network, told, torch.zeros_like(X)))
    assert not torch.allclose(said(network, told), said(network, told, X), atol=1e-5)


@pytest.mark.parametrize("way", ["tokens", "time", "map"])
def test_the_image_enters_as_tokens_with_the_time_and_as_a_map(way: str) -> None:
    changes = {
        "image_tokens": 2 if way == "tokens" else 0,
        "image_to_time": way == "time",
        "image_map": 3 * (way == "map"),
    }
    network, told = unet(embed_dim=6, **changes), everything()
    other = Conditions(image=told.image + 1)  # type: ignore[operator]
    assert not torch.allclose(said(network, told), said(network, other), atol=1e-5)


def without(conditions: Conditions) -> Conditions:
    no = torch.zeros(2, dtype=torch.bool)
    return Conditions(**{**vars(conditions), "image_kept": no, "text_kept": no})


def test_a_dropped_condition_is_its_null_and_only_of_its_image() -> None:
    network, told = unet(**ALL), everything()
    metadata = {**vars(told), "image_kept": torch.tensor([True, False]), "text_kept": torch.tensor([True, False])}
    dropped = said(network, Conditions(**metadata))
    assert torch.allclose(dropped[0], said(network, told)[0], atol=1e-5)
    nulled = said(network, without(told))
    assert torch.allclose(dropped[1], nulled[1], atol=1e-5)
    elsewhere = everything(seed=50)  # what is dropped is not heard
    unheard = {**vars(told), "image": elsewhere.image, "text": elsewhere.text}
    assert torch.equal(nulled, said(network, without(Conditions(**unheard))))


def test_image_and_text_drop_by_themselves() -> None:
    network, told = unet(**ALL), everything()
    no, yes = torch.zeros(2, dtype=torch.bool), torch.ones(2, dtype=torch.bool)
    found = [
        said(network, Conditions(**{**vars(told), "image_kept": i, "text_kept": t}))
        for i in (no, yes)
        for t in (no, yes)
    ]
    for number, one in enumerate(found):
        assert all(not torch.allclose(one, other, atol=1e-5) for other in found[:number])


def test_words_behind_the_end_are_the_null() -> None:
    network, told = unet(**ALL), everything()
    assert told.text is not None and not told.text[:, 2:].any()
    with torch.no_grad():
        network.null_text[2:] += 1
        moved = said(network, told)
        network.null_text[:2] += 1  # of words that are there
    assert torch.equal(moved, said(network, told))
    assert not torch.equal(moved, said(unet(**ALL), told))


def test_guided_conditions_are_those_with_and_without() -> None:
    network, told = unet(**ALL), everything()
    with torch.no_grad():
        both = network(torch.cat([X, X]), torch.cat([STEPS, STEPS]), told.guided())
    torch.testing.assert_close(
        both, torch.cat([said(network, told), said(network, without(told))]), atol=1e-5, rtol=1e-5
    )


def test_a_patch_is_a_place_with_more_channels() -> None:
    """The same network over patches, by hand: unshuffle, diffusers' model, shuffle."""
    network = unet(patch=2)
    found = said(network, Conditions())
    inner = torch.nn.functional.pixel_unshuffle(X, 2)
    with torch.no_grad():
        expected = torch.nn.functional.pixel_shuffle(network.unet(inner, STEPS, None, return_dict=False)[0], 2)
    assert torch.equal(found, expected)
    assert network.unet.config.sample_size == 4


def test_it_comes_back_from_its_folder_and_diffusers_reads_its_part(tmp_path: Path) -> None:
    network = unet(**ALL)
    network.save_pretrained(tmp_path)
    again = DecoderUNet.from_pretrained(tmp_path)
    assert again.config == network.config
    assert torch.equal(said(again, everything()), said(network, everything()))
    plain = UNet2DConditionModel.from_config(network.unet.config)
    inside = {
        key.removeprefix("unet."): value
        for key, value in load_file(tmp_path / "model.safetensors").items()
        if key.startswith("unet.")
    }
    plain.load_state_dict(inside)


@pytest.mark.parametrize(
    ("attention", "told", "attends"),
    [((False, True), TOLD, True), ((True, False), TOLD, False), ((False, True), {}, False)],
)
def test_the_middle_attends_where_the_last_level_does_and_there_are_tokens(
    attention: tuple[bool, bool], told: dict, attends: bool
) -> None:
    middle = unet(**told, attention=attention).unet.mid_block
    assert any(each is not None for each in getattr(middle, "attentions", [])) == attends


def test_every_level_has_its_residual_layers() -> None:
    network = unet(**TOLD, layers=2)
    assert [len(block.resnets) for block in network.unet.down_blocks] == [2, 2]
    assert [len(block.resnets) for block in network.unet.up_blocks] == [3, 3]
    assert said(network, everything()).shape == X.shape
