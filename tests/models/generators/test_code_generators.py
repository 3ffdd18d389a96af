"""Generators of codes: what they predict, what they are trained on, and what they draw."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from darkroom.diffusion.denoiser import guided_halves
from darkroom.models.generators.autoregressive.sample import AutoregressiveSampler
from darkroom.models.generators.autoregressive.settings import AutoregressiveSampling
from darkroom.models.generators.codes.network import CodesConfig, CodeTransformer
from darkroom.models.generators.codes.sample import filtered, scale_at
from darkroom.models.generators.codes.settings import CodeSampling, Model
from darkroom.models.generators.conditions import START, UNKNOWN, Captioned, nulled, with_null
from darkroom.models.generators.masked.sample import MaskedSampler, first_hidden, halton_rank, masked_counts
from darkroom.models.generators.masked.schedule import masked_fraction
from darkroom.models.generators.masked.settings import MaskedSampling
from darkroom.training.precision import run_in
from models.generators.codes_made import CODES, Grey, Rows, batch, chains, entropy, field, network, recipe, trained

CLASSES = torch.tensor([0, 1, 2, 3, 0])


def codes(count: int = 5) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(1).integers(0, 4, (count, 16)))


# The causal transformer


def test_a_code_is_predicted_from_those_before_it_alone() -> None:
    model, given = network(), codes()
    logits = model(given, CLASSES)[0]
    for place in range(16):
        other = given.clone()
        other[:, place] = (other[:, place] + 1) % 4
        changed = (model(other, CLASSES)[0] != logits).any(dim=2).any(dim=0)
        assert not changed[: place + 1].any() and (place == 15 or changed[place + 1 :].any())


def test_in_any_order_a_code_is_predicted_from_those_before_it() -> None:
    model, given = network(), codes()
    order = torch.stack([torch.randperm(16) for _ in range(5)])
    logits = model(given, CLASSES, order)[0]
    other = given.scatter(1, order[:, 7:8], (given.gather(1, order[:, 7:8]) + 1) % 4)
    changed = (model(other, CLASSES, order)[0] != logits).any(dim=2).any(dim=0)
    assert not changed[:8].any() and changed[8:].any()
    raster = torch.arange(16).expand(5, -1)
    assert torch.equal(model(given, CLASSES, raster)[0], model(given, CLASSES)[0])


def test_an_order_tells_which_place_is_next() -> None:
    """Without the position of the target, the first code of two orders would have the same prediction."""
    model, given = network(), codes()
    orders = torch.arange(16).expand(5, -1), torch.arange(15, -1, -1).expand(5, -1)
    first, last = (model(given, CLASSES, order)[0][:, 0] for order in orders)
    assert not torch.allclose(first, last)


@pytest.mark.parametrize(("condition", "guidance"), [("class", 1.0), ("none", 2.5), ("caption", 2.5)])
def test_codes_with_the_cache_are_those_without(condition: str, guidance: float) -> None:
    shape = (6, 3) if condition == "caption" else None
    model = network(condition=condition, caption_shape=shape).double()
    captions = torch.tensor([[START, 5, 2, 49407, 0, 0], [START, 7, 49407, 0, 0, 0]])
    given = {"class": torch.tensor([0, 2]), "none": None, "caption": Captioned.of(captions)}[condition]
    sampling = AutoregressiveSampling(guidance=guidance, guidance_schedule="linear", top_k=3)
    drawn = AutoregressiveSampler(model, Grey()).codes([3, 8], given, 1, sampling)

    def begin(condition: Any, images: int) -> tuple[torch.Tensor, list[Any]]:
        seen.clear()
        seen.append(condition)
        return model(torch.zeros(images, 16, dtype=torch.int64), condition)[0][:, 0], seen

    def following(last: torch.Tensor, place: int, seen: list[Any]) -> torch.Tensor:
        seen.append(last)
        known = torch.stack(seen[1:], dim=1)
        whole = torch.cat([known, known.new_zeros(len(known), 16 - known.shape[1])], dim=1)
        return model(whole, seen[0])[0][:, place + 1]

    seen: list[Any] = []
    plain = model
    plain.begin, plain.next = begin, following  # type: ignore[method-assign, assignment]
    assert torch.equal(AutoregressiveSampler(plain, Grey()).codes([3, 8], given, 1, sampling), drawn)


def test_logits_with_the_cache_differ_by_rounding_alone() -> None:
    """In float32 by 2e-5 of the largest logit, in bf16 by less than half of its own rounding."""
    guidance, given, labels = 2.5, codes().repeat(2, 1), with_null(CLASSES, 3)
    exact = guided_halves(network()(given, labels)[0], guidance)
    for dtype in (torch.float32, torch.bfloat16):
        model = network().to(dtype)
        whole = guided_halves(model(given, labels)[0].float(), guidance)
        first, caches = model.begin(labels, 10)
        steps = [first, *(model.next(given[:, place], place, caches) for place in range(15))]
        cached = guided_halves(torch.stack(steps, dim=1).float(), guidance)
        rounding = (cached - whole).abs()
        if dtype == torch.float32:
            assert rounding.max() < 2e-5 * exact.abs().max()
        else:
            assert rounding.mean() < 0.5 * (whole - exact).abs().mean()


def test_an_image_does_not_depend_on_the_others_of_its_batch() -> None:
    given = torch.tensor([0, 1, 2, 0, 1, 2])
    ways = (
        (AutoregressiveSampler(network(), Grey()), AutoregressiveSampling(guidance=2.0)),
        (MaskedSampler(network(causal=False), Grey()), MaskedSampling(order="confidence", guidance=2.0)),
        (MaskedSampler(network(causal=False), Grey()), MaskedSampling(order="halton", steps=5)),
    )
    for sampler, settings in ways:
        whole = sampler.codes(range(6), given, 7, settings)
        assert torch.equal(sampler.codes([2, 4], given[[2, 4]], 7, settings), whole[[2, 4]])
        assert not torch.equal(sampler.codes(range(6), given, 8, settings), whole)
        alike = sampler.codes(range(6), torch.zeros(6, dtype=torch.int64), 7, settings)
        assert len({tuple(each.flatten().tolist()) for each in alike}) > 4  # of one class, images still differ


def test_the_null_of_a_caption_leaves_the_caption_as_it_is() -> None:
    model = network(condition="caption", caption_shape=(6, 3))
    tokens = torch.tensor([[START, 5, 2, 49407, 0, 0]])
    given = Captioned.of(tokens.clone())
    with_nothing = nulled(given, 0)
    both = model(codes(1).expand(2, -1), with_null(given, 0))[0]
    assert torch.equal(given.tokens, tokens) and bool(given.keep)
    assert torch.allclose(both[0], model(codes(1), given)[0][0], atol=1e-5)
    assert torch.allclose(both[1], model(codes(1), with_nothing)[0][0], atol=1e-5)
    assert not torch.allclose(both[0], both[1], atol=1e-2)


def test_weights_return_from_their_files(tmp_path: Any) -> None:
    model = network(condition="caption", caption_shape=(6, 3), tie=True)
    model.save_pretrained(tmp_path)
    given = Captioned.of(torch.tensor([[START, 5, 2, 49407, 0, 0]] * 5))
    assert torch.equal(CodeTransformer.from_pretrained(tmp_path)(codes(), given)[0], model(codes(), given)[0])


# Choosing codes


def settings(**changes: Any) -> CodeSampling:
    return CodeSampling.model_validate(changes)


def test_filters_keep_the_likely_codes() -> None:
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64).log()
    kept = {
        "top_k": (filtered(logits, settings(top_k=2)), [True, True, False, False]),
        "top_p": (filtered(logits, settings(top_p=0.79)), [True, True, False, False]),
        "more": (filtered(logits, settings(top_p=0.81)), [True, True, True, False]),
        "min_p": (filtered(logits, settings(min_p=0.31)), [True, True, False, False]),
        "one": (filtered(logits, settings(top_p=1e-9, top_k=1, min_p=1.0)), [True, False, False, False]),
    }
    for name, (left, expected) in kept.items():
        assert left.isfinite().tolist() == expected, name
    assert torch.allclose(filtered(logits, settings(temperature=2.0)), logits / 2)


def test_the_scale_of_guidance_follows_its_schedule() -> None:
    def scales(**changes: Any) -> list[float]:
        return [round(scale_at(settings(guidance=3.0, **changes), place / 4), 3) for place in range(5)]

    assert scales() == [3.0] * 5
    assert scales(guidance_schedule="linear") == [1.0, 1.5, 2.0, 2.5, 3.0]
    assert scales(guidance_schedule="cosine") == [1.0, 1.293, 2.0, 2.707, 3.0]
    powered = scales(guidance_schedule="cosine", guidance_power=2.75)
    assert powered[0] == 1.0 and powered[-1] == 3.0 and powered[2] < 1.2


class Fixed:
    """A network that predicts the same probabilities everywhere, and keeps the codes that it was given."""

    mask, null_label = 4, 3

    def __init__(self, p: list[float], side: int = 4) -> None:
        self.logits, self.seen = torch.tensor(p, dtype=torch.float64).log(), list[torch.Tensor]()
        self.config = type("Config", (), {"codes": 4, "side": side, "tokens": side**2, "classes": 3})
        self.positions = torch.nn.Embedding(1, 1)

    def __call__(self, given: torch.Tensor, condition: Any) -> tuple[torch.Tensor, None]:
        self.seen.append(given.clone())
        return self.logits.expand(*given.shape, -1), None


@pytest.mark.parametrize("order", ["halton", "confidence"])
def test_unmasked_codes_stay_and_all_others_are_masked(order: str) -> None:
    """In each step the network sees the codes drawn so far and masks, never another guess."""
    fixed = Fixed([0.4, 0.3, 0.2, 0.1])
    sampling = MaskedSampling.model_validate({"order": order, "steps": 6, "guidance": 1.0})
    drawn = MaskedSampler(fixed, Grey()).codes(range(8), None, 0, sampling).flatten(1)
    counts = [16 - int((seen[0] == 4).sum()) for seen in fixed.seen]
    assert counts[0] == 0 and counts == sorted(set(counts)) and len(counts) == 6
    for seen in fixed.seen:
        assert torch.equal(torch.where(seen == 4, drawn, seen), drawn)
    assert drawn.max() < 4


def test_in_halton_order_each_code_follows_its_probabilities() -> None:
    """In the last step too: the temperature is not annealed; and it divides logits."""
    p = [16 / 30, 9 / 30, 4 / 30, 1 / 30]
    fixed = Fixed([0.4, 0.3, 0.2, 0.1])
    sampling = MaskedSampling(steps=4, guidance=1.0, temperature=0.5)
    drawn = MaskedSampler(fixed, Grey()).codes(range(4000), None, 0, sampling).flatten(1)
    last = drawn[:, halton_rank(4) == 15]
    for some in (drawn, last):
        found = torch.bincount(some.flatten(), minlength=4) / some.numel()
        error = (torch.tensor(p) * (1 - torch.tensor(p)) / some.numel()).sqrt()
        assert ((found - torch.tensor(p)).abs() < 5 * error).all()


def test_noise_on_the_confidence_varies_the_places_and_without_it_likely_codes_come_first() -> None:
    def first(scale: float) -> torch.Tensor:
        fixed = Fixed([0.4, 0.3, 0.2, 0.1])
        sampling = MaskedSampling(order="confidence", steps=8, guidance=1.0, choice_temperature=scale)
        MaskedSampler(fixed, Grey()).codes(range(200), None, 0, sampling)
        return fixed.seen[1]  # what the first step left unmasked

    certain, varied = first(0.0), first(20.0)
    assert (certain[certain < 4] == 0).float().mean() > 0.99
    assert (varied[varied < 4] == 0).float().mean() < 0.6


def test_halton_places_are_a_permutation_and_spread() -> None:
    for side in (1, 4, 7, 16):
        assert sorted(halton_rank(side)) == list(range(side**2))
    first = np.argwhere(halton_rank(16).reshape(16, 16) < 64)
    quarters = [(first // 8 == [row, column]).all(axis=1).sum() for row in (0, 1) for column in (0, 1)]
    assert min(quarters) >= 14  # of 64


def test_masks_follow_their_schedule_and_end() -> None:
    u = np.array([0.0, 0.5, 1.0])
    assert masked_fraction("cosine", u) == pytest.approx([1, 0.5**0.5, 0], abs=1e-12)
    assert masked_fraction("arccos", u) == pytest.approx([1, 2 / 3, 0])
    assert masked_fraction("linear", u) == pytest.approx([1, 0.5, 0])
    some = torch.full((2, 16), 4)
    some[1, :10] = 0  # of a known image
    for steps in (1, 3, 40):
        counts = torch.stack(masked_counts(some, 4, MaskedSampling(steps=steps)))
        assert len(counts) <= min(steps, 16) and counts[-1].tolist() == [0, 0]
        assert (counts.diff(dim=0)[:, 0] < 0).all() and (counts[:, 1] <= 6).all()


def test_known_codes_stay_and_the_rest_is_drawn() -> None:
    for order in ("halton", "confidence"):
        sampling = MaskedSampling.model_validate({"order": order, "steps": 3, "guidance": 1.0})
        sampler = MaskedSampler(Fixed([0.5, 0.5, 0.0, 0.0]), Grey())
        sampler.known = torch.full((4, 4), -1)
        sampler.known[:2] = 3
        drawn = sampler.codes(range(3), None, 0, sampling)
        assert (drawn[:, :2] == 3).all() and (drawn[:, 2:] < 2).all()


# Training


def labelled(count: int = 300) -> tuple[np.ndarray, np.ndarray]:
    return chains(count, 0), np.arange(count) % 3


@pytest.mark.parametrize("kind", ["autoregressive", "masked"])
def test_an_image_meets_the_same_loss_in_any_batch(kind: str) -> None:
    section = {"loss": {"order": "annealed"}} if kind == "autoregressive" else {}
    made = recipe(kind, *labelled(), **section)
    made.model.eval()
    whole = made._losses(batch(made.train, range(20)), "train", 0.5)["loss"]
    assert torch.allclose(made._losses(batch(made.train, [7, 12]), "train", 0.5)["loss"], whole[[7, 12]], atol=1e-5)


def test_the_masked_loss_counts_masked_codes_alone() -> None:
    made = recipe("masked", *labelled(), loss={"label_smoothing": 0.0})
    with torch.no_grad():
        made.model.head.weight.zero_()
        made.model.head.bias.copy_(torch.tensor([2.0, 0.0, 0.0, 0.0]))
    given = batch(made.train, range(50))
    seen: list[torch.Tensor] = []
    made.model.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    found = made._losses(given, "train", 0.0)["loss"]
    masked, flat = seen[0] == 4, given.data["codes"].flatten(1)
    nats = -torch.tensor([2.0, 0.0, 0.0, 0.0]).log_softmax(0)[flat]
    assert torch.allclose(found, (nats * masked).sum(1) / (16 * 2 / np.pi), atol=1e-3)  # arccos: 2/π masked on average
    assert torch.equal(torch.where(masked, flat, seen[0]), flat)
    assert masked.sum(1).min() >= 1 and masked.sum(1).max() == 16


def test_unmasked_codes_and_smoothing_have_their_weights() -> None:
    made = recipe("masked", *labelled(), loss={"label_smoothing": 0.1, "unmasked": 0.25, "schedule": "linear"})
    with torch.no_grad():
        made.model.head.weight.zero_()
        made.model.head.bias.copy_(torch.tensor([2.0, 0.0, 0.0, 0.0]))
    given, seen = batch(made.train, range(50)), list[torch.Tensor]()
    made.model.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    matches = made._losses(given, "train", 0.0)["loss"]
    masked, flat = seen[0] == 4, given.data["codes"].flatten(1)
    log_p = torch.tensor([2.0, 0.0, 0.0, 0.0]).log_softmax(0)
    nats = -(0.9 * log_p[flat] + 0.1 * log_p.mean())
    expected = (nats * torch.where(masked, 1.0, 0.25)).sum(1) / (16 * (0.5 + 0.25 * 0.5))
    assert torch.allclose(matches, expected, atol=1e-3)


def captioned() -> tuple[Any, Any]:
    """Return an autoregressive recipe of captions, and a batch of three: two captions, and none."""
    made = recipe("autoregressive", *labelled())
    loss = made.settings.loss.model_copy(update={"word_dropout": 0.5})
    made.settings = made.settings.model_copy(update={"loss": loss})
    config = replace(made.model.config, condition="caption", caption_shape=(5, 3))
    torch.manual_seed(0)
    made.model = made.modules["transformer"] = CodeTransformer(config).eval()
    made.model.vocabulary.copy_(torch.tensor([7, START, 49407]))
    given = batch(made.train, range(3))
    captions = [[START, 7, 49407, 0, 0], [START, 7, 7, 49407, 0], [0] * 5]
    del given.data["labels"]
    given.data["caption"] = torch.tensor(captions)
    return made, given


def test_the_text_loss_is_that_of_words_after_the_first_up_to_the_end() -> None:
    """DALL-E's weight of 1/8; hidden words stay targets; an image without a caption has none."""
    made, given = captioned()
    terms = made._losses(given, "val", 0.0)
    codes, captions = given.data["codes"].flatten(1), Captioned.of(given.data["caption"])
    _, text = made.model(codes, captions)
    numbers = made.model.caption_numbers(captions.tokens)
    nats = -text.log_softmax(-1).gather(2, numbers[:, 1:, None])[..., 0]
    assert torch.allclose(terms["text"], torch.stack([nats[0, :2].mean(), nats[1, :3].mean(), torch.tensor(0.0)]))
    assert torch.allclose(terms["loss"], terms["text"] / 8 + 7 / 8 * terms["codes"])
    seen: list[Any] = []
    made.model.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[1].tokens))
    made._losses(given, "train", 0.0)
    assert (seen[0] == UNKNOWN).any() and not (given.data["caption"] == UNKNOWN).any()
    assert numbers.tolist()[1] == [2, 1, 1, 3, 4]


