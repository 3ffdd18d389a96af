"""Map images to noise and back, and measure the error."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from safetensors.torch import save
from torch import Tensor
from torch.nn import functional

from darkroom.artifacts.manifest import ArtifactError
from darkroom.data.catalog import load_catalog
from darkroom.data.draw import drawn
from darkroom.data.grid import captioned_grid
from darkroom.data.reader import ImageShards
from darkroom.device import set_up_device
from darkroom.diffusion.denoiser import Guidance
from darkroom.diffusion.gaussian import Gaussian
from darkroom.diffusion.inversion import REVERSIBLE, encode, require_reversible
from darkroom.diffusion.mean_flow import MeanFlow
from darkroom.diffusion.objectives import stored_diffusion
from darkroom.diffusion.settings import Sampling, misfit
from darkroom.errors import DarkroomError
from darkroom.metrics.image import psnr
from darkroom.models.clip.load import load_clip
from darkroom.models.generators.conditions import Condition, condition_of, rows_of
from darkroom.models.generators.dit.sample import DiTSampler, dit_denoiser
from darkroom.models.generators.kind_settings import TEXTS
from darkroom.models.generators.load import load_weights, open_generator
from darkroom.models.tokenizers.protocol import Tokenizer, padded
from darkroom.models.tokenizers.settings import EncodeLatents
from darkroom.params.section import validate
from darkroom.stages.encode_latents import encoder
from darkroom.terminal.numbers import aligned
from darkroom.tools.invert.request import Request
from darkroom.tools.sample.classes import MODEL, numbers_of
from darkroom.tools.sample.texts import stored_texts
from darkroom.training.data import with_means

_BATCH = 4  # images in a forward pass, as `darkroom sample`
_COLUMNS = ("psnr", "psnr_tokenizer", "latent_error", "noise_std")


@dataclass(frozen=True)
class Inverted:
    """The results for inverted images.

    picture: rows of originals, their reconstructions by the tokenizer, and the images from their noise.
    table: for the terminal.
    tsv: the same without the means.
    noise: a safetensors file: `noise` and `latents`, float32 (N, C, H, W), scaled as the network sees them.
    """

    picture: Image.Image
    table: str
    tsv: str
    noise: bytes


def inverted(
    request: Request, manifest: Mapping[str, Any], sections: Any, run: Any, latents: EncodeLatents
) -> Inverted:
    """Invert the requested images.

    An image's noise is a function of the image, its condition and the solver, bit for bit, independent of the other
    images: batches are of one size, and the number of threads that of `sample_generator`.

    `sections` is `sample_generator` with the guidance of the request, `latents` the storage settings of the latents
    that the generator was trained on.

    Raises:
        DarkroomError: see `invert`.
    """
    device = set_up_device(sections.common.threads, run.device)
    sampler, _ = open_generator(MODEL, manifest, sections, sections.common, device)
    if not isinstance(sampler, DiTSampler) or isinstance(sampler.objective, MeanFlow):
        named = manifest.get("objective") if isinstance(sampler, DiTSampler) else manifest["generator_kind"]
        raise DarkroomError(f"{MODEL} is of the kind {named}, which cannot be inverted.")
    sampling = _solver(request, getattr(sections, manifest["generator_kind"]), sampler, manifest)
    if request.weights not in (None, "ema", "raw"):
        load_weights(sampler.model, Path(str(request.weights)))
    subjects = stored(request.split, request.images)
    condition, words = conditions_of(subjects, manifest, request.labels)

    def to_noise(x: Tensor, each: Condition) -> Tensor:
        null, guidance = sampler.model.null_label, Guidance.of(sampling)
        denoise = dit_denoiser(sampler.model, sampler.objective, each, null, guidance, sampler.guide)
        return encode(denoise, x, sampler.objective, sampling)

    known = _encoded(sampler.tokenizer, subjects.images, latents, device)
    data = sampler.scaler(known)
    noise = _each(data, condition, device, to_noise)
    again = _each(noise, condition, device, lambda x, each: sampler.latents(x, each, [], sampling))
    rows = {
        "original": subjects.images,
        "tokenizer": padded(sampler.tokenizer.decode, known, _BATCH, device),
        f"its noise, {sampling.solver} {sampling.count}": padded(sampler.tokenizer.decode, again, _BATCH, device),
    }
    original, tokenized, back = rows.values()
    error = (sampler.scaler(again) - data).flatten(1).norm(dim=1) / data.flatten(1).norm(dim=1)
    numbers = torch.stack(
        [psnr(original, back), psnr(tokenized, back), error.double(), noise.flatten(1).std(dim=1).double()], dim=1
    )
    table = _rows(subjects.names, words, numbers)
    mean = _rows(["mean"], [""], numbers.mean(0, keepdim=True))[1:]
    return Inverted(
        captioned_grid([row.numpy() for row in rows.values()], list(rows), columns=1),
        "\n".join(aligned([*table, *mean], left=(0, 1))),
        "".join("\t".join(row) + "\n" for row in table),
        save({"noise": noise.contiguous(), "latents": data.contiguous()}),
    )


def _solver(request: Request, section: Any, sampler: DiTSampler, manifest: Mapping[str, Any]) -> Any:
    """Return the sampling in both directions: `sample_generator`'s section with a reversible solver."""
    steps = section.steps if request.steps is None else request.steps
    known = REVERSIBLE["gaussian" if isinstance(sampler.objective, Gaussian) else "flow"]
    given = {"solver": request.solver or known[0], "steps": int(steps) if str(steps).isdigit() else steps}
    kind = f"sample_generator.{manifest['generator_kind']}"
    update = validate(Sampling, given, kind).model_dump(include=set(given))
    update |= {"eta": 0.0, "classifier_scale": 0.0}  # neither noise nor a classifier on the way
    sampling = section.model_copy(update={name: value for name, value in update.items() if hasattr(section, name)})
    require_reversible(sampler.objective, sampling)
    if conflict := misfit(sampling, *stored_diffusion(manifest, "flow")):
        raise DarkroomError(
            f"--{conflict.key} is {conflict.value}, but {MODEL} was trained with `{conflict.source}` {conflict.bound}: "
            f"{conflict.remedy}."
        )
    return sampling


