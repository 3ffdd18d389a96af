"""`darkroom export`: models/generator or models/tokenizer in a format that others read, with a page about it."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml

from darkroom.artifacts.atomic import atomic_folder
from darkroom.artifacts.manifest import ArtifactError, manifest_hash, open_artifact, read_manifest
from darkroom.artifacts.models import generator_manifest
from darkroom.data.catalog import load_catalog
from darkroom.data.images import ImageSpec
from darkroom.errors import DarkroomError
from darkroom.models.generators.dit.checkpoints import switch_of
from darkroom.models.generators.dit.network import DiT
from darkroom.models.generators.dit.published import sit_from_ours, to_published
from darkroom.models.tokenizers.dvae.tokenizer import DiscreteVAE
from darkroom.models.tokenizers.kl.network import KLAutoencoder
from darkroom.models.tokenizers.protocol import load_tokenizer
from darkroom.models.tokenizers.vqgan.network import VQGANTokenizer
from darkroom.tools.places import require_no_output

FORMATS = ("diffusers", "pt", "safetensors")
MODEL, TOKENIZER = Path("models/generator"), Path("models/tokenizer")
_KINDS = ("dit", "pretrained")


def export(out: Path, form: str, licence: str, weights: str = "ema") -> str:
    """Write models/generator into a new folder, and return a line that says so.

    Args:
        out: the folder, which must not be there.
        form: one of `FORMATS`.
        licence: as the Hub names it, for the page.
        weights: `ema`, or `raw`, those of the last optimizer step.

    Raises:
        DarkroomError: there is no DiT, it has no raw weights, the folder is there, or the format cannot hold the
            network; names the key.
    """
    _require_new(out)
    manifest = generator_manifest(MODEL)
    if (kind := manifest["generator_kind"]) not in _KINDS:
        raise DarkroomError(f"{MODEL} is of the kind `{kind}`, and a DiT alone can be exported.")
    if weights == "raw" and not (MODEL / "raw").is_dir():
        raise DarkroomError(f"{MODEL} was not trained here, and has no raw weights: take --weights ema.")
    model = DiT.from_pretrained(MODEL if weights == "ema" else MODEL / "raw")
    if form != "safetensors" and (switch := switch_of(model.config)):
        name, value = switch
        raise DarkroomError(
            f"`train_generator.dit.model.{name}` is {value}, which the format {form} has no place for: take --format "
            "safetensors, which holds it."
        )
    with atomic_folder(out) as folder:
        if form == "diffusers":
            _write_diffusers(folder, model, manifest)
        elif form == "pt":
            sit = manifest.get("prediction", {}).get("time_units") == "sit"
            tensors = sit_from_ours(model.state_dict()) if sit else model.state_dict()
            torch.save({name: value.clone() for name, value in to_published(tensors).items()}, folder / "model.pt")
        else:
            model.save_pretrained(folder)
        _write_facts(folder, manifest)
        (folder / "README.md").write_text(card(form, os.fspath(out), licence, model, manifest, weights))
    return _written(out, form)


def _require_new(out: Path) -> None:
    if out.exists():
        raise DarkroomError(f"{out} is there already: remove it, or name another folder with --out.")
    require_no_output(f"--out {out}", out)


def _written(out: Path, form: str) -> str:
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    return f"{out}: {form}, {size / 1e6:,.1f} MB; {out}/README.md says how it is loaded"


def _write_diffusers(folder: Path, model: DiT, manifest: dict[str, Any]) -> None:
    from darkroom.tools.export.diffusers_folder import write_pipeline

    tokenizer, tokenizer_hash = load_tokenizer(TOKENIZER, ImageSpec.of(manifest).shape)
    if manifest["tokenizer"] != tokenizer_hash:
        raise ArtifactError(
            f"{MODEL} was trained on latents of another tokenizer than {TOKENIZER} holds: train it again "
            "(`dvc repro train_generator`)."
        )
    write_pipeline(folder, model, manifest, tokenizer)


def _write_facts(folder: Path, manifest: dict[str, Any]) -> None:
    """Write what the weights do not say: the scale of the latents, what the output means, and the classes."""
    names = ("classes", "latent_mean", "latent_std", "latent_shape", "objective", "prediction", "images_seen")
    of_conditions = ("condition", "clip", "normalised", "context_length")  # other than the class
    facts = {name: manifest[name] for name in (*names, *of_conditions) if name in manifest}
    (folder / "darkroom.json").write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n")


def export_tokenizer(out: Path, form: str, licence: str) -> str:
    """Write the averaged weights of models/tokenizer into a new folder, and return a line that says so.

    Args:
        out: the folder, which must not be there.
        form: diffusers, of a KL autoencoder; pt, of `dvae` what dalle-pytorch loads, of `vqgan` what MUSE's code does;
            safetensors, of each kind.
        licence: as the Hub names it, for the page.

    Raises:
        DarkroomError: there is no tokenizer, the folder is there, or the format cannot hold it; names the key.
    """
    _require_new(out)
    manifest = open_artifact(TOKENIZER, "tokenizer")
    kind, model = manifest["tokenizer_kind"], load_tokenizer(TOKENIZER)[0]
    formats = ["safetensors"]
    formats += ["diffusers"] if isinstance(model, KLAutoencoder) else []
    formats += ["pt"] if isinstance(model, DiscreteVAE | VQGANTokenizer) else []
    if form not in formats:
        raise DarkroomError(
            f"{TOKENIZER} is of the kind `{kind}`, which the format {form} has no place for: take --format "
            f"{' or '.join(formats)}."
        )
    with atomic_folder(out) as folder:
        if form == "pt" and isinstance(model, DiscreteVAE | VQGANTokenizer):
            torch.save(model.original(), folder / TOKENIZER_WEIGHTS)
        else:
            model.save_pretrained(folder)
        facts: dict[str, Any] = {
            name: manifest[name] for name in ("image_shape", "latent_shape", "images_seen") if name in manifest
        }
        (folder / "darkroom.json").write_text(json.dumps({"tokenizer_kind": kind, **facts}, indent=2) + "\n")
        (folder / "README.md").write_text(tokenizer_card(form, os.fspath(out), licence, model, {"kind": kind, **facts}))
    return _written(out, form)


_LOADED = {
    "diffusers": """from diffusers import DiffusionPipeline

