"""Transparency: premultiplied for networks, on white for scores; no effect of hidden colours, none on RGB."""

import pytest
import torch

from darkroom.data.colours import SNAP, composited, premultiplied, to_rgb
from darkroom.metrics.nearest import reduced
from darkroom.models.evaluators.extractor import Classifier
from darkroom.models.evaluators.pairs import in_domain_measure
from darkroom.models.tokenizers.protocol import to_images, to_network

ALPHA, COLOUR = torch.meshgrid(torch.arange(256), torch.arange(256), indexing="ij")
EVERY = torch.stack([COLOUR, 255 - COLOUR, COLOUR, ALPHA])[None].to(torch.uint8)  # (1, 4, 256, 256): row a has alpha a


@pytest.mark.parametrize("pixels", ["signed", "unit"])
def test_every_colour_of_every_alpha_returns_and_alpha_is_snapped(pixels) -> None:
    found = to_images(to_network(EVERY, pixels), pixels)
    inside = slice(SNAP + 1, 255 - SNAP)
    assert torch.equal(found[:, :, inside], EVERY[:, :, inside])
    assert torch.equal(found[:, :, 255], EVERY[:, :, 255])
    assert not found[:, :, : SNAP + 1].any()
    assert (found[:, 3, 256 - SNAP :] == 255).all()
    on_black = premultiplied(found) - premultiplied(EVERY)
    assert on_black[:, :3, SNAP + 1 :].abs().max() < 0.51  # snapped to opaque, what is seen on black stays


def test_decoded_colours_are_clipped_to_alpha() -> None:
    values = torch.tensor([[999.0, -9.0, 64.0, 128.0], [255.0, 255.0, 255.0, SNAP]])[..., None, None] / 127.5 - 1
    assert to_images(values)[..., 0, 0].tolist() == [[255, 0, 128, 128], [0, 0, 0, 0]]


def test_other_channels_are_as_before_bit_for_bit() -> None:
    values = torch.randn(5, 3, 8, 8, generator=torch.Generator().manual_seed(0)) * 2
    for channels in (1, 3):
        images = EVERY[:, :channels]
        assert torch.equal(to_network(images), images.float() / 127.5 - 1)
        assert torch.equal(to_network(images, "unit"), images.float() / 255)
        assert torch.equal(reduced(images[..., :32, :32]), images[..., :32, :32].float() / 255)
        assert composited(images) is images
    assert torch.equal(to_images(values), ((values + 1) * 127.5).round().clamp(0, 255).byte())


def test_hidden_colours_have_no_effect() -> None:
    images = EVERY[..., ::16, ::16].repeat(2, 1, 1, 1)
    images[1, :3] = torch.where(images[1, 3:] == 0, 255 - images[1, :3], images[1, :3])
    assert not torch.equal(images[0], images[1])
    torch.manual_seed(0)
    network = Classifier(4, 2, [8, 8], 8).eval()
    for seen in (to_network, to_rgb, reduced, network.features):
        assert torch.equal(seen(images[:1]), seen(images[1:]))
    assert in_domain_measure(network, torch.device("cpu"))(images[:1], images[1:]).tolist() == [0]
