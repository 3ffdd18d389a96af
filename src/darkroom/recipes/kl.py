"""Trains the KL autoencoder: reconstruction plus a small KL term."""

import numpy as np
import torch
from diffusers.models.resnet import ResnetBlock2D
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from darkroom.random import normal
from darkroom.schemas.train_tokenizer import KL
from darkroom.tokenizers.kl import KLAutoencoder, kl_per_element
from darkroom.tokenizers.pixels import to_network
from darkroom.training.recipe import Batch, Losses, Phase, Recipe, Rows

_RECONSTRUCTION = {"mse": functional.mse_loss, "l1": functional.l1_loss}
_PREVIEW = 10


class KLRecipe(Recipe):
    """L = reconstruction(x, decode(z)) + w * KL(q(z|x) || N(0, 1)), z = mean + std * noise; both means of elements.

    Rombach et al., 2022 (arXiv 2112.10752) with the KL per latent element, so that the weight means the same for every
    latent size.
    """

    def __init__(self, model: KLAutoencoder, settings: KL, seed: int, train: Rows, val: Rows) -> None:
        self.model, self.settings, self.seed = model, settings, seed
        self.train, self.val = train, val
        self.modules: dict[str, nn.Module] = {"tokenizer": model}
        self.phases = (Phase("tokenizer", self.loss),)
        self.blocks = [m for m in model.modules() if isinstance(m, ResnetBlock2D)]

    def loss(self, batch: Batch) -> Losses:
        """Return the losses with noise that follows from each image's place in the training sequence."""
        return {name: values.mean() for name, values in self._losses(batch, "train").items()}

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """Return the losses of each image with noise that follows from its row."""
        return self._losses(batch, "val")

    def _losses(self, batch: Batch, stream: str) -> dict[str, Tensor]:
        x = to_network(batch.data["images"])
        noise = normal(self.seed, f"tokenizer/{stream}", batch.positions.tolist(), self.model.latent_shape)
        output, mean, logvar = self.modules["tokenizer"](x, torch.from_numpy(noise).to(x.device))
        difference = _RECONSTRUCTION[self.settings.reconstruction](output.float(), x, reduction="none")
        reconstruction = difference.flatten(1).mean(dim=1)  # (N,)
        kl = kl_per_element(mean.float(), logvar.float()).flatten(1).mean(dim=1)
        return {"loss": reconstruction + self.settings.kl_weight * kl, "reconstruction": reconstruction, "kl": kl}

    def preview(self) -> NDArray[np.uint8]:
        """Return originals, then their reconstructions from the mean: rows of ten, one above the other."""
        source = self.val if len(self.val) else self.train
        rows = list(range(min(_PREVIEW, len(source))))
        images = torch.from_numpy(source.__getitems__(rows)["images"])
        device = next(self.model.parameters()).device
        decoded: Tensor = self.model.decode(self.model.encode(images.to(device))[0])
        return torch.cat([images, decoded.cpu()]).numpy()