pipeline = DiffusionPipeline.from_pretrained({folder!r}, trust_remote_code=True)  # runs pipeline.py
images = pipeline([0, 1], guidance_scale={guidance}, num_inference_steps={steps}).images
images[0].save("image.png")""",
    "pt": """import torch

folder = {folder!r}
weights = torch.load(f"{{folder}}/model.pt", weights_only=True)  # DiT(...).load_state_dict(weights)
print(len(weights), "tensors")""",
    "safetensors": """import json
from pathlib import Path
from safetensors.torch import load_file

folder = {folder!r}
config = json.loads(Path(folder, "config.json").read_text())
weights = load_file(f"{{folder}}/model.safetensors")
print(len(weights), "tensors of a DiT of width", config["width"])""",
}
TOKENIZER_WEIGHTS = "vae.pt"
_LOADED_TOKENIZER = {
    "dalle": """import torch
from dalle_pytorch import DiscreteVAE

saved = torch.load({weights!r}, weights_only=True)
vae = DiscreteVAE(**saved["hparams"])
vae.load_state_dict(saved["weights"])""",
    "muse": """from muse_maskgit_pytorch import VQGanVAE

vae = VQGanVAE(
    dim={config.width}, channels={config.image_channels}, layers={config.layers}, codebook_size={config.codebook_size},
    encdec_num_resnet_blocks={blocks}, encdec_resnet_groups={config.norm_groups}, use_vgg_and_gan=False{spherical},
)
vae.load({weights!r})  # images from 0 to 1; the file holds no discriminator""",
    "diffusers": """from diffusers import AutoencoderKL

vae = AutoencoderKL.from_pretrained({folder!r})  # images from -1 to 1""",
    "safetensors": """from safetensors.torch import load_file

weights = load_file({tensors!r})  # train_tokenizer.training.init.folder takes this folder""",
}
_TAGS = {
    "class": "class-conditional",
    "none": "unconditional",
    "image": "CLIP-image-conditional",
    "text": "text-conditional",
    "tokens": "text-conditional",
    "caption": "text-conditional",
}
_READS = {
    "diffusers": "`pipeline.py` is a `DiTPipeline` for any number of classes and for flows; it needs diffusers alone.",
    "pt": "A state dict with the names of the paper's code (facebookresearch/DiT).",
    "safetensors": "Tensors with Darkroom's names; `train_generator.training.init.folder` takes this folder.",
}