@pytest.mark.parametrize("kind", ["autoregressive", "masked"])
def test_dropouts_act_in_training_alone(kind: str) -> None:
    for key in ("dropout", "token_dropout", "attention_dropout"):
        made = recipe(kind, *labelled(), model={key: 0.5})
        given = batch(made.train, range(8))
        one, other = (made._losses(given, "train", 0.0)["loss"] for _ in range(2))
        made.model.eval()
        again, same = (made._losses(given, "train", 0.0)["loss"] for _ in range(2))
        assert not torch.equal(one, other) and torch.equal(again, same), key


@pytest.mark.parametrize("causal", [True, False])
def test_sampling_in_bf16_is_that_of_autocast(causal: bool) -> None:
    sampler_class = AutoregressiveSampler if causal else MaskedSampler
    sampling = {"guidance": 2.0} if causal else {"guidance": 2.0, "steps": 4}
    settings = (AutoregressiveSampling if causal else MaskedSampling).model_validate(sampling)
    exact, low = network(causal), network(causal)
    run_in(low, "bf16", compiled=False, device=torch.device("cpu"))
    given = codes()
    assert low(given, CLASSES)[0].dtype == torch.float32
    assert not torch.equal(low(given, CLASSES)[0], exact(given, CLASSES)[0])
    if causal:
        assert not torch.equal(low.begin(CLASSES, 5)[0], exact.begin(CLASSES, 5)[0])
    drawn = sampler_class(low, Grey()).codes(range(5), CLASSES.clamp(max=2), 1, settings)
    assert drawn.shape == (5, 4, 4)


