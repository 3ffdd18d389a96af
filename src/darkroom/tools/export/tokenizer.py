"""`darkroom export --model tokenizer`: models/tokenizer in the format of its original, with a page about it."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from darkroom.artifacts.atomic import atomic_folder
from darkroom.artifacts.manifest import open_artifact
from darkroom.errors import DarkroomError
from darkroom.models.tokenizers.dvae.tokenizer import DiscreteVAE
from darkroom.models.tokenizers.kl.network import KLAutoencoder
from darkroom.models.tokenizers.load import load_tokenizer
from darkroom.models.tokenizers.vqgan.network import VQGANTokenizer
from darkroom.tools.export.card import escaped, header
from darkroom.tools.places import require_no_output

TOKENIZER, WEIGHTS = Path("models/tokenizer"), "vae.pt"


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
    if out.exists():
        raise DarkroomError(f"{out} is there already: remove it, or name another folder with --out.")
    require_no_output(f"--out {out}", out)
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
            torch.save(model.original(), folder / WEIGHTS)
        else:
            model.save_pretrained(folder)
        facts: dict[str, Any] = {
            name: manifest[name] for name in ("image_shape", "latent_shape", "images_seen") if name in manifest
        }
        (folder / "darkroom.json").write_text(json.dumps({"tokenizer_kind": kind, **facts}, indent=2) + "\n")
        (folder / "README.md").write_text(_page(form, os.fspath(out), licence, model, {"kind": kind, **facts}))
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    return f"{out}: {form}, {size / 1e6:,.1f} MB; {out}/README.md says how it is loaded"


def _page(form: str, folder: str, licence: str, model: Any, facts: Mapping[str, Any]) -> str:
    """Return the page, Markdown with the Hub's header."""
    image, latent = (" x ".join(map(str, facts.get(name, ["?"]))) for name in ("image_shape", "latent_shape"))
    seen = facts.get("images_seen")
    lines = [
        *header(licence, form),
        "",
        f"# An image tokenizer of the kind `{facts['kind']}`",
        "",
        f"- Parameters: {sum(p.numel() for p in model.parameters()):,}.",
        f"- Images: {image}; latents: {latent}.",
        f"- Training: {f'{seen:,} images seen' if seen else 'none here, weights as they were given'}.",
        f"- License: {escaped(licence)}. Weights that were fine-tuned from others stay under the license of those.",
        "",
        "## Load it",
        "",
        "```python",
        _EXAMPLES[_example(form, model)](folder, model),
        "```",
    ]
    return "\n".join(lines) + "\n"


def _example(form: str, model: Any) -> str:
    return {DiscreteVAE: "dalle", VQGANTokenizer: "muse"}[type(model)] if form == "pt" else form


def _of_dalle(folder: str, _: Any) -> str:
    return f"""import torch
from dalle_pytorch import DiscreteVAE

saved = torch.load({f"{folder}/{WEIGHTS}"!r}, weights_only=True)
vae = DiscreteVAE(**saved["hparams"])
vae.load_state_dict(saved["weights"])"""


def _of_muse(folder: str, model: VQGANTokenizer) -> str:
    config = model.config
    blocks = (*[0] * (config.layers - 1), config.residual_blocks)
    spherical = ", lfq_kwargs={'spherical': True}" if config.quantiser == "bsq" else ""
    return f"""from muse_maskgit_pytorch import VQGanVAE

vae = VQGanVAE(
    dim={config.width}, channels={config.image_channels}, layers={config.layers}, codebook_size={config.codebook_size},
    encdec_num_resnet_blocks={blocks}, encdec_resnet_groups={config.norm_groups}, use_vgg_and_gan=False{spherical},
)
vae.load({f"{folder}/{WEIGHTS}"!r})  # images from 0 to 1; the file holds no discriminator"""


def _of_diffusers(folder: str, _: Any) -> str:
    return f"""from diffusers import AutoencoderKL

vae = AutoencoderKL.from_pretrained({folder!r})  # images from -1 to 1"""


def _of_safetensors(folder: str, model: Any) -> str:
    name = "diffusion_pytorch_model" if isinstance(model, KLAutoencoder) else "model"
    return f"""from safetensors.torch import load_file

weights = load_file({f"{folder}/{name}.safetensors"!r})  # train_tokenizer.training.init.folder takes this folder"""


_EXAMPLES: dict[str, Callable[[str, Any], str]] = {
    "dalle": _of_dalle,
    "muse": _of_muse,
    "diffusers": _of_diffusers,
    "safetensors": _of_safetensors,
}
