"""The recipe of `vq_ar`: its losses in float64, its codebook once an update, its resume to the bit."""

import os
import signal

import numpy as np
import pytest
import torch

from darkroom.data.draw import drawn
from darkroom.models.tokenizers.vq_ar.own_images import own_images
from darkroom.models.tokenizers.vq_ar.recipe import VQARRecipe
from darkroom.models.tokenizers.vq_ar.settings import GridSampling
from darkroom.training.loop import seeded, train
from darkroom.training.recipe import Batch
from helpers import run, training
from models.tokenizers.making_vq_ar import SHAPE, pictures, settings
from training.toy import curves, places, weights


class Detached(torch.nn.Module):
    """A module whose input gets no gradient."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x.detach())


class Rows:
    """20 random images of three classes."""

    classes = ("one", "three", "two")

    def __len__(self):
        return 20

    def __getitems__(self, rows, positions=None):
        return {"images": pictures(20).numpy()[rows], "labels": np.array(rows) % 3}

    def keys(self, rows):
        return [f"key{row}" for row in rows]


def recipe(hook=None, changed=None, **changes):
    changed = changed or training()
    with seeded(3):
        made = VQARRecipe(settings(**changes), changed, SHAPE, Rows(), Rows())
    if hook is not None:
        own, seen = made.phases[0].loss, []

        def loss(batch):
            seen.extend(batch.positions.tolist())
            hook(len(seen))
            return own(batch)

        made.phases = (type(made.phases[0])("tokenizer", loss, after=made.move_codebook),)
    return made


def batch(positions):
    data = {name: torch.as_tensor(value) for name, value in Rows().__getitems__(positions).items()}
    return Batch(np.array(positions), data)


def latents_by_hand(encoder, flat):
    """Return what a patch encoder makes of flat patches, in float64."""
    if isinstance(encoder, torch.nn.Linear):
        return flat @ encoder.weight.double().T + encoder.bias.double()
    first, _, second, norm = encoder
    hidden = flat @ first.weight.double().T + first.bias.double()
    hidden = hidden * (1 + torch.erf(hidden / 2**0.5)) / 2
    z = hidden @ second.weight.double().T + second.bias.double()
    z = z - z.mean(dim=-1, keepdim=True)
    z = z / (z.square().mean(dim=-1, keepdim=True) + norm.eps).sqrt()
    return z * norm.weight.double() + norm.bias.double()


def move(made, given):
    """Take the losses of a batch, and let the codebook move by what they leave."""
    made.loss(given)
    made.move_codebook(given)


def by_hand(made, given, rows):
    """Return the losses of some images in float64, from what the network's own parts say, with its codebook given."""
    model, choices = made.model, made.settings
    with torch.no_grad():
        x = given.data["images"][rows].double() / 255
        patches = (2 * x - 1).unfold(2, 4, 4).unfold(3, 4, 4)  # (N, C, h, w, p, q)
        flat = patches.permute(0, 2, 3, 4, 5, 1).reshape(len(rows), 16, -1)
        z = latents_by_hand(model.to_latent, flat)
        table = model.codebook.double()
        codes = (z[:, :, None] - table).square().sum(-1).argmin(-1)
        start = model.start[torch.full((len(rows),), model.null_label)][:, None]
        inputs = torch.cat([start, model.to_token(table[codes].float())[:, :-1]], dim=1)
        prediction = model.to_prediction(model.decoder(inputs)).double()
        if choices.logits_codebook == "after":
            table = model.quantiser.moved(z.float(), codes).double()
        logits = -1.5 * (prediction[:, :, None] - table).square().sum(-1).sqrt()
        chosen = logits.gather(-1, codes[..., None])[..., 0]
        quantised = model.codebook.double()[codes]
        share = choices.recon_from_pred_codes
        pixels = share * table[codes] + (1 - share) * quantised
        drawn = pixels @ model.to_pixels.weight.double().T + model.to_pixels.bias.double()
    return {
        "cross_entropy": (logits.exp().sum(-1).log() - chosen).mean().item(),
        "reconstruction": ((drawn + 1) / 2 - (flat + 1) / 2).square().mean().item(),
        "commitment": (z - quantised).square().mean().item(),
        "ar_commitment": (prediction - quantised).square().mean().item(),
    }


@pytest.mark.parametrize(("codebook", "hidden"), [("before", None), ("after", 20)])
def test_the_losses_are_the_formulas_in_float64(codebook, hidden):
    changes = {"kmeans_init": False, "dead_below": 0.0} if codebook == "after" else {}
    made, given = recipe(logits_codebook=codebook, encoder_hidden=hidden, **changes), batch([0, 1, 2, 3])
    made.model.train()
    expected = by_hand(made, given, [0, 1, 2, 3])
    found = {name: value.item() for name, value in made.loss(given).items()}
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=2e-5), name
    total = expected["cross_entropy"] + 2.0 * expected["reconstruction"]
    total += 0.5 * expected["commitment"] + 0.75 * expected["ar_commitment"]
    assert found["loss"] == pytest.approx(total, rel=2e-5)


