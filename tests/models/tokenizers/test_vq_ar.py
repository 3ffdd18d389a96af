"""The network of `vq_ar`: codes, the rotation, the codebook's averages, the protocol."""

import pytest
import torch
from vector_quantize_pytorch.vector_quantize_pytorch import rotate_to

from darkroom.artifacts.manifest import file_hashes, write_manifest
from darkroom.models.tokenizers.protocol import Codes, load_tokenizer
from darkroom.models.tokenizers.vq_ar.network import VQAutoregressive
from models.tokenizers.making_vq_ar import SHAPE, network, pictures


def rotated(e, q, g):
    """Return the rotation trick's output, R e ||q|| / ||e||, and the gradient g R ||q|| / ||e||, R a fixed matrix."""
    a, b = e / e.norm(), q / q.norm()
    w = (a + b) / (a + b).norm()
    matrix = torch.eye(len(e), dtype=e.dtype) - 2 * torch.outer(w, w) + 2 * torch.outer(b, a)
    scaled = matrix * q.norm() / e.norm()
    return scaled @ e, scaled.T @ g


def test_the_rotation_turns_value_and_gradient():
    """Against the matrix of arXiv 2410.06424, section 4.2, in float64: the library's formula is the paper's."""
    torch.manual_seed(1)
    e, q, g = torch.randn(3, 5, 7, dtype=torch.float64)
    e.requires_grad_()
    out = rotate_to(e, q)
    (out * g).sum().backward()
    for row in range(5):
        value, gradient = rotated(e[row].detach(), q[row], g[row])
        assert torch.allclose(out[row], value, atol=1e-10) and torch.allclose(value, q[row], atol=1e-10)
        assert torch.allclose(e.grad[row], gradient, atol=1e-10)


def test_the_quantiser_rotates():
    """A straight-through estimator would give the latents the gradient of the codes unchanged."""
    model = network().train()
    latents = model.latents(torch.rand(2, *SHAPE) * 2 - 1).detach().requires_grad_()
    quantised, codes = model._quantise(latents)
    g = torch.randn(quantised.shape)
    (quantised * g).sum().backward()
    value, gradient = rotated(latents[1, 3].detach().double(), model.codebook[codes[1, 3]].double(), g[1, 3].double())
    assert torch.allclose(quantised[1, 3].double(), value, atol=1e-5)
    assert torch.allclose(latents.grad[1, 3].double(), gradient, atol=1e-4)
    assert not torch.allclose(latents.grad, g, atol=1e-2)


def test_a_straight_gradient_passes_the_quantiser_as_it_is():
    model = network(gradient="straight_through").train()
    latents = model.latents(torch.rand(2, *SHAPE) * 2 - 1).detach().requires_grad_()
    quantised, codes = model._quantise(latents)
    g = torch.randn(quantised.shape)
    (quantised * g).sum().backward()
    assert torch.allclose(latents.grad, g) and torch.allclose(quantised, model.codebook[codes], atol=1e-6)


@pytest.mark.parametrize("kmeans", [False, True])
def test_by_cosine_latents_and_codebook_lie_on_the_unit_sphere(kmeans):
    """Codes are those of the largest cosine; foreseen and moved codebook are unit vectors, and the same."""
    model, images = network(cosine=True, dead_below=0.0).train(), pictures(3)
    latents = model.latents(torch.rand(3, *SHAPE) * 2 - 1).detach()
    assert torch.allclose(latents.norm(dim=-1), torch.ones(3, 16), atol=1e-6)
    if kmeans:
        model.start_codebook(latents)
    codes = model._quantise(latents)[1]
    assert torch.equal(codes, (latents.double() @ model.codebook.double().T).argmax(dim=-1))
    foreseen = model.quantiser.moved(latents, codes)
    model.move_codebook(latents, codes)
    assert torch.allclose(model.codebook.norm(dim=-1), torch.ones(12), atol=1e-6)
    assert torch.allclose(foreseen, model.codebook, atol=1e-6)
    assert torch.equal(model.decode(model.encode(images)[0]), model.reconstruct(images))