def _encoded(tokenizer: Tokenizer, images: Tensor, settings: EncodeLatents, device: torch.device) -> Tensor:
    """Return the latents of images as they are stored, without the noise of a distribution, float32 (N, C, H, W)."""
    shape: Any = tuple(images.shape[1:])
    _, encode_images, codebook = encoder(tokenizer, settings.model_copy(update={"batch": _BATCH}), shape, device)
    first = torch.from_numpy(encode_images(images)[0])
    return with_means({"mean" if codebook is None else "codes": first}, codebook)["mean"].float()


def _each(
    values: Tensor, condition: Condition, device: torch.device, function: Callable[[Tensor, Condition], Tensor]
) -> Tensor:
    """Return `function` of values (N, ...) and their conditions, in batches of one size, on the CPU."""
    results = []
    for start in range(0, len(values), _BATCH):
        rows = torch.arange(start, start + _BATCH) % len(values)
        each = None if condition is None else rows_of(condition, rows)
        output = function(values[rows].to(device), None if each is None else each.to(device))
        results.append(output[: len(values) - start].cpu())
    return torch.cat(results)


def _rows(names: Sequence[str], words: Sequence[str], numbers: Tensor) -> list[tuple[str, ...]]:
    """Return the rows of a table, its head first."""
    rows: list[tuple[str, ...]] = [("image", "condition", *_COLUMNS)]
    for name, word, values in zip(names, words, numbers.tolist(), strict=True):
        rows.append((name, " ".join(word.split()), *(f"{value:.6g}" for value in values)))
    return rows


@dataclass(frozen=True)
class Subjects:
    """Images, uint8 (N, C, H, W), each with its key, and its class and caption where it has them."""

    images: Tensor
    names: list[str]
    labels: list[str | None]
    captions: list[str | None]


def stored(split: str, count: int) -> Subjects:
    """Return images drawn from a split.

    Raises:
        DarkroomError: the split has no image.
    """
    shards = ImageShards.open_parts(list(load_catalog(shards=None).parts), split)
    if not len(shards):
        raise DarkroomError(f"the split {split} has no images: choose another with --split.")
    rows = drawn(len(shards), count)
    labels, captions = shards.labels, shards.captions
    return Subjects(
        torch.from_numpy(shards.__getitems__(rows)),
        shards.keys_of(rows),
        [labels[row] for row in rows],
        [captions[row] for row in rows],
    )


def conditions_of(subjects: Subjects, manifest: Mapping[str, Any], label: str | None) -> tuple[Condition, list[str]]:
    """Return the conditions for mapping images to noise, and a word for each.

    `label` is a class for all images, instead of their own.

    Raises:
        DarkroomError: the class of an image is unknown to the generator, no image has a caption, or `label` is unknown.
    """
    condition = manifest.get("condition", "class")
    if condition == "class":
        classes = [str(name) for name in manifest["classes"]]
        named = [numbers_of([label], classes)[0]] * len(subjects.names) if label else []
        own = zip(subjects.names, subjects.labels, strict=True)
        numbers = named or [_own_class(name, each, classes) for name, each in own]
        return torch.tensor(numbers), [classes[number] for number in numbers]
    if label:
        raise DarkroomError(f"{MODEL} does not read --labels (condition {condition}): remove it.")
    if condition in TEXTS:
        if all(caption is None for caption in subjects.captions):
            raise DarkroomError("none of the images has a caption, which the generator needs.")
        read = condition_of(stored_texts(subjects.captions, manifest, MODEL))
        return read, [caption or "no caption" for caption in subjects.captions]
    if condition == "image":
        return condition_of({"image": _image_embeddings(subjects.images, manifest)}), subjects.names
    return None, ["no condition"] * len(subjects.names)


def _own_class(name: str, label: str | None, classes: Sequence[str]) -> int:
    if label not in classes:
        raise DarkroomError(f"{name} has no class that the generator was trained on ({label}): set one with --labels.")
    return classes.index(label)


def _image_embeddings(images: Tensor, manifest: Mapping[str, Any]) -> Tensor:
    """Return CLIP's embeddings of images as `embed_clip` stores them, float16 (N, D)."""
    clip = load_clip()
    if clip.fingerprint != manifest["clip"]:
        raise ArtifactError(f"{MODEL} was trained with a CLIP other than models/clip: run `dvc repro`.")
    vectors = torch.cat([clip.images(one[None]) for one in images])
    return (functional.normalize(vectors, dim=1) if manifest["normalised"] else vectors).half()