def test_conditions_are_dropped_as_often_as_asked_and_never_in_validation() -> None:
    for kind in ("autoregressive", "masked"):
        made = recipe(kind, *labelled(), loss={"label_dropout": 0.3})
        seen: list[torch.Tensor] = []
        made.model.register_forward_pre_hook(lambda module, inputs, seen=seen: seen.append(inputs[1]))
        made.loss(batch(made.train, range(2000)))
        made.validate(batch(made.train, range(200)))
        assert (seen[0] == 3).float().mean() == pytest.approx(0.3, abs=0.04) and not (seen[1] == 3).any()


def test_orders_are_random_at_first_and_raster_at_the_end() -> None:
    section = {"order": "annealed", "random_until": 0.25, "raster_from": 0.75}
    made = recipe("autoregressive", *labelled(), images=4000, loss=section)
    made_orders = made._orders(np.arange(4000), np.random.default_rng(0).random((4000, 17)))
    random = (made_orders != np.arange(16)).any(axis=1)
    assert random[:1000].all() and not random[3000:].any()
    assert random[1750:2250].mean() == pytest.approx(0.5, abs=0.06)
    assert (np.sort(made_orders, axis=1) == np.arange(16)).all()
    assert made.knows_length and not recipe("autoregressive", *labelled()).knows_length