def test_the_reconstruction_trains_what_its_share_says():
    """With share 1 its gradient goes to the prediction and not to the latents; with share 0 the other way.

    The codes' vectors feed the decoder too, by which latents get a gradient from any prediction: that way is cut here.
    """
    for share, (by_prediction, by_latents) in {1.0: (True, False), 0.0: (False, True)}.items():
        made = recipe(recon_from_pred_codes=share)
        model = made.model.train()
        model.to_token = Detached(model.to_token)
        x = batch([0, 1]).data["images"].float() / 127.5 - 1
        out = model(x, torch.zeros(2, dtype=torch.long), share, False)
        gradients = torch.autograd.grad(out.output.square().sum(), (out.prediction, out.latents), allow_unused=True)
        moved = [found is not None and bool(found.abs().sum()) for found in gradients]
        assert moved == [by_prediction, by_latents], share


def test_validation_gives_each_image_its_own_losses_and_keeps_nothing():
    made = recipe()
    made.model.eval()
    with torch.no_grad():
        together, alone = made.validate(batch([0, 1, 2])), made.validate(batch([1]))
    assert all(torch.allclose(together[name][1:2], alone[name], rtol=1e-5) for name in together)
    assert together["loss"].shape == (3,)


def test_kmeans_starts_the_codebook_and_averages_move_it():
    made = recipe()
    made.model.train()
    first = made.model.codebook.clone()
    move(made, batch(list(range(8))))
    second = made.model.codebook.clone()
    latents = made.model.latents(pictures(8).float() / 127.5 - 1).detach().flatten(0, 1)
    distance = lambda table: torch.cdist(latents, table).min(dim=1).values.square().mean()  # noqa: E731
    assert distance(second) < 0.7 * distance(first)
    move(made, batch(list(range(8, 16))))
    assert not torch.equal(made.model.codebook, second)
    assert torch.dist(made.model.codebook, second) < torch.dist(first, second)


def test_kmeans_waits_for_the_first_update_that_is_taken():
    """An update that was left out, for a loss that is not finite, has moved nothing."""
    made = recipe()
    made.model.train()
    made.loss(batch(list(range(8))))  # left out
    assert not made.model.started
    move(made, batch(list(range(8, 16))))
    assert made.model.started


def test_the_codebook_moves_once_a_step_whatever_the_micro_batch(tmp_path):
    whole = train(recipe(), training(), run(), places(tmp_path / "whole")).modules["tokenizer"].state_dict()
    pieces = train(recipe(), training(), run(micro_batch=3), places(tmp_path / "pieces")).modules["tokenizer"]
    for name, value in pieces.state_dict().items():
        assert torch.allclose(value.float(), whole[name].float(), atol=2e-3), name


OTHER = {"cosine": True, "gradient": "straight_through", "eps": 1e-3, "kmeans_iters": 3}


@pytest.mark.parametrize(
    ("classes", "micro", "at", "others"), [(False, None, 24, {}), (True, 4, 24, {}), (False, 4, 24, OTHER)]
)
def test_a_stopped_training_continues_bit_for_bit(tmp_path, classes, micro, at, others):
    changes = {"classes": classes, "dropout": 0.1, **others}
    undisturbed = train(recipe(**changes), training(), run(micro_batch=micro), places(tmp_path / "whole"))
    hook = lambda seen: os.kill(os.getpid(), signal.SIGTERM) if seen == at else None  # noqa: E731
    with pytest.raises(SystemExit):
        train(recipe(hook, **changes), training(), run(micro_batch=micro), places(tmp_path))
    resumed = train(recipe(**changes), training(), run(micro_batch=micro), places(tmp_path))
    assert weights(resumed) == weights(undisturbed)
    assert curves(tmp_path / "curves") == curves(tmp_path / "whole" / "curves")


def test_labels_choose_the_start_token_and_some_drop_by_position():
    made = recipe(classes=True, label_dropout=0.5)
    given = batch(list(range(20)))
    assert made.model.config.classes == 3 and made.model.start.shape == (4, 24)
    assert made._labels(given, 0.0).tolist() == [row % 3 for row in range(20)]
    dropped = made._labels(given, 0.5)
    assert 3 < (dropped == made.model.null_label).sum() < 17
    assert torch.equal(made._labels(batch([7]), 0.5), dropped[7:8])
    made.model.eval()
    with torch.no_grad():
        told = made.validate(given)["cross_entropy"]
        given.data["labels"] = (given.data["labels"] + 1) % 3
        assert not torch.allclose(told, made.validate(given)["cross_entropy"])


