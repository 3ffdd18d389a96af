"""A DiT of each condition, through the stages: encoded, trained, resumed, sampled, scored; and what is refused."""

import copy
import json
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from torch.nn import functional

from darkroom.artifacts.manifest import ArtifactError, write_manifest
from darkroom.check.check import validated
from darkroom.cli import main
from darkroom.data.catalog import load_catalog
from darkroom.data.draw import drawn as drawn_rows
from darkroom.data.latent_file import to_float32
from darkroom.data.latents import LatentShards
from darkroom.data.reader import ImageShards
from darkroom.diffusion.flow import Flow
from darkroom.diffusion.scalers import LatentScaler
from darkroom.errors import DarkroomError
from darkroom.models.clip.network import tokens_of
from darkroom.models.generators import fits, sample_settings
from darkroom.models.generators.captions import Captions
from darkroom.models.generators.conditions import START, UNKNOWN, Embedded, condition_of
from darkroom.models.generators.data import CaptionedLatents, GeneratorData
from darkroom.models.generators.dit.config import DiTConfig
from darkroom.models.generators.dit.network import DiT
from darkroom.models.generators.dit.recipe import DiTRecipe
from darkroom.models.generators.dit.sample import dit_denoiser
from darkroom.models.generators.dit.settings import DiTDiffusion, DiTSampling
from darkroom.models.generators.sampler import KeptBatches
from darkroom.params.section import validate
from darkroom.stages import score_generator
from darkroom.tools.sample.command import read_texts
from darkroom.training.recipe import Batch
from helpers import DIGITS, run
from stages.text_models import embed, write_clip
from stages.tiny_generator import INCEPTION, enter_copy, sample, train, train_until, write_clone

ROOT = Path(__file__).parents[2]
CONDITIONS = ("class", "none", "image", "text", "tokens", "caption")
SHAPE = (2, 4, 4)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return write_clone(tmp_path_factory.mktemp("clone"))


@pytest.fixture
def clone(whole, tmp_path, monkeypatch):
    enter_copy(whole, tmp_path / "clone", monkeypatch)


@pytest.fixture(scope="module")
def trainings(whole, tmp_path_factory):
    """Return a function: a copy of the clone in which a generator of a condition has been trained, once for all."""

    @cache
    def trained(condition):
        folder = tmp_path_factory.mktemp(condition) / "clone"
        with pytest.MonkeyPatch.context() as patch:
            enter_copy(whole, folder, patch)
            train(condition)
        return folder

    return trained


@pytest.fixture
def enter_trained(trainings, tmp_path, monkeypatch):
    """Return a function that makes a copy of this one the working folder."""
    return lambda condition: enter_copy(trainings(condition), tmp_path / "clone", monkeypatch)


@pytest.mark.parametrize("condition", ["class", "caption"])
def test_mean_flow_is_trained_and_sampled_in_one_call(clone, condition):
    """Guided in its training; captions of some images are missing."""
    diffusion = {"objective": "mean_flow", "mean_flow": {"guidance": 2.0, "mix": 0.1}}
    trained = train(condition, diffusion=diffusion, sampling={"guidance": 1.0, "steps": 1})
    assert (
        trained["objective"] == "mean_flow"
        and json.loads(Path("models/generator/config.json").read_text())["two_times"]
    )
    images, manifest = sample(condition, guidance=1.0, dit={"steps": 1})
    assert len(images) == 12 and manifest["sampler"]["steps"] == 1