def test_llamagen_b_has_its_number_of_parameters() -> None:
    shape = Model(size="llamagen_b").shape
    with torch.device("meta"):
        model = CodeTransformer(CodesConfig(codes=16_384, side=16, classes=1000, causal=True, **shape))
    assert sum(each.numel() for each in model.parameters()) == pytest.approx(111e6, rel=0.02)


def test_unigram_is_the_entropy_of_codes_without_context() -> None:
    rows = np.where(np.arange(4000) % 4 == 0, 1, 0)[:, None, None] * np.ones((1, 4, 4), np.int64)
    made = recipe("autoregressive", rows, np.zeros(4000, np.int64))
    found = {name: values.mean().item() for name, values in made.validate(batch(made.train, range(400))).items()}
    assert found["uniform"] == pytest.approx(np.log(4))
    assert found["unigram"] == pytest.approx(-(0.75 * np.log(0.75) + 0.25 * np.log(0.25)), rel=1e-3)


def test_a_model_of_known_codes_comes_near_to_their_entropy() -> None:
    """Exact bits of held-out chains within 2 % of the entropy of the chain."""
    made = trained(recipe("autoregressive", chains(20_000, 0), np.zeros(20_000, np.int64)), 150)
    held_out = Rows(chains(2000, 1), np.zeros(2000, np.int64))
    sampler = AutoregressiveSampler(made.model, Grey())
    bits = sampler.code_bits(torch.from_numpy(held_out.codes), torch.from_numpy(held_out.labels))
    assert bits.mean().item() == pytest.approx(entropy(), rel=0.02)


