"""Quantisers: codes, gradients, codebooks and losses against float64 code written here, and against the library."""

import math

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from vector_quantize_pytorch import FSQ, LFQ, SimVQ, VectorQuantize
from vector_quantize_pytorch.vector_quantize_pytorch import kmeans

from darkroom.models.tokenizers import sections
from darkroom.models.tokenizers.codebooks import AveragedCodebook, LinearCodebook, rotated
from darkroom.models.tokenizers.quantiser import Rounded, Signs, code_entropies, soft_codes


def averaged(size=16, channels=4, **keys):
    settings = {
        "cosine": False,
        "decay": 0.8,
        "kmeans_init": False,
        "dead_below": 0.0,
        "gradient": "rotation",
        "commitment_weight": 1.0,
    }
    torch.manual_seed(0)
    made = AveragedCodebook(size, channels, sections.VQ(**settings | keys))
    with torch.no_grad():  # the library begins close to zero
        made.average._codebook.embed.copy_(made.prepare(torch.randn(size, channels)[..., None, None]).view(1, size, -1))
        made.average._codebook.embed_avg.copy_(made.average._codebook.embed)
    return made


def signs(spherical=False, size=16, **keys):
    settings = {"entropy_weight": 0.1, "diversity": 4.0, "inverse_temperature": 100.0, "commitment_weight": 0.25}
    return Signs(size, sections.Binary(**settings | keys), spherical)


def linear(gradient="rotation"):
    torch.manual_seed(0)
    return LinearCodebook(16, 4, sections.SimVQ(gradient=gradient, codebook_weight=1.0, commitment_weight=0.25))


MAKERS = {
    "vq": averaged,
    "cosine": lambda: averaged(cosine=True),
    "simvq": linear,
    "lfq": signs,
    "bsq": lambda: signs(True),
    "fsq": lambda: Rounded(sections.FSQ(levels=[4, 5, 3])),
}


