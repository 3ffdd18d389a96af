"""Images to noise and back, and what was lost on the way."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save
from torch import Tensor

from darkroom.data.grid import captioned_grid
from darkroom.data.images import ImageSpec
from darkroom.device import set_up_device
from darkroom.diffusion.denoiser import Guidance
from darkroom.diffusion.gaussian import Gaussian
from darkroom.diffusion.inversion import REVERSIBLE, encode, require_reversible
from darkroom.diffusion.objectives import stored_diffusion
from darkroom.diffusion.settings import Sampling, misfit
from darkroom.errors import DarkroomError
from darkroom.metrics.image import psnr
from darkroom.models.generators.conditions import Condition
from darkroom.models.generators.dit.sample import DiTSampler, dit_denoiser
from darkroom.models.generators.load import load_weights, open_generator
from darkroom.models.tokenizers.protocol import Tokenizer, padded
from darkroom.models.tokenizers.settings import EncodeLatents
from darkroom.params.section import validate
from darkroom.stages.encode_latents import encoder
from darkroom.terminal.numbers import aligned
from darkroom.tools.invert.request import Request
from darkroom.tools.invert.subjects import Conditions, edits, of_files, own_conditions, stored
from darkroom.tools.sample.classes import MODEL
from darkroom.training.data import with_means

_BATCH = 4  # images in a forward pass, as `darkroom sample`
_COLUMNS = ("psnr", "psnr_tokenizer", "latent_error", "noise_std")


@dataclass(frozen=True)
class Inverted:
    """What is written and said of inverted images.

    picture: rows of originals, what the tokenizer makes of them, what their noise leads back to, and the edits.
    table: for the terminal.
    tsv: the same of more digits.
    noise: a safetensors file: `noise` and `latents`, float32 (N, C, H, W), scaled as the network sees them.
    """

    picture: Image.Image
    table: str
    tsv: str
    noise: bytes


def inverted(
    request: Request, manifest: Mapping[str, Any], sections: Any, run: Any, latents: EncodeLatents
) -> Inverted:
    """Invert what is asked for.

    An image's noise is a function of the image, its condition and the solver, bit for bit, independent of the other
    images: batches are of one size, and the number of threads that of `sample_generator`.

    `sections` is `sample_generator` with the guidance of edits, `latents` how those are stored that the generator was
    trained on.

    Raises:
        DarkroomError: see `invert`.
    """
    device = set_up_device(sections.common.threads, run.device)
    guided = _guided(sections, manifest["generator_kind"], request.guidance)
    opened, _ = open_generator(MODEL, manifest, guided, sections.common, device)
    if not isinstance(opened, DiTSampler):
        raise DarkroomError(f"{MODEL} is of the kind {manifest['generator_kind']}, which makes images of no noise.")
    sampler, section = opened, getattr(sections, manifest["generator_kind"])
    how = _solver(request, section, sampler, manifest)
    if request.weights not in (None, "ema", "raw"):
        load_weights(sampler.model, Path(str(request.weights)))
    subjects = of_files(request.files, ImageSpec.of(manifest)) if request.files else None
    subjects = subjects or stored(request.split, request.images, request.keys or [])
    conditions, words = own_conditions(subjects, manifest, request.labels or [], request.text or [])
    changes = edits(manifest, request.to_label or [], request.to_text or [])

    known = _encoded(sampler.tokenizer, subjects.images, latents, device)
    data = sampler.scaler(known)
    noise = _each(sampler, data, conditions, lambda x, condition: encode(
        _denoise(sampler, condition, how), x, sampler.objective, how
    ))  # fmt: skip
    again = _sampled(sampler, noise, conditions, how)
    edited = how.model_copy(update={"guidance": section.guidance})
    rows = {
        "original": subjects.images,
        "tokenizer": padded(sampler.tokenizer.decode, known, _BATCH, device),
        f"its noise, {how.solver} {how.count}": padded(sampler.tokenizer.decode, again, _BATCH, device),
    }
    original, tokenized, back = rows.values()
    for name, others in changes:
        made = _sampled(sampler, noise, others, edited)
        rows[f"to {name}"] = padded(sampler.tokenizer.decode, made, _BATCH, device)
    error = (sampler.scaler(again) - data).flatten(1).norm(dim=1) / data.flatten(1).norm(dim=1)
    numbers = torch.stack(
        [psnr(original, back), psnr(tokenized, back), error.double(), noise.flatten(1).std(dim=1).double()], dim=1
    )
    return Inverted(
        captioned_grid([row.numpy() for row in rows.values()], list(rows), columns=1),
        _table(subjects.names, words, numbers),
        _tsv(subjects.names, words, numbers),
        save({"noise": noise.contiguous(), "latents": data.contiguous()}),
    )


def _guided(sections: Any, kind: str, guidance: float) -> Any:
    """Return the sections as the generator is opened by them: what guides is there if there and back alone need it."""
    section = getattr(sections, kind, None)
    if section is None or section.guidance != 1:
        return sections
    return sections.model_copy(update={kind: section.model_copy(update={"guidance": guidance})})


def _solver(request: Request, section: Any, sampler: DiTSampler, manifest: Mapping[str, Any]) -> Any:
    """Return how images go to noise and back: `sample_generator`'s section with a solver that has a way back."""
    steps = section.steps if request.steps is None else request.steps
    known = REVERSIBLE["gaussian" if isinstance(sampler.objective, Gaussian) else "flow"]
    given = {"solver": request.solver or known[0], "steps": int(steps) if str(steps).isdigit() else steps}
    kind = f"sample_generator.{manifest['generator_kind']}"
    update = {**validate(Sampling, given, kind).model_dump(include=set(given)), "guidance": request.guidance}
    update |= {"eta": 0.0, "classifier_scale": 0.0}  # neither noise nor a classifier on the way
    how = section.model_copy(update={name: value for name, value in update.items() if hasattr(section, name)})
    require_reversible(sampler.objective, how)
    if found := misfit(how, *stored_diffusion(manifest, "flow")):
        raise DarkroomError(
            f"--{found.key} is {found.value}, and {MODEL} was trained with `{found.source}` {found.bound}: "
            f"{found.remedy}."
        )
    return how