def pairs(drawn: np.ndarray) -> np.ndarray:
    """Return the frequencies of pairs of neighbours in rows and in columns, (2, K, K)."""
    counts = np.zeros((2, CODES, CODES))
    for table, codes in zip(counts, (drawn, drawn.swapaxes(1, 2)), strict=True):
        np.add.at(table, (codes[:, :, :-1].ravel(), codes[:, :, 1:].ravel()), 1)
    return counts / counts.sum(axis=(1, 2), keepdims=True)


def test_only_hidden_codes_are_counted_and_the_first_of_them_stay() -> None:
    hidden, score = torch.tensor([[True, False, True, True]]), torch.tensor([[0.1, -9.0, 0.3, 0.2]])
    assert first_hidden(hidden, score, torch.tensor([1])).tolist() == [[False, False, True, True]]


def test_masked_codes_have_the_pairs_of_a_known_field() -> None:
    """The frequencies of neighbours in samples, one code a step, are those of the field, in rows and in columns."""
    made = trained(recipe("masked", field(20_000, 0), np.zeros(20_000, np.int64), loss={"label_smoothing": 0.0}), 500)
    sampler, labels = MaskedSampler(made.model, Grey()), torch.zeros(700, dtype=torch.int64)
    found = pairs(sampler.codes(range(700), labels, 1, MaskedSampling(steps=16, guidance=1.0)).numpy())
    known = pairs(field(100_000, 1))
    independent = np.abs(known - 1 / CODES**2).sum(axis=(1, 2))
    assert (np.abs(found - known).sum(axis=(1, 2)) < 0.25 * independent).all() and (independent > 0.6).all()
