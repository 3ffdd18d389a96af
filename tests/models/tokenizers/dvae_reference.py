"""The discrete VAE once more, in float64 and from the facts alone: what the tests compare with.

Written over the names that dalle-pytorch gives its weights, in the order in which it applies them.
"""

import torch
from torch.nn import functional

from darkroom.models.tokenizers.dvae.settings import DVAE

SETTINGS = {
    "training": {},
    "codebook_size": 6,
    "codebook_dim": 3,
    "layers": 2,
    "width": 8,
    "residual_blocks": 1,
    "alpha": "signed",
    "straight_through": False,
    "reinmax": False,
    "temperature": {"rule": "exponential", "start": 0.9, "minimum": 0.5, "rate": 0.01, "images": None},
    "reconstruction": "mse",
    "kl_reduction": "per_position",
    "kl_weight": 0.0,
    "kl_warmup": 0,
}


def settings(**changes) -> DVAE:
    return DVAE(**{**SETTINGS, **changes})


def images(count, channels=3, size=16, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, channels, size, size), dtype=torch.uint8, generator=generator)


class Reference:
    """Weights by name, in float64."""

    def __init__(self, state, layers, blocks):
        self.state = {name: value.double() for name, value in state.items()}
        self.layers, self.blocks = layers, blocks

    def conv(self, name, x, function=functional.conv2d, **options):
        return function(x, self.state[f"{name}.weight"], self.state[f"{name}.bias"], **options)

    def residual(self, name, x):
        y = self.conv(f"{name}.net.0", x, padding=1).clamp(min=0)
        y = self.conv(f"{name}.net.2", y, padding=1).clamp(min=0)
        return x + self.conv(f"{name}.net.4", y)

    def logits(self, x):
        at = 0
        for at in range(self.layers):
            x = self.conv(f"encoder.{at}.0", x, stride=2, padding=1).clamp(min=0)
        for block in range(self.blocks):
            x = self.residual(f"encoder.{self.layers + block}", x)
        return self.conv(f"encoder.{self.layers + self.blocks}", x)

    def decoded(self, z):
        at = 0
        if self.blocks:
            z, at = self.conv("decoder.0", z), 1
        for _ in range(self.blocks):
            z, at = self.residual(f"decoder.{at}", z), at + 1
        for _ in range(self.layers):
            z = self.conv(f"decoder.{at}.0", z, functional.conv_transpose2d, stride=2, padding=1).clamp(min=0)
            at += 1
        return self.conv(f"decoder.{at}", z)

    def output(self, x, noise, tau):
        """Codes drawn by gumbel-softmax; returns the output and the logits."""
        logits = self.logits(x)
        powers = ((logits + noise) / tau).exp()
        weights = powers / powers.sum(dim=1, keepdim=True)
        return self.decoded(torch.einsum("nkhw,kc->nchw", weights, self.state["codebook.weight"])), logits


def seen(pixels, alpha):
    """(x - mean) / std of premultiplied pixels in [0, 1]: 0.5 and 0.5 of a colour, 0 and 1 of alpha if it is `unit`."""
    x = pixels.double() / 255
    if x.shape[1] == 4:
        x[:, :3] *= x[:, 3:]
    shift = torch.full((x.shape[1], 1, 1), 0.5, dtype=torch.float64)
    scale = shift.clone()
    if len(shift) == 4 and alpha == "unit":
        shift[3], scale[3] = 0, 1
    return (x - shift) / scale