def card(form: str, folder: str, licence: str, model: DiT, manifest: Mapping[str, Any], weights: str = "ema") -> str:
    """Return the page, Markdown with the Hub's header.

    Args:
        form: the format of the export.
        folder: its name, as the example loads it.
        licence: as the Hub names it.
        model: that is exported.
        manifest: of the generator.
        weights: `ema` or `raw`.
    """
    config, size = model.config, manifest["image"]["size"]
    gaussian = manifest.get("objective") == "gaussian"
    timesteps = manifest["prediction"]["timesteps"] if gaussian else 50
    steps = max(count for count in range(1, 51) if timesteps % count == 0)  # what DDIM goes through evenly
    example = _LOADED[form].format(folder=folder, guidance=_guidance(manifest), steps=steps)
    classes = ", ".join(map(escaped, manifest["classes"][:10])) + (", …" if len(manifest["classes"]) > 10 else "")
    tag = _TAGS[config.condition]
    lines = [
        *_header(licence, form, tags=["dit", f"{tag}-image-generation"]),
        "",
        f"# {'An' if tag.startswith('u') else 'A'} {tag} diffusion transformer",
        "",
        f"- Network: DiT of {sum(p.numel() for p in model.parameters()):,} parameters: {config.depth} blocks, width "
        f"{config.width}, {config.heads} heads, patches of {config.patch}.",
        f"- Objective: {_objective(manifest) if gaussian else manifest.get('objective', 'flow')}.",
        f"- Images: {size} x {size} pixels, latents {config.channels} x {config.size} x {config.size}.",
        f"- Data: {len(manifest['classes']):,} classes ({classes}){_data(manifest)}.",
        *([f"- Condition: by the CLIP whose SHA-256 is {manifest['clip']}."] if "clip" in manifest else []),
        f"- Training: {_seen(manifest)}; {'averaged weights' if weights == 'ema' else 'weights of the last step'}.",
        f"- Normalisation of latents{', done by `vae` here' if form == 'diffusers' else ''}: mean "
        f"{_rounded(manifest['latent_mean'])}, deviation {_rounded(manifest['latent_std'])}.",
        *_loading(licence, example),
        "",
        _READS[form],
        "",
        *(_scores() if weights == "ema" else []),
    ]
    return "\n".join(lines).rstrip() + "\n"