def test_fine_tuning_keeps_the_codebook_that_it_was_given():
    """K-means would put it elsewhere: it begins only a codebook that no update has moved yet."""
    given = batch(list(range(8)))
    trained = recipe()
    trained.model.train()
    move(trained, given)
    moved = []
    for state in (recipe().model.state_dict(), trained.model.state_dict()):
        made = recipe()
        made.model.load_state_dict(state)
        before = made.model.train().codebook.clone()
        move(made, given)
        moved.append(torch.dist(made.model.codebook, before))
    assert moved[1] < moved[0] / 4


def test_a_codebook_without_kmeans_has_started_once_an_update_has_moved_it():
    made, given = recipe(kmeans_init=False), batch(list(range(8)))
    made.model.train()
    move(made, given)
    assert made.model.started


def test_layers_that_compute_their_activations_again_change_no_bit(tmp_path):
    whole = train(recipe(dropout=0.1), training(), run(), places(tmp_path / "whole"))
    again = train(recipe(dropout=0.1), training(), run(activation_checkpointing=True), places(tmp_path))
    assert weights(again) == weights(whole)


def test_more_codes_than_patches_for_kmeans_are_refused():
    told = settings(codebook_size=129).unfit(SHAPE, 8)
    assert "codebook_size` is 129, but k-means starts" in told and "which are 128 (8 images of 4 x 4)" in told
    assert recipe(codebook_size=129, kmeans_init=False).model.codebook.shape == (129, 8)


def test_codes_and_losses_are_float32_under_autocast():
    """Distances decide codes: in bfloat16 a part of the patches would have others."""
    made, given = recipe(), batch([0, 1, 2, 3])
    made.model.train()
    with torch.autocast("cpu", torch.bfloat16):
        found = made.loss(given)
    with torch.no_grad():
        x = given.data["images"].float() / 127.5 - 1
        codes = made.model.encode_codes(given.data["images"]).flatten(1)
        commitment = (made.model.latents(x) - made.model.codebook[codes]).square().mean()
    assert torch.equal(given.outputs["codes"], codes) and all(value.dtype == torch.float32 for value in found.values())
    assert found["commitment"].item() == pytest.approx(commitment.item(), rel=1e-6)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_logits_of_the_moved_codebook_train_under_autocast(tmp_path, precision):
    """The moved codebook is float32, of sums in float32: the codebook moves to it after the update."""
    after = {"logits_codebook": "after", "kmeans_init": False, "dead_below": 0.0}
    made, given = recipe(**after), batch(list(range(8)))
    made.model.train()
    x = given.data["images"].float() / 127.5 - 1
    null = torch.zeros(8, dtype=torch.long)
    with torch.autocast("cpu", {"bf16": torch.bfloat16, "fp16": torch.float16}[precision]):
        moved = made.model(x, null, 0.5, True).codebook
    assert moved.dtype == torch.float32
    torch.testing.assert_close(moved, made.model(x, null, 0.5, True).codebook, rtol=1e-6, atol=1e-7)
    move(made, given)
    torch.testing.assert_close(moved, made.model.codebook, rtol=1e-5, atol=1e-6)
    changed = training(precision=precision, images=16)
    records = train(recipe(changed=changed, **after), changed, run(), places(tmp_path)).records
    assert np.isfinite(records[-1]["train/loss"])


def test_the_preview_shows_reconstructions_below_originals():
    made = recipe()
    made.model.eval()
    shown = made.preview()
    images = pictures(len(made.val))[drawn(len(made.val), 10)]
    assert np.array_equal(shown[:10], images.numpy())
    assert np.array_equal(shown[10:20], made.model.reconstruct(images).numpy())
    assert len(shown) == 30 and np.array_equal(shown[20:], own_images(made.model, GridSampling(), guided=True))


def test_own_images_in_grids_are_sampled_as_the_section_says(monkeypatch):
    asked = []

    def generate(model, how, device, starts=None):
        asked.append((how.images, how.min_p, how.temperature, how.guidance))
        yield np.zeros((how.images, *SHAPE), dtype=np.uint8)

    monkeypatch.setattr("darkroom.models.tokenizers.vq_ar.own_images.generate", generate)
    assert len(recipe().preview()) == 30
    genie2 = {"images": 64, "min_p": 0.25, "temperature": 1.5, "guidance": 3.0}
    made = recipe(grid_images=8, sampling=genie2, classes=True)
    assert made.columns == 8 and len(made.preview()) == 8 + 8 + 64
    assert asked == [(10, 0.5, 0.7, 1.5), (64, 0.25, 1.5, 3.0)]


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_own_images_are_guided_where_labels_were_dropped(monkeypatch, dropout):
    made, asked = recipe(classes=True, label_dropout=dropout), []
    logits = made.model.logits
    monkeypatch.setattr(made.model, "logits", lambda inputs, cache: asked.append(len(inputs)) or logits(inputs, cache))
    made.model.eval()
    made.preview()
    assert set(asked) == {20 if dropout else 10}  # with guidance each image is asked with its class and without
