"""Published weights of KL autoencoders, as diffusers stores them: `stabilityai/sd-vae-ft-ema` and others."""

from typing import Any

import torch
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL

from darkroom.errors import DarkroomError
from darkroom.models.tokenizers.kl.network import KLAutoencoder
from darkroom.models.tokenizers.pretrained.settings import Pretrained
from darkroom.remote import telling

_KEY = "`train_tokenizer.pretrained`"


def _source(settings: Pretrained) -> tuple[str, dict[str, Any]]:
    """Return the folder, or the name on the Hub, and where in it.

    Raises:
        DarkroomError: the folder is not there, or has no weights in safetensors.
    """
    where = {"subfolder": settings.subfolder} if settings.subfolder else {}
    if settings.name is not None:
        return settings.name, {**where, "revision": settings.revision}
    if reason := settings.not_there():
        raise DarkroomError(f"{_KEY}: {reason}.")
    return settings.folder, {**where, "local_files_only": True}


def read_config(settings: Pretrained, image_shape: tuple[int, int, int]) -> dict[str, Any]:
    """Return the configuration of the autoencoder, after checking that it fits images of shape (C, H, W).

    Raises:
        DarkroomError: it cannot be read, is of another class, or takes other channels or sizes.
    """
    source, where = _source(settings)
    offline = "" if settings.name is None else " from the Hub or its cache here (offline, name a `folder`)"
    with telling(f"the autoencoder {source}, which {_KEY} names, cannot be read{offline}"):
        config: dict[str, Any] = dict(AutoencoderKL.load_config(source, **where))
    if reason := settings.misfit(config, image_shape):
        raise DarkroomError(f"{_KEY}: {reason}.")
    return config


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
