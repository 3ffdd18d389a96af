"""The quantised autoencoder: its shapes, its files, its refusals."""

import pytest
import torch
from pydantic import ValidationError

from darkroom.artifacts.manifest import ArtifactError, file_hashes, write_manifest
from darkroom.models.tokenizers.protocol import Codes, load_tokenizer
from darkroom.models.tokenizers.sections import FSQ
from darkroom.models.tokenizers.vqgan.network import VQGANTokenizer, config_of
from models.tokenizers.small_vqgan import section

QUANTISERS = ["vq", "simvq", "lfq", "bsq", "fsq"]


def tokenizer(quantiser="vq", **changes):
    torch.manual_seed(0)
    return VQGANTokenizer(config_of(section(quantiser=quantiser, **changes), (3, 16, 16))).eval()


def images(count=3):
    return torch.randint(0, 256, (count, 3, 16, 16), dtype=torch.uint8)


@pytest.mark.parametrize("quantiser", QUANTISERS)
def test_codes_and_latents_lead_to_the_same_images(quantiser):
    made, given = tokenizer(quantiser), images()
    latents, logvar = made.encode(given)
    codes = made.encode_codes(given)
    channels = {"vq": 4, "simvq": 4, "lfq": 4, "bsq": 4, "fsq": 2}[quantiser]
    assert isinstance(made, Codes) and logvar is None
    assert made.latent_shape == (channels, 4, 4) and latents.shape == (3, channels, 4, 4)
    assert codes.shape == (3, 4, 4) and codes.dtype == torch.int64 and made.codebook.shape == (16, channels)
    assert latents.dtype == made.codebook.dtype == torch.float32
    expected = made.reconstruct(given)
    assert expected.shape == given.shape and expected.dtype == torch.uint8
    assert torch.equal(made.decode(latents), expected) and torch.equal(made.decode_codes(codes), expected)
    assert torch.equal(made.decode(made.codebook[codes].permute(0, 3, 1, 2)), expected)


def test_the_forward_pass_is_what_is_decoded():
    made, given = tokenizer(vq={"kmeans_init": False}), images()
    with torch.no_grad():
        output, quantised = made(given / 127.5 - 1)
    assert torch.equal(((output + 1) * 127.5).round().clamp(0, 255).to(torch.uint8), made.reconstruct(given))
    assert torch.equal(quantised.codes, made.encode_codes(given))


def test_pixels_from_0_to_1_go_in_and_come_back_as_images():
    made, given = tokenizer(pixels="unit", vq={"kmeans_init": False}), images()
    with torch.no_grad():
        output, _ = made(given / 255)
    assert torch.equal((output * 255).round().clamp(0, 255).to(torch.uint8), made.reconstruct(given))
    assert torch.equal(made.encode(given)[0], made.quantiser.prepare(made.encoder(given / 255)))


def test_the_network_is_as_wide_and_deep_as_muse_builds_it():
    """Parameters by the formulas of its convolutions: 5 x 5 stem, 4 x 4 of stride 2, blocks, 1 x 1 at the ends."""
    made = tokenizer(width=8, layers=3, residual_blocks=2)
    conv = lambda inner, outer, side: inner * outer * side**2 + outer  # noqa: E731
    norm, wide = 2 * 32, 32
    encoder = conv(3, 8, 5) + conv(8, 8, 4) + conv(8, 16, 4) + conv(16, 32, 4) + conv(32, 4, 1)
    encoder += 2 * (2 * (conv(wide, wide, 3) + norm) + conv(wide, wide, 1))
    decoder = conv(4, 32, 1) + conv(32, 16, 4) + conv(16, 8, 4) + conv(8, 8, 4) + conv(8, 3, 1)
    decoder += 2 * (2 * (conv(wide, 2 * wide, 3) + norm) + conv(wide, wide, 1))
    count = lambda module: sum(value.numel() for value in module.parameters())  # noqa: E731
    assert count(made.encoder) == encoder and count(made.decoder) == decoder
    assert made.last_layer is made.decoder[-1].weight and made.last_layer.shape == (3, 8, 1, 1)


@pytest.mark.parametrize("quantiser", QUANTISERS)
def test_it_leaves_and_returns_by_the_one_door(quantiser, tmp_path):
    made, given = tokenizer(quantiser), images()
    made.save_pretrained(tmp_path)
    write_manifest(
        tmp_path,
        "tokenizer",
        tokenizer_kind="vqgan",
        image_shape=[3, 16, 16],
        latent_shape=list(made.latent_shape),
        files=file_hashes(tmp_path),
    )
    again, _ = load_tokenizer(tmp_path, (3, 16, 16))
    assert torch.equal(again.encode_codes(given), made.encode_codes(given))
    assert torch.equal(again.reconstruct(given), made.reconstruct(given))
    with pytest.raises(ArtifactError, match=r"images of shape \[3, 16, 16\], but these are \[4, 16, 16\]"):
        load_tokenizer(tmp_path, (4, 16, 16))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"quantiser": "lfq", "codebook_size": 1000}, "lfq needs a power of two, such as 1,024"),
        ({"quantiser": "bsq", "codebook_size": 24}, "bsq needs a power of two"),
        ({"quantiser": "fsq", "codebook_size": 64}, "product of fsq.levels is 16, but must be codebook_size, 64"),
        ({"quantiser": "lfq", "codebook_size": 2**21}, "a codebook has at most 1,048,576 codes"),
        ({"width": 10}, r"norm_groups \(4\) must divide width \(10\)"),
        ({"adversarial": {"weight": 0.1, "adaptive": "perceptual"}}, "there is no perceptual loss"),
    ],
)
def test_a_section_that_cannot_work_is_told_in_a_sentence(changes, sentence):
    with pytest.raises(ValidationError, match=sentence):
        section(**changes)


def test_levels_of_two_are_refused():
    with pytest.raises(ValidationError, match="greater than or equal to 3"):
        FSQ(levels=[2, 4])


def test_kmeans_needs_as_many_vectors_as_codes():
    assert section(codebook_size=128).unfit((3, 16, 16), 8) is None
    told = section(codebook_size=129).unfit((3, 16, 16), 8)
    assert "`codebook_size` is 129" in told and "which are 128 (8 images of 4 x 4)" in told
    assert section(codebook_size=129, vq={"kmeans_init": False}).unfit((3, 16, 16), 8) is None
    assert section(quantiser="simvq", codebook_size=129).unfit((3, 16, 16), 8) is None