@pytest.mark.parametrize("condition", CONDITIONS)
def test_each_condition_is_trained_sampled_and_scored(enter_trained, condition):
    enter_trained(condition)
    trained = json.loads(Path("models/generator/manifest.json").read_text())
    assert trained.get("condition", "class") == condition
    assert ("clip" in trained) == (condition in ("image", "text", "tokens"))
    assert ("class_counts" in trained) == (condition == "class")
    assert len(list(Path("logs/train_generator/grids").iterdir())) == 2
    evolution = json.loads(Path("curves/generator/sample_evolution.json").read_text())
    val = ImageShards.open_parts(["one"], "val")
    assert set(evolution.get("captions", [])) <= {*val.captions}
    assert len(evolution.get("captions", [])) == (10 if condition in ("text", "tokens", "caption") else 0)
    drawn = {path.stem for path in Path("curves/generator").rglob("eval/*.tsv")}
    assert {"fd", "kid"} <= drawn and ("label_accuracy" in drawn) == (condition != "none")
    images, manifest = sample(condition, images=14)
    assert len(images) == 14 and Path("samples/generator/grid.png").is_file()
    if condition in ("class", "none"):
        assert images.captions == [None] * 14
    else:
        test = ImageShards.open_parts(["one"], "test")
        rows = [row for row, text in enumerate(test.captions) if condition == "image" or text is not None]
        texts = [test.captions[rows[at]] or test.keys[rows[at]] for at in drawn_rows(len(rows))]
        assert images.captions == [texts[number % len(texts)] for number in range(14)] and len(texts) < 14
    assert (set(images.labels) == {None}) == (condition == "none") == (not any(manifest["counts"].values()))
    values = {"threads": 1, "batch": 8, "blocks": 2}
    given = {"run": run().model_dump(), "reference_stats": {"inception": INCEPTION}, "score_generator": values}
    score_generator.run(validate(sample_settings.ScoreParams, given))
    scores = json.loads(Path("metrics/generator.json").read_text())
    assert ("label_accuracy" in scores) == (condition != "none") and np.isfinite(scores["fd"])
    nearest = json.loads(Path("samples/nearest/generator/manifest.json").read_text())
    assert nearest.get("originals") == ("test" if condition in ("text", "tokens", "caption") else None)


def test_images_are_those_of_their_captions_in_any_request(enter_trained):
    """The same for requests of other lengths; of another split others; and each caption matters."""
    enter_trained("tokens")
    images, manifest = sample("tokens")
    twelve, captions = np.concatenate(list(images.batches(12))), images.captions
    five = np.concatenate(list(sample("tokens", images=5)[0].batches(12)))
    np.testing.assert_array_equal(five, twelve[:5])
    assert manifest["sampler"]["split"] == "test"
    assert sample("tokens", split="train")[0].captions != captions


def test_a_latent_has_the_tokens_of_its_own_image(clone):
    images, latents = (kind.open_parts(["one"], "train") for kind in (ImageShards, LatentShards))
    rows = [5, 0, *(row for row, text in enumerate(images.captions) if text is None)]
    found = CaptionedLatents(latents, Captions.of(images)).__getitems__(rows, np.arange(len(rows)))
    np.testing.assert_array_equal(found["mean"].float(), to_float32(latents.__getitems__(rows)["mean"]))
    texts = [images.captions[row] for row in rows]
    assert images.keys == latents.keys and texts.count(None) < len(texts)
    for tokens, text in zip(found["caption"], texts, strict=True):
        assert tokens.tolist() == (5 * [0] if text is None else tokens_of([text], 5, False)[0].tolist())


def test_own_captions_need_no_clip(clone, capsys):
    """Nor prior and decoder: from the command line and of a file; what is not known is noted."""
    for folder in ("models/clip", "data/embeddings"):
        shutil.rmtree(folder)
    trained = train("caption")
    assert trained["context_length"] == 5 and "clip" not in trained  # a blue square, with start and end
    write_params("caption", {"captions": "data/shards"})
    alone = draw("--text", "a blue ring")
    Path("texts").write_text("a zebra\na blue ring\nunicorns\na ring of two red circles\n")
    rows = draw(*(word for line in Path("texts").read_text().splitlines() for word in ("--text", line)))
    np.testing.assert_array_equal(rows[1], alone[0])
    assert (rows[0] != rows[1]).any()
    said = capsys.readouterr().out
    draw("--text", "word" * 400)
    printed = capsys.readouterr().out
    assert f"note: {'word' * 15!r}" in printed and "word" * 16 not in printed
    assert 'note: "zebra" is not in the training captions' in said and '"blue" is not' not in said
    assert "'a ring of two red circles' is truncated to the 5 tokens that models/generator reads" in said


def test_a_checkpoint_is_sampled_where_a_stopped_training_left_no_generator(enter_trained):
    enter_trained("caption")
    write_params("caption", {"captions": "data/shards"})
    trained = draw("--text", "a blue ring")
    shutil.rmtree("models/generator")
    checkpoint = sorted(Path("state/train_generator").glob("images-*"))[-1]
    for weights in (checkpoint, checkpoint / "ema.safetensors"):
        np.testing.assert_array_equal(draw("--text", "a blue ring", "--weights", str(weights)), trained)


