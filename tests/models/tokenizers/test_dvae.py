"""The discrete VAE: its network in float64, its latents and codes, its files, its refusals."""

import pytest
import torch
from pydantic import ValidationError

from darkroom.artifacts.manifest import file_hashes, write_manifest
from darkroom.data.colours import SNAP
from darkroom.models.tokenizers.dvae.tokenizer import DiscreteVAE
from darkroom.models.tokenizers.protocol import Codes, load_tokenizer
from models.tokenizers.dvae_reference import Reference, images, seen, settings


def tokenizer(channels=3, **changes):
    torch.manual_seed(0)
    return DiscreteVAE.from_settings(settings(**changes), (channels, 16, 16)).eval()


@pytest.mark.parametrize(("blocks", "alpha"), [(0, "unit"), (2, "signed")])
@torch.no_grad()
def test_the_network_is_the_one_of_the_weights_names(blocks, alpha):
    model = tokenizer(4, residual_blocks=blocks, alpha=alpha)
    reference = Reference(model.network.state_dict(), 2, blocks)
    given, noise = images(2, 4), torch.randn(2, 6, 4, 4)
    x, expected = model.pixels(given), seen(given, alpha)
    assert torch.allclose(x.double(), expected, atol=1e-6)
    output, logits = model(x, "soft", noise, torch.tensor(0.7))
    wanted, wanted_logits = reference.output(expected, noise.double(), 0.7)
    assert torch.allclose(logits.double(), wanted_logits, rtol=1e-5, atol=1e-6)
    assert torch.allclose(output.double(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("channels", "alpha"), [(3, "signed"), (4, "signed"), (4, "unit")])
def test_pixels_return_as_they_were(channels, alpha):
    model, given = tokenizer(channels, alpha=alpha), images(2, channels)
    given[:, 3:] = given[:, 3:].clamp(SNAP + 1, 254 - SNAP)
    assert torch.equal(model.images(model.pixels(given)), given)


OTHER = {"mean": [0.48, 0.46, 0.41], "std": [0.27, 0.26, 0.28]}


@torch.no_grad()
def test_pixels_are_normalised_by_the_numbers_that_are_given(tmp_path):
    model, pictures = tokenizer(**OTHER), images(2)
    unit = pictures.double() / 255
    mean, std = (torch.tensor(OTHER[key], dtype=torch.float64)[:, None, None] for key in ("mean", "std"))
    assert torch.allclose(model.pixels(pictures).double(), (unit - mean) / std, atol=1e-6)
    assert torch.equal(model.images(model.pixels(pictures)), pictures)
    model.save_pretrained(tmp_path)
    again = DiscreteVAE.from_pretrained(tmp_path)
    assert torch.equal(again.encode(pictures)[0], model.encode(pictures)[0])


def test_numbers_for_other_channels_are_refused():
    assert settings(**OTHER).unfit((3, 16, 16), 4) is None
    assert "`mean` has 3 numbers, but the images have 1 channels" in settings(**OTHER).unfit((1, 16, 16), 4)
    with pytest.raises(ValidationError, match="mean and std must be set together"):
        settings(mean=[0.5, 0.5, 0.5])
    with pytest.raises(ValidationError, match="alpha has no effect with mean and std"):
        settings(**OTHER, alpha="unit")


@torch.no_grad()
def test_latents_are_expected_vectors_and_codes_the_most_probable():
    model, given = tokenizer(), images(3)
    latents, logvar = model.encode(given)
    q = model.logits(model.pixels(given)).double().softmax(dim=1)
    assert logvar is None and latents.shape == (3, *model.latent_shape) == (3, 3, 4, 4)
    assert torch.allclose(latents.double(), torch.einsum("nkhw,kc->nchw", q, model.codebook.double()), atol=1e-6)
    codes = model.encode_codes(given)
    assert codes.dtype == torch.int64 and torch.equal(codes, q.argmax(dim=1))
    assert isinstance(model, Codes) and model.codebook.shape == (6, 3) and model.codebook.dtype == torch.float32


@torch.no_grad()
def test_a_reconstruction_goes_by_the_codes():
    model, given = tokenizer(), images(3)
    codes = model.encode_codes(given)
    vectors = model.codebook[codes].permute(0, 3, 1, 2)
    assert torch.equal(model.decode(vectors), model.decode_codes(codes))
    assert torch.equal(model.reconstruct(given), model.decode_codes(codes))
    output, _ = model(model.pixels(given), "hard")
    assert torch.equal(model.images(output), model.reconstruct(given))
    mean, _ = model(model.pixels(given), "mean")
    assert torch.equal(model.images(mean), model.decode(model.encode(given)[0]))


def test_under_autocast_the_choice_is_made_in_float32():
    model = tokenizer()
    seen_dtypes = []
    model.network.decoder.register_forward_pre_hook(lambda _, inputs: seen_dtypes.append(inputs[0].dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, logits = model(model.pixels(images(1)), "reinmax", torch.zeros(1, 6, 4, 4), torch.tensor(1.0))
    assert logits.dtype == torch.float32 and seen_dtypes == [torch.float32]


def test_it_leaves_and_returns_by_the_one_door(tmp_path):
    model, given = tokenizer(4, alpha="unit"), images(2, 4)
    model.save_pretrained(tmp_path)
    write_manifest(tmp_path, "tokenizer", tokenizer_kind="dvae", image_shape=[4, 16, 16], files=file_hashes(tmp_path))
    again, _ = load_tokenizer(tmp_path, (4, 16, 16))
    assert torch.equal(again.encode(given)[0], model.encode(given)[0])
    assert torch.equal(again.reconstruct(given), model.reconstruct(given))
    names = again.own_names(model.network.state_dict())
    assert names.keys() == again.state_dict().keys()  # a training may begin with the file


def test_settings_that_contradict_each_other_are_refused():
    with pytest.raises(ValidationError, match="reinmax is only read with straight_through true"):
        settings(reinmax=True)
    with pytest.raises(ValidationError, match="greater than or equal to 2"):
        settings(codebook_size=1)
    assert settings(straight_through=True, reinmax=True).relaxation == "reinmax"
    assert settings(straight_through=True).relaxation == "straight_through"
    assert settings().relaxation == "soft" and settings(layers=3).factor == 8
