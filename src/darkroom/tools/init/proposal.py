"""Propose settings for a source of images, each with its reason, which override the defaults in params.yaml."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from darkroom.data.splits import split_of
from darkroom.metrics.score import FEWEST
from darkroom.models.decoder.settings import UNetSampling
from darkroom.models.evaluators.settings import ExtractorTraining
from darkroom.models.generators.dit.settings import DiTGenerated
from darkroom.models.generators.dit.settings import Model as DiTModel
from darkroom.models.generators.settings import GeneratorTraining
from darkroom.models.tokenizers.kl.settings import KL
from darkroom.models.tokenizers.settings import TokenizerTraining
from darkroom.params.ingest import Ingest
from darkroom.params.section import NO_FILE
from darkroom.params.stage import leaves
from darkroom.params.training import Training
from darkroom.tools.cores import Machine
from darkroom.tools.editing import DEFAULT_VALUE
from darkroom.tools.init.facts import Facts
from darkroom.tools.init.writing import Choice

# The trainings whose length is chosen, with their defaults.
TRAININGS: dict[str, Training] = {
    "train_tokenizer": TokenizerTraining(),
    "train_extractor": ExtractorTraining(),
    "train_generator": GeneratorTraining(),
}
_SHAPE = DiTModel().shape


class Tier(NamedTuple):
    """Networks of matching sizes.

    enough: images that each training should see; trainings other than the evaluator's are scaled in this proportion.
    """

    name: str  # for the user
    minutes: float  # time on two cores from which this size is better
    size: int  # pixels of the stored images, height and width
    tokenizer: tuple[int, ...]  # width of each level; each but the last halves the resolution, and so does `patch`
    dit: tuple[int, int, int]  # width, depth and heads of the transformer
    enough: Mapping[str, int]


def _enough(*images: int) -> dict[str, int]:
    return dict(zip(TRAININGS, images, strict=True))


SHORT = 0.8  # fraction of the sufficient images, below which a training is short
# Sufficient images were measured on 3,800 colour pictures of 32 pixels in ten classes (docs/results/quality.md).
# `small` has the default lengths and transformer, read from the settings classes.
_SIZE = Ingest.model_fields["image_size"].default
_DEFAULT = [training.images for training in TRAININGS.values()]
_FIRST = _enough(24_000, 24_000, 64_000)  # emoji need half as many of the first; sprites do not: results/quality.md
_MEDIUM = _enough(120_000, ExtractorTraining().images, 640_000)
_LARGE = _enough(400_000, 200_000, 5_000_000)
TIERS = (
    Tier("a first look", 0, 32, (64, 64), (128, 4, 4), _FIRST),
    Tier("small", 20, _SIZE, (64, 64), (_SHAPE["width"], _SHAPE["depth"], _SHAPE["heads"]), _enough(*_DEFAULT)),
    Tier("medium", 90, 32, (64, 64), (256, 8, 8), _MEDIUM),
    Tier("large, for a GPU or a night", 600, 64, (128, 128), (384, 12, 6), _LARGE),
)

PLENTY = 4  # maximum multiple of the sufficient images, for models that do not memorize
BATCH = {name: training.batch for name, training in TRAININGS.items()}
_SMALL_BATCH = 16  # of the tokenizer: better than 32 where the training is short, docs/results/tokenizers.md
_WARMUPS = {"train_tokenizer": 0.3, "train_extractor": 0.3}  # fraction of a training; for others, a twelfth
_SMALLEST = 32  # pixels of stored images at least; of pixel art, `SMALLEST`
SMALLEST = 16
_LADDER = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)  # sizes that are offered
_BAD = 0.05  # fraction of damaged images that `catalog` allows by default
_PATCH, _FACTOR = 2, 4  # pixels, height and width, of a position of the tokenizer's first layer, and of a latent
# Maximum number of times that a generator sees an image, as it starts to memorize them; and the minimum images seen in
# all, even of few images: with fewer it generates nothing.
_EPOCHS, _LEAST = 100, 32_000
# Few images are split unevenly: the seed, of the first `_SEEDS`, is chosen so that each split has these images: a
# fraction of those intended for training, and enough to estimate a standard error.
_TRAIN, _VAL, _TEST, _SEEDS = 0.9, 4, 2 * FEWEST, 1000
# Scores of a generator during its training, images of each, and their steps: some 5 % of its time.
_SCORED, _SCORED_BY, _SCORED_STEPS = 6, 250, 12
_MOST_THREADS = 8  # maximum for a training with small matrices
_BF16_SIDE = 48  # pixels of images from which the tokenizer is faster in bf16 on a CPU, docs/explanation/start-up.md
_DIT, UNET = "train_generator.dit.model", "train_decoder.unets.base"
_COLOURS = {"L": "the images are grey", "RGB": "the images have colours", "RGBA": "the images have transparent pixels"}
_GUIDANCE = 2.5  # of captions, and of classes after a short training: weak guidance shows less
# Values that another proposal may have left in params.yaml, or that differ from the defaults in the committed file.
_TRAINING_KEYS = ("optimizer", "shuffle", "batch", "learning_rate", "schedule", "ema_decay", "precision")
_GENERATOR_KEYS = ["evaluate.every", "evaluate.images", "dit.sampling.steps", "dit.diffusion.word_dropout"]
_RESET: dict[str, Any] = {
    **{f"training.{key}": DEFAULT_VALUE for key in ("optimizer", "precision")},
    **{f"train_generator.{key}": DEFAULT_VALUE for key in _GENERATOR_KEYS},
    **{f"{_DIT}.{key}": DEFAULT_VALUE for key in ("condition", "dropout")},
    **{f"ingest.{key}": DEFAULT_VALUE for key in ("fit", "pad_colour")},
    **dict.fromkeys(("training.shuffle", "reference_stats.twins"), DEFAULT_VALUE),
    **{f"{stage}.images": DEFAULT_VALUE for stage in ("sample_decoder", "sample_text")},
    **{f"train_generator.{key}": NO_FILE for key in ("captions", "evaluate.extractor", "evaluate.reference")},
    **dict.fromkeys(("train_tokenizer.parts", "report.title")),
}


@dataclass(frozen=True)
class InitOptions:
    """The request of the user.

    generator: dit, a transformer on classes or captions; or none.
    """

    part: str  # name of the part
    source: Mapping[str, Any]  # name, path and settings of the source, as under `parts` in params.yaml
    text: bool  # whether the transformer reads captions, and no classes
    generator: str = "dit"
    size: int | None = None  # pixels of the stored images; None: `size_of`
    native: bool = False  # whether pixel art is stored at its own size
    tokenizer: float = 0.0  # images of the tokenizer for each of the generator, at least


def trainings(wish: InitOptions) -> list[str]:
    """Return the trainings that a wish requires, in the order of the DAG."""
    names = ["train_tokenizer", "train_extractor"]
    return names + (["train_generator"] if wish.generator == "dit" else [])


def splits(images: int) -> dict[str, float]:
    """Return the fractions of the splits, with just enough test images for the scores."""
    test = round(min(0.2, max(0.03, 600 / images)), 2)
    val = round(min(0.1, max(0.02, 150 / images)), 2)
    return {"train": round(1 - test - val, 2), "val": val, "test": test}


def split_seed(facts: Facts) -> Choice:
    """Return the first seed that gives each split the images that stages need, or nearly so."""
    fractions = splits(facts.images)
    least = {"train": _TRAIN * fractions["train"] * max(1, len(facts.keys)), "val": _VAL, "test": _TEST}

    def fraction(seed: int) -> float:
        counts = Counter(split_of(key, fractions, seed) for key in facts.keys)
        return min(counts[split] / images for split, images in least.items())

    seed = next((seed for seed in range(_SEEDS) if fraction(seed) >= 1), None)
    seed = max(range(_SEEDS), key=fraction) if seed is None else seed
    return Choice(seed, "the first by which each split has the images that the stages need, or nearly" if seed else "")


def training_images(facts: Facts) -> float:
    """Return the number of training images."""
    return facts.images * splits(facts.images)["train"]


def longest(training: str, facts: Facts, tier: Tier) -> int:
    """Return the maximum useful length of a training, in images: beyond it, the model memorizes them.

    For models that do not memorize, a multiple of the sufficient number.
    """
    if training != "train_generator":
        return PLENTY * tier.enough[training]
    return max(_LEAST, int(_EPOCHS * training_images(facts)))


def propose(
    facts: Facts, wish: InitOptions, tier: Tier, machine: Machine, lengths: Mapping[str, int]
) -> dict[str, Choice]:
    """Return the settings, by dotted key of params.yaml, with trainings of the given numbers of images."""
    size = size_of(facts, wish, tier)
    side = math.ceil(size / _FACTOR)
    return {
        **{key: Choice(value) for key, value in _RESET.items()},
        **_data(facts, wish, size),
        **_training(facts, wish, machine, lengths, size),
        "train_tokenizer.kind": Choice("kl", f"{side} × {side} positions of {KL().latent_channels} channels"),
        "train_tokenizer.kl.training.batch": Choice(_SMALL_BATCH),
        "train_tokenizer.kl.patch": Choice(_PATCH, "twice as fast as 1"),
        "train_tokenizer.kl.channels": Choice([*tier.tokenizer]),
        **_generator(facts, wish, tier, lengths),
        **_no_clip(wish, size),
    }


def size_of(facts: Facts, wish: InitOptions, tier: Tier) -> int:
    """Return the size of the stored images: of pixel art its own, or a whole fraction of it, about that of the tier."""
    own = _own_size(facts)
    if wish.size or not facts.is_pixel_art:
        return wish.size or min(tier.size, own)
    return own if wish.native else max(SMALLEST, own // max(1, round(own / tier.size)))


def _own_size(facts: Facts) -> int:
    """Return the size that keeps the detail of most images: a multiple of 16 pixels; of pixel art, of its pixels."""
    middle = facts.stored_side[1]
    if facts.is_pixel_art:
        return middle * math.ceil(SMALLEST / middle)
    return max(_SMALLEST, 16 * math.ceil(middle / 16))


def other_sizes(size: int) -> list[int]:
    """Return the next smaller and the next larger size that are offered, as far as there are any."""
    return [*[each for each in _LADDER if each < size][-1:], *[each for each in _LADDER if each > size][:1]]


def _data(facts: Facts, wish: InitOptions, size: int) -> dict[str, Choice]:
    low, middle, high = facts.stored_side
    why = "as asked" if wish.size else "as large as most" if size == _own_size(facts) else "what the time allows"
    why = "they are enlarged" if size > middle and not wish.size else why
    sides = "longer" if facts.fit == "pad" else "shorter"
    choices = {
        f"parts.{wish.part}.source": Choice(wish.source["source"], f"{facts.total:,} images"),
        **{f"parts.{wish.part}.{key}": Choice(value) for key, value in leaves(wish.source) if key != "source"},
        "ingest.image_size": Choice(size, f"{sides} sides are {low} to {high}, median {middle}: {why}"),
        "ingest.channels": Choice(facts.channels, _COLOURS[facts.channels]),
        **({"ingest.format": Choice(DEFAULT_VALUE)} if facts.channels == "RGBA" else {}),  # JPEG has no alpha
        "ingest.shard_size": Choice(1000 if facts.images <= 30_000 else 10_000),
    }
    if facts.fit == "pad":
        cut = f"a crop would cut more than 5 % of {facts.cropped:.0%} of the images"
        colour = "transparent" if facts.channels == "RGBA" else "border"
        choices |= {"ingest.fit": Choice("pad", cut), "ingest.pad_colour": Choice(colour)}
    if facts.is_pixel_art:
        art = f"{facts.pixel_art:.0%} of the images are pixel art: few colours, hard edges"
        choices["ingest.resample"] = Choice("nearest", art)
    if facts.fit == "pad" or facts.is_pixel_art:
        choices["ingest.crop"] = Choice(DEFAULT_VALUE)
    choices |= {f"ingest.splits.{name}": Choice(fraction) for name, fraction in splits(facts.images).items()}
    choices["ingest.group"] = Choice(*facts.group)
    choices["ingest.split_seed"] = split_seed(facts) if facts.group[0] == "key" else Choice(0)
    if not facts.classes or facts.unlabelled:
        few = f"{max(0.001, facts.unlabelled):.1%} of the images have no class"
        label = Choice("other", few) if facts.classes else Choice("picture", "no classes found")
        choices["ingest.default_label"] = label
        choices["ingest.rules.label_missing"] = Choice("keep", "images without a class are of `default_label`")
    bad, why = facts.most_left_out, f"{facts.left_out:,} of {facts.looked:,} images cannot be used, and are left out"
    if bad > _BAD / 2:
        choices["catalog.max_quarantined"] = Choice(min(1.0, round(2 * bad, 2)), why)
    return choices


def _training(
    facts: Facts, wish: InitOptions, machine: Machine, lengths: Mapping[str, int], size: int
) -> dict[str, Choice]:
    train, choices = training_images(facts), dict[str, Choice]()
    if machine.gpu and machine.bf16:
        choices["training.precision"] = Choice("bf16", "this GPU computes in it")
    most = 4 if machine.gpu else _MOST_THREADS
    threads = max(1, min(machine.cores, most))  # trainings run one after another
    others = (
        f"other processes use {machine.busy} of {machine.cores + machine.busy} cores, and threads would wait for them"
    )
    for name in trainings(wish):
        batch, images = BATCH[name], lengths[name]
        warmup = _rounded(images * _WARMUPS.get(name, 1 / 12), batch)
        keys = dict.fromkeys(_TRAINING_KEYS, Choice(DEFAULT_VALUE)) | {
            "images": Choice(images, f"each of the {train:,.0f} training images {images / train:,.3g} times"),
            "warmup": Choice(min(warmup, images - batch)),
            "log_every": Choice(_rounded(images / 50, batch)),
            "validate_every": Choice(_rounded(images / 10, batch)),
            "threads": Choice(threads, others if threads < min(machine.cores + machine.busy, most) else ""),
        }
        # The small matrices of a transformer do not gain from it on a CPU.
        if machine.bf16 and not machine.gpu and name == "train_tokenizer" and size >= _BF16_SIDE:
            keys["precision"] = Choice("bf16", "convolutions are quicker in it on this CPU")
        choices |= {f"{name}.training.{key}": choice for key, choice in keys.items()}
    if "train_generator" in trainings(wish):
        choices["sample_generator.common.threads"] = choices["train_generator.training.threads"]
    return choices


def _generator(facts: Facts, wish: InitOptions, tier: Tier, lengths: Mapping[str, int]) -> dict[str, Choice]:
    if wish.generator != "dit":
        return {"train_generator.kind": Choice("none", "as asked")}
    width, depth, heads = tier.dit
    images = lengths["train_generator"]
    guidance, why = DiTGenerated().guidance, "higher: more form, less variety"
    if wish.text:
        guidance, why = _GUIDANCE, "captions need it strong: docs/how-to/improve-quality.md"
    elif len(facts.classes) < 2:
        guidance, why = 1.0, "one class: there is nothing to guide to"
    elif images < SHORT * tier.enough["train_generator"]:
        guidance, why = _GUIDANCE, "a short training shows more form by it: docs/how-to/improve-quality.md"
    return {
        "train_generator.kind": Choice("dit"),
        f"{_DIT}.width": Choice(width, f"networks of the size `{tier.name}`"),
        f"{_DIT}.depth": Choice(depth),
        f"{_DIT}.heads": Choice(heads),
        "train_generator.dit.diffusion.time_shift": Choice(2.0, "more noise, in which few images have more to teach"),
        "train_generator.dit.sampling.guidance": Choice(guidance),
        "sample_generator.dit.guidance": Choice(guidance, why),
        **(_captions(facts) if wish.text else {}),
        **(_evaluated(images) if tier != TIERS[0] else {}),
    }


def _evaluated(images: int) -> dict[str, Choice]:
    """Return the interval of scoring a generator in a training of the given number of images."""
    batch, evaluate = BATCH["train_generator"], "train_generator.evaluate"
    every = math.ceil(images / _SCORED / batch) * batch
    return {
        f"{evaluate}.every": Choice(every, "the page then says whether more would help"),
        f"{evaluate}.images": Choice(_SCORED_BY),
        f"{evaluate}.extractor": Choice("models/extractor"),
        f"{evaluate}.reference": Choice("data/reference"),
        "train_generator.dit.sampling.steps": Choice(_SCORED_STEPS),
    }


def _captions(facts: Facts) -> dict[str, Choice]:
    tokens = min(77, max(16, -(-(facts.tokens or 77) // 8) * 8))
    return {
        "train_generator.captions": Choice("data/shards", f"{facts.captioned:.0%} of the images have a caption"),
        f"{_DIT}.condition": Choice("caption", "its text encoder learns with it, from these captions alone"),
        f"{_DIT}.context_length": Choice(tokens, f"99 % of the captions have {facts.tokens} tokens at most"),
        "train_generator.dit.diffusion.word_dropout": Choice(0.2, "a caption names its image: less is memorized"),
    }


def _no_clip(wish: InitOptions, size: int) -> dict[str, Choice]:
    """Return settings that train nothing of unCLIP: one U-Net conditioned on CLIP, and no CLIP."""
    why = "the transformer reads captions itself" if wish.text else "no images of texts are made"
    return {
        "train_clip.source": Choice("none", why),
        f"{UNET}.size": Choice(size),
        f"{UNET}.embeddings": Choice("data/embeddings"),
        f"{UNET}.clip": Choice(NO_FILE),
        f"{UNET}.weights": Choice(NO_FILE),
        "sample_decoder.unets.base.guidance": Choice(UNetSampling().guidance),
        "sample_decoder.pictures.inpainted": Choice(0, "in-painting is of Gaussian diffusion"),
    }


def _rounded(images: float, batch: int) -> int:
    """Round a number of images to whole batches, at least one."""
    return max(batch, round(images / batch) * batch)
