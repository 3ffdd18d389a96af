"""The quantised autoencoder's recipe: its losses as written, its codebook once an update, exact after a stop."""

import os
import signal

import pytest
import torch
from torch import nn

from darkroom.models.tokenizers.vqgan.recipe import VQGANRecipe
from darkroom.training.loop import remaining_batches, train
from darkroom.training.start import open_training
from helpers import run, training
from models.tokenizers.small_vqgan import batch, recipe, section
from training.toy import curves, places, weights

QUANTISERS = ["vq", "simvq", "lfq", "bsq", "fsq"]
TEACHER = {"network": "teacher", "weight": 0.3}


class Teacher(nn.Module):
    """Mean squared differences of fixed features."""

    def __init__(self):
        super().__init__()
        self.register_buffer("kernel", torch.randn(4, 3, 3, 3, generator=torch.Generator().manual_seed(0)))

    def forward(self, x, y):
        return nn.functional.conv2d(x - y, self.kernel).square().flatten(1).mean(dim=1)


# ----------------------------------------------------------------------------------------------------------------
# Losses


@pytest.mark.parametrize(("quantiser", "reconstruction"), [*((name, "l1") for name in QUANTISERS), ("vq", "mse")])
def test_the_loss_is_the_formula_in_float64(quantiser, reconstruction):
    made = recipe(section(quantiser=quantiser, reconstruction=reconstruction, perceptual=TEACHER), Teacher())
    first = batch(0)
    made.loss(first)
    made.move_codebook(first)  # with `vq`, the codebook begins
    given = batch(8)
    found = made.loss(given)
    x = given.data["images"].double() / 127.5 - 1
    with torch.no_grad():
        z = made.model.encoder(x.float()).double()
        latents = made.model.quantiser.prepare(z.float()).double()
        codebook = made.model.codebook.double()
        q = codebook[made.model.quantiser.codes_of(latents.float())].permute(0, 3, 1, 2)
        output = made.model.decoder(q.float()).double()
        error = (output - x).square() if reconstruction == "mse" else (output - x).abs()
        perceptual = nn.functional.conv2d(output - x, Teacher().kernel.double()).square().mean()
    distance = (latents - q).square().mean()
    expected = error.mean() + 0.3 * perceptual
    p = (200 * torch.einsum("nchw,kc->nhwk", latents, codebook)).softmax(dim=-1)
    entropy = lambda p: -(p * p.clamp(min=1e-5).log()).sum(dim=-1)  # noqa: E731
    entropies = 0.1 * (entropy(p).mean() - 2.0 * entropy(p.mean(dim=(0, 1, 2))))
    expected += {"vq": 0.5, "simvq": 1.25, "lfq": 0.25, "bsq": 0.25, "fsq": 0.0}[quantiser] * distance
    expected += entropies if quantiser in ("lfq", "bsq") else 0
    assert found["reconstruction"].item() == pytest.approx(error.mean().item(), rel=1e-5)
    assert found["perceptual"].item() == pytest.approx(perceptual.item(), rel=1e-5)
    assert found["loss"].item() == pytest.approx(expected.item(), rel=1e-4)


@pytest.mark.parametrize("pixels", ["signed", "unit"])
def test_networks_and_losses_see_pixels_as_the_key_says_and_the_perceptual_loss_always_signed(pixels):
    given, seen = batch(0), []
    ends = {"signed": (-1.0, 1.0), "unit": (0.0, 1.0)}[pixels]
    given.data["images"][0, :, 0] = torch.tensor([0, 255]).repeat(8)  # the darkest and the lightest
    perceptual = Teacher()
    perceptual.register_forward_pre_hook(lambda _, arguments: seen.append(arguments))
    made = recipe(
        section({"weight": 1.0, "start": 0, "gradient_penalty": 0.0}, pixels=pixels, perceptual=TEACHER), perceptual
    )
    made.model.encoder.register_forward_pre_hook(lambda _, arguments: seen.append(arguments))
    made.modules["discriminator"].register_forward_pre_hook(lambda _, arguments: seen.append(arguments))
    losses = made.loss(given)
    made.adversary.loss(given)
    (x,), (output, signed), (fake,), (both,) = seen
    assert (x.min().item(), x.max().item()) == ends
    assert (signed.min().item(), signed.max().item()) == pytest.approx((-1, 1))
    assert torch.equal(both[:8], x) and torch.equal(both[8:], fake)
    assert torch.allclose(made.model.signed(fake), output)
    assert losses["reconstruction"].item() == pytest.approx((fake - x).abs().mean().item(), rel=1e-6)


