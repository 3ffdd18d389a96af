"""A U-Net of the unCLIP decoder: diffusers' UNet2DConditionModel with its conditions.

Ramesh et al., "Hierarchical text-conditional image generation with CLIP latents", 2022, arXiv 2204.06125: the image
embedding is added to the time's and enters as tokens of the cross-attention, text encodings as more of them. Dropped
conditions are replaced by learned nulls, the image and the text each by its own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from diffusers import UNet2DConditionModel
from diffusers.models.activations import GEGLU
from diffusers.models.embeddings import get_timestep_embedding
from diffusers.models.resnet import ResnetBlock2D
from torch import Tensor, nn
from torch.nn import functional

from darkroom.artifacts.networks import SavedNetwork
from darkroom.diffusion.denoiser import Guidance, denoiser
from darkroom.diffusion.types import Denoise, Network, Objective, Threshold
from darkroom.models.fused import fused

_FREQUENCIES = 64  # of the embedding of a noise level


@dataclass(frozen=True)
class UNetConfig:
    """The shape of a U-Net, and its conditions.

    size: pixels, or places of a latent, in height and width.
    image_channels: of the images.
    channels: width of each level; each but the last halves the resolution.
    attention: for each level, whether it has attention over its places and the tokens.
    layers: residual layers of each level.
    head_dim: width of an attention head.
    norm_groups: groups of the group norms.
    patch: pixels, height and width, that become one place with more channels before the first convolution.
    dropout: fraction of the features of a residual layer dropped while training.
    embed_dim: length of the image embedding; 0: none.
    image_tokens: tokens from the embedding; 0: none.
    image_to_time: whether the embedding is added to the time's.
    image_map: channels of a map over the last level's places, from the embedding, as further input; 0: none.
    embedding_noise: whether the embedding may be noisy, with the amount as a condition.
    text_shape: tokens and width of the text encoding; None: none.
    low: whether it enlarges an image (low-resolution conditioning).
    low_noise: whether that image may be noisy, with the amount as a condition.
    self_condition: whether it reads the x0 of the step before.
    learned_variance: whether it also predicts the variance, in twice the channels.
    """

    size: int
    image_channels: int
    channels: tuple[int, ...]
    attention: tuple[bool, ...]
    layers: int
    head_dim: int
    norm_groups: int
    patch: int = 1
    dropout: float = 0.0
    embed_dim: int = 0
    image_tokens: int = 0
    image_to_time: bool = False
    image_map: int = 0
    embedding_noise: bool = False
    text_shape: tuple[int, int] | None = None
    low: bool = False
    low_noise: bool = False
    self_condition: bool = False
    learned_variance: bool = False


@dataclass(frozen=True)
class Conditions:
    """The conditions of N images; None: no condition.

    image: CLIP image embeddings, scaled to about unit variance, float32 (N, D).
    text: text encodings, zero after their end, float32 (N, L, W).
    low: the image to enlarge, already at the U-Net's size, in [-1, 1], float32 (N, C, S, S).
    image_kept, text_kept: whether each image's condition is kept or replaced by its null, bool (N,); None: all kept.
    image_noise, low_noise: the fraction of noise in the two, 0 to 1, float32 (N,); None: 0.
    """

    image: Tensor | None = None
    text: Tensor | None = None
    low: Tensor | None = None
    image_kept: Tensor | None = None
    text_kept: Tensor | None = None
    image_noise: Tensor | None = None
    low_noise: Tensor | None = None

    def guided(self) -> "Conditions":
        """Return these conditions, then the same without image embedding and text, as those of 2 N images."""
        given = self.image if self.image is not None else self.text
        assert given is not None
        kept = torch.arange(2 * len(given), device=given.device) < len(given)
        twice = {name: torch.cat([each, each]) for name, each in vars(self).items() if each is not None}
        return Conditions(**twice | {"image_kept": kept, "text_kept": kept})


class DecoderUNet(SavedNetwork):
    """The U-Net with its conditions. Predicts the target of its objective, and the variance where it is learned."""

    shape = UNetConfig
    made_by = ("U-Net", "train_decoder")

    def __init__(self, config: UNetConfig) -> None:
        super().__init__()
        self.config = config
        last = config.channels[-1]
        crossed = bool(config.image_tokens or config.text_shape)
        vector = config.embed_dim * config.image_to_time + _FREQUENCIES * (config.embedding_noise + config.low_noise)
        extra = config.low + config.self_condition
        places = config.image_channels * config.patch**2
        unet: Any = UNet2DConditionModel(
            sample_size=-(-config.size // config.patch),
            in_channels=places * (1 + extra) + config.image_map,
            out_channels=places * (1 + config.learned_variance),
            down_block_types=tuple(_block("Down", each, crossed) for each in config.attention),
            mid_block_type="UNetMidBlock2DCrossAttn" if crossed and config.attention[-1] else "UNetMidBlock2D",
            up_block_types=tuple(_block("Up", each, crossed) for each in reversed(config.attention)),
            block_out_channels=config.channels,
            layers_per_block=config.layers,
            # What diffusers expects: the number of heads for cross-attention, their width for self-attention alone.
            attention_head_dim=tuple(
                each // config.head_dim if crossed else config.head_dim for each in config.channels
            ),
            norm_num_groups=config.norm_groups,
            dropout=config.dropout,
            cross_attention_dim=last,
            resnet_time_scale_shift="scale_shift",
            class_embed_type="projection" if vector else None,
            projection_class_embeddings_input_dim=vector or None,
        )
        for parameter in unet.conv_out.parameters():  # the output is zero at first
            nn.init.zeros_(parameter)
        for module in unet.modules():
            if isinstance(module, ResnetBlock2D):
                fused(module.time_emb_proj, 2)  # scale and shift
            elif isinstance(module, GEGLU):
                fused(module.proj, 2)
        self.unet = unet
        if config.embed_dim:
            self.null_image = nn.Parameter(torch.randn(config.embed_dim))
        if config.image_tokens:
            self.image_tokens = nn.Linear(config.embed_dim, config.image_tokens * last)
        if config.image_map:
            self.image_map = nn.Linear(config.embed_dim, config.image_map * self._map_side**2)
        if config.text_shape is not None:
            length, width = config.text_shape
            self.text_tokens = nn.Linear(width, last)
            self.null_text = nn.Parameter(0.02 * torch.randn(length, last))

    @property
    def _map_side(self) -> int:
        return -(-self.config.size // (self.config.patch * 2 ** (len(self.config.channels) - 1)))

    @property
    def blocks(self) -> list[nn.Module]:
        """The blocks whose activations may be computed again in the backward pass."""
        return [*self.unet.down_blocks, *self.unet.up_blocks]

    def forward(self, x: Tensor, timesteps: Tensor, conditions: Conditions, before: Tensor | None = None) -> Tensor:
        """Return the prediction, (N, C, S, S), or (N, 2 C, S, S) with the variance after it.

        Args:
            x: noisy images, (N, C, S, S).
            timesteps: (N,), integer or float.
            conditions: the conditions that the configuration names.
            before: x0 of the previous step, (N, C, S, S); None: zeros, if the U-Net is self-conditioned.
        """
        config = self.config
        inputs = [x]
        if config.low:
            assert conditions.low is not None
            inputs.append(conditions.low)
        if config.self_condition:
            inputs.append(torch.zeros_like(x) if before is None else before)
        size = x.shape[-1]
        if gap := -size % (config.patch * 2 ** (len(config.channels) - 1)):
            inputs = [functional.pad(each, (0, gap, 0, gap)) for each in inputs]
        image = self._image(conditions)
        output = self.unet(
            self._with_map(functional.pixel_unshuffle(torch.cat(inputs, dim=1), config.patch), image),
            timesteps,
            encoder_hidden_states=self._tokens(image, conditions),
            class_labels=self._vector(x, image, conditions),
            return_dict=False,
        )[0]
        output = functional.pixel_shuffle(output, config.patch)
        return output[..., :size, :size] if gap else output

    def _image(self, conditions: Conditions) -> Tensor | None:
        """Return the embeddings, the null where one is dropped, (N, D)."""
        if not self.config.embed_dim:
            return None
        assert conditions.image is not None
        if conditions.image_kept is None:
            return conditions.image
        return torch.where(conditions.image_kept[:, None], conditions.image, self.null_image.to(conditions.image.dtype))

    def _with_map(self, x: Tensor, image: Tensor | None) -> Tensor:
        """Return x (N, K, H, H) with the map of the embeddings as further channels."""
        if not self.config.image_map:
            return x
        assert image is not None
        places = self.image_map(image).unflatten(1, (self.config.image_map, self._map_side, self._map_side))
        return torch.cat([x, functional.interpolate(places, size=x.shape[2:], mode="bilinear")], dim=1)

    def _tokens(self, image: Tensor | None, conditions: Conditions) -> Tensor | None:
        """Return the tokens of the cross-attention, (N, K, width)."""
        tokens = []
        if self.config.image_tokens:
            assert image is not None
            tokens.append(self.image_tokens(image).unflatten(1, (self.config.image_tokens, -1)))
        if self.config.text_shape is not None:
            assert conditions.text is not None
            present = conditions.text.abs().sum(dim=2, keepdim=True) > 0  # (N, L, 1): before the end
            if conditions.text_kept is not None:
                present = present & conditions.text_kept[:, None, None]
            words = self.text_tokens(conditions.text)
            tokens.append(torch.where(present, words, self.null_text.to(words.dtype)))
        return torch.cat(tokens, dim=1) if tokens else None

    def _vector(self, x: Tensor, image: Tensor | None, conditions: Conditions) -> Tensor | None:
        """Return the vector that a small network adds to the time's embedding, (N, V)."""
        config, parts = self.config, []
        if config.image_to_time:
            assert image is not None
            parts.append(image)
        none = torch.zeros(len(x), device=x.device)
        for used, level in ((config.embedding_noise, conditions.image_noise), (config.low_noise, conditions.low_noise)):
            if used:
                steps = 1000 * (none if level is None else level)  # as those of a training of so many time steps
                parts.append(get_timestep_embedding(steps, _FREQUENCIES, flip_sin_to_cos=True, downscale_freq_shift=0))
        return torch.cat(parts, dim=1) if parts else None


def unet_denoiser(
    unet: Callable[[Tensor, Tensor, Conditions, Tensor | None], Tensor],
    objective: Objective,
    conditions: Conditions,
    guidance: Guidance | float = 1.0,
    threshold: Threshold | None = None,
    self_condition: bool = False,
) -> Denoise:
    """Return the denoiser of a U-Net under its conditions; guidance uses image and text both nulled as unconditional.

    Args:
        unet: maps x, timesteps, conditions and the x0 of the step before to its output.
        objective: the meaning of that output.
        conditions: of N images.
        guidance: a scale of 1 evaluates the conditional U-Net alone, bit for bit; so does guidance without conditions.
        threshold: applied to x0; None: no threshold.
        self_condition: whether the U-Net reads the x0 of the step before.
    """

    def bound(to: Conditions) -> Network:
        return lambda x, timesteps, before: unet(x, timesteps, to, before if self_condition else None)

    alone = conditions.image is None and conditions.text is None
    both = None if alone else bound(conditions.guided())
    return denoiser(bound(conditions), objective, guidance, threshold, both=both)


def _block(way: str, attention: bool, crossed: bool) -> str:
    return f"{'CrossAttn' if attention and crossed else 'Attn' if attention else ''}{way}Block2D"
