"""The prior's recipe: the loss as in the paper, randomness by position, texts dropped as asked, what scores mean."""

import numpy as np
import pytest
import torch

from darkroom.diffusion.objectives import objective_of
from darkroom.diffusion.scalers import EmbeddingScaler
from darkroom.errors import DarkroomError
from darkroom.models.prior.network import Prior, PriorConfig, PriorNetwork
from darkroom.models.prior.recipe import CaptionedEmbeddings, PriorRecipe, Scorer, cosines, require_texts
from darkroom.models.prior.settings import Evaluate, PriorDiffusion
from darkroom.rng import random_numbers
from darkroom.training.loop import train
from darkroom.training.recipe import Batch
from helpers import run, training
from models.clip.captioned import Embeddings
from tiny import places

HOW = Evaluate(solver="dpm", steps=5, candidates=2, batch=8, seed=3, images=20)


class Spy(PriorNetwork):
    """Keeps what it was called with, and answers with twice the noisy embedding."""

    def forward(self, x, steps, text, encodings, kept=None):
        self.calls = [*getattr(self, "calls", []), (x, steps, text, encodings, kept)]
        return super().forward(x, steps, text, encodings, kept) + 2 * x


def recipe(network=Spy, rows=None, scorer=None, **changes):
    told = {
        "schedule": "cosine",
        "timesteps": 50,
        "target": "x0",
        "loss": "l2",
        "text_dropout": 0.3,
    } | changes
    settings = PriorDiffusion(**told)
    torch.manual_seed(0)
    made = network(PriorConfig(8, (5, 6), 16, 2, 2))
    made.set_scaler(EmbeddingScaler([0.0] * 8, [8**-0.5] * 8))
    prior = Prior(made, objective_of(settings, 50), normalised=True)
    made = PriorRecipe(prior, settings, 9, rows or [], rows or [])
    if scorer is not None:
        made.scorer, made.evaluations = scorer, [(scorer.every, made.evaluate)]
    return made


def batch(positions, images=2000):
    rows = CaptionedEmbeddings(Embeddings(images))
    data = rows.__getitems__(list(positions))
    return Batch(np.array(positions), {name: torch.from_numpy(value) for name, value in data.items()})


def test_the_loss_is_the_formula_in_float64():
    positions = list(range(6))
    made, given = recipe(target="v", loss="huber"), batch(positions)
    found = made.loss(given)["loss"].item()
    normals, uniforms = random_numbers(9, "prior/train", positions, 8, 2)
    x0, noise = np.sqrt(8) * given.data["image"].double().numpy(), normals.astype(np.float64)
    step = np.floor(uniforms[:, 0] * 50).astype(int)
    angle = (np.arange(51) / 50 + 0.008) / 1.008 * np.pi / 2
    betas = np.minimum(1 - np.cos(angle[1:]) ** 2 / np.cos(angle[:-1]) ** 2, 0.999)
    left = np.cumprod(1 - betas)[step][:, None]
    x = np.sqrt(left) * x0 + np.sqrt(1 - left) * noise  # an untrained prior answers 0, and Spy adds 2 x
    away = np.abs(2 * x - (np.sqrt(left) * noise - np.sqrt(1 - left) * x0))
    assert found == pytest.approx(np.where(away < 1, away**2 / 2, away - 0.5).mean(), rel=1e-5)


def test_embeddings_and_texts_come_to_unit_variance_on_average():
    made = recipe()
    made.loss(batch(range(500)))
    x, steps, text, _, _ = made.model.calls[0]
    assert text.square().mean().item() == pytest.approx(1, abs=1e-3)
    assert x[steps < 2].square().mean().item() == pytest.approx(1, abs=0.1)


def test_an_image_meets_the_same_noise_and_time_in_any_batch():
    made = recipe()
    made.loss(batch([0, 1, 2, 3, 4, 5, 6, 7]))
    made.loss(batch([5, 6]))
    whole, part = made.model.calls
    for one, other in zip(whole, part, strict=True):
        assert torch.allclose(one[5:7].float(), other.float(), atol=1e-6)
    assert torch.equal(whole[1][5:7], part[1]) and torch.equal(whole[4][5:7], part[4])


def test_texts_are_dropped_as_often_as_asked_and_never_in_validation():
    made, many = recipe(), batch(range(2000))
    made.loss(many)
    made.validate(many)
    trained, validated = (call[4] for call in made.model.calls)
    assert (~trained).double().mean().item() == pytest.approx(0.3, abs=4 * np.sqrt(0.21 / 2000))
    assert validated.all()


def test_validation_is_the_same_each_time_and_unlike_training():
    made, given = recipe(text_dropout=0.0), batch(range(8))
    first, again = made.validate(given)["loss"], made.validate(given)["loss"]
    assert torch.equal(first, again) and first.mean() != made.loss(given)["loss"]


