"""The KL autoencoder of latent diffusion (Rombach et al., 2022, arXiv 2112.10752): diffusers' AutoencoderKL.

Its weights may be published ones in diffusers' format, such as `stabilityai/sd-vae-ft-ema`.
"""

import math
import re
from pathlib import Path
from typing import Any, Self

import torch
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from torch import Tensor, nn

from darkroom.errors import DarkroomError
from darkroom.models.tokenizers.kl.settings import KL, PATCH, Pretrained
from darkroom.models.tokenizers.protocol import fit_size, require_shape, to_images, to_network
from darkroom.remote import library_errors

_NEW_ATTENTION = {"query": "to_q", "key": "to_k", "value": "to_v", "proj_attn": "to_out.0"}
_OLD_ATTENTION = re.compile(rf"(\.attentions\.\d+)\.({'|'.join(_NEW_ATTENTION)})\.")


def build(settings: KL, image_channels: int, image_size: int) -> AutoencoderKL:
    """Return an untrained autoencoder for square images of `image_size` pixels."""
    levels = len(settings.channels)
    network = AutoencoderKL(
        in_channels=image_channels * settings.patch**2,
        out_channels=image_channels * settings.patch**2,
        down_block_types=("DownEncoderBlock2D",) * levels,
        up_block_types=("UpDecoderBlock2D",) * levels,
        block_out_channels=tuple(settings.channels),
        layers_per_block=settings.layers_per_block,
        latent_channels=settings.latent_channels,
        norm_num_groups=settings.norm_groups,
        sample_size=image_size,
    )
    if settings.patch > 1:
        network.register_to_config(**{PATCH: settings.patch})
    return network


def kl_per_element(mean: Tensor, logvar: Tensor) -> Tensor:
    """Return KL(N(mean, exp(logvar)) || N(0, 1)) = (mean² + exp(logvar) - 1 - logvar) / 2, for each element.

    Diffusers' own `kl()` sums over channels and pixels, so its weight would depend on the latent's size.
    """
    return 0.5 * (mean.square() + logvar.exp() - 1 - logvar)


class KLAutoencoder(nn.Module):
    """A trained or training `AutoencoderKL` behind the tokenizer protocol.

    With `patch` p its encoder sees p x p pixels as the channels of one position, and its decoder returns them so (pixel
    unshuffle and shuffle; Shi et al., 2016, arXiv 1609.05158): the outer layers, at full resolution, cost most.
    """

    def __init__(self, network: AutoencoderKL) -> None:
        super().__init__()
        self.network = network
        config: Any = network.config
        patch = config.get(PATCH, 1)
        self.image_channels = config.in_channels // patch**2
        self.factor = patch * 2 ** (len(config.block_out_channels) - 1)
        fit_size(network.encoder, network.decoder, config.sample_size, self.factor, patch)

    @property
    def latent_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of a latent."""
        config: Any = self.network.config
        side = math.ceil(config.sample_size / self.factor)
        return config.latent_channels, side, side

    def posterior(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and logvar, clamped to [-30, 20], of network images x (N, C, H, W) in [-1, 1]."""
        distribution = self.network.encode(x).latent_dist
        return distribution.mean, distribution.logvar

    def forward(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the reconstruction of x from mean + std * noise, mean and logvar.

        Losses need only these values: a wrapper that shares gradients wraps only this method.
        """
        mean, logvar = self.posterior(x)
        latents = mean + (0.5 * logvar).exp() * noise
        return self.network.decode(latents).sample, mean, logvar

    @property
    def last(self) -> nn.Parameter:
        """Weight of the decoder's last layer, at which gradients of losses are compared."""
        weight = self.network.decoder.conv_out.weight
        assert isinstance(weight, nn.Parameter)
        return weight

    @torch.no_grad()
    def encode(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and logvar, each (N, *latent_shape), float32, of uint8 images (N, C, H, W)."""
        config: Any = self.network.config
        require_shape(images, (self.image_channels, config.sample_size, config.sample_size))
        mean, logvar = self.posterior(to_network(images))
        return mean.float(), logvar.float()

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        """Return uint8 images (N, C, H, W) from latents (N, *latent_shape)."""
        return to_images(self.network.decode(latents).sample)

    def reconstruct(self, images: Tensor) -> Tensor:
        """Return the images decoded from the means of the latents, uint8 (N, C, H, W)."""
        return self.decode(self.encode(images)[0])

    @staticmethod
    def own_names(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors of a diffusers file under the names of `state_dict()`, to initialise fine-tuning.

        Files from the time of Stable Diffusion use older names for the projections of the attention.
        """

        def renamed(name: str) -> str:
            return _OLD_ATTENTION.sub(lambda match: f"{match[1]}.{_NEW_ATTENTION[match[2]]}.", name)

        return {f"network.{renamed(name)}": value for name, value in tensors.items()}

    def save_pretrained(self, folder: Path) -> None:
        """Write diffusers' `config.json` and `diffusion_pytorch_model.safetensors`."""
        self.network.save_pretrained(folder)

    @classmethod
    def from_pretrained(cls, folder: Path) -> Self:
        """Return the autoencoder in a folder of diffusers' format, in evaluation mode, without access to the Hub."""
        return cls(AutoencoderKL.from_pretrained(folder, local_files_only=True)).eval()


_KEY = "`train_tokenizer.pretrained`"


def _source(settings: Pretrained) -> tuple[str, dict[str, Any]]:
    """Return the folder, or the name on the Hub, and the arguments that locate the autoencoder in it."""
    where = {"subfolder": settings.subfolder} if settings.subfolder else {}
    if settings.name is not None:
        return settings.name, {**where, "revision": settings.revision}
    if reason := settings.not_there():
        raise DarkroomError(f"{_KEY}: {reason}.")
    return settings.folder, {**where, "local_files_only": True}


def load_pretrained(settings: Pretrained, image_shape: tuple[int, int, int]) -> KLAutoencoder:
    """Return the autoencoder with its weights, in evaluation mode, for images of shape (C, H, W).

    From the folder, or by name from the Hub's cache on this machine, or else downloaded into it. Only safetensors are
    read. A saved copy does not contain its location.

    Raises:
        DarkroomError: configuration or weights cannot be read, or it is of another class, or needs other channels or
            sizes.
    """
    source, where = _source(settings)
    offline = "" if settings.name is None else " from the Hub or its local cache (offline, set `folder`)"
    with library_errors(f"the autoencoder {source}, which {_KEY} names, cannot be read{offline}"):
        config = dict(AutoencoderKL.load_config(source, **where))
    if reason := settings.misfit(config, image_shape):
        raise DarkroomError(f"{_KEY}: {reason}.")
    with (
        library_errors(f"the weights of {source}, which {_KEY} names, cannot be read"),
        torch.random.fork_rng(devices=[]),
    ):
        network = AutoencoderKL.from_pretrained(source, **where, use_safetensors=True, torch_dtype=torch.float32)
    network.register_to_config(sample_size=image_shape[1], _name_or_path="")
    return KLAutoencoder(network).eval()
