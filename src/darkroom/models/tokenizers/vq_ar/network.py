"""A vector-quantised autoregressive autoencoder: patches as codes, and a causal transformer that predicts them.

The system is genie2's (see docs/reference/tokenizers/vq-ar.md): a map of each patch is quantised (van den Oord et al.,
2017, arXiv 1711.00937) with the rotation trick (Fifty et al., 2024, arXiv 2410.06424), and a causal decoder with rotary
positions (Su et al., 2021, arXiv 2104.09864) predicts the vector of each next code, row by row.
"""

import math
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional
from vector_quantize_pytorch.vector_quantize_pytorch import rotate_to
from x_transformers import Decoder

from darkroom.artifacts.networks import SavedNetwork
from darkroom.device import in_float32
from darkroom.models.tokenizers.codebooks import MovingCodebook
from darkroom.models.tokenizers.protocol import filled, require_shape, to_images, to_network
from darkroom.models.tokenizers.vq_ar.settings import VQAR

Cache = Any  # x-transformers' keys and values of the tokens so far


@dataclass(frozen=True)
class VQARConfig:
    """The configuration of the network. `classes` is their number, 0 for an unconditional one."""

    image_channels: int
    image_size: int
    patch: int
    encoder_hidden: int | None
    dim: int
    codebook_dim: int
    codebook_size: int
    decay: float
    dead_below: float
    depth: int
    heads: int
    head_dim: int
    dropout: float
    logit_scale: float
    classes: int
    eps: float = 1e-5
    cosine: bool = False
    gradient: str = "rotation"
    kmeans_iters: int = 10


def configure(settings: VQAR, image_shape: tuple[int, int, int], classes: int) -> VQARConfig:
    """Return the network's configuration for square images of shape (C, H, W)."""
    channels, size, _ = image_shape
    named = settings.model_dump(include={field.name for field in fields(VQARConfig)})
    own = {"codebook_dim": settings.codebook_dim or settings.dim, "classes": classes}
    return VQARConfig(image_channels=channels, image_size=size, **named | own)


class Pass(NamedTuple):
    """The outputs of a forward pass; N images, T tokens, K codes of length D.

    latents: (N, T, D) before quantisation. codes: (N, T) int64. quantised: (N, T, D), the codes' vectors, whose
    gradient goes to the latents. codebook: (K, D), for the logits and for decoding predictions.
    prediction: (N, T, D). output: (N, C, H, W), the reconstruction in [-1, 1].
    """

    latents: Tensor
    codes: Tensor
    quantised: Tensor
    codebook: Tensor
    prediction: Tensor
    output: Tensor


