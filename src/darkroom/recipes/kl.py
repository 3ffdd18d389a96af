"""Trains the KL autoencoder: reconstruction plus a small KL term."""

import torch
from diffusers.models.resnet import ResnetBlock2D
from torch import Tensor, nn
from torch.nn import functional

from darkroom.random import normal
from darkroom.recipes.tokenizer import TokenizerRecipe
from darkroom.schemas.tokenizers.kind import Kind
from darkroom.schemas.tokenizers.kl import KL
from darkroom.schemas.training import Training
from darkroom.tokenizers.kl import KLAutoencoder, build, kl_per_element
from darkroom.tokenizers.pixels import to_network
from darkroom.training.recipe import Batch, Losses, Phase, Rows

_RECONSTRUCTION = {"mse": functional.mse_loss, "l1": functional.l1_loss}


class KLRecipe(TokenizerRecipe):
    """L = reconstruction(x, decode(z)) + w * KL(q(z|x) || N(0, 1)), z = mean + std * noise; both means of elements.

    Rombach et al., 2022 (arXiv 2112.10752) with the KL per latent element, so that the weight means the same for every
    latent size.
    """

    @classmethod
    def build(
        cls,
        settings: Kind,
        training: Training,
        image_shape: tuple[int, int, int],
        train: Rows,
        val: Rows,
        perceptual: nn.Module | None = None,
    ) -> "KLRecipe":
        """Return the recipe with an untrained network."""
        assert isinstance(settings, KL)
        model = KLAutoencoder(build(settings, image_shape[0], image_shape[1]))
        return cls(model, settings, training.seed, train, val)

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
