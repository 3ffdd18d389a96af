"""The KL autoencoder: its loss terms in float64, its files, its pixels."""

import numpy as np
import pytest
import torch
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from einops import rearrange

from darkroom.artifacts.manifest import ArtifactError, file_hashes, write_manifest
from darkroom.models.tokenizers.kl.network import KLAutoencoder, build, kl_per_element
from darkroom.models.tokenizers.protocol import (
    encode_all,
    load_tokenizer,
    padded,
    to_images,
    to_network,
)
from models.tokenizers.sections import kl

SETTINGS = kl()


@pytest.fixture(scope="module")
def tokenizer():
    torch.manual_seed(0)
    return KLAutoencoder(build(SETTINGS, 3, 16)).eval()


def test_every_grey_level_survives_the_way_there_and_back():
    levels = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    assert torch.equal(to_images(to_network(levels)), levels)
    assert to_images(torch.tensor([-9.0, 9.0])).tolist() == [0, 255]


def test_kl_is_the_integral():
    """KL(N(m, s²) || N(0, 1)) by numerical integration in float64."""
    x = np.linspace(-30, 30, 400_001)
    for mean, logvar in [(0.0, 0.0), (1.5, -1.0), (-0.7, 0.8)]:
        std = np.exp(logvar / 2)
        log_q = -0.5 * ((x - mean) / std) ** 2 - np.log(std)
        integral = np.trapezoid(np.exp(log_q) / np.sqrt(2 * np.pi) * (log_q + 0.5 * x**2), x)
        found = kl_per_element(torch.tensor(mean).double(), torch.tensor(logvar).double()).item()
        assert found == pytest.approx(integral, abs=1e-8)


def test_shapes_and_the_latent_shape(tokenizer):
    images = torch.randint(0, 256, (3, 3, 16, 16), dtype=torch.uint8)
    mean, logvar = tokenizer.encode(images)
    assert tokenizer.latent_shape == (2, 8, 8) and mean.shape == logvar.shape == (3, 2, 8, 8)
    decoded = tokenizer.decode(mean)
    assert decoded.shape == images.shape and decoded.dtype == torch.uint8


def test_the_forward_pass_samples_the_posterior(tokenizer):
    x, noise = torch.rand(2, 3, 16, 16) * 2 - 1, torch.randn(2, 2, 8, 8)
    with torch.no_grad():
        output, mean, logvar = tokenizer(x, noise)
        by_hand = tokenizer.network.decode(mean + torch.exp(logvar / 2) * noise).sample
    assert torch.equal(output, by_hand)


def test_an_image_has_the_same_bits_alone_and_among_others(tokenizer):
    images = torch.randint(0, 256, (7, 3, 16, 16), dtype=torch.uint8)
    device = torch.device("cpu")
    mean, _ = encode_all(tokenizer, images, 4, device)
    alone, _ = encode_all(tokenizer, images[5:6], 4, device)
    assert np.array_equal(mean[5:6], alone)
    latents = torch.from_numpy(mean)
    decoded = padded(tokenizer.decode, latents, 4, device)
    assert torch.equal(decoded[6:], padded(tokenizer.decode, latents[6:], 4, device))
    assert torch.equal(decoded, padded(tokenizer.reconstruct, images, 4, device))


def test_padding_always_shows_the_function_a_whole_batch():
    sizes = []
    padded(lambda x: (sizes.append(len(x)), x)[1], torch.arange(10.0), 4, torch.device("cpu"))
    assert sizes == [4, 4, 4]


def saved(tokenizer, folder):
    tokenizer.save_pretrained(folder)
    write_manifest(
        folder,
        "tokenizer",
        tokenizer_kind="kl",
        image_shape=[3, 16, 16],
        latent_shape=[2, 8, 8],
        files=file_hashes(folder),
    )


def test_it_leaves_and_returns_by_the_one_door(tokenizer, tmp_path):
    saved(tokenizer, tmp_path)
    again, fingerprint = load_tokenizer(tmp_path, (3, 16, 16))
    images = torch.randint(0, 256, (2, 3, 16, 16), dtype=torch.uint8)
    assert torch.equal(again.encode(images)[0], tokenizer.encode(images)[0]) and len(fingerprint) == 64


@pytest.mark.parametrize(("channels", "size"), [([8, 8], 16), ([8, 8], 18)])
def test_a_patch_is_channels_of_one_position(channels, size, tmp_path):
    """The network of diffusers sees unshuffled pixels; sizes that are no multiple are filled up, and cut again."""
    tokenizer = KLAutoencoder(build(kl(channels=channels, patch=2), 4, size)).eval()
    tokenizer.save_pretrained(tmp_path)
    again = KLAutoencoder.from_pretrained(tmp_path)
    side = -(-size // tokenizer.factor)
    images = torch.randint(0, 256, (2, 4, size, size), dtype=torch.uint8)
    assert kl(channels=channels, patch=2).factor == tokenizer.factor and tokenizer.latent_shape == (2, side, side)
    mean, decoded = again.encode(images)[0], again.reconstruct(images)
    assert mean.shape == (2, 2, side, side) and decoded.shape == images.shape
    assert torch.equal(decoded, tokenizer.reconstruct(images))
    if size == 16:
        x = rearrange(to_network(images), "n c (h p) (w q) -> n (c p q) h w", p=2, q=2)
        plain = AutoencoderKL.from_pretrained(tmp_path)
        with torch.no_grad():
            assert torch.equal(plain.encode(x).latent_dist.mean, mean)
            output = rearrange(plain.decode(mean).sample, "n (c p q) h w -> n c (h p) (w q)", p=2, q=2)
        assert torch.equal(to_images(output), decoded)


def test_other_images_and_damage_are_refused(tokenizer, tmp_path):
    saved(tokenizer, tmp_path)
    with pytest.raises(ArtifactError, match=r"images of shape \[3, 16, 16\], but these are \[1, 16, 16\]"):
        load_tokenizer(tmp_path, (1, 16, 16))
    path = tmp_path / "diffusion_pytorch_model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArtifactError, match=r"diffusion_pytorch_model\.safetensors is corrupted"):
        load_tokenizer(tmp_path)
