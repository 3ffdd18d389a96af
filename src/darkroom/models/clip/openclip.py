"""CLIPs of open_clip (Cherti et al., 2023, arXiv 2212.07143), CoCa among them: the extra `open_clip`.

A folder holds what open_clip publishes: `open_clip_config.json`, the network and the preparation of images, and
`open_clip_model.safetensors`. open_clip opens it by `create_model("local-dir:FOLDER")`.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from darkroom.artifacts.atomic import write_bytes
from darkroom.artifacts.manifest import sha256_bytes
from darkroom.errors import DarkroomError
from darkroom.models.clip.network import VOCABULARY, Clip, Preprocessing
from darkroom.models.clip.settings import OPEN_CLIP_CONFIG as CONFIG
from darkroom.remote import library_errors

WEIGHTS = "open_clip_model.safetensors"
_READ = ("size", "mean", "std", "interpolation", "resize_mode")  # keys of open_clip's `preprocess_cfg`


class OpenClip(Clip):
    """A frozen CLIP of open_clip, float32, in evaluation mode; attributes as of `Clip`.

    config: `model_cfg` and `preprocess_cfg`, as published.
    """

    def __init__(
        self, network: Any, config: dict[str, Any], truncate: bool = False, fingerprint: str | None = None
    ) -> None:
        """Freeze a network of open_clip's, converted to float32 in place.

        `fingerprint` is the hash of weights and configuration, if known.

        Raises:
            DarkroomError: its tokenizer is not CLIP's byte pairs, or its images are not square.
        """
        self.network, self.config, self.truncate = network.float().eval().requires_grad_(False), config, truncate
        self._tower = getattr(network, "text", network)
        text, images = config["model_cfg"].get("text_cfg", {}), config["preprocess_cfg"]
        own = any(text.get(key) for key in ("hf_model_name", "hf_tokenizer_name", "tokenizer_kwargs"))
        if own or text.get("vocab_size", VOCABULARY) != VOCABULARY:
            raise DarkroomError(
                "this CLIP has its own tokenizer: use one without `hf_tokenizer_name` and `hf_model_name`."
            )
        height, width = images["size"] if not isinstance(images["size"], int) else (images["size"],) * 2
        if height != width or images["interpolation"] not in ("bicubic", "bilinear"):
            raise DarkroomError(
                f"this CLIP of open_clip takes {height} x {width} pixels, resized by {images['interpolation']}: use "
                "one that takes squares, bicubic or bilinear."
            )
        self.embed_dim = config["model_cfg"]["embed_dim"]
        self.text_width = self._tower.ln_final.weight.shape[0]
        self.context_length, self.image_size = self._tower.context_length, height
        mean, std = tuple(images["mean"]), tuple(images["std"])
        self._preprocessing = Preprocessing(height, mean, std, images["interpolation"])
        self._layers: list[Tensor] = []  # the last layer of the text transformer, of the last call
        self._tower.transformer.register_forward_hook(lambda module, given, output: self._layers.append(output))
        self._device = torch.device("cpu")
        self.fingerprint = fingerprint or sha256_bytes(sha256_bytes(save(self.state())).encode() + self._described())

    def state(self) -> dict[str, Tensor]:
        """Return the weights, float32."""
        return {name: value.detach().cpu().contiguous() for name, value in self.network.state_dict().items()}

    def _described(self) -> bytes:
        return json.dumps(self.config, indent=2, sort_keys=True).encode()

    def write(self, folder: Path) -> None:
        """Write the files that open_clip opens."""
        write_bytes(folder / CONFIG, self._described())
        write_bytes(folder / WEIGHTS, save(self.state()))

    @torch.no_grad()
    def images(self, images: Tensor) -> Tensor:
        """Return the embeddings, float32 (N, embed_dim), not normalised, of uint8 images (N, C, H, H)."""
        return self.network.encode_image(self._preprocessing(images.to(self._device)), normalize=False)

    @torch.no_grad()
    def tokens(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return embeddings and encodings, as `Clip.texts` does, of tokens int64 (N, context_length)."""
        tokens = tokens.to(self._device)
        self._layers.clear()
        embeddings = self.network.encode_text(tokens, normalize=False)
        length = tokens.shape[1]
        # A CoCa appends its own token to those of the text.
        encodings = self._tower.ln_final(self._layers.pop()[:, :length])
        inside = torch.arange(length, device=tokens.device) <= tokens.argmax(dim=1)[:, None]
        return embeddings, encodings * inside[:, :, None]


def read_open_clip(
    source: str, downloads: Path | None = None, truncate: bool = False, fingerprint: str | None = None
) -> OpenClip:
    """Return a CLIP of open_clip, on the CPU.

    Args:
        source: a folder as above, `ARCHITECTURE/TAG` of open_clip's list, or `hf-hub:OWNER/NAME`.
        downloads: the folder for downloads.
        truncate: whether to truncate texts that are too long.
        fingerprint: its hash, if known.

    Raises:
        DarkroomError: the package is missing, or the CLIP does not exist or cannot be read.
    """
    try:
        import open_clip
        from open_clip.pretrained import get_pretrained_cfg
    except ImportError:
        raise DarkroomError(f"{source} needs open_clip: install it with `pip install -e '.[open_clip]'`.") from None
    name, tag, changes = source, None, {}
    if Path(source).is_dir():
        name = f"local-dir:{source}"
    elif not source.startswith("hf-hub:"):
        name, _, tag = source.partition("/")
        # The weights, not the architecture, determine whether the activation is OpenAI's.
        changes = {"force_quick_gelu": bool(get_pretrained_cfg(name, tag).get("quick_gelu"))}
    with library_errors(f"the CLIP {source} of open_clip cannot be read"), torch.random.fork_rng(devices=[]):
        network = open_clip.create_model(
            name,
            pretrained=tag,
            require_pretrained=True,
            cache_dir=None if downloads is None else str(downloads),
            pretrained_image=False,
            pretrained_text=False,
            **changes,
        )
        model = dict(open_clip.get_model_config(name))
    if changes.get("force_quick_gelu"):
        model["quick_gelu"] = True
    images = {key: value for key, value in network.visual.preprocess_cfg.items() if key in _READ}
    return OpenClip(network, {"model_cfg": model, "preprocess_cfg": images}, truncate, fingerprint)