def _encoded(tokenizer: Tokenizer, images: Tensor, settings: EncodeLatents, device: torch.device) -> Tensor:
    """Return the latents of images as they are stored, without the noise of a distribution, float32 (N, C, H, W)."""
    shape: Any = tuple(images.shape[1:])
    _, encode_images, codebook = encoder(tokenizer, settings.model_copy(update={"batch": _BATCH}), shape, device)
    first = torch.from_numpy(encode_images(images)[0])
    return with_means({"mean" if codebook is None else "codes": first}, codebook)["mean"].float()


def _denoise(sampler: DiTSampler, condition: Condition, how: Any) -> Any:
    null, guidance = sampler.model.null_label, Guidance.of(how)
    return dit_denoiser(sampler.model, sampler.objective, condition, null, guidance, sampler.weaker)


def _sampled(sampler: DiTSampler, noise: Tensor, conditions: Conditions, how: Any) -> Tensor:
    """Return what noise leads to, as the tokenizer has it, (N, C, H, W)."""
    return _each(sampler, noise, conditions, lambda x, condition: sampler.latents(x, condition, [], how))


def _each(sampler: DiTSampler, values: Tensor, conditions: Conditions, function: Any) -> Tensor:
    """Return `function` of values (N, ...) and their conditions, in batches of one size, on the CPU."""
    results, device = [], sampler.device
    for start in range(0, len(values), _BATCH):
        numbers = np.arange(start, start + _BATCH) % len(values)
        condition = conditions(numbers)
        made = function(values[numbers].to(device), None if condition is None else condition.to(device))
        results.append(made[: len(values) - start].cpu())
    return torch.cat(results)


def _table(names: Sequence[str], words: Sequence[str], numbers: Tensor) -> str:
    """Return lines for the terminal, the last one of the means."""
    rows = [("image", "condition", *_COLUMNS)]
    values = [*numbers.tolist(), numbers.mean(0).tolist()]
    for name, word, (one, other, error, std) in zip([*names, "mean"], [*words, ""], values, strict=True):
        rows.append((name, word[:30], f"{one:.1f}", f"{other:.1f}", f"{error:.4f}", f"{std:.3f}"))
    return "\n".join(aligned(rows, left=(0, 1)))


def _tsv(names: Sequence[str], words: Sequence[str], numbers: Tensor) -> str:
    rows: list[tuple[str, ...]] = [("image", "condition", *_COLUMNS)]
    for name, word, values in zip(names, words, numbers.tolist(), strict=True):
        rows.append((name, " ".join(word.split()), *(f"{value:.6g}" for value in values)))
    return "".join("\t".join(row) + "\n" for row in rows)
