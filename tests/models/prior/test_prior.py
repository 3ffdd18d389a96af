"""The prior: its mask and its nulls, its files, and embeddings that do not depend on their company."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from darkroom.diffusion.gaussian import Gaussian
from darkroom.diffusion.samplers import sample
from darkroom.diffusion.scalers import EmbeddingScaler
from darkroom.diffusion.schedules import NoiseSchedule
from darkroom.diffusion.settings import Sampling
from darkroom.models.prior.network import Prior, PriorConfig, PriorNetwork, prior_denoiser, sample_prior, text_direction
from darkroom.models.prior.settings import PriorSampling

CONFIG = PriorConfig(embed_dim=8, text_shape=(5, 6), width=16, depth=2, heads=2)
HOW = PriorSampling(solver="dpm", steps=4, guidance=1.5, candidates=2, batch=6)


def gaussian(target):
    return Gaussian(NoiseSchedule.named("cosine", 100), target)


def network(config=CONFIG):
    """Return a network whose every part says something."""
    torch.manual_seed(0)
    made = PriorNetwork(config).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return made


def prior(config=CONFIG, target="x0", normalised=True):
    made = network(config)
    made.set_scaler(EmbeddingScaler(torch.linspace(-0.2, 0.2, 8).tolist(), torch.linspace(0.3, 0.6, 8).tolist()))
    return Prior(made, gaussian(target), normalised)


def texts(count=4):
    generator = torch.Generator().manual_seed(1)
    text = functional.normalize(torch.randn(count, 8, generator=generator), dim=1)
    words = torch.randn(count, 5, 6, generator=generator)
    words[:, 3:] = 0
    return text, words


def told(made, count=4):
    generator = torch.Generator().manual_seed(2)
    text, words = texts(count)
    return made, torch.randn(count, 8, generator=generator), torch.arange(count) * 7, text_direction(text), words


def test_an_untrained_prior_says_nothing():
    made, *given = told(PriorNetwork(CONFIG))
    assert torch.equal(made(*given), torch.zeros(4, 8))


def test_all_that_is_told_counts():
    made, x, steps, text, words = told(network())
    whole = made(x, steps, text, words)
    assert whole.shape == (4, 8)
    for other in ((x + 1, steps, text, words), (x, steps + 50, text, words), (x, steps, -text, words)):
        assert (made(*other) - whole).abs().amax(dim=1).min() > 1e-4
    changed = words.clone()
    changed[:, 1] += 1
    assert (made(x, steps, text, changed) - whole).abs().amax(dim=1).min() > 1e-4


def test_a_token_sees_none_after_it():
    """The causal mask: what the encodings become does not know the noisy embedding, which stands behind them."""
    made, x, steps, text, words = told(network())
    seen = []
    made.transformer.norm_out.register_forward_hook(lambda module, given, output: seen.append(output))
    made(x, steps, text, words)
    made(x + 1, steps, text, words)
    first, second = seen
    assert torch.equal(first[:, :7], second[:, :7])  # five words, the text, the time
    assert not torch.allclose(first[:, 7:], second[:, 7:])


def test_a_dropped_text_leaves_nothing_of_itself():
    made, x, steps, text, words = told(network())
    none = torch.zeros(4, dtype=torch.bool)
    some = torch.tensor([True, False, True, False])
    null = made(x, steps, text, words, none)
    assert torch.equal(null, made(x, steps, -text, words.flip(0) + 1, none))
    mixed = made(x, steps, text, words, some)
    assert torch.allclose(mixed[some], made(x, steps, text, words)[some], atol=1e-6)
    assert torch.allclose(mixed[~some], null[~some], atol=1e-6)


def test_places_after_the_end_are_the_null_word():
    made, x, steps, text, words = told(network())
    before = made(x, steps, text, words)
    with torch.no_grad():
        made.null_words[:3] *= -1  # of places that these texts fill
    assert torch.equal(made(x, steps, text, words), before)
    with torch.no_grad():
        made.null_words[4] *= -1
    assert not torch.allclose(made(x, steps, text, words), before)


def test_a_prior_without_encodings_is_told_the_embedding_alone():
    made, x, steps, text, _ = told(network(replace(CONFIG, text_shape=None)))
    whole = made(x, steps, text, None)
    assert (made(x, steps, -text, None) - whole).abs().max() > 1e-4


@pytest.mark.parametrize("config", [CONFIG, replace(CONFIG, text_shape=None)])
def test_what_is_written_is_read(tmp_path, config):
    made, *given = told(network(config))
    made.save_pretrained(tmp_path)
    read = PriorNetwork.from_pretrained(tmp_path)
    assert read.config == config and not read.training
    assert torch.equal(read(*given), made(*given))


def test_every_parameter_but_those_of_others_learns():
    """Several processes wait for the gradient of each parameter that asks for one."""
    made, *given = told(network())
    made(*given, torch.tensor([True, True, False, True])).square().sum().backward()
    missing = {name for name, each in made.named_parameters() if each.requires_grad and each.grad is None}
    assert missing == set()
    assert {name for name, each in made.named_parameters() if not each.requires_grad} == {
        "transformer.clip_mean",
        "transformer.clip_std",
    }


# ----------------------------------------------------------------------------------------------------------------------
# Sampling


def test_guidance_is_the_formula_in_float64_and_nulls_text_and_words():
    made, x, steps, text, words = told(network().double())
    x, text, words = x.double(), text.double(), words.double()
    denoise = prior_denoiser(made, gaussian("x0"), text, words, 3.0)
    null = made(x, steps, text, words, torch.zeros(4, dtype=torch.bool))
    expected = null + 3 * (made(x, steps, text, words) - null)
    assert torch.allclose(denoise(x, steps, None).x0.double(), expected, atol=1e-6)


def test_guidance_of_one_is_the_conditional_output_bit_for_bit():
    made, x, steps, text, words = told(network())
    denoise = prior_denoiser(made, gaussian("x0"), text, words, 1.0)
    assert torch.equal(denoise(x, steps, None).x0, made(x, steps, text, words))


def test_a_solver_takes_vectors_as_it_takes_images():
    """(N, D) becomes what (N, D, 1, 1) becomes."""
    made = network()
    text, words = texts()
    denoise = prior_denoiser(made, gaussian("x0"), text_direction(text), words, 1.5)
    noise = torch.randn(4, 8, generator=torch.Generator().manual_seed(3))

    def as_image(x, steps, before):
        found = denoise(x.flatten(1), steps, None)
        return found._replace(x0=found.x0[:, :, None, None])

    how = Sampling(solver="ddpm", steps=5)

    def generators():
        return [torch.Generator().manual_seed(each) for each in range(4)]

    flat = sample(denoise, noise, gaussian("x0"), how, generators())
    image = sample(as_image, noise[:, :, None, None], gaussian("x0"), how, generators())
    assert torch.allclose(flat, image.flatten(1), atol=1e-6)


@pytest.mark.parametrize(("solver", "target"), [("ddpm", "x0"), ("dpm", "v")])
def test_an_embedding_does_not_depend_on_its_company(solver, target, one_thread):
    how, made = HOW.model_copy(update={"solver": solver}), prior(target=target)
    text, words = texts(7)
    whole = sample_prior(made, text, words, how, 5, range(7))
    some = sample_prior(made, text[[5, 2]], words[[5, 2]], how, 5, [5, 2])
    assert torch.equal(whole[[5, 2]], some)
    assert torch.allclose(whole.norm(dim=1), torch.ones(7), atol=1e-5)
    assert not torch.allclose(whole, sample_prior(made, text, words, how, 6, range(7)), atol=1e-3)


def test_of_several_candidates_the_one_that_fits_the_text_best_is_kept():
    made, (text, words) = prior(), texts()
    one = [HOW.model_copy(update={"candidates": count}) for count in (1, 2, 8)]
    first, second, eighth = (sample_prior(made, text, words, how, 5, range(4)) for how in one)
    fits = [(each * text).sum(dim=1) for each in (first, second, eighth)]
    assert (fits[1] >= fits[0] - 1e-6).all() and (fits[2] >= fits[1] - 1e-6).all()
    assert (fits[2] > fits[0] + 1e-4).any()


def test_embeddings_come_as_they_are_stored():
    """The statistics are put back, and the length is 1 where CLIP's embeddings were normalised."""
    text, words = texts()
    how = HOW.model_copy(update={"candidates": 1})  # which candidate fits depends on the statistics
    unit, free = (sample_prior(prior(normalised=each), text, words, how, 5, range(4)) for each in (True, False))
    bare = prior(normalised=False)
    bare.network.set_scaler(EmbeddingScaler([0.0] * 8, [1.0] * 8))
    raw = sample_prior(bare, text, words, how, 5, range(4))
    assert torch.allclose(raw * torch.linspace(0.3, 0.6, 8) + torch.linspace(-0.2, 0.2, 8), free, atol=1e-6)
    assert torch.allclose(bare.network.transformer.post_process_latents(raw), raw)
    assert torch.allclose(unit.norm(dim=1), torch.ones(4), atol=1e-5)
    assert not torch.allclose(free.norm(dim=1), torch.ones(4), atol=1e-2)


def test_no_text_gives_no_embedding():
    text, words = texts()
    assert sample_prior(prior(), text[:0], words[:0], HOW, 5, []).shape == (0, 8)