def tokenizer_card(form: str, folder: str, licence: str, model: Any, facts: Mapping[str, Any]) -> str:
    """Return the page of a tokenizer; `facts` holds its kind, and of its manifest the shapes and the images seen."""
    image, latent = (" x ".join(map(str, facts.get(name, ["?"]))) for name in ("image_shape", "latent_shape"))
    seen = facts.get("images_seen")
    kind = {DiscreteVAE: "dalle", VQGANTokenizer: "muse"}[type(model)] if form == "pt" else form
    file = "diffusion_pytorch_model" if isinstance(model, KLAutoencoder) else "model"
    values: dict[str, Any] = {
        "folder": folder,
        "weights": f"{folder}/{TOKENIZER_WEIGHTS}",
        "tensors": f"{folder}/{file}.safetensors",
    }
    if isinstance(model, VQGANTokenizer):
        blocks = (*[0] * (model.config.layers - 1), model.config.residual_blocks)
        spherical = ", lfq_kwargs={'spherical': True}" if model.config.quantiser == "bsq" else ""
        values |= {"config": model.config, "blocks": blocks, "spherical": spherical}
    lines = [
        *_header(licence, form),
        "",
        f"# An image tokenizer of the kind `{facts['kind']}`",
        "",
        f"- Parameters: {sum(p.numel() for p in model.parameters()):,}.",
        f"- Images: {image}; latents: {latent}.",
        f"- Training: {f'{seen:,} images seen' if seen else 'none here, weights as they were given'}.",
        *_loading(licence, _LOADED_TOKENIZER[kind].format(**values)),
    ]
    return "\n".join(lines) + "\n"


def _loading(licence: str, example: str) -> list[str]:
    return [
        f"- License: {escaped(licence)}. Weights that were fine-tuned from others stay under the license of those.",
        *("", "## Load it", "", "```python", example, "```"),
    ]


def _header(licence: str, form: str, **more: Any) -> list[str]:
    """Return the lines of the Hub's header: YAML, whatever the license is called."""
    values = {"license": licence} | ({"library_name": "diffusers"} if form == "diffusers" else {}) | more
    return ["---", *yaml.safe_dump(values, sort_keys=False, default_flow_style=None).splitlines(), "---"]


def escaped(text: str) -> str:
    """Return Markdown that shows a text as it is, in one line."""
    return re.sub(r"([\\`*_\[\]<>#|])", r"\\\1", " ".join(text.split()))


def _guidance(manifest: Mapping[str, Any]) -> float:
    """Return the scale of the example: 1, none, where no label was dropped, and nothing teaches what guides."""
    return 2.0 if manifest.get("label_dropout", 0.1) else 1.0


def _objective(manifest: Mapping[str, Any]) -> str:
    said = manifest["prediction"]
    return f"Gaussian diffusion, schedule {said['schedule']}, predicts {said['target']}, variance {said['variance']}"


def _data(manifest: Mapping[str, Any]) -> str:
    """Return how many images of which parts it was trained on, where data/catalog is still that of its training."""
    try:
        catalog = load_catalog(shards=None)
    except DarkroomError:
        return ""
    if not manifest["images_seen"] or catalog.fingerprint != manifest.get("catalog"):
        return ""
    return f", {catalog.images['train']:,} images in the train split of {', '.join(catalog.parts)}"


def _seen(manifest: Mapping[str, Any]) -> str:
    seen = manifest["images_seen"]
    return f"{seen:,} images seen" if seen else "none here, published weights as they are"


def _scores() -> list[str]:
    """Return a table of metrics/generator.json; nothing where samples of these weights were not scored."""
    folder = Path("samples/generator")
    try:
        found = json.loads(Path("metrics/generator.json").read_text())
        scored = json.loads(Path("cards/generator.json").read_text()).get("treatment", {}).get("samples")
        samples = read_manifest(folder, "samples")
    except (OSError, ValueError, DarkroomError):
        return []
    how = samples.get("sampler", {})
    others = how.get("weights") != "ema" or how.get("sigma_rel") or how.get("checkpoint") or how.get("distilled")
    if others or samples["model"] != manifest_hash(Path("models/generator")) or scored != manifest_hash(folder):
        return []
    rows = [
        f"| {name} | {value:.5g} | {found.get(f'{name}_se', '')} |"
        for name, value in found.items()
        if isinstance(value, int | float) and not name.endswith("_se")
    ]
    return ["## Scores", "", "| score | value | standard error |", "|---|---|---|", *rows] if rows else []


def _rounded(values: list[float]) -> str:
    return ", ".join(f"{value:.4g}" for value in values)
