"""Settings for a source of images, each with its reason: what params.yaml says in place of the defaults."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from darkroom.data.splits import split_of
from darkroom.metrics.score import FEWEST
from darkroom.models.clip.settings import HEAD, RESNET_STEP, ClipModel
from darkroom.models.decoder.settings import SampleDecoder, UNetSampling
from darkroom.models.generators.dit.settings import DiTDiffusion, DiTGenerated, DiTSampling
from darkroom.models.generators.sample_settings import Common
from darkroom.models.prior.settings import SampleText
from darkroom.models.tokenizers.kl.settings import KL
from darkroom.params.section import NO_FILE
from darkroom.params.training import EvaluateGenerator
from darkroom.tools.editing import leaves
from darkroom.tools.init.facts import Facts
from darkroom.tools.init.machine import Machine
from darkroom.tools.init.tiers import SHORT, TIERS, TRAININGS, Tier
from darkroom.tools.init.writing import Choice

PLENTY = 4  # times what is enough: no training that learns no images by heart is longer
BATCH = {name: training.batch for name, training in TRAININGS.items()}
# On CPUs with units for it; the small matrices of a transformer gain nothing by it there.
_CONVOLUTIONS = ("train_tokenizer", "train_decoder")
_WARMUPS = {"train_tokenizer": 0.3, "train_extractor": 0.3}  # fraction of a training; of the others a twelfth
_SMALLEST = 32  # pixels, of what is stored
_BAD = 0.05  # fraction of damaged images that `catalog` lets pass by default
_FACTOR = 4  # pixels, height and width, of a latent's position
# Largest number of times that a training sees an image: beyond it a network learns its images by heart. Diffusion sees
# so many in all at least, however few there are: before that it draws nothing.
_EPOCHS = {"train_generator": 100, "train_decoder": 100, "train_prior": 40, "train_clip": 60}
_LEAST = {"train_generator": 32_000, "train_decoder": 32_000}
# Few images fall unevenly into the splits: so many fall into each by the seed that is chosen, of the first `_SEEDS`.
# That is a fraction of what is meant for training, and the images with which a standard error can be estimated.
_TRAIN, _VAL, _TEST, _SEEDS = 0.9, 4, 2 * FEWEST, 1000
# A generator is scored so often while it trains, by so many images of so many steps: some 5 % of its time.
_SCORED, _SCORED_BY, _SCORED_STEPS = 6, 250, 12
_MOST_THREADS = 8  # of a training whose matrices are small
_DIT, UNET = "train_generator.dit.model", "train_decoder.unets.base"
_GUIDANCE = 2.5  # of captions, and of classes after a short training: weak guidance shows less, docs/quality.md


@dataclass(frozen=True)
class Wish:
    """What the person asked for.

    part: name of the part.
    source: name, path and settings of the source, as under `parts` in params.yaml.
    text: whether images are made of texts.
    generator: what makes images: dit, the transformer, of classes or of captions; unclip, of texts by CLIP, prior and
        decoder; none.
    size: pixels of the stored images; None: the tier's.
    """

    part: str
    source: Mapping[str, Any]
    text: bool
    generator: str = "dit"
    size: int | None = None

    @property
    def captions(self) -> bool:
        """Whether the transformer reads captions, and no classes."""
        return self.text and self.generator == "dit"

    @property
    def unclip(self) -> bool:
        """Whether CLIP, prior and decoder are trained."""
        return self.text and self.generator == "unclip"


def trainings(wish: Wish) -> list[str]:
    """Return the trainings that follow from a wish, in the order of the DAG."""
    names = ["train_tokenizer", "train_extractor"]
    names += ["train_generator"] if wish.generator == "dit" else []
    return names + (["train_clip", "train_decoder", "train_prior"] if wish.unclip else [])


def splits(images: int) -> dict[str, float]:
    """Return the fractions of the splits: test images enough for the scores, and not much more."""
    test = round(min(0.2, max(0.03, 600 / images)), 2)
    val = round(min(0.1, max(0.02, 150 / images)), 2)
    return {"train": round(1 - test - val, 2), "val": val, "test": test}


def split_seed(facts: Facts, wish: Wish) -> Choice:
    """Return the first seed by which few images fall into the splits as the stages need them, or nearly so."""
    keys = [key for key, captioned in facts.keys.items() if captioned or not wish.unclip]
    fractions = splits(facts.images)
    least = {"train": _TRAIN * fractions["train"] * max(1, len(keys)), "val": _VAL, "test": _TEST}

    def fraction(seed: int) -> float:
        counts = Counter(split_of(key, fractions, seed) for key in keys)
        return min(counts[split] / images for split, images in least.items())

    seed = next((seed for seed in range(_SEEDS) if fraction(seed) >= 1), None)
    seed = max(range(_SEEDS), key=fraction) if seed is None else seed
    most = "" if fraction(seed) >= 1 else "most of "
    return Choice(seed, f"with it each split of {len(keys)} images has {most}what the stages need" if seed else "")


def training_images(facts: Facts) -> float:
    """Return how many images are trained on."""
    return facts.images * splits(facts.images)["train"]


def longest(training: str, facts: Facts, tier: Tier) -> int:
    """Return the number of images beyond which a training is not worth its time: it would learn them by heart.

    Of what learns none by heart a multiple of what is enough.
    """
    if training not in _EPOCHS:
        return PLENTY * tier.enough[training]
    return max(_LEAST.get(training, 0), int(_EPOCHS[training] * training_images(facts)))


def propose(facts: Facts, wish: Wish, tier: Tier, machine: Machine, lengths: Mapping[str, int]) -> dict[str, Choice]:
    """Return the settings, by dotted key of params.yaml, with trainings of so many images."""
    size = wish.size or min(tier.size, _size_of(facts))
    return {
        **_data(facts, wish, size),
        **_training(facts, wish, machine, lengths),
        **_tokenizer(tier, size),
        **_generator(facts, wish, tier, lengths),
        **(_unclip(facts, tier, size, size // _FACTOR) if wish.unclip else _no_unclip(facts, wish, size)),
    }


def _size_of(facts: Facts) -> int:
    """Return the least size that shows all that most images have, a multiple of 16 pixels."""
    return max(_SMALLEST, 16 * math.ceil(facts.side[1] / 16))


def _data(facts: Facts, wish: Wish, size: int) -> dict[str, Choice]:
    colours, (low, middle, high) = "L" if facts.grey >= 0.99 else "RGB", facts.side
    why = "as asked" if wish.size else "as large as most" if size == _size_of(facts) else "what the time allows"
    why = "they are enlarged" if size > middle and not wish.size else why
    found = {
        f"parts.{wish.part}.source": Choice(wish.source["source"], f"{facts.found:,} images"),
        **{f"parts.{wish.part}.{key}": Choice(value) for key, value in leaves(wish.source) if key != "source"},
        "ingest.image_size": Choice(size, f"shorter sides are {low} to {high}, median {middle}: {why}"),
        "ingest.channels": Choice(colours, "the images are grey" if colours == "L" else "the images have colours"),
        "ingest.shard_size": Choice(1000 if facts.images <= 30_000 else 10_000),
        "train_tokenizer.parts": Choice(None, "all"),
        "report.title": Choice(None),
    }
    found |= {f"ingest.splits.{name}": Choice(fraction) for name, fraction in splits(facts.images).items()}
    found["ingest.split_seed"] = split_seed(facts, wish)
    if not facts.classes:
        found["ingest.default_label"] = Choice("picture", "no classes were found: all images are of one")
    elif facts.unlabelled:
        none = f"{max(0.001, facts.unlabelled):.1%} of the images have no class"
        found["ingest.default_label"] = Choice("other", none)
    if "ingest.default_label" in found:
        found["ingest.rules.label_missing"] = Choice("keep", "images without a class are of `default_label`")
    bad, why = facts.most_left_out, f"{facts.left_out:,} of {facts.looked:,} images cannot be used, and are left out"
    if wish.unclip and facts.captioned < 1:
        found["ingest.rules.caption_missing"] = Choice("quarantine", "CLIP and its scores need a caption of each image")
        bad, why = bad + 1 - facts.captioned, f"{why}, and {1 - facts.captioned:.0%} have no caption"
    if bad > _BAD / 2:
        found["catalog.max_quarantined"] = Choice(min(1.0, round(2 * bad, 2)), why)
    return found


def _training(facts: Facts, wish: Wish, machine: Machine, lengths: Mapping[str, int]) -> dict[str, Choice]:
    on_gpu = machine.gpu and machine.bf16
    found = {"training.precision": Choice("bf16", "this GPU computes in it") if on_gpu else Choice("fp32")}
    train = training_images(facts)
    cores = machine.threads if machine.gpu or wish.unclip else machine.cores  # else one training after another
    threads = min(cores, _MOST_THREADS)
    for name in trainings(wish):
        default, batch, images = TRAININGS[name], BATCH[name], lengths[name]
        warmup = _rounded(images * _WARMUPS.get(name, 1 / 12), batch)
        keys = {
            "optimizer": Choice(default.optimizer),
            "images": Choice(images, f"each of the {train:,.0f} training images {images / train:,.3g} times"),
            "batch": Choice(batch),
            "learning_rate": Choice(default.learning_rate),
            "schedule": Choice(default.schedule),
            "warmup": Choice(min(warmup, images - batch)),
            "log_every": Choice(_rounded(images / 50, batch)),
            "validate_every": Choice(_rounded(images / 10, batch)),
            "threads": Choice(threads),
        }
        if machine.bf16 and not machine.gpu and name in _CONVOLUTIONS:
            keys["precision"] = Choice("bf16", "convolutions are quicker in it on this CPU")
        found |= {f"{name}.training.{key}": choice for key, choice in keys.items()}
    return found


def _tokenizer(tier: Tier, size: int) -> dict[str, Choice]:
    side = size // _FACTOR
    latents = f"continuous latents: {side} × {side} positions of {KL().latent_channels} channels"
    return {
        "train_tokenizer.kind": Choice("kl", latents),
        "train_tokenizer.kl.channels": Choice([*tier.tokenizer]),
    }


def _generator(facts: Facts, wish: Wish, tier: Tier, lengths: Mapping[str, int]) -> dict[str, Choice]:
    if wish.generator != "dit":
        why = "as asked" if wish.generator == "none" else "the decoder makes the images"
        return {"train_generator.kind": Choice("none", why), **_classes(), **_evaluated(0)}
    width, depth, heads = tier.dit
    guidance, why = DiTGenerated().guidance, "higher: more form, less variety"
    if wish.captions:
        guidance, why = _GUIDANCE, "captions need it strong: docs/quality.md"
    elif len(facts.classes) < 2:
        guidance, why = 1.0, "one class: there is nothing to guide to"
    elif lengths["train_generator"] < SHORT * tier.enough["train_generator"]:
        guidance, why = _GUIDANCE, "a short training shows more form by it: docs/quality.md"
    return {
        "train_generator.kind": Choice("dit"),
        **(_captions(facts) if wish.captions else _classes()),
        "train_generator.dit.model.width": Choice(width, f"networks of the size `{tier.name}`"),
        "train_generator.dit.model.depth": Choice(depth),
        "train_generator.dit.model.heads": Choice(heads),
        "train_generator.dit.diffusion.time_shift": Choice(2.0, "more noise, in which few images have more to teach"),
        "train_generator.dit.model.dropout": Choice(0.0),
        **_evaluated(0 if tier == TIERS[0] else lengths["train_generator"]),
        "train_generator.dit.sampling.guidance": Choice(guidance),
        "sample_generator.common.images": Choice(Common().images, "the least for a distance with a small error"),
        "sample_generator.dit.guidance": Choice(guidance, why),
    }


def _evaluated(images: int) -> dict[str, Choice]:
    """Return how often a generator is scored in a training of so many images; 0: never."""
    batch, evaluate = BATCH["train_generator"], "train_generator.evaluate"
    why = "the page then says whether more would help" if images else ""
    return {
        f"{evaluate}.every": Choice(math.ceil(images / _SCORED / batch) * batch, why),
        f"{evaluate}.images": Choice(_SCORED_BY if images else EvaluateGenerator().images),
        f"{evaluate}.extractor": Choice("models/extractor" if images else NO_FILE),
        f"{evaluate}.reference": Choice("data/reference" if images else NO_FILE),
        "train_generator.dit.sampling.steps": Choice(_SCORED_STEPS if images else DiTSampling().steps),
    }


def _captions(facts: Facts) -> dict[str, Choice]:
    """Return what makes the transformer one of captions, whose text encoder is trained with it."""
    return {
        "train_generator.captions": Choice("data/shards", f"{facts.captioned:.0%} of the images have a caption"),
        f"{_DIT}.condition": Choice("caption", "its text encoder learns with it, from these captions alone"),
        f"{_DIT}.context_length": _context_length(facts),
        "train_generator.dit.diffusion.word_dropout": Choice(
            0.2, "a caption names its image: less is learned by heart"
        ),
    }


def _classes() -> dict[str, Choice]:
    return {
        "train_generator.captions": Choice(NO_FILE),
        f"{_DIT}.condition": Choice("class"),
        f"{_DIT}.context_length": Choice(None),
        "train_generator.dit.diffusion.word_dropout": Choice(DiTDiffusion().word_dropout),
    }


def _no_unclip(facts: Facts, wish: Wish, size: int) -> dict[str, Choice]:
    why = "the transformer reads captions itself" if wish.captions else "no images of texts are made"
    embeddings = Choice("data/embeddings", "made by CLIP: without it this is not trained")
    # One U-Net, which CLIP would condition: without CLIP nothing of the decoder is trained.
    return {"train_clip.source": Choice("none", why), **_decoder(size), f"{UNET}.embeddings": embeddings}


def _rounded(images: float, batch: int) -> int:
    """Return a number of images as whole batches, one at least."""
    return max(batch, round(images / batch) * batch)


def _unclip(facts: Facts, tier: Tier, size: int, positions: int) -> dict[str, Choice]:
    """Return CLIP, one U-Net of latents, which have so many positions a side, and what is sampled of it."""
    return {
        "train_clip.source": Choice("trained", f"{facts.captioned:.0%} of the images have a caption"),
        "train_clip.long_captions": Choice("truncate"),
        "train_clip.trained.model.context_length": _context_length(facts),
        **_image_network(size),
        "train_decoder.tokenizer": Choice("models/tokenizer", "latents have a sixteenth of the positions"),
        "train_decoder.latents": Choice("data/latents"),
        "train_decoder.training.ema_decay": Choice(TRAININGS["train_decoder"].ema_decay),
        **_decoder(positions),
        f"{UNET}.model.channels": Choice([*tier.unet]),
        f"{UNET}.model.attention": Choice([False] + [True] * (len(tier.unet) - 1)),
        "sample_decoder.images": Choice(SampleDecoder().images),
        "sample_decoder.common.solver": Choice(UNetSampling().solver),
        "sample_text.images": Choice(SampleText().images),
    }


def _decoder(size: int) -> dict[str, Choice]:
    """Return the decoder's one U-Net; what it has no key for is the default, chosen for it."""
    return {
        f"{UNET}.size": Choice(size),
        f"{UNET}.embeddings": Choice("data/embeddings"),
        f"{UNET}.clip": Choice(NO_FILE),
        f"{UNET}.weights": Choice(NO_FILE),
        "sample_decoder.unets.base.guidance": Choice(UNetSampling().guidance),
        "sample_decoder.pictures.inpainted": Choice(0, "in-painting is of Gaussian diffusion"),
    }


def _image_network(size: int) -> dict[str, Choice]:
    """Return CLIP's network of images: it sees no more pixels than they have, a residual one multiples of 32."""
    small, default = size < RESNET_STEP, ClipModel()
    values = {
        "image_network": "vit" if small else default.image_network,
        "image_size": size if small else size // RESNET_STEP * RESNET_STEP,
        "image_width": HEAD if small else default.image_width,
        "image_layers": 2 if small else default.image_layers,
    }
    return {f"train_clip.trained.model.{key}": Choice(value) for key, value in values.items()}


def _context_length(facts: Facts) -> Choice:
    """Return how many tokens of a caption are read."""
    tokens = min(77, max(16, -(-(facts.tokens or 77) // 8) * 8))
    return Choice(tokens, f"99 % of the captions have {facts.tokens} tokens at most")