def test_validation_gives_each_image_its_own_losses_whatever_its_company():
    made = recipe(section(quantiser="lfq", perceptual=TEACHER), Teacher())
    with torch.no_grad():
        together, alone = made.validate(batch(0)), made.validate(batch(3, 1))
    assert set(together) == {"loss", "reconstruction", "perceptual", "commitment", "sample_entropy"}
    for name, values in together.items():
        assert values.shape == (8,) and torch.allclose(values[3:4], alone[name], rtol=1e-4, atol=1e-6)
    parts = {name: value.double() for name, value in together.items()}
    expected = parts["reconstruction"] + 0.3 * parts["perceptual"] + 0.25 * parts["commitment"]
    assert torch.allclose(parts["loss"], expected + 0.1 * parts["sample_entropy"], rtol=1e-5)


def test_the_discriminator_begins_at_its_image_and_its_term_reaches_the_decoder():
    made = recipe(section({"weight": 0.7}, perceptual=TEACHER), Teacher())
    before, after = made.loss(batch(8)), made.loss(batch(16))
    assert "adversarial" not in before and [phase.module for phase in made.phases] == ["tokenizer", "discriminator"]
    others = after["reconstruction"] + 0.3 * after["perceptual"]
    last = made.model.last_layer
    norms = [torch.autograd.grad(v, last, retain_graph=True)[0].norm() for v in (others, after["adversarial"])]
    weight = 0.7 * norms[0] / (norms[1] + 1e-4)
    assert after["adversarial_weight"].item() == pytest.approx(weight.item(), rel=1e-4)
    rest = after["loss"] - others - 0.5 * after["commitment"]
    assert rest.item() == pytest.approx((weight * after["adversarial"]).item(), rel=1e-3, abs=1e-5)


# ----------------------------------------------------------------------------------------------------------------
# The codebook


def test_the_codebook_moves_once_an_update_by_all_of_its_latents_and_never_in_validation(tmp_path):
    trainer = open_training(recipe(section()), training(), run(), places(tmp_path))
    made, moved = trainer.recipe, []
    update = made.model.quantiser.update
    made.model.quantiser.update = lambda latents, codes: (moved.append(latents.shape), update(latents, codes))
    batches = remaining_batches(trainer)
    trainer.step(next(batches))
    assert moved == [(8, 4, 4, 4)] and made.model.quantiser.ready
    codebook = made.model.codebook.clone()
    with torch.no_grad():
        made.validate(batch(0))
        made.preview()
    assert torch.equal(made.model.codebook, codebook)
    trainer.step(next(batches))
    assert len(moved) == 2 and not torch.equal(made.model.codebook, codebook)


@pytest.mark.parametrize(("quantiser", "adaptive"), [*((name, "none") for name in QUANTISERS), ("vq", "taming")])
def test_micro_batches_change_nothing_but_rounding(tmp_path, quantiser, adaptive):
    """A step in micro-batches of 3, 3 and 2: gradients, codebook and counts are those of the whole batch.

    Losses of the batch as a whole, the adaptive weight and the entropy of all codes, leave it whole.
    """
    found = []
    for micro_batch in (None, 3):
        settings = section({"weight": 0.5, "start": 0, "adaptive": adaptive}, quantiser=quantiser, perceptual=TEACHER)
        made = recipe(settings, Teacher())
        trainer = open_training(
            made, training(clip_norm=None), run(micro_batch=micro_batch), places(tmp_path / str(micro_batch))
        )
        whole = adaptive == "taming" or quantiser in ("lfq", "bsq")
        assert made.whole_batch == whole and trainer.pass_size(8) == (8 if whole else micro_batch or 8)
        trainer.step(next(remaining_batches(trainer)))
        gradients = {name: value.grad for name, value in made.modules["discriminator"].named_parameters()}
        # AdamW's first moment of the first step is (1 - beta) * gradient.
        moments = trainer.optimizers["tokenizer"].state
        gradients |= {
            name: moments[value]["exp_avg"].clone() for name, value in made.model.named_parameters() if value in moments
        }
        found.append((gradients, {name: value.clone() for name, value in made.model.quantiser.named_buffers()}))
    (whole, codebook), (pieces, codebook_of_pieces) = found
    for name, gradient in whole.items():
        assert torch.allclose(pieces[name], gradient, rtol=1e-3, atol=1e-3 * gradient.abs().max().item() + 1e-6), name
    for name, value in codebook.items():
        assert torch.allclose(codebook_of_pieces[name].float(), value.float(), atol=1e-5), name


