"""The page of an exported generator: what it is, its data, its scores, and how it is loaded."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from darkroom.artifacts.manifest import manifest_hash, read_manifest
from darkroom.data.catalog import load_catalog
from darkroom.errors import DarkroomError
from darkroom.models.generators.dit.network import DiT

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
        *header(licence, form, tags=["dit", f"{tag}-image-generation"]),
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
        f"- License: {escaped(licence)}. Weights that were fine-tuned from others stay under the license of those.",
        "",
        "## Load it",
        "",
        "```python",
        example,
        "```",
        "",
        _READS[form],
        "",
        *(_scores() if weights == "ema" else []),
    ]
    return "\n".join(lines).rstrip() + "\n"


def header(licence: str, form: str, **more: Any) -> list[str]:
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
