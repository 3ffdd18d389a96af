"""Files of dalle-pytorch's `train_vae.py`: `{"hparams", "weights"}` of a `DiscreteVAE`, with the same names as ours."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from darkroom.errors import DarkroomError
from darkroom.models.tokenizers.dvae.settings import DVAEConfig
from darkroom.training.weight_files import read_pickled

# Arguments of its constructor, and our keys of the section; `normalization` only if it is not the default.
NAMES = {
    "num_tokens": "codebook_size",
    "codebook_dim": "codebook_dim",
    "num_layers": "layers",
    "hidden_dim": "width",
    "num_resnet_blocks": "residual_blocks",
}
_MEAN, _STD = (0.5, 0.5, 0.5, 0.0), (0.5, 0.5, 0.5, 1.0)  # the default


def normalization(config: DVAEConfig) -> tuple[list[float], list[float]]:
    """Return the means and deviations of pixels in [0, 1] that a network sees, one per channel."""
    if config.mean is not None and config.std is not None:
        return list(config.mean), list(config.std)
    if config.alpha == "unit":
        return list(_MEAN[: config.channels]), list(_STD[: config.channels])
    return [0.5] * config.channels, [0.5] * config.channels


def read(path: Path, config: DVAEConfig) -> dict[str, Tensor]:
    """Return the weights of a file by dalle-pytorch's names.

    Raises:
        DarkroomError: a pickle that needs code or is damaged; it holds no `DiscreteVAE`; or it was trained for
            images of another size or another range of pixels, which its weights do not show.
    """
    content = read_pickled(path)
    whole: dict[Any, Any] = content if isinstance(content, dict) else {}
    weights, hparams = whole.get("weights", whole), whole.get("hparams", {})
    if not isinstance(weights, dict) or not {"codebook.weight", "encoder.0.0.weight"} <= weights.keys():
        raise DarkroomError(
            f"{path} holds no DiscreteVAE: it lacks the tensors codebook.weight and encoder.0.0.weight of the files of "
            "dalle-pytorch's train_vae.py. Use a file with a DiscreteVAE."
        )
    if not all(isinstance(value, Tensor) for value in weights.values()) or not isinstance(hparams, dict):
        raise DarkroomError(f"{path} is not from dalle-pytorch's train_vae.py: its weights are not tensors by name.")
    if (size := hparams.get("image_size", config.image_size)) != config.image_size:
        raise DarkroomError(
            f"{path} was trained on images of {size} pixels: set `ingest.image_size` to {size}, not "
            f"{config.image_size}."
        )
    _require_range(path, hparams.get("normalization", (_MEAN, _STD)), config)
    return dict(weights)


def _require_range(path: Path, given: Any, config: DVAEConfig) -> None:
    means, stds = given or ([0.0] * config.channels, [1.0] * config.channels)
    theirs, ours = [list(values)[: config.channels] for values in (means, stds)], list(normalization(config))
    if theirs != ours:
        key = "`train_tokenizer.dvae.alpha` to unit"
        if (theirs[0], theirs[1]) != (list(_MEAN[: config.channels]), list(_STD[: config.channels])):
            key = f"`train_tokenizer.dvae.mean` to {theirs[0]} and `.std` to {theirs[1]}"
        raise DarkroomError(
            f"{path} was trained on pixels normalised by {theirs[0]} and {theirs[1]}, but the settings have {ours[0]} "
            f"and {ours[1]}: set {key}."
        )


def written(config: DVAEConfig, weights: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return the content of a file for dalle-pytorch's `generate.py` and `train_dalle.py`: `{"hparams", "weights"}`.

    Args:
        config: that of the network.
        weights: `DVAENetwork.state_dict()`.

    Raises:
        DarkroomError: its constructor does not support the size of the images.
    """
    if config.image_size & (config.image_size - 1):
        raise DarkroomError(
            f"`ingest.image_size` is {config.image_size}, but dalle-pytorch needs a power of two: export safetensors."
        )
    hparams: dict[str, Any] = {name: getattr(config, name) for name in ("image_size", *NAMES, "channels")}
    means, stds = normalization(config)
    if (means, stds) != (list(_MEAN[: config.channels]), list(_STD[: config.channels])):
        hparams["normalization"] = (tuple(means), tuple(stds))
    return {"hparams": hparams, "weights": {name: value.clone() for name, value in weights.items()}}
