"""Bits of a split's latents under a generator: of codes exactly; else a bound, with its terms at each timestep."""

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from darkroom.artifacts.manifest import ArtifactError, manifest_hash
from darkroom.artifacts.models import generator_manifest
from darkroom.data.catalog import load_catalog
from darkroom.data.draw import drawn
from darkroom.data.images import ImageSpec
from darkroom.data.latents import LatentShards
from darkroom.diffusion.bound import Bits
from darkroom.diffusion.gaussian import Gaussian
from darkroom.errors import DarkroomError
from darkroom.metrics.uncertainty import mean_and_error
from darkroom.models.generators.conditions import condition_of
from darkroom.models.generators.data import LabelledLatents
from darkroom.models.generators.sample_settings import BitsSettings
from darkroom.models.kinds import GENERATORS
from darkroom.rng import normal
from darkroom.terminal.terminal import with_progress
from darkroom.training.data import StoredLatents, with_means


def measure_bits(
    settings: BitsSettings, samples_of: str, device: torch.device
) -> tuple[dict[str, float], list[str], int]:
    """Return `bits_per_dim` with its terms and errors over latents, the rows of their table, and the number of latents.

    Uses the averaged weights, and the class of each latent, if any, without guidance or a threshold of x0: neither is
    part of the model whose likelihood is measured. Noise follows from (seed, row, timestep). `fits` has checked that
    the generator has a likelihood or a bound, and no other condition.

    Args:
        settings: generator, split, number of images.
        samples_of: hash of the manifest of the generator of the samples.
        device: the device of the network.

    Raises:
        DarkroomError: the generator did not make the samples, or the split has no images.
    """
    folder = Path(settings.generator)
    manifest = generator_manifest(folder)
    if manifest_hash(folder) != samples_of:
        raise ArtifactError(f"{folder} did not make samples/generator: run `dvc repro sample_generator`.")
    anything: Any = None  # no tokenizer: latents stay latents
    sampler: Any = GENERATORS.load("sampler", manifest["generator_kind"])
    sampler = sampler.open(folder, manifest, anything, "ema").to(device)
    catalog = load_catalog(shards=None)
    latents = LatentShards.open_parts(list(catalog.parts), settings.split, Path(settings.latents))
    if latents.tokenizer != manifest["tokenizer"] or list(catalog.classes) != manifest["classes"]:
        raise ArtifactError(
            f"{folder} was trained on other latents or classes than those in {settings.latents} and data/catalog: run "
            "`dvc repro train_generator`."
        )
    rows = drawn(len(latents), settings.images)
    if not rows:
        raise DarkroomError(f"`score_generator.bits.split` is {settings.split}, which has no images: choose another.")
    classes = manifest.get("condition", "class") == "class"
    data = LabelledLatents(latents, catalog) if classes else StoredLatents(latents)
    groups = (rows[at : at + settings.batch] for at in range(0, len(rows), settings.batch))
    shown = with_progress(groups, len(rows), "bits")
    if hasattr(sampler, "code_bits"):
        return _of_codes(sampler, data, shown, ImageSpec.of(manifest).shape, device), [], len(rows)
    bits = list(_of_groups(settings, sampler, data, shown, device))
    return _scores(bits), _table(bits, sampler.objective), len(rows)


def _of_codes(
    sampler: Any, data: StoredLatents, groups: Iterable[list[int]], image: Sequence[int], device: torch.device
) -> dict[str, float]:
    """Return the bits of codes, each code's and those of an image divided by its numbers C H W, with their errors."""
    per_code = list[float]()
    for rows in groups:
        stored = {name: torch.as_tensor(value, device=device) for name, value in data.__getitems__(rows).items()}
        per_code += sampler.code_bits(stored["codes"], condition_of(stored)).tolist()
    per_dim = [bits * sampler.model.config.tokens / math.prod(image) for bits in per_code]
    return mean_and_error("bits_per_code", per_code) | mean_and_error("bits_per_dim", per_dim)


def _of_groups(
    settings: BitsSettings, sampler: Any, data: StoredLatents, groups: Iterable[list[int]], device: torch.device
) -> Iterator[Bits]:
    for rows in groups:
        stored = with_means(data.__getitems__(rows), data.codebook)
        mean = stored["mean"].to(device).float()
        shape = tuple(mean.shape[1:])

        def noise(name: object, rows: list[int] = rows, shape: tuple[int, ...] = shape) -> Tensor:
            return torch.from_numpy(normal(settings.seed, f"bits/{name}", rows, shape)).to(device)

        if "logvar" in stored:
            mean = mean + (0.5 * stored["logvar"].to(device).float()).exp() * noise("posterior")
        labels = torch.as_tensor(stored["labels"], device=device)
        bits = sampler.bits(sampler.scaler(mean), labels, noise)
        yield Bits(*(each.cpu().double() for each in bits))


def _scores(bits: list[Bits]) -> dict[str, float]:
    total, prior, steps = (torch.cat([getattr(each, name) for each in bits]) for name in ("total", "prior", "steps"))
    named = {"bits_per_dim": total, "bits_prior": prior, "bits_steps": steps[:, 1:].sum(1), "bits_decoder": steps[:, 0]}
    return {key: value for name, each in named.items() for key, value in mean_and_error(name, each.tolist()).items()}


def _table(bits: list[Bits], objective: Gaussian) -> list[str]:
    """Return a row for each timestep: its number, its term with the error over latents, errors of x0 and of ε."""
    steps, x0_mse, eps_mse = (
        torch.cat([getattr(each, name) for each in bits]).numpy() for name in ("steps", "x0_mse", "eps_mse")
    )
    error = steps.std(axis=0, ddof=1) / np.sqrt(len(steps)) if len(steps) > 1 else np.zeros(steps.shape[1])
    columns = (range(len(objective.schedule)), steps.mean(0), error, x0_mse.mean(0), eps_mse.mean(0))
    return ["\t".join([str(first), *(f"{value:.6g}" for value in rest)]) for first, *rest in zip(*columns, strict=True)]
