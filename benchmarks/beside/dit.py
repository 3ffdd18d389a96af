"""Diffusion transformers beside a bare loop, around the original's network, diffusers' and ours.

The original's code is no package: `--dit` names a clone of its repository. The loop does what its script does: AdamW,
an average of the weights, no gradient is logged. diffusers' network has a class table and a time network in each block,
which with ten classes are small.
"""

import importlib.util
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from diffusers import DiTTransformer2DModel

from beside.comparison import THREADS, Comparison

CLASSES, LATENTS = 10, 1024


def diffusers_dit(
    channels: int, side: int, classes: int, width: int, depth: int, heads: int, patch: int = 2
) -> DiTTransformer2DModel:
    """Return diffusers' transformer of a shape that is ours, too."""
    return DiTTransformer2DModel(
        num_attention_heads=heads,
        attention_head_dim=width // heads,
        in_channels=channels,
        out_channels=channels,
        num_layers=depth,
        sample_size=side,
        patch_size=patch,
        num_embeds_ada_norm=classes,
    )


def original(clone: Path, channels: int, side: int, width: int, depth: int, heads: int, patch: int) -> Any:
    """Return the network of a clone of the original's repository, which predicts no variance."""
    spec = importlib.util.spec_from_file_location("dit_models", clone / "models.py")
    assert spec is not None and spec.loader is not None
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    shape = {"input_size": side, "patch_size": patch, "in_channels": channels, "num_classes": CLASSES}
    return module.DiT(**shape, hidden_size=width, depth=depth, num_heads=heads, learn_sigma=False)


def compared(
    name: str, channels: int, side: int, width: int, depth: int, heads: int, patch: int, batch: int, around: str | Path
) -> Comparison:
    """Compare an update with a bare loop around the `same` network, that of `diffusers`, or that of a clone."""
    from loop_overhead import WithoutPictures, bare, latents_of

    from darkroom.diffusion.scalers import LatentScaler
    from darkroom.models.generators.dit.config import DiTConfig
    from darkroom.models.generators.dit.network import DiT
    from darkroom.models.generators.dit.settings import DiTDiffusion, DiTSampling
    from darkroom.params.training import Training

    folder = tempfile.TemporaryDirectory()
    rows = latents_of(Path(folder.name), (channels, side, side), LATENTS)
    config = DiTConfig(channels, side, CLASSES, width, depth, heads, patch)
    scaler = LatentScaler([0.0] * channels, [1.0] * channels)

    def recipe(keep: Any = folder) -> WithoutPictures:  # the folder lives as long as this
        return WithoutPictures(DiT(config), DiTDiffusion(), 0, rows, rows, scaler, None, DiTSampling())

    if around == "diffusers":
        other: Any = diffusers_dit(channels, side, CLASSES, width, depth, heads, patch)
    elif isinstance(around, Path):
        other = original(around, channels, side, width, depth, heads, patch)
    else:
        other = DiT(config)
    call = other.train()
    if around == "diffusers":
        call = lambda x, times, labels: other(x, timestep=times, class_labels=labels).sample  # noqa: E731
    steps = bare(call, list(other.parameters()), rows, CLASSES, batch)
    training = Training(
        images=10**6 // batch * batch,
        batch=batch,
        learning_rate=1e-4,
        threads=THREADS,
        ema_decay=0.9999,
        log_every=10**6 // batch * batch,
        validate_every=10**6 // batch * batch,
    )
    network = {"same": "the same network", "diffusers": "diffusers' network"}.get(str(around), "the original network")
    label = f"dit, a bare loop around {network}: {batch} latents of {channels}×{side}×{side}, {name}"
    return Comparison(label, recipe, training, lambda: next(steps))


_SMALL = ("DiT-S/4", 4, 32, 384, 12, 6, 4, 32)
_OWN = ("width 192, depth 6", 4, 8, 192, 6, 6, 2, 64)


def comparisons(clone: Path | None) -> list[Callable[[], Comparison]]:
    """Return each shape beside each network; `clone`: also beside the original's."""
    networks = [*[clone] * (clone is not None), "diffusers", "same"]
    return [partial(compared, *shape, each) for shape in (_SMALL, _OWN) for each in networks]