def test_every_step_is_drawn():
    made = recipe()
    made.loss(batch(range(2000)))
    assert made.model.calls[0][1].unique().tolist() == list(range(50))


# ----------------------------------------------------------------------------------------------------------------------
# Rows and scores


def test_images_without_a_caption_are_left_out(capsys):
    rows = CaptionedEmbeddings(Embeddings(10, missing=[0, 4, 9]))
    assert rows.rows.tolist() == [1, 2, 3, 5, 6, 7, 8] and rows.keys([0, 3]) == ["key1", "key5"]
    found, all_rows = rows.__getitems__([3, 0]), Embeddings(10).values
    for name in ("image", "text", "encoding"):
        assert np.array_equal(found[name], all_rows[name][[5, 1]])
    require_texts(rows)
    assert "3 of 10 images have no caption" in capsys.readouterr().out


def test_without_any_caption_there_is_nothing_to_learn():
    with pytest.raises(DarkroomError, match="no training image has a caption"):
        require_texts(CaptionedEmbeddings(Embeddings(4, missing=range(4))))


def test_without_encodings_none_are_read():
    assert set(CaptionedEmbeddings(Embeddings(4, encoding=None)).__getitems__([0])) == {"image", "text"}


def test_statistics_bring_each_element_to_unit_variance():
    embeddings = Embeddings(500, texts=50)
    embeddings.values["image"] = embeddings.values["image"] * np.linspace(0.5, 1, 8).astype(np.float16)
    embeddings.values["image"][:, 3] = 0.25
    image = torch.from_numpy(embeddings.values["image"]).float()
    network = PriorNetwork(PriorConfig(8, None, 16, 1, 2))
    network.set_scaler(EmbeddingScaler.of(embeddings.values["image"]))
    unit = network.to_unit(image)
    varies = torch.arange(8) != 3
    assert unit[:, varies].std(dim=0) == pytest.approx(1, abs=0.01) and unit.mean(dim=0).abs().max() < 0.02
    assert torch.allclose(network.from_unit(unit), image, atol=1e-6)


def test_cosines_are_those_of_all_pairs():
    rng = np.random.default_rng(1)
    made, true, text = (rng.normal(size=(7, 5)) for _ in range(3))
    found = cosines(*(torch.from_numpy(each) for each in (made, true, text)))

    def cosine(a, b):
        return a @ b / np.linalg.norm(a) / np.linalg.norm(b)

    own = [cosine(made[i], true[i]) for i in range(7)]
    others = [cosine(made[i], true[j]) for i in range(7) for j in range(7) if i != j]
    expected = (np.mean(own), np.std(own, ddof=1) / np.sqrt(7), np.mean(others))
    assert (found["cosine"], found["cosine_se"], found["cosine_other"]) == pytest.approx(expected)
    assert found["cosine_text"] == pytest.approx(np.mean([cosine(text[i], true[i]) for i in range(7)]))


def test_processes_that_share_the_scores_find_the_same(one_thread):
    rows = CaptionedEmbeddings(Embeddings(30))
    prior, scorer = recipe(PriorNetwork).prior, Scorer(rows, HOW, 0)
    torch.nn.init.normal_(prior.network.transformer.proj_to_clip_embeddings.weight)
    pieces = []
    for rank in range(3):
        scorer.scores(prior, rank, 3, lambda found: pieces.append(found) or torch.cat([found, found]))
    assert scorer.scores(prior, 0, 3, lambda found: torch.cat(pieces)) == scorer.scores(prior)


def test_too_few_images_have_no_scores():
    assert Scorer(CaptionedEmbeddings(Embeddings(1)), HOW, 0).scores(recipe(PriorNetwork).prior) == {}


def test_a_trained_prior_finds_its_images(tmp_path):
    """Image embeddings that are a turn of their texts', with some noise: nearly found, and others' are not."""
    rows = CaptionedEmbeddings(Embeddings(256))
    scorer = Scorer(rows, HOW, 5_120)
    made = recipe(PriorNetwork, rows, scorer, text_dropout=0.1)
    settings = training(images=10_240, batch=64, learning_rate=0.005, log_every=5_120, validate_every=5_120)
    trainer = train(made, settings, run(), places(tmp_path))
    first, last = [record for record in trainer.records if "eval/cosine" in record]
    assert last["eval/cosine"] > 0.85 > last["eval/cosine_other"] + 0.5
    assert last["val/loss"] < 0.5 and first["images"] == 5_120


def test_a_prior_with_a_learned_variance_is_refused():
    with pytest.raises(ValueError, match="but a prior has one output: set it to fixed_small"):
        recipe(variance="learned_range")