def latents(channels=4, images=3, side=4, seed=1):
    return torch.randn(images, channels, side, side, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", MAKERS)
def test_the_vector_of_each_code_has_that_code(name):
    made = MAKERS[name]()
    codebook = made.codebook.detach()
    assert codebook.shape == (made.size, made.channels) and codebook.dtype == torch.float32
    codes = made.codes_of(codebook.T[None, :, :, None])
    assert codes.flatten().tolist() == list(range(made.size)) and codes.dtype == torch.int64
    assert torch.equal(made.vectors_of(codes), codebook.T[None, :, :, None])


@pytest.mark.parametrize("name", MAKERS)
def test_a_code_is_the_nearest_of_all_by_a_search_in_float64(name):
    made = MAKERS[name]()
    given = made.prepare(3 * latents(made.channels))
    flat = given.double().permute(0, 2, 3, 1).reshape(-1, made.channels).numpy()
    codebook = made.codebook.detach().double().numpy()
    if name == "fsq":  # each channel is rounded by itself; in steps of that channel's numbers
        half = np.array([2, 2, 1])
        flat, codebook = flat * half, codebook * half
    nearest = np.square(flat[:, None] - codebook[None]).sum(axis=2).argmin(axis=1)
    assert made.codes_of(given).flatten().tolist() == nearest.tolist()


@pytest.mark.parametrize("name", MAKERS)
def test_a_forward_pass_moves_nothing_and_is_the_same_in_training(name):
    made = MAKERS[name]().train()
    before = {key: value.clone() for key, value in made.state_dict().items()}
    found = made(latents(made.channels))
    assert all(torch.equal(value, before[key]) for key, value in made.state_dict().items())
    assert torch.allclose(found.vectors, made.vectors_of(found.codes), atol=1e-6)
    assert torch.equal(found.codes, made.codes_of(found.latents))


@pytest.mark.parametrize("name", MAKERS)
def test_all_of_it_is_float32_under_autocast(name):
    made, given = MAKERS[name](), latents()[:, : MAKERS[name]().channels]
    plain = made(given)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = made(given)
    for one, other in zip(plain[:3], cast[:3], strict=True):
        assert one.dtype == other.dtype and torch.equal(one, other)
    assert all(torch.equal(value, cast.losses[key]) for key, value in plain.losses.items())


# ----------------------------------------------------------------------------------------------------------------
# Gradients past the quantiser


def test_the_rotated_gradient_is_that_of_the_rotation_in_float64():
    """Gradient with respect to z of R z |q| / |z|, with R the rotation that takes z's direction to q's."""
    z, q = latents(5, seed=2).requires_grad_(), latents(5, seed=3)
    weights = latents(5, seed=4)
    found = rotated(z, q)
    assert torch.allclose(found, q, atol=1e-5)
    (found * weights).sum().backward()
    flat = [value.detach().double().permute(0, 2, 3, 1).reshape(-1, 5) for value in (z, q, weights, z.grad)]
    for one, other, weight, gradient in zip(*flat, strict=True):
        e, t = one / one.norm(), other / other.norm()
        w = (e + t) / (e + t).norm()
        rotation = torch.eye(5).double() - 2 * torch.outer(w, w) + 2 * torch.outer(t, e)
        assert torch.allclose(rotation @ e, t) and torch.allclose(rotation.T @ rotation, torch.eye(5).double())
        assert torch.allclose(gradient, rotation.T @ weight * other.norm() / one.norm(), atol=1e-5)


@pytest.mark.parametrize("name", ["vq", "simvq", "lfq", "bsq"])
def test_a_straight_gradient_passes_as_it_is(name):
    makers = {"vq": lambda: averaged(gradient="straight_through"), "simvq": lambda: linear("straight_through")}
    made = (makers | MAKERS)[name]() if name not in makers else makers[name]()
    z = latents(made.channels)
    z = (z / z.norm(dim=1, keepdim=True) if name == "bsq" else z).requires_grad_()
    given = made.prepare(z)
    weights = latents(made.channels, seed=4)
    (gradient,) = torch.autograd.grad(
        (made.pass_through(given, made.vectors_of(made.codes_of(given))) * weights).sum(), given
    )
    assert torch.equal(gradient, weights)


# ----------------------------------------------------------------------------------------------------------------
# The codebook of averages


@pytest.mark.parametrize("cosine", [False, True])
def test_the_codebook_moves_by_the_formula_in_float64(cosine):
    made = averaged(cosine=cosine)
    state = made.average._codebook
    n, m = (value[0].double().numpy().copy() for value in (state.cluster_size, state.embed_avg))
    for seed in range(3):
        found = made(latents(seed=seed))
        made.update(found.latents, found.codes)
        flat = found.latents.double().permute(0, 2, 3, 1).reshape(-1, 4).numpy()
        for code in range(16):
            mine = flat[found.codes.flatten().numpy() == code]
            n[code] = 0.8 * n[code] + 0.2 * len(mine)
            m[code] = 0.8 * m[code] + 0.2 * mine.sum(axis=0)
        smooth = (n + 1e-5) / (n.sum() + 16e-5) * n.sum()
        e = m / smooth[:, None]
        if cosine:
            e /= np.linalg.norm(e, axis=1, keepdims=True)
        assert np.allclose(made.codebook.numpy(), e, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("gradient", "rotation"), [("rotation", True), ("straight_through", False)])
@pytest.mark.parametrize("cosine", [False, True])
def test_it_is_the_librarys_quantiser(cosine, gradient, rotation):
    """Same codebook and latents in: same vectors, codes, commitment, gradient and moved codebook out."""
    made = averaged(cosine=cosine, gradient=gradient)
    library = VectorQuantize(
        4, 16, decay=0.8, use_cosine_sim=cosine, rotation_trick=rotation, accept_image_fmap=True, commitment_weight=1.0
    )
    library.load_state_dict(made.average.state_dict())
    ours, theirs = (latents().requires_grad_() for _ in range(2))
    found = made(ours)
    vectors, codes, commitment = library(theirs)
    assert torch.equal(found.codes, codes) and torch.allclose(found.vectors, vectors, atol=1e-6)
    assert torch.allclose(found.losses["commitment"].mean(), commitment, rtol=1e-5)
    weights = latents(seed=9)
    ((found.vectors * weights).sum() + found.losses["commitment"].mean()).backward()
    ((vectors * weights).sum() + commitment).backward()
    assert torch.allclose(ours.grad, theirs.grad, atol=1e-5)
    made.update(found.latents, found.codes)
    assert torch.allclose(made.codebook, library.codebook, atol=1e-6)


def test_a_code_that_nobody_takes_becomes_a_latent_of_the_update_and_only_where_it_is_asked_for():
    for below, replaced in ((0.5, True), (0.0, False)):
        made = averaged(dead_below=below)
        with torch.no_grad():
            made.average._codebook.embed[0, 3] = made.average._codebook.embed_avg[0, 3] = 100.0
            made.average._codebook.cluster_size[0, 3] = 0.1
        given = latents()
        made.update(given, made.codes_of(given))
        flat = given.permute(0, 2, 3, 1).reshape(-1, 4)
        assert bool((flat == made.codebook[3]).all(dim=1).any()) == replaced


@pytest.mark.parametrize("cosine", [False, True])
def test_kmeans_begins_with_the_centres_of_the_first_update(cosine):
    """Vectors around 16 directions: each centre is the mean of the vectors nearest to it."""
    made = averaged(kmeans_init=True, cosine=cosine)
    given = latents(images=8)
    first = made(given)
    assert torch.equal(first.vectors, first.latents) and not first.losses["commitment"].any()
    torch.manual_seed(5)
    made.update(first.latents, first.codes)
    codes = made.codes_of(first.latents)
    flat = first.latents.permute(0, 2, 3, 1).reshape(-1, 4).double()
    centres = made.codebook.double()
    means = torch.stack([flat[codes.flatten() == code].mean(dim=0) for code in range(16)])
    means = means / means.norm(dim=1, keepdim=True) if cosine else means
    assert (centres - means).norm(dim=1).median() < 0.1  # ten iterations, and most centres rest
    assert (flat - centres[codes.flatten()]).square().mean() < 0.5 * (flat - flat.mean(dim=0)).square().mean()
    assert made(given).losses["commitment"].all()
    again = averaged(kmeans_init=True, cosine=cosine)
    torch.manual_seed(5)
    again.update(first.latents, first.codes)
    assert torch.equal(again.codebook, made.codebook)


# ----------------------------------------------------------------------------------------------------------------
# The other options of the library

LEARNED = {"learnable_codebook": True}
NO_LOSS = {"commitment_weight": 0.0, "dead_below": 0.01}
# By what is compared: our keys, and the library's arguments.
OPTIONS = {
    "learnable": (LEARNED, LEARNED | {"ema_update": False}),
    "learnable, straight": (
        LEARNED | {"gradient": "straight_through"},
        LEARNED | {"ema_update": False, "rotation_trick": False},
    ),
    "directional": (
        LEARNED | NO_LOSS | {"gradient": "directional", "directional_reparam_variance": 0.01},
        {"directional_reparam": True, "directional_reparam_variance": 0.01, "threshold_ema_dead_code": 0.01},
    ),
    "cross-entropy": ({"commitment": "cross_entropy"}, {"commitment_use_cross_entropy_loss": True}),
    "cross-entropy by cosine": (
        {"commitment": "cross_entropy", "cosine": True},
        {"commitment_use_cross_entropy_loss": True, "use_cosine_sim": True},
    ),
    "diversity": (
        {"codebook_diversity_loss_weight": 0.5, "codebook_diversity_temperature": 2.0},
        {"codebook_diversity_loss_weight": 0.5, "codebook_diversity_temperature": 2.0},
    ),
    "diversity of a learnable one": (
        LEARNED | {"codebook_diversity_loss_weight": 0.5, "codebook_diversity_temperature": 2.0},
        LEARNED | {"codebook_diversity_loss_weight": 0.5, "codebook_diversity_temperature": 2.0, "ema_update": False},
    ),
    "orthogonal": (
        LEARNED | {"orthogonal_reg_weight": 10.0},
        LEARNED | {"orthogonal_reg_weight": 10.0, "ema_update": False},
    ),
    "orthogonal, codes of the batch": (
        LEARNED | {"orthogonal_reg_weight": 10.0, "orthogonal_reg_active_codes_only": True},
        LEARNED | {"orthogonal_reg_weight": 10.0, "orthogonal_reg_active_codes_only": True, "ema_update": False},
    ),
    "orthogonal, some codes": (
        LEARNED | {"orthogonal_reg_weight": 10.0, "orthogonal_reg_max_codes": 5},
        LEARNED | {"orthogonal_reg_weight": 10.0, "orthogonal_reg_max_codes": 5, "ema_update": False},
    ),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_is_the_librarys(name):
    """Same codebook, latents and draws in: same vectors, codes, losses and gradients out."""
    keys, arguments = OPTIONS[name]
    made = averaged(**keys).train()
    library = VectorQuantize(4, 16, **{"decay": 0.8, **arguments}).train()
    library.load_state_dict(made.average.state_dict())
    ours, theirs = (latents(images=1).requires_grad_() for _ in range(2))
    torch.manual_seed(3)
    found = made(ours)
    torch.manual_seed(3)
    # Its averages would move the codebook before the gradient is computed; frozen, nothing is learnable either.
    frozen = not made.settings.learnable_codebook
    vectors, codes, loss = library(theirs.flatten(2).mT, freeze_codebook=frozen)
    vectors, codes = vectors.mT.view_as(theirs), codes.view(-1, 4, 4)
    total = sum(made.weights[name] * value.mean() for name, value in found.losses.items())
    assert torch.equal(found.codes, codes) and torch.allclose(found.vectors, vectors, atol=1e-6)
    assert torch.allclose(torch.as_tensor(total), loss, rtol=1e-5, atol=1e-7)
    weights = latents(images=1, seed=9)
    ((found.vectors * weights).sum() + total).backward(), ((vectors * weights).sum() + loss).backward()
    assert torch.allclose(ours.grad, theirs.grad, rtol=1e-4, atol=1e-5)
    if made.settings.learnable_codebook:
        gradients = made.average._codebook.embed.grad, library._codebook.embed.grad
        assert torch.allclose(*gradients, rtol=1e-4, atol=1e-5) and gradients[0].any()
        made.update(found.latents.detach(), found.codes)
        assert torch.allclose(made.codebook, library.codebook)  # what the optimizer trains no average moves
    else:
        assert not any(parameter.requires_grad for parameter in made.parameters())


def test_in_validation_nothing_is_drawn_and_no_loss_is_of_the_batch():
    made = averaged(**OPTIONS["directional"][0], codebook_diversity_loss_weight=1.0, orthogonal_reg_weight=1.0).eval()
    found = made(latents())
    assert torch.equal(found.vectors, made.vectors_of(found.codes)) and set(found.losses) == {"commitment"}


def test_smoothing_and_iterations_are_those_of_the_settings():
    made = averaged(eps=0.5)
    state = made.average._codebook
    given = latents()
    codes = made.codes_of(given)
    counts = 0.8 * state.cluster_size[0].double() + 0.2 * torch.bincount(codes.flatten(), minlength=16)
    made.update(given, codes)
    smooth = (counts + 0.5) / (counts.sum() + 16 * 0.5) * counts.sum()
    assert torch.allclose(made.codebook.double(), state.embed_avg[0].double() / smooth[:, None], atol=1e-6)
    for iterations in (1, 3):
        made = averaged(kmeans_init=True, kmeans_iters=iterations)
        torch.manual_seed(5)
        made.update(given, codes)
        torch.manual_seed(5)
        flat = given.permute(0, 2, 3, 1).reshape(1, -1, 4)
        assert torch.equal(made.codebook, kmeans(flat, 16, iterations)[0][0])


def test_an_affine_codebook_follows_the_latents_by_the_formula_in_float64():
    made = averaged(affine_param=True, affine_param_batch_decay=0.5, affine_param_codebook_decay=0.25)
    state = made.average._codebook
    assert torch.equal(made.codebook, state.embed[0])  # before the first update
    e, n, m = (value[0].double().numpy().copy() for value in (state.embed, state.cluster_size, state.embed_avg))
    known = {}
    for seed in range(3):
        given = 3 * latents(seed=seed) + 2
        codes = made.codes_of(given)
        made.update(given, codes)
        flat = given.double().permute(0, 2, 3, 1).reshape(-1, 4).numpy()
        for what, rows, decay in (("z", flat, 0.5), ("e", e, 0.25)):
            now = np.stack([rows.mean(axis=0), rows.var(axis=0)])
            known[what] = decay * known[what] + (1 - decay) * now if what in known else now
        (mz, vz), (me, ve) = known["z"], known["e"]
        seen = (flat - mz) * np.sqrt(ve / vz) + me
        for code in range(16):
            mine = seen[codes.flatten().numpy() == code]
            n[code] = 0.8 * n[code] + 0.2 * len(mine)
            m[code] = 0.8 * m[code] + 0.2 * mine.sum(axis=0)
        e = m / ((n + 1e-5) / (n.sum() + 16e-5) * n.sum())[:, None]
        assert np.allclose(made.codebook.numpy(), (e - me) * np.sqrt(vz / ve) + mz, rtol=1e-4, atol=1e-4)
    assert made(given).losses["commitment"].mean() < averaged()(given).losses["commitment"].mean()


@pytest.mark.parametrize(
    ("keys", "first", "second"),
    [
        ({"cosine": True, "learnable_codebook": True}, "learnable_codebook", "cosine"),
        ({"cosine": True, "affine_param": True}, "affine_param", "cosine"),
        ({"gradient": "directional", **NO_LOSS}, "gradient: directional", "learnable_codebook"),
        ({"gradient": "directional", **LEARNED, **NO_LOSS, "dead_below": 0.0}, "gradient: directional", "dead_below"),
        ({"gradient": "directional", **LEARNED, "dead_below": 1.0}, "gradient: directional", "commitment_weight"),
        ({"orthogonal_reg_weight": 1.0}, "orthogonal_reg_weight", "learnable_codebook"),
        ({"orthogonal_reg_max_codes": 4}, "orthogonal_reg_max_codes", "orthogonal_reg_weight"),
        ({"orthogonal_reg_active_codes_only": True}, "orthogonal_reg_active_codes_only", "orthogonal_reg_weight"),
    ],
)
def test_what_excludes_each_other_is_refused_by_both_names(keys, first, second):
    with pytest.raises(ValidationError, match=f"{first}(.|\n)*{second}"):
        averaged(**keys)


# ----------------------------------------------------------------------------------------------------------------
# Signs and numbers


@pytest.mark.parametrize("spherical", [False, True])
def test_entropies_are_those_of_the_formula_in_float64_and_of_the_library(spherical):
    made = signs(spherical)
    ours, theirs = (0.02 * latents() for _ in range(2))
    if spherical:  # near the borders, where probabilities are soft
        ours, theirs = (torch.cat([value[:, :3].sign(), 0.01 * value[:, 3:]], dim=1) for value in (ours, theirs))
    ours.requires_grad_(), theirs.requires_grad_()
    found = made(ours)
    flat = found.latents.detach().double().permute(0, 2, 3, 1).reshape(-1, 4).numpy()
    distances = np.square(flat[:, None] - made.codebook.double().numpy()[None]).sum(axis=2)
    logits = -100 * distances
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    entropy = lambda q: -(q * np.log(np.maximum(q, 1e-5))).sum(axis=-1)  # noqa: E731
    assert found.losses["sample_entropy"].mean().item() == pytest.approx(entropy(p).mean(), rel=1e-4)
    assert found.losses["codebook_entropy"].item() == pytest.approx(entropy(p.mean(axis=0)), rel=1e-4)
    library = LFQ(
        dim=4,
        codebook_size=16,
        entropy_loss_weight=0.1,
        diversity_gamma=4.0,
        commitment_loss_weight=0.25,
        spherical=spherical,
    )
    vectors, codes, penalty = library(theirs)
    loss = sum(made.weights[name] * value.mean() for name, value in found.losses.items())
    assert torch.equal(found.codes, codes.long()) and torch.allclose(found.vectors, vectors, atol=1e-6)
    assert torch.allclose(loss, penalty, rtol=1e-5)
    gradients = [torch.autograd.grad(value, given)[0] for value, given in ((loss, ours), (penalty, theirs))]
    largest = gradients[1].abs().max().item()  # logits of 200 are rounded to 1e-5
    assert torch.allclose(*gradients, rtol=1e-4, atol=1e-3 * largest)


def test_the_gradients_of_pieces_add_up_to_that_of_the_whole_entropy():
    codebook, given = signs().codebook.double(), (0.02 * latents().double()).requires_grad_()
    _, whole = code_entropies(soft_codes(given, codebook, 100.0), None)
    (expected,) = torch.autograd.grad(whole, given)
    mean = soft_codes(given.detach(), codebook, 100.0).mean(dim=(0, 1))
    pieces = [given[:1], given[1:]]
    entropies = [code_entropies(soft_codes(piece, codebook, 100.0), mean)[1] for piece in pieces]
    found = sum(len(piece) / 3 * entropy for piece, entropy in zip(pieces, entropies, strict=True))
    assert all(torch.allclose(entropy, whole) for entropy in entropies)
    assert torch.allclose(torch.autograd.grad(found, given)[0], expected, rtol=1e-9)


def test_unused_codes_leave_the_gradient_of_the_entropy_finite():
    made, given = signs(), (100 * latents()).requires_grad_()
    made(given).losses["codebook_entropy"].backward()
    assert given.grad.isfinite().all()


@pytest.mark.parametrize("levels", [[4, 5, 3], [3]])
def test_finite_scalars_are_the_librarys(levels):
    made, library = Rounded(sections.FSQ(levels=levels)), FSQ(levels)
    ours, theirs = (3 * latents(len(levels)) for _ in range(2))
    ours.requires_grad_(), theirs.requires_grad_()
    found, (vectors, codes) = made(ours), library(theirs)
    assert torch.equal(found.codes, codes.long()) and torch.allclose(found.vectors, vectors, atol=1e-6)
    weights = latents(len(levels), seed=4)
    (found.vectors * weights).sum().backward(), (vectors * weights).sum().backward()
    assert torch.allclose(ours.grad, theirs.grad, atol=1e-6)
    assert made.size == math.prod(levels) and found.losses == {}


@pytest.mark.parametrize(("gradient", "rotation"), [("rotation", True), ("straight_through", False)])
def test_simvq_is_the_librarys_with_its_weights(gradient, rotation):
    made = linear(gradient)
    library = SimVQ(4, 16, rotation_trick=rotation, channel_first=True, input_to_quantize_commit_loss_weight=0.25)
    library.load_state_dict(made.linear.state_dict())
    ours, theirs = (latents().requires_grad_() for _ in range(2))
    found, (vectors, codes, penalty) = made(ours), library(theirs)
    loss = sum(made.weights[name] * value.mean() for name, value in found.losses.items())
    assert torch.equal(found.codes, codes) and torch.allclose(loss, penalty, rtol=1e-5)
    weights = latents(seed=4)
    ((found.vectors * weights).sum() + loss).backward(), ((vectors * weights).sum() + penalty).backward()
    assert torch.allclose(ours.grad, theirs.grad, atol=1e-5)
    assert torch.allclose(made.linear.code_transform.weight.grad, library.code_transform.weight.grad, atol=1e-5)


def test_use_is_counted_over_the_last_updates():
    made = signs()
    given = latents()
    for _ in range(3):
        made.update(given, torch.arange(48).view(3, 4, 4) % 4)  # 12 of each of four codes
    assert torch.allclose(made.counts[:4], torch.tensor(12 * (1 - 0.9**3))) and not made.counts[4:].any()
    assert made.use()["usage"].item() == 0.25 and made.use()["perplexity"].item() == pytest.approx(4.0)
    made.update(given, torch.zeros(3, 4, 4, dtype=torch.int64))
    p = np.array([0.9 * 12 * (1 - 0.9**3)] * 4)
    p[0] += 4.8
    p /= p.sum()
    assert made.use()["perplexity"].item() == pytest.approx(np.exp(-(p * np.log(p)).sum()), rel=1e-5)