def test_codes_are_the_nearest_and_decode_quantises():
    model, images = network().eval(), pictures(3)
    latents, logvar = model.encode(images)
    codes = model.encode_codes(images)
    assert isinstance(model, Codes) and logvar is None
    assert latents.shape == (3, *model.latent_shape) == (3, 8, 4, 4) and codes.shape == (3, 4, 4)
    flat = latents.permute(0, 2, 3, 1).double()
    assert torch.equal(codes, torch.cdist(flat.flatten(0, 2), model.codebook.double()).argmin(1).view(3, 4, 4))
    assert torch.equal(model.decode(latents), model.decode_codes(codes))
    assert torch.equal(model.reconstruct(images), model.decode_codes(codes))
    assert model.decode_codes(codes).dtype == torch.uint8 and model.decode_codes(codes).shape == images.shape


def test_a_patch_is_seen_and_drawn_in_its_place():
    """A change of one patch changes one latent; one code draws one patch."""
    model, images = network().eval(), pictures(1)
    other = images.clone()
    other[0, :, 4:8, 8:12] = 0
    differ = (model.encode(images)[0] != model.encode(other)[0]).any(dim=1)[0]
    assert differ.nonzero().tolist() == [[1, 2]]
    codes = model.encode_codes(images)
    changed = codes.clone()
    changed[0, 1, 2] = (codes[0, 1, 2] + 1) % 12
    where = (model.decode_codes(codes) != model.decode_codes(changed)).any(dim=1)[0].nonzero()
    assert where.min(dim=0).values.tolist() == [4, 8] and where.max(dim=0).values.tolist() == [7, 11]


def test_a_prediction_sees_only_the_codes_before_it():
    model = network().eval()
    x = torch.rand(1, *SHAPE) * 2 - 1
    other = x.clone()
    other[..., 4:8, 8:12] *= -1  # patch 6
    label = torch.zeros(1, dtype=torch.long)
    with torch.no_grad():
        first, second = (model(each, label, 0.5, False) for each in (x, other))
    assert not torch.equal(first.codes, second.codes)
    same = (first.prediction == second.prediction).all(dim=-1)[0].tolist()
    assert same[:7] == [True] * 7 and not any(same[7:])


def test_the_forward_pass_leaves_the_codebook_alone_and_moving_it_is_the_formula():
    model = network(dead_below=0.0).train()
    latents = model.latents(torch.rand(4, *SHAPE) * 2 - 1)
    before = model.codebook.clone()
    _, codes = model._quantise(latents)
    assert torch.equal(model.codebook, before)
    z, k = latents.detach().double().flatten(0, 1), codes.flatten()
    counts = torch.stack([(k == code).sum() for code in range(12)]).double()
    sums = torch.stack([z[k == code].sum(dim=0) for code in range(12)])
    size, average = 0.9 * torch.ones(12).double() + 0.1 * counts, 0.9 * before.double() + 0.1 * sums
    smoothed = (size + 1e-5) / (size.sum() + 12e-5) * size.sum()
    expected = average / smoothed[:, None]
    foreseen = model.quantiser.moved(latents.detach(), codes)
    model.move_codebook(latents.detach(), codes)
    for found in (foreseen, model.codebook):
        assert torch.allclose(found.double(), expected, rtol=1e-5, atol=1e-7)


def test_dead_codes_come_back_from_the_latents():
    model = network(dead_below=1.5).train()
    latents = torch.randn(40, 16, 8)
    model.move_codebook(latents, torch.zeros(40, 16, dtype=torch.long))
    assert torch.cdist(model.codebook[1:].double(), latents.flatten(0, 1).double()).min(dim=1).values.max() < 1e-6


def test_it_leaves_and_returns_by_the_one_door(tmp_path):
    model, images = network(classes=3).eval(), pictures(2)
    model.save_pretrained(tmp_path)
    files = file_hashes(tmp_path)
    write_manifest(tmp_path, "tokenizer", tokenizer_kind="vq_ar", image_shape=list(SHAPE), files=files)
    again, _ = load_tokenizer(tmp_path, SHAPE)
    assert isinstance(again, VQAutoregressive) and not again.training
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in model.state_dict().items())
    assert torch.equal(again.reconstruct(images), model.reconstruct(images))


def test_a_centre_without_a_latent_is_no_zero_vector():
    model = network()
    latents = torch.ones(1, 16, 8)  # one latent, 16 times: 11 of 12 centres have none
    model.start_codebook(latents)
    assert model.started and torch.allclose(model.codebook, torch.ones(12, 8))