# ----------------------------------------------------------------------------------------------------------------
# Stops


@pytest.mark.parametrize(("quantiser", "images"), [("vq", 8), ("vq", 40), ("lfq", 24)])
def test_a_stopped_training_continues_bit_for_bit(tmp_path, monkeypatch, quantiser, images):
    """After the first update, which began the codebook; and in the middle, with discriminator and dead codes."""
    settings = section({"weight": 0.5}, {"dead_below": 4.0}, quantiser=quantiser, perceptual=TEACHER)
    _stopped(settings, images, tmp_path, monkeypatch)


OPTIONS = {
    "affine": {"cosine": False, "affine_param": True, "commitment": "cross_entropy", "dead_below": 4.0},
    "directional": {
        **{"cosine": False, "learnable_codebook": True, "gradient": "directional"},
        **{"commitment_weight": 0.0, "dead_below": 4.0, "codebook_diversity_loss_weight": 0.1},
    },
    "orthogonal": {
        **{"cosine": False, "learnable_codebook": True, "orthogonal_reg_weight": 1.0, "orthogonal_reg_max_codes": 8},
    },
}


@pytest.mark.parametrize("options", OPTIONS)
def test_a_stopped_training_with_other_options_continues_bit_for_bit(tmp_path, monkeypatch, options):
    _stopped(section(vq=OPTIONS[options]), 32, tmp_path, monkeypatch)


def test_a_loss_of_the_batch_is_not_cut(tmp_path):
    settings = section(vq=OPTIONS["directional"])
    assert settings.whole_batch and not section(vq={"cosine": False, "learnable_codebook": True}).whole_batch
    whole = train(recipe(settings), training(), run(), places(tmp_path / "whole"))
    assert weights(train(recipe(settings), training(), run(micro_batch=2), places(tmp_path))) == weights(whole)


def test_a_learnable_codebook_is_trained_and_averaged(tmp_path):
    made = recipe(section(vq={"cosine": False, "learnable_codebook": True, "kmeans_init": False}))
    before = made.model.codebook.clone()
    trainer = train(made, training(ema_decay=0.5), run(), places(tmp_path))
    after = made.model.codebook.clone()
    assert (before != after).any(dim=1).sum() > 1
    with trainer.averaged():
        assert not torch.equal(made.model.codebook, after)


def _stopped(settings, images, tmp_path, monkeypatch):
    teacher = Teacher() if settings.perceptual.active else None
    whole = train(recipe(settings, teacher), training(), run(), places(tmp_path / "whole"))
    loss = VQGANRecipe.loss

    def stopping(self, given):
        if given.positions[0] == images - 8:
            os.kill(os.getpid(), signal.SIGTERM)
        return loss(self, given)

    with monkeypatch.context() as patched, pytest.raises(SystemExit):
        patched.setattr(VQGANRecipe, "loss", stopping)
        train(recipe(settings, teacher), training(), run(), places(tmp_path))
    torch.manual_seed(99)  # whatever was drawn before
    resumed = train(recipe(settings, teacher), training(), run(), places(tmp_path))
    assert weights(resumed) == weights(whole)
    assert curves(tmp_path / "curves") == curves(tmp_path / "whole" / "curves")
    assert {"train/usage", "train/perplexity"} <= whole.records[-1].keys()
    assert ("train/adversarial_weight" in whole.records[-1]) == settings.adversarial.active
