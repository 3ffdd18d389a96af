"""Published weights of KL autoencoders, as diffusers stores them: `stabilityai/sd-vae-ft-ema` and others."""

from pathlib import Path
from typing import Any

import torch
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL

from darkroom.errors import DarkroomError
from darkroom.network import telling
from darkroom.schemas.tokenizers.pretrained import Pretrained
from darkroom.tokenizers.kl import KLAutoencoder

_KEY = "`train_tokenizer.pretrained`"


def _source(settings: Pretrained) -> tuple[str, dict[str, Any]]:
    """Return the folder, or the name on the Hub, and where in it.

    Raises:
        DarkroomError: the folder is not there, or has the weights as a pickle alone.
    """
    where = {"subfolder": settings.subfolder} if settings.subfolder else {}
    if settings.name is not None:
        return settings.name, {**where, "revision": settings.revision}
    folder = Path(settings.folder)
    if not (folder / (settings.subfolder or "") / "config.json").is_file():
        raise DarkroomError(
            f"{_KEY} names the folder {settings.folder}, which holds no autoencoder of diffusers' format: give one "
            "with config.json and diffusion_pytorch_model.safetensors, and its `subfolder` if it is a whole pipeline."
        )
    return settings.folder, {**where, "local_files_only": True}


def read_config(settings: Pretrained, image_shape: tuple[int, int, int]) -> dict[str, Any]:
    """Return the configuration of the autoencoder, after checking that it fits images of shape (C, H, W).

    Raises:
        DarkroomError: it cannot be read, is of another class, or takes other channels or sizes.
    """
    source, where = _source(settings)
    with telling(f"the autoencoder {source}, which {_KEY} names, cannot be read"):
        config: dict[str, Any] = dict(AutoencoderKL.load_config(source, **where))
    if (found := config.get("_class_name")) != "AutoencoderKL":
        raise DarkroomError(f"{source}, which {_KEY} names, is a {found}, and an AutoencoderKL is needed.")
    if config["in_channels"] != image_shape[0]:
        raise DarkroomError(
            f"{source}, which {_KEY} names, takes images of {config['in_channels']} channels, and these have "
            f"{image_shape[0]}: set `ingest.channels` in params.yaml accordingly, or take another autoencoder."
        )
    factor = 2 ** (len(config["block_out_channels"]) - 1)
    if factor != settings.downsampling:
        raise DarkroomError(
            f"one place of the latent of {source} stands for {factor} x {factor} pixels: set {_KEY[:-1]}.downsampling` "
            f"in params.yaml to {factor}, not {settings.downsampling}."
        )
    if image_shape[1] % factor:
        raise DarkroomError(
            f"the images have {image_shape[1]} pixels a side, which {factor}, the pixels behind one place of the "
            f"latent of {source}, does not divide: set `ingest.image_size` in params.yaml to a multiple of {factor}."
        )
    return config


def untrained(settings: Pretrained, image_shape: tuple[int, int, int]) -> KLAutoencoder:
    """Return the network without its weights, for images of shape (C, H, W): `darkroom plan` times it.

    Raises:
        DarkroomError: see `read_config`.
    """
    config = read_config(settings, image_shape)
    return KLAutoencoder(AutoencoderKL.from_config({**config, "sample_size": image_shape[1]}))


def load_pretrained(settings: Pretrained, image_shape: tuple[int, int, int]) -> KLAutoencoder:
    """Return the autoencoder with its weights, in evaluation mode, for images of shape (C, H, W).

    From the folder, or by name from the Hub's cache on this machine, or else downloaded into it. Only safetensors are
    read. What is saved of it later says nothing of where it lay.

    Raises:
        DarkroomError: see `read_config`; or the weights are missing or damaged.
    """
    read_config(settings, image_shape)
    source, where = _source(settings)
    with telling(f"the weights of {source}, which {_KEY} names, cannot be read"), torch.random.fork_rng(devices=[]):
        network = AutoencoderKL.from_pretrained(source, **where, use_safetensors=True, torch_dtype=torch.float32)
    network.register_to_config(sample_size=image_shape[1], _name_or_path="")
    return KLAutoencoder(network).eval()
