"""Open a trained generator with its tokenizer, to sample from it by the settings."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from darkroom.artifacts.manifest import ArtifactError, manifest_hash, open_artifact
from darkroom.artifacts.models import CLASSIFIER, DISTILLED, GENERATOR
from darkroom.artifacts.networks import WEIGHTS
from darkroom.data.images import ImageSpec
from darkroom.diffusion.objectives import stored_diffusion
from darkroom.diffusion.settings import Sampling, misfit
from darkroom.errors import DarkroomError
from darkroom.models.generators.guides import require_guides
from darkroom.models.generators.sample_settings import Common
from darkroom.models.generators.sampler import Sampler
from darkroom.models.generators.settings import few_calls
from darkroom.models.kinds import GENERATORS
from darkroom.models.tokenizers.protocol import Tokenizer, load_tokenizer
from darkroom.params.section import NO_FILE
from darkroom.training.averages import kept_folder
from darkroom.training.precision import allow_tf32, run_in

TOKENIZER = Path("models/tokenizer")


def open_generator(
    folder: Path,
    manifest: Mapping[str, Any],
    sections: Any,
    settings: Common,
    device: torch.device,
    distilled: Path | None = None,
) -> tuple[Sampler, Any]:
    """Return the sampler of a generator on a device, and the section of its kind.

    Args:
        folder: the output of `train_generator`.
        manifest: its manifest.
        sections: `sample_generator`: a section for each kind.
        settings: its section `common`: weights and precision.
        device: the device of the network.
        distilled: the folder of `train_distilled`, which replaces the generator and has its own section; None: the
            generator.

    Raises:
        ArtifactError: it was trained on latents of another tokenizer, is of another kind than in params.yaml, or its
            objective does not fit the solver.
    """
    tokenizer, tokenizer_hash = load_tokenizer(TOKENIZER, ImageSpec.of(manifest).shape)
    if manifest["tokenizer"] != tokenizer_hash:
        raise ArtifactError(
            f"{folder} was trained with another tokenizer than {TOKENIZER}: run `dvc repro train_generator`."
        )
    kind = manifest["generator_kind"]
    sampling = getattr(sections, kind, None)
    if sampling is None:
        raise ArtifactError(
            f"{folder} is of the kind `{kind}`, but params.yaml chooses another: run `dvc repro train_generator`."
        )
    if isinstance(sampling, Sampling) and (mismatch := misfit(sampling, *stored_diffusion(manifest, "flow"))):
        raise ArtifactError(
            f"`sample_generator.{kind}.{mismatch.key}` is {mismatch.value}, but {folder} was trained with "
            f"`{mismatch.source}` {mismatch.bound}: {mismatch.remedy}."
        )
    if distilled is not None:
        return _open_distilled(distilled, folder, tokenizer, settings, device)
    require_guides(f"sample_generator.{kind}", sampling, manifest)
    sampler: Sampler = GENERATORS.load("sampler", kind).open(
        _kept(folder, settings.checkpoint), manifest, tokenizer.to(device), settings.weights
    )
    networks = [sampler.model]
    if getattr(sampling, "guide", NO_FILE) != NO_FILE and sampling.guidance != 1:
        sampler.guide = _open_guide(Path(sampling.guide), tokenizer).to(device)
        networks.append(sampler.guide)
    if getattr(sampling, "classifier_scale", 0.0):
        sampler.classifier = _open_classifier(Path(sampling.classifier)).to(device)
    sampler = sampler.to(device)
    allow_tf32(settings.tf32)
    for network in networks:
        run_in(network, settings.precision, settings.compile, device)
    return sampler, sampling


def _open_distilled(
    folder: Path, generator: Path, tokenizer: Tokenizer, settings: Common, device: torch.device
) -> tuple[Sampler, Any]:
    """Return the sampler of few calls, and its settings."""
    from darkroom.models.generators.dit.sample import DiTSampler

    manifest = open_artifact(folder, DISTILLED)
    if not manifest["trained"]:
        raise ArtifactError(f"{folder} is empty, because {manifest['reason']}: run `dvc repro train_distilled`.")
    if manifest["generator"] != manifest_hash(generator):
        raise ArtifactError(
            f"{folder} was distilled from another generator than {generator}: run `dvc repro train_distilled`."
        )
    sampler = DiTSampler.open(folder, manifest, tokenizer.to(device), "ema").to(device)
    allow_tf32(settings.tf32)
    run_in(sampler.model, settings.precision, settings.compile, device)
    return sampler, few_calls(manifest["calls"])


def _kept(folder: Path, images: int | None) -> Path:
    """Return the folder of the weights after `images` images seen; None: those of the end."""
    if images is None:
        return folder
    if not (place := kept_folder(folder, images)).is_dir():
        known = sorted(int(path.name.removeprefix("images-")) for path in place.parent.glob("images-*"))
        raise ArtifactError(
            f"`sample_generator.common.checkpoint` is {images}, but {folder} keeps the weights of "
            f"{', '.join(map(str, known)) or 'its end alone'}: set it to one of them, or set "
            "`train_generator.training.save_every` and train again."
        )
    return place


def _open_guide(folder: Path, tokenizer: Tokenizer) -> nn.Module:
    """Return the averaged weights of another run's generator."""
    manifest = open_artifact(folder, GENERATOR)
    if (kind := manifest["generator_kind"]) not in GENERATORS:
        raise ArtifactError(f"{folder} holds a generator of the kind `{kind}`, which cannot be sampled here.")
    other: Sampler = GENERATORS.load("sampler", kind).open(folder, manifest, tokenizer, "ema")
    return other.model


def _open_classifier(folder: Path) -> nn.Module:
    """Return a classifier of noisy latents; its weights need no gradient."""
    from darkroom.models.generators.dit.classifier import Classifier

    open_artifact(folder, CLASSIFIER)
    return Classifier.from_pretrained(folder).requires_grad_(False)


def load_weights(model: nn.Module, path: Path) -> Path:
    """Load weights into a network from a file, or a folder with a model or a checkpoint, and return the file.

    From a checkpoint these are the averaged weights; its file `modules.safetensors` holds those of the optimizer step.

    Args:
        model: the network, whose shape the weights have.
        path: a `.safetensors` file, or a folder with `model.safetensors` or `ema.safetensors`.

    Raises:
        DarkroomError: there are no weights, or they belong to another network.
    """
    files = [path] if path.suffix == ".safetensors" else [path / name for name in (WEIGHTS, "ema.safetensors")]
    file = next((each for each in files if each.is_file()), None)
    if file is None:
        raise DarkroomError(
            f"{path} holds no weights: use ema, raw, a .safetensors file, or a folder with {WEIGHTS} or, of a "
            "checkpoint, ema.safetensors."
        )
    try:
        tensors = load_file(file)
        # In a checkpoint the names follow that of the module.
        model.load_state_dict({name.rpartition("/")[2]: tensor for name, tensor in tensors.items()})
    except (SafetensorError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:300]
        raise DarkroomError(f"{file} does not fit the network in models/generator: {reason}") from error
    return file