@pytest.mark.parametrize("context", [None, 4])
def test_captions_that_are_cut_are_told(clone, monkeypatch, capsys, context):
    of = Captions.of
    monkeypatch.setattr(Captions, "of", lambda images, length=None: replace(of(images, length), longer=3))
    shards = {split: LatentShards.open_parts(["one"], split) for split in ("train", "val")}
    GeneratorData.open("caption", Path("data/none"), Path("data/shards"), shards, None, load_catalog(), 0, context)
    told = f"3 of 4 different captions have more than {context or 5} tokens "
    assert capsys.readouterr().out == f"{told}(`model.context_length` of the generator) and are truncated.\n"


@pytest.mark.parametrize("condition", ["tokens", "caption"])
def test_a_training_on_texts_resumes_bit_for_bit_and_micro_batches_change_roundings(
    enter_trained, monkeypatch, condition
):
    enter_trained(condition)
    whole = Path("models/generator/model.safetensors").read_bytes()
    shutil.rmtree("state")
    train_until(40, condition, monkeypatch)
    train(condition)
    assert Path("models/generator/model.safetensors").read_bytes() == whole
    shutil.rmtree("state")
    before = DiT.from_pretrained(Path("models/generator")).state_dict()
    train(condition, {"micro_batch": 2})
    after = DiT.from_pretrained(Path("models/generator")).state_dict()
    assert all(torch.allclose(value, after[name], atol=2e-3) for name, value in before.items())


@pytest.mark.parametrize("condition", ["image", "caption"])
def test_a_kill_in_the_middle_of_sampling_leaves_no_trace(enter_trained, monkeypatch, condition):
    """Nor does the length of the request: one image, seven, and sixty-four that were stopped after the third batch."""
    enter_trained(condition)
    images = {count: np.concatenate(list(sample(condition, images=count)[0].batches(64))) for count in (1, 7, 64)}
    whole = files(Path("samples/generator"))
    keep, starts = KeptBatches.keep, []

    def killed(self, start, made):
        starts.append(start)
        if start == 12:
            raise SystemExit(143)
        keep(self, start, made)

    shutil.rmtree("samples")
    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(KeptBatches, "keep", killed)
        sample(condition, images=64)
    assert starts == [0, 4, 8, 12]
    monkeypatch.setattr(KeptBatches, "keep", lambda self, start, made: (starts.append(start), keep(self, start, made)))
    sample(condition, images=64)
    assert starts == [0, 4, 8, 12, *range(12, 64, 4)] and files(Path("samples/generator")) == whole
    for count in (1, 7):
        np.testing.assert_array_equal(images[count], images[64][:count])


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_embeddings_of_another_clip_or_of_other_images_are_refused(enter_trained):
    enter_trained("text")
    shutil.rmtree("models/clip")
    write_clip(seed=1)
    embed({"one": True})
    with pytest.raises(ArtifactError, match=r"trained on other embeddings than data/embeddings"):
        sample("text")
    manifest = Path("data/embeddings/one/manifest.json")
    there = json.loads(manifest.read_text())
    facts = {name: value for name, value in there.items() if name not in ("kind", "format", "seal")}
    write_manifest(manifest.parent, "embeddings", **(facts | {"shards": "0" * 64}))
    with pytest.raises(ArtifactError, match=r"the embeddings of `one` were made from other images"):
        train("text")


