"""Published weights of diffusion transformers as a network to sample from."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch

from darkroom.errors import DarkroomError
from darkroom.models.generators.dit.checkpoints import read_published
from darkroom.models.generators.dit.config import DiTConfig
from darkroom.models.generators.dit.network import DiT
from darkroom.models.generators.dit.published import ours_from_sit
from darkroom.models.generators.dit.settings import SIZES
from darkroom.models.generators.embeddings import sincos_positions
from darkroom.models.generators.pretrained.settings import Pretrained
from darkroom.remote import library_errors
from darkroom.training.initial import fetched

_KEY = "`train_generator.pretrained`"
NAMES = "classes.txt"  # next to the weights: a class per line


class Imported(NamedTuple):
    """A published network and its manifest entries.

    model: with its weights, float32, on the CPU.
    classes: names of its classes.
    metadata: the scale of the latents, and the meaning of the output.
    """

    model: DiT
    classes: list[str]
    metadata: dict[str, Any]


def load_pretrained(settings: Pretrained, latent_shape: tuple[int, int, int], classes: list[str]) -> Imported:
    """Return a published DiT for latents of shape (C, H, W).

    Args:
        settings: its location, and the settings of its training.
        latent_shape: of the tokenizer's latents.
        classes: those of the catalog, in their order; they give the names if their number fits.

    Raises:
        DarkroomError: the weights are missing, do not belong to a DiT, need code, or do not fit the latents.
    """
    path = _path(settings)
    published = read_published(path)
    if published is None:
        raise DarkroomError(f"{_KEY}: {path} holds no published DiT: use a .pt file, or a folder of diffusers.")
    tensors = published.tensors
    try:
        width, channels, patch, _ = tensors["patches.weight"].shape
        outputs = len(tensors["head.linear.bias"]) // (channels * patch**2)  # 2 with a learned variance
        count, hidden = len(tensors["labels.weight"]) - 1, len(tensors["blocks.0.mlp.0.bias"])
    except KeyError as error:
        raise DarkroomError(f"{_KEY}: {path} lacks tensors of a DiT: download it again.") from error
    depth = len({name.split(".")[1] for name in tensors if name.startswith("blocks.")})
    side = round(len(tensors["positions"]) ** 0.5) * patch if "positions" in tensors else latent_shape[1]
    if (channels, side, side) != tuple(latent_shape):
        raise DarkroomError(
            f"{_KEY}: {path} was trained on latents of {channels} x {side} x {side}, but models/tokenizer makes "
            f"{' x '.join(map(str, latent_shape))}: use its tokenizer (`train_tokenizer.kind`: pretrained), and set "
            f"`ingest.image_size` to {side} times the tokenizer's factor."
        )
    if settings.objective == "flow":
        tensors, outputs = ours_from_sit(tensors, path), 1
    elif (outputs == 2) != (settings.variance == "learned_range"):
        raise DarkroomError(
            f"{_KEY}: {path} has {outputs} outputs a channel, but `variance` is {settings.variance}: set it to "
            f"{'learned_range' if outputs == 2 else 'fixed_small or fixed_large'}."
        )
    config = DiTConfig(
        channels=channels,
        size=side,
        classes=count,
        width=width,
        depth=depth,
        heads=_heads(settings, published.heads, width, path),
        patch=patch,
        mlp_ratio=hidden / width,
        learned_variance=outputs == 2,
    )
    with torch.random.fork_rng(devices=[]):
        model = DiT(config)
    tensors = {"positions": sincos_positions(width, side // patch), **tensors}
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise DarkroomError(f"{_KEY}: {path} is not a whole DiT ({' '.join(str(error).split())}).") from error
    diffusion = settings.diffusion
    mean, std = diffusion.scale([0.0] * channels, [1.0] * channels)
    metadata = {"latent_mean": mean, "latent_std": std, **diffusion.prediction()}
    return Imported(model.eval(), _names(path, count, classes), metadata)


def _path(settings: Pretrained) -> Path:
    """Return the local path of the weights, downloaded if needed."""
    if settings.url is not None:
        return fetched(settings.url, settings.sha256, "`train_generator.pretrained.sha256`")
    if settings.name is None:
        if not Path(settings.folder).exists():
            raise DarkroomError(f"`train_generator.pretrained.folder` names {settings.folder}, which does not exist.")
        return Path(settings.folder)
    from huggingface_hub import snapshot_download

    patterns = ["model_index.json", "transformer/config.json", "transformer/diffusion_pytorch_model*", NAMES]
    with library_errors(
        f"{settings.name}, which {_KEY} names, cannot be read from the Hub or its cache here (offline, name a folder)"
    ):
        return Path(snapshot_download(settings.name, revision=settings.revision, allow_patterns=patterns))


def _heads(settings: Pretrained, stated: int | None, width: int, path: Path) -> int:
    by_width = {size_width: heads for _, size_width, heads in SIZES.values()}
    heads = settings.heads or stated or by_width.get(width)
    if heads is None or width % heads or (stated is not None and stated != heads):
        raise DarkroomError(
            f"{_KEY}: {path} has a width of {width}, but `heads` is {settings.heads}: set it to the attention heads "
            f"that it was trained with{f', {stated}' if stated else ''}."
        )
    return heads


def _names(path: Path, count: int, catalog: list[str]) -> list[str]:
    """Return class names: the catalog's if their number fits, else those stored with the weights, else numbers."""
    if len(catalog) == count:
        return catalog
    folder = path if path.is_dir() else path.parent
    names: list[str] = []
    if (listed := folder / NAMES).is_file():
        names = [line.strip() for line in listed.read_text().splitlines() if line.strip()]
    elif (index := folder / "model_index.json").is_file():
        named = json.loads(index.read_text()).get("id2label") or {}
        names = [str(named[str(number)]) for number in range(count) if str(number) in named]
    if names and len(names) != count:
        raise DarkroomError(f"{_KEY}: {folder} names {len(names)} classes, but the network has {count}: fix {NAMES}.")
    if not names:
        print(f"{path} names no classes and data/catalog has {len(catalog)}, not {count}: using numbers ({NAMES})")
    return names or [str(number) for number in range(count)]
