"""`darkroom export`: write models/generator or models/tokenizer in a format of other programs."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch

from darkroom.artifacts.atomic import atomic_folder
from darkroom.artifacts.manifest import ArtifactError, open_artifact
from darkroom.artifacts.models import generator_manifest
from darkroom.artifacts.networks import CONFIG, WEIGHTS
from darkroom.data.images import ImageSpec
from darkroom.errors import DarkroomError
from darkroom.models.generators.dit.checkpoints import switch_of
from darkroom.models.generators.dit.network import DiT
from darkroom.models.generators.dit.published import sit_from_ours, to_published
from darkroom.models.kinds import GENERATORS
from darkroom.models.tokenizers.dvae.tokenizer import DiscreteVAE
from darkroom.models.tokenizers.kl.network import KLAutoencoder
from darkroom.models.tokenizers.protocol import load_tokenizer
from darkroom.models.tokenizers.vqgan.network import VQGANTokenizer
from darkroom.tools.places import require_no_output

MODEL, TOKENIZER = Path("models/generator"), Path("models/tokenizer")


def export(out: Path, form: str, weights: str = "ema") -> str:
    """Write models/generator to a new folder, and return a line for the terminal.

    `weights`: `ema`, or `raw`, those of the last optimizer step.

    Raises:
        DarkroomError: it has no raw weights, the folder exists, or the format does not support the network; the message
            names the key.
    """
    _require_new(out)
    manifest = generator_manifest(MODEL)
    kind = manifest["generator_kind"]
    if form not in GENERATORS.load("settings", kind).formats:
        raise DarkroomError(
            f"{MODEL} has the kind `{kind}`, which the format {form} does not support: use --format safetensors."
        )
    if weights == "raw" and not (MODEL / "raw").is_dir():
        raise DarkroomError(f"{MODEL} was not trained here, so it has no raw weights: use --weights ema.")
    source = MODEL if weights == "ema" else MODEL / "raw"
    model = None if form == "safetensors" else DiT.from_pretrained(source)
    if model is not None:
        _require_published(model, form)
    with atomic_folder(out) as folder:
        if model is None:
            for name in (CONFIG, WEIGHTS):
                shutil.copyfile(source / name, folder / name)
        elif form == "diffusers":
            _write_diffusers(folder, model, manifest)
        else:
            sit = manifest.get("prediction", {}).get("time_units") == "sit"
            tensors = sit_from_ours(model.state_dict()) if sit else model.state_dict()
            torch.save({name: value.clone() for name, value in to_published(tensors).items()}, folder / "model.pt")
        # The scale of the latents, the meaning of the output, and the conditions: classes, or others.
        names = ("classes", "latent_mean", "latent_std", "latent_shape", "objective", "prediction", "images_seen")
        _write_facts(folder, manifest, *names, "condition", "clip", "normalised", "context_length")
    return _written(out, form)


def _require_published(model: DiT, form: str) -> None:
    """Check that a format of other programs has what the network has."""
    if model.config.two_times:
        key, value = "diffusion.objective", "mean_flow"
    elif switch := switch_of(model.config):
        key, value = f"model.{switch[0]}", switch[1]
    else:
        return
    raise DarkroomError(
        f"`train_generator.dit.{key}` is {value}, which the format {form} does not support: use --format safetensors."
    )


def _require_new(out: Path) -> None:
    if out.exists():
        raise DarkroomError(f"{out} already exists: remove it, or choose another folder with --out.")
    require_no_output(f"--out {out}", out)


def _written(out: Path, form: str) -> str:
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    return f"{out}: {form}, {size / 1e6:,.1f} MB; docs/how-to/published-weights.md describes how to load it"


def _write_diffusers(folder: Path, model: DiT, manifest: dict[str, Any]) -> None:
    from darkroom.tools.export.diffusers_folder import write_pipeline

    tokenizer, tokenizer_hash = load_tokenizer(TOKENIZER, ImageSpec.of(manifest).shape)
    if manifest["tokenizer"] != tokenizer_hash:
        raise ArtifactError(
            f"{MODEL} was trained on latents of another tokenizer than {TOKENIZER}: train it again "
            "(`dvc repro train_generator`)."
        )
    write_pipeline(folder, model, manifest, tokenizer)


def _write_facts(folder: Path, manifest: dict[str, Any], *names: str) -> None:
    """Write the metadata of the weights: those of these entries that the manifest has."""
    facts = {name: manifest[name] for name in names if name in manifest}
    (folder / "darkroom.json").write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n")


def export_tokenizer(out: Path, form: str) -> str:
    """Write the averaged weights of models/tokenizer to a new folder, and return a line for the terminal.

    `form`: diffusers, for KL autoencoders; pt, for `dvae` as dalle-pytorch loads it, and for `vqgan` as the code of
    MUSE does; safetensors, for all kinds.

    Raises:
        DarkroomError: the tokenizer is missing, the folder exists, or the format does not support it; names the key.
    """
    _require_new(out)
    manifest = open_artifact(TOKENIZER, "tokenizer")
    kind, model = manifest["tokenizer_kind"], load_tokenizer(TOKENIZER)[0]
    formats = ["safetensors"]
    formats += ["diffusers"] if isinstance(model, KLAutoencoder) else []
    formats += ["pt"] if isinstance(model, DiscreteVAE | VQGANTokenizer) else []
    if form not in formats:
        raise DarkroomError(
            f"{TOKENIZER} has the kind `{kind}`, which the format {form} does not support: use --format "
            f"{' or '.join(formats)}."
        )
    with atomic_folder(out) as folder:
        if form == "pt" and isinstance(model, DiscreteVAE | VQGANTokenizer):
            torch.save(model.original(), folder / "vae.pt")
        else:
            model.save_pretrained(folder)
        _write_facts(folder, manifest, "tokenizer_kind", "image_shape", "latent_shape", "images_seen")
    return _written(out, form)