def draw(*words: str) -> list[np.ndarray]:
    """Return the rows of a grid of `darkroom sample`, without their captions."""
    assert main(["sample", "--out", "logs/x.png", "--images", "2", *words]) == 0
    grid = np.asarray(Image.open("logs/x.png"))
    height = 2 + 98 + 14 + 4
    return [grid[4 + at * height :][:98] for at in range(grid.shape[0] // height)]


def write_params(condition: str, where: dict[str, str]) -> None:
    """Write params.yaml and dvc.yaml of a generator of a condition, which is read from `where`."""
    values = yaml.safe_load(DIGITS.read_text())
    values["run"] = {"device": "cpu"}
    values["embed_clip"] = {"encodings": True}
    values["train_generator"] |= where
    values["train_generator"]["dit"]["model"]["condition"] = condition
    values["sample_generator"]["dit"]["steps"] = 2
    Path("params.yaml").write_text(yaml.safe_dump(values))
    shutil.copy(ROOT / "dvc.yaml", "dvc.yaml")


def test_texts_are_drawn_by_a_generator_that_reads_them(enter_trained, capsys):
    """From the command line and a file; a row follows from its text alone, and labels are unknown."""
    enter_trained("tokens")
    write_params("tokens", {"embeddings": "data/embeddings"})
    alone = draw("--text", "a ring")
    Path("texts").write_text("two red circles\n\na ring\n", encoding="utf-8-sig")  # with a byte-order mark
    assert read_texts(Path("texts"), "texts") == ["two red circles", "a ring"]
    both = draw("--text", "two red circles", "--text", "a ring", "--by", "generator")
    assert len(alone) == 1 and len(both) == 2
    np.testing.assert_array_equal(both[1], alone[0])
    assert (both[0] != both[1]).any() and (draw("--text", "a ring", "--guidance", "5.0")[0] != alone[0]).any()
    capsys.readouterr()
    for words, told in (
        (["--labels", "noise"], "condition tokens, so it has no labels: use --text"),
        (["--text", "a ring", "--by", "decoder"], "models/decoder is missing"),
    ):
        assert main(["sample", *words]) == 1 and told in capsys.readouterr().err


# ----------------------------------------------------------------------------------------------------------------------
# The network


def network(condition: str) -> DiT:
    """Return a DiT whose gates and head are not zero."""
    torch.manual_seed(0)
    told = {"embed_dim": 6} if condition in ("image", "text", "tokens") else {}
    told |= {"text_shape": (5, 7)} if condition == "tokens" else {}
    told |= {"caption_shape": (5, 3)} if condition == "caption" else {}
    model = DiT(DiTConfig(2, 4, 5, 16, 2, 2, 2, condition=condition, **told))
    if condition == "caption":
        model.caption.vocabulary.copy_(torch.tensor([40, START, START + 1]))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def stored(count: int, condition: str) -> dict[str, torch.Tensor]:
    """Return a batch's conditions; texts have 2 to 5 tokens."""
    generator = torch.Generator().manual_seed(0)
    vector = torch.randn(count, 6, generator=generator).half()
    if condition == "class":
        return {"labels": torch.arange(count) % 5}
    if condition == "none":
        return {}
    if condition == "image":
        return {"image": vector}
    inside = torch.arange(5)[None] < 2 + torch.arange(count)[:, None] % 4
    if condition == "caption":  # of 0 to 3 words; of the vocabulary every other one
        words = 40 + torch.arange(count)[:, None] % 2 * torch.ones(5, dtype=torch.int64)
        words[:, 0] = START
        return {"caption": words.scatter(1, inside.sum(1, keepdim=True) - 1, START + 1) * inside}
    tokens = (torch.randn(count, 5, 7, generator=generator) * inside[:, :, None]).half()
    return {"text": vector} | ({"encoding": tokens} if condition == "tokens" else {})


def told(count: int, condition: str) -> Any:
    data = stored(count, condition)
    return condition_of(data)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_conditions_are_dropped_to_their_null_as_often_as_asked(condition):
    """By the place of each image alone; and never in validation."""
    seen: list[Any] = []

    class Spy(DiT):
        def forward(self, x, timesteps, given):
            seen.append(given)
            return x

    model = Spy(network(condition).config)
    diffusion = DiTDiffusion(normalise="channel", label_dropout=0.3)
    scaler = LatentScaler([0.0] * 2, [1.0] * 2)
    recipe = DiTRecipe(model, diffusion, 9, [], [], scaler, None, DiTSampling(steps=2, guidance=2.0))
    data = {"mean": torch.randn(2000, *SHAPE), **stored(2000, condition)}
    recipe.loss(Batch(np.arange(2000), data))
    recipe.loss(Batch(np.arange(500, 510), {name: value[500:510] for name, value in data.items()}))
    recipe.validate(Batch(np.arange(2000), data))
    if condition == "none":
        assert seen == [None] * 3
        return
    kept = [(one != model.null_label) if condition == "class" else one.keep for one in seen]
    if condition == "caption":  # of their words one in 20, by the place of the image too
        words = (data["caption"] > 0) & (data["caption"] < START)
        hidden = [one.tokens == UNKNOWN for one in seen]
        assert hidden[0][words].double().mean().item() == pytest.approx(
            0.05, abs=4 * np.sqrt(0.0475 / words.sum().item())
        )
        assert not hidden[0][~words].any() and torch.equal(hidden[0][500:510], hidden[1]) and not hidden[2].any()
    assert kept[0].double().mean().item() == pytest.approx(0.7, abs=4 * np.sqrt(0.21 / 2000))
    assert torch.equal(kept[0][500:510], kept[1]) and kept[2].all()


@pytest.mark.parametrize("condition", CONDITIONS)
def test_guidance_leads_away_from_the_null_and_a_scale_of_one_is_the_network_itself(condition):
    model, x, t = network(condition), torch.randn(3, *SHAPE), torch.rand(3)
    given = told(3, condition)
    with torch.no_grad():
        conditional = model(x, 1000 * t, given)

        def found(scale):
            return dit_denoiser(model, Flow(), given, model.null_label, scale)(x, t, None).velocity

        assert torch.equal(found(1.0), conditional)
        if condition == "none":
            assert torch.equal(found(3.0), conditional)
            return
        null = torch.full((3,), 5) if condition == "class" else replace(given, keep=torch.zeros(3, dtype=torch.bool))
        nothing = model(x, 1000 * t, null)
        assert (nothing - conditional).abs().max() > 1e-3
        torch.testing.assert_close(found(3.0), nothing + 3 * (conditional - nothing), atol=1e-4, rtol=1e-4)


def test_a_dropped_text_leaves_no_trace_and_what_lies_behind_its_end_neither():
    model, x, t = network("tokens"), torch.randn(4, *SHAPE), torch.rand(4)
    one = told(4, "tokens")
    other = Embedded(one.vector.flip(0), one.tokens.flip(0), one.keep)
    nothing = torch.zeros(4, dtype=torch.bool)
    with torch.no_grad():
        assert (model(x, t, one) - model(x, t, other)).abs().max() > 1e-3
        assert torch.equal(model(x, t, replace(one, keep=nothing)), model(x, t, replace(other, keep=nothing)))
        longer = DiT(replace(model.config, text_shape=(8, 7)))
        weights = model.state_dict()
        longer.load_state_dict(weights | {"text.null": functional.pad(weights["text.null"], (0, 0, 0, 3))})
        padded = replace(one, tokens=functional.pad(one.tokens, (0, 0, 0, 3)))
        torch.testing.assert_close(model(x, t, one), longer(x, t, padded))
        moved = one.tokens.clone()
        moved[0, 0] += 1  # a token that is inside: row 0 has two
        assert (model(x, t, one) - model(x, t, replace(one, tokens=moved)))[0].abs().max() > 1e-4
    assert Embedded.of({"text": torch.tensor([[0.0, 0.0], [0.0, 1.0]])}).keep.tolist() == [False, True]


def test_padding_of_a_text_is_not_attended_to():
    """An attention over a longer context gives the same, the columns behind the end being zero."""
    cross = network("tokens").blocks[0].cross
    x, text = torch.randn(2, 4, 16), torch.randn(2, 5, 16)
    inside = torch.tensor([[True, True, False, False, False], [True] * 5])
    short = cross(x[:1], text[:1, :2], torch.ones(1, 2, dtype=torch.bool))
    torch.testing.assert_close(cross(x, text, inside)[:1], short)


def test_cross_attention_begins_as_nothing_and_all_parts_learn():
    torch.manual_seed(0)
    model = DiT(DiTConfig(2, 4, 5, 16, 2, 2, 2, condition="tokens", embed_dim=6, text_shape=(5, 7)))
    assert not any(block.cross.out.weight.any() for block in model.blocks)
    model = network("tokens")
    given = replace(told(4, "tokens"), keep=torch.tensor([True, True, True, False]))
    model(torch.randn(4, *SHAPE), torch.rand(4), given).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


@pytest.mark.parametrize("condition", ["class", "tokens", "caption"])
def test_weights_leave_and_return(condition, tmp_path):
    model, x, t = network(condition), torch.randn(2, *SHAPE), torch.rand(2)
    model.save_pretrained(tmp_path)
    again = DiT.from_pretrained(tmp_path)
    assert again.config == model.config and torch.equal(
        again(x, t, told(2, condition)), model(x, t, told(2, condition))
    )


# ----------------------------------------------------------------------------------------------------------------------
# What does not fit


def fit(**changes: Any) -> None:
    """Validate params.yaml with changes, keys dotted, and check the generator's sections."""
    values = copy.deepcopy(yaml.safe_load(DIGITS.read_text()))
    for key, value in changes.items():
        *path, last = key.split("__")
        place = values
        for name in path:
            place = place.setdefault(name, {})
        place[last] = value
    fits.fits(validated(values))


KEY = "train_generator__dit__model__condition"
STORED = {"train_generator__embeddings": "data/embeddings"}
OWN = {"train_generator__captions": "data/shards"}


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        ({KEY: "text"}, ("dit.model.condition is text", "train_generator.embeddings is data/none")),
        (STORED, ("train_generator.embeddings is data/embeddings", "dit.model.condition is class")),
        ({KEY: "none"}, ("sample_generator.dit.guidance", "train_generator.dit.model.condition")),
        ({KEY: "tokens", **STORED}, ("train_generator.dit.model.condition", "embed_clip.encodings")),
        (
            {KEY: "image", **STORED, "train_clip__source": "none"},
            ("train_generator.dit.model.condition", "train_clip.source"),
        ),
        ({KEY: "image", **STORED, "embed_clip__store": ["train", "test"]}, ("model.condition", "embed_clip.store")),
        (
            {KEY: "image", **STORED, "embed_clip__store": ["train", "val"]},
            ("sample_generator.common.split", "embed_clip.store"),
        ),
        (
            {KEY: "text", **STORED, "sample_generator__common__labels": "frequency"},
            ("sample_generator.common.labels", "train_generator.dit.model.condition"),
        ),
        (
            {KEY: "text", **STORED, "train_generator__dit__diffusion": {"label_dropout": 0.0}},
            ("sample_generator.dit.guidance", "train_generator.dit.diffusion.label_dropout"),
        ),
        (
            {"train_generator__dit__model__size": "XL"},
            ("`train_generator.dit.model`", "size is XL", "with width, depth and heads"),
        ),
        ({"train_generator__dit__model__size": "S"}, ("size is S", "remove it")),
        ({KEY: "caption"}, ("dit.model.condition is caption", "train_generator.captions is data/none")),
        ({KEY: "text", **STORED, **OWN}, ("train_generator.captions is data/shards", "model.condition is text")),
        (
            {KEY: "caption", **OWN, "sample_generator__common__labels": "balanced"},
            ("sample_generator.common.labels", "condition` is caption"),
        ),
        ({"train_generator__dit__model__context_length": 8}, ("context_length", "condition is class")),
        (
            {"train_generator__dit__diffusion__word_dropout": 0.2},
            ("word_dropout", "only read with model.condition caption"),
        ),
        ({"train_generator__kind": "pretrained", **STORED}, ("train_generator.embeddings", "kind is pretrained")),
    ],
)
def test_what_does_not_fit_names_both_keys(changes, keys):
    with pytest.raises(DarkroomError) as fault:
        fit(**changes)
    assert all(key in str(fault.value) for key in keys), fault.value


def test_what_fits_is_accepted():
    fit(**{KEY: "image", **STORED})
    fit(**{KEY: "tokens", **STORED, "embed_clip__encodings": True})
    fit(**{KEY: "none", "sample_generator__dit__guidance": 1.0})
    fit(**{KEY: "caption", **OWN, "train_clip__source": "none"})


def test_another_tokenizer_than_that_of_the_latents_is_refused(enter_trained):
    enter_trained("class")
    before = {path: path.read_bytes() for path in Path("models/generator").rglob("*") if path.is_file()}
    manifest = Path("models/tokenizer/manifest.json")
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"images_seen": 1}))
    with pytest.raises(DarkroomError, match="was encoded by another tokenizer"):
        train("class")
    with pytest.raises(DarkroomError, match="was trained with another tokenizer than models/tokenizer"):
        sample("class")
    assert {path: path.read_bytes() for path in before} == before and not Path("samples/generator").exists()
