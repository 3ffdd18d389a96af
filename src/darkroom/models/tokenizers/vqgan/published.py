"""Files of muse-maskgit-pytorch's `VQGanVAE`: names of its tensors and ours, for lookup-free codes.

`vae.{step}.pt` is its state dict; `vae.{step}.ema.pt` that of the averages, read from `ema_model`; files of
`VQGanVAETrainer.save` have it under `model`. Its linear maps before and after the codes are 1 x 1 convolutions here.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from darkroom.errors import DarkroomError
from darkroom.models.tokenizers.vqgan.settings import VQGANConfig
from darkroom.training.weight_files import read_pickled

_KEY = "`train_tokenizer.vqgan.{}`"
_LINEAR = ("project_in", "project_out")


@dataclass(frozen=True)
class _Shape:
    """Layers that halve the resolution, residual blocks after them, levels of the discriminator (0: none)."""

    layers: int
    residual_blocks: int
    levels: int

    @classmethod
    def of(cls, names: Mapping[str, Any]) -> "_Shape | None":
        """Return the layers of MUSE's names; None: a residual block precedes another layer, which is not supported."""
        parts = ("encoders", "discr.layers")
        kinds, levels = (
            {int(match[1]): match[2] for name in names if (match := _numbered(part, name))} for part in parts
        )
        in_order = [kinds[number] for number in sorted(kinds)][1:]  # after the stem
        layers = sum(kind == "0" for kind in in_order)
        if any(kind != "0" for kind in in_order[:layers]):
            return None
        return cls(layers, len(in_order) - layers, len(levels))

    def names(self) -> dict[str, str]:
        """Return MUSE's name of each of our layers, without `.weight` and `.bias`."""
        layers, blocks = self.layers, self.residual_blocks
        first = 1 + 2 * layers  # the encoder's first residual block
        up = 1 + blocks  # the decoder's first layer after its residual blocks
        theirs = {"encoder.0": "enc_dec.encoders.0", f"encoder.{first + blocks}": "quantizer.project_in"}
        theirs |= {f"encoder.{1 + 2 * at}": f"enc_dec.encoders.{1 + at}.0" for at in range(layers)}
        theirs |= {
            "decoder.0": "quantizer.project_out",
            f"decoder.{up + 2 * layers}": f"enc_dec.decoders.{blocks + layers}",
        }
        theirs |= {f"decoder.{up + 2 * at}": f"enc_dec.decoders.{blocks + at}.0" for at in range(layers)}
        for block in range(blocks):
            for inner in (0, 1, 3, 4, 6):  # convolution, norm, convolution, norm, convolution
                theirs[f"encoder.{first + block}.layers.{inner}"] = f"enc_dec.encoders.{1 + layers + block}.net.{inner}"
            for inner in (0, 2, 3, 5, 6):  # the norms follow gated linear units
                theirs[f"decoder.{1 + block}.layers.{inner}"] = f"enc_dec.decoders.{block}.net.{inner}"
        return theirs

    def discriminator(self) -> dict[str, str]:
        """Return the same for the discriminator."""
        levels, end = self.levels, 3 * self.levels - 1
        if not levels:
            return {}
        theirs = {"discriminator/layers.0": "discr.layers.0.0"}
        for level in range(1, levels):
            theirs[f"discriminator/layers.{3 * level - 1}"] = f"discr.layers.{level}.0"
            theirs[f"discriminator/layers.{3 * level}"] = f"discr.layers.{level}.1"
        return theirs | {
            f"discriminator/layers.{end}": "discr.to_logits.0",
            f"discriminator/layers.{end + 2}": "discr.to_logits.2",
        }


def _numbered(part: str, name: str) -> re.Match[str] | None:
    return re.match(rf"(?:enc_dec\.)?{re.escape(part)}\.(\d+)\.(\w+)", name)


def read(path: Path, config: VQGANConfig) -> dict[str, Tensor]:
    """Return the tensors of a file by our names, those of the discriminator as `discriminator/NAME`.

    Raises:
        DarkroomError: a pickle that needs code or is damaged; it holds no `VQGanVAE` with lookup-free codes and
            residual blocks at the lowest resolution; or the network sees pixels in another range.
    """
    theirs = _state(read_pickled(path))
    if "enc_dec.encoders.0.weight" not in theirs:
        raise DarkroomError(
            f"{path} holds no VQGanVAE: enc_dec.encoders.0.weight is missing; use a file of muse-maskgit-pytorch."
        )
    shape = _Shape.of(theirs)
    if shape is None or "quantizer.mask" not in theirs or "quantizer.project_in.weight" not in theirs:
        reason = "residual blocks before its last layer" if shape is None else "no linear maps around lookup-free codes"
        raise DarkroomError(f"{path} holds a VQGanVAE with {reason}, which this tokenizer does not support.")
    if config.quantiser not in ("lfq", "bsq"):
        raise DarkroomError(
            f"{path} holds a VQGanVAE with lookup-free codes, but {_KEY.format('quantiser')} is {config.quantiser}: "
            "set it to lfq, or to bsq where its `lfq_kwargs` had `spherical`."
        )
    if config.pixels != "unit":
        raise DarkroomError(f"{path} holds a VQGanVAE: set {_KEY.format('pixels')} to unit.")
    tensors = {"quantiser.signs.mask": theirs["quantizer.mask"]}
    tensors["quantiser.counts"] = torch.zeros(2 ** len(theirs["quantizer.mask"]))
    for our, name in (shape.names() | shape.discriminator()).items():
        for kind in ("weight", "bias"):
            if (value := theirs.get(f"{name}.{kind}")) is not None:
                flat = kind == "weight" and name.endswith(_LINEAR)
                tensors[f"{our}.{kind}"] = value[:, :, None, None] if flat else value
    return tensors


def _state(content: Any) -> dict[str, Tensor]:
    """Return the `VQGanVAE` weights in a file; the averaged ones if it has both."""
    whole: dict[Any, Any] = content if isinstance(content, dict) else {}
    whole = whole["model"] if isinstance(whole.get("model"), dict) else whole
    tensors = {str(name): value for name, value in whole.items() if isinstance(value, Tensor)}
    averaged = {name: value for name, value in tensors.items() if name.startswith("ema_model.")}
    return {name.removeprefix("ema_model."): value for name, value in averaged.items()} or tensors


def written(config: VQGANConfig, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return our tensors by MUSE's names, for `VQGanVAE.load_state_dict` without a discriminator.

    Raises:
        DarkroomError: MUSE has no such quantiser, or has another range of pixels; names the key.
    """
    for key, given, needed in (("quantiser", config.quantiser, "lfq"), ("pixels", config.pixels, "unit")):
        if given != needed and (key, given) != ("quantiser", "bsq"):
            raise DarkroomError(
                f"{_KEY.format(key)} is {given}, but MUSE's `VQGanVAE` only has {needed}: export safetensors."
            )
    renamed = {"quantizer.mask": tensors["quantiser.signs.mask"].clone()}
    for our, name in _Shape(config.layers, config.residual_blocks, 0).names().items():
        for kind in ("weight", "bias"):
            tensor = tensors[f"{our}.{kind}"]
            flat = kind == "weight" and name.endswith(_LINEAR)
            renamed[f"{name}.{kind}"] = (tensor[:, :, 0, 0] if flat else tensor).clone()
    return renamed
