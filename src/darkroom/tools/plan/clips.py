"""The stages of CLIP: its training on noise, and passes of the network that it becomes."""

from typing import Any

import torch

from darkroom.models.clip.embed_settings import folder_of
from darkroom.models.clip.load import read_pretrained
from darkroom.models.clip.network import Clip, Contrastive
from darkroom.models.clip.package import CLIP, VOCABULARY
from darkroom.models.clip.recipe import ClipRecipe
from darkroom.models.clip.settings import TrainClip
from darkroom.params.stage import address
from darkroom.stages import train_clip
from darkroom.tools.plan.facts import Facts
from darkroom.tools.plan.passes import Passes, batches, noise_images
from darkroom.tools.plan.rows import NoiseCaptioned
from darkroom.tools.plan.stage_plan import StagePlan
from darkroom.tools.plan.trainings import IMPORT, plan_training, section
from darkroom.training.initial import downloads

_CONTEXT = 77  # of OpenAI's
# Of OpenAI's: length of an embedding, pixels a side, layers, width and patch of the image network, width of the text's.
_SIZES: dict[str, tuple[int, int, Any, int, int | None, int]] = {
    "RN50": (1024, 224, (3, 4, 6, 3), 64, None, 512),
    "RN101": (512, 224, (3, 4, 23, 3), 64, None, 512),
    "RN50x4": (640, 288, (4, 6, 10, 6), 80, None, 640),
    "RN50x16": (768, 384, (6, 8, 18, 8), 96, None, 768),
    "RN50x64": (1024, 448, (3, 15, 36, 10), 128, None, 1024),
    "ViT-B/32": (512, 224, 12, 768, 32, 512),
    "ViT-B/16": (512, 224, 12, 768, 16, 512),
    "ViT-L/14": (768, 224, 24, 1024, 14, 768),
    "ViT-L/14@336px": (768, 336, 24, 1024, 14, 768),
}


def network(settings: TrainClip) -> CLIP:
    """Return CLIP's network of the size that train_clip will write, untrained."""
    if settings.trained is not None:  # the slice of a stage holds the chosen source alone
        return Contrastive(settings.trained.model.model_dump())
    assert settings.pretrained is not None
    if settings.pretrained.name is None:
        return read_pretrained(None, settings.pretrained.file, downloads())
    embed_dim, side, layers, width, patch, text_width = _SIZES[settings.pretrained.name]
    return CLIP(embed_dim, side, layers, width, patch, _CONTEXT, VOCABULARY, text_width, text_width // 64, 12)


def untrained() -> Clip:
    """Return CLIP as other stages read it, untrained."""
    return Clip(network(section("train_clip").train_clip), "")


def sizes() -> tuple[int, tuple[int, int]]:
    """Return the length of CLIP's embeddings, and tokens and width of its encodings of texts."""
    with torch.device("meta"):
        clip = untrained()
    return clip.embed_dim, (clip.context_length, clip.text_width)


def no_clip() -> bool:
    """Return whether there is to be no CLIP, so that what reads one is idle."""
    return section("train_clip").train_clip.source == "none"


def clip_recipe(facts: Facts) -> ClipRecipe:
    """Return the recipe of train_clip on noise."""
    params = section("train_clip")
    context = params.train_clip.trained.model.context_length
    train, val = (
        NoiseCaptioned(facts.count(split), facts.image_shape, max(1, facts.captions), context)
        for split in ("train", "val")
    )
    return train_clip.build(params, train, val)


def plan_clip(facts: Facts) -> StagePlan:
    """Plan train_clip: the training, or the import, and the scores of captions and images."""
    params = section("train_clip")
    settings = params.train_clip
    if no_clip():
        return StagePlan("train_clip")
    if settings.source == "pretrained":
        with torch.device("meta"):
            parameters = sum(p.numel() for p in network(settings).parameters())
        plan = StagePlan("train_clip", parameters=parameters, seconds=IMPORT, source="guess")
        plan.disk = {"outputs": 2 * 4 * parameters}
        return plan
    # Half of the output again: `model.pt`, the same weights for `clip.load`.
    plan = plan_training("train_clip", lambda device: clip_recipe(facts), settings.training, params.run, facts, 1)
    if plan.source == "measured":
        passes = Passes("train_clip", settings.training.threads, params.run.device, facts.watch)
        embed(passes, untrained(), settings.evaluate.batch, 1, 1, facts)
        each = batches(min(settings.evaluate.images, facts.count(settings.evaluate.split)), settings.evaluate.batch)
        while_training = batches(settings.training.images, settings.training.validate_every)
        validated = batches(min(settings.evaluate.images, facts.count("val")), settings.evaluate.batch)
        plan.seconds += (each + while_training * validated) * passes.plan.seconds
    return plan


def plan_embed(facts: Facts, part: str) -> StagePlan:
    """Plan embed_clip of a part: images in batches, each caption of a shard once; nothing that is taken over."""
    if no_clip():
        return StagePlan(address("embed_clip", part))
    params, ingest = section("embed_clip", part), section("ingest", part).ingest
    settings, imported = params.embed_clip, folder_of(params, part) is not None
    passes = Passes(address("embed_clip", part), settings.threads, params.run.device, facts.watch)
    clip, counts = untrained(), {split: facts.images[part][split] for split in settings.store}
    total, shards = sum(counts.values()), sum(batches(count, ingest.shard_size) for count in counts.values())
    each = batches(min(ingest.shard_size, facts.captions), settings.batch)
    images = 0 if imported else batches(total, settings.batch)
    texts = 0 if imported and settings.imported.texts else shards * each
    embed(passes, clip, settings.batch, images, texts, facts)
    passes.plan.seconds += total * facts.read_seconds
    row = 2 * clip.embed_dim + (clip.context_length * clip.text_width if settings.encodings else 0)
    passes.plan.disk = {"outputs": 2 * total * 2 * row}  # float16
    return passes.plan


def embed(passes: Passes, clip: Clip, batch: int, images: int, texts: int, facts: Facts) -> None:
    """Add so many forward passes over images, and over texts."""
    passes.network(clip.network)
    clip.to(passes.device)
    passes.add(clip.images, noise_images(facts, batch), images, images * batch)
    tokens = NoiseCaptioned(batch, facts.image_shape, batch, clip.context_length).__getitems__(range(batch))["tokens"]
    passes.add(clip.tokens, torch.as_tensor(tokens), texts, texts * batch)