class VQAutoregressive(SavedNetwork):
    """A trained or training autoencoder behind the tokenizer protocol; `vq_ar.generate` samples from it."""

    shape = VQARConfig
    made_by = ("tokenizer", "train_tokenizer")

    started: Tensor

    def __init__(self, config: VQARConfig) -> None:
        super().__init__()
        self.config = config
        pixels, width = config.image_channels * config.patch**2, config.codebook_dim
        self.to_latent = _patch_encoder(pixels, config.encoder_hidden, width)
        # `move_codebook` updates the codebook, once an optimizer step; forward passes never do.
        self.quantiser = MovingCodebook(
            config.codebook_size,
            width,
            config.decay,
            config.dead_below,
            config.cosine,
            config.eps,
            config.kmeans_iters,
            commitment_weight=1.0,
            rotation_trick=config.gradient == "rotation",
        )
        # A tensor that says "k-means was done" would be read at each pass: a wait on GPUs, and an error on `meta`.
        del self.quantiser._codebook.initted
        self.quantiser._codebook.initted = True
        # Whether an update has put the codebook where the latents are.
        self.register_buffer("started", torch.tensor(False))
        # One start token, or one for each class and a last one for no class.
        self.start = nn.Parameter(torch.zeros(config.classes + 1, config.dim))
        if config.classes:
            nn.init.normal_(self.start, std=0.02)
        self.to_token = nn.Identity() if width == config.dim else nn.Linear(width, config.dim)
        self.decoder = Decoder(
            dim=config.dim,
            depth=config.depth,
            heads=config.heads,
            attn_dim_head=config.head_dim,
            rotary_pos_emb=True,
            attn_flash=True,
            attn_sublayer_dropout=config.dropout,
            ff_sublayer_dropout=config.dropout,
            verbose=False,
        )
        self.to_prediction = nn.Linear(config.dim, width)
        self.to_pixels = nn.Linear(width, pixels)

    @property
    def side(self) -> int:
        """Codes in a row, and rows."""
        return math.ceil(self.config.image_size / self.config.patch)

    @property
    def tokens(self) -> int:
        """Codes of an image."""
        return self.side**2

    @property
    def latent_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of a latent."""
        return self.config.codebook_dim, self.side, self.side

    @property
    def codebook_size(self) -> int:
        """K, the number of codes."""
        return self.config.codebook_size

    @property
    def codebook(self) -> Tensor:
        """The vector that each code stands for, (K, D) float32."""
        return self.quantiser.codebook

    @property
    def null_label(self) -> int:
        """The number of the start token for no class."""
        return self.config.classes

    def forward(self, x: Tensor, labels: Tensor, share: float, after: bool) -> Pass:
        """Return all inputs of the losses.

        Args:
            x: (N, C, H, W) in [-1, 1].
            labels: the start token of each image, (N,) int64; `null_label` for no class.
            share: fraction of the reconstruction that is decoded from the predicted vectors, turned onto the codes.
            after: use the codebook after its update by this batch (genie2's) for the logits and for decoding
                predictions, not the one of the codes.
        """
        latents = self.latents(x)
        quantised, codes = self._quantise(latents)
        codebook = self.quantiser.moved(latents.detach(), codes) if after else self.codebook
        inputs = torch.cat([self.start[labels][:, None], self.to_token(quantised[:, :-1])], dim=1)
        hidden = self.decoder(inputs)
        with in_float32(x.device):
            prediction = self.to_prediction(hidden.float())
            # Without `after` both have the codes' values; only their gradients differ.
            turned = rotate_to(prediction, codebook[codes])
            output = share * self.pixels(turned) + (1 - share) * self.pixels(quantised)
        return Pass(latents, codes, quantised, codebook, prediction, output)

    @torch.no_grad()
    def move_codebook(self, latents: Tensor, codes: Tensor) -> None:
        """Update the codebook's moving averages with latents (N, T, D) and their codes; replace dead codes."""
        self.quantiser.update_indices(latents, codes)
        self.started.fill_(True)

    @torch.no_grad()
    def start_codebook(self, latents: Tensor) -> None:
        """Initialise the codebook by k-means over latents (N, T, D); draws from torch's generator."""
        self.quantiser.begin(latents.flatten(0, 1))
        self.quantiser._codebook.update_ema()  # with Laplace smoothing from the start
        self.started.fill_(True)

    def latents(self, x: Tensor) -> Tensor:
        """Return the latents (N, T, D), float32, of network images x (N, C, H, W); by cosine unit vectors."""
        p = self.config.patch
        with in_float32(x.device):
            latents: Tensor = self.to_latent(
                rearrange(filled(x.float(), p), "n c (h p) (w q) -> n (h w) (p q c)", p=p, q=p)
            )
            return functional.normalize(latents, dim=-1) if self.config.cosine else latents

    def pixels(self, vectors: Tensor) -> Tensor:
        """Return network images (N, C, H, W) from vectors of codes (N, T, D)."""
        p, h, size = self.config.patch, self.side, self.config.image_size
        images = rearrange(self.to_pixels(vectors), "n (h w) (p q c) -> n c (h p) (w q)", p=p, q=p, h=h)
        return images[..., :size, :size]

    def _quantise(self, latents: Tensor) -> tuple[Tensor, Tensor]:
        with in_float32(latents.device):
            quantised, codes, _ = self.quantiser(latents, freeze_codebook=True)
        return quantised, codes

    def logits(self, inputs: Tensor, cache: Cache = None) -> tuple[Tensor, Cache]:
        """Return the logits of the next code, see `distances`, (N, K) float32, and the cache for the one after.

        Args:
            inputs: tokens (N, T, dim): all so far or, with a cache, only the last.
            cache: the returned cache for the previous tokens.
        """
        hidden, cache = self.decoder(inputs, cache=cache, return_hiddens=True)
        return self.distances(self.to_prediction(hidden[:, -1].float()), self.codebook), cache

    def distances(self, prediction: Tensor, codebook: Tensor) -> Tensor:
        """Return -logit_scale ||prediction - e_k||, (..., K), of predictions (..., D) and codes (K, D)."""
        return -self.config.logit_scale * torch.cdist(prediction, codebook)

    @torch.no_grad()
    def encode(self, images: Tensor) -> tuple[Tensor, None]:
        """Return the latents before quantisation (N, *latent_shape), float32, of uint8 images (N, C, H, W)."""
        return rearrange(self._latents_of(images), "n (h w) d -> n d h w", h=self.side), None

    def _latents_of(self, images: Tensor) -> Tensor:
        config = self.config
        require_shape(images, (config.image_channels, config.image_size, config.image_size))
        return self.latents(to_network(images))

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        """Return uint8 images (N, C, H, W) from latents (N, *latent_shape): quantised, then decoded."""
        codes = self._quantise(rearrange(latents.float(), "n d h w -> n (h w) d"))[1]
        return self.decode_codes(rearrange(codes, "n (h w) -> n h w", h=self.side))

    @torch.no_grad()
    def encode_codes(self, images: Tensor) -> Tensor:
        """Return the codes, int64 (N, h, w), of uint8 images (N, C, H, W)."""
        codes = self._quantise(self._latents_of(images))[1]
        return rearrange(codes, "n (h w) -> n h w", h=self.side)

    @torch.no_grad()
    def decode_codes(self, codes: Tensor) -> Tensor:
        """Return uint8 images (N, C, H, W) from codes (N, h, w)."""
        return to_images(self.pixels(self.codebook[codes.flatten(1)]))

    def reconstruct(self, images: Tensor) -> Tensor:
        """Return reconstructions from the codes of images, uint8 (N, C, H, W)."""
        return self.decode_codes(self.encode_codes(images))


def _patch_encoder(pixels: int, hidden: int | None, width: int) -> nn.Module:
    """Return the map from patches to latents: one linear map or, with a hidden layer, two and a layer norm."""
    if hidden is None:
        return nn.Linear(pixels, width)
    return nn.Sequential(nn.Linear(pixels, hidden), nn.GELU(), nn.Linear(hidden, width), nn.LayerNorm(width))
