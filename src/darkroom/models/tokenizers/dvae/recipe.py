"""Train the discrete VAE: reconstruction through relaxed codes, plus the KL to the uniform distribution."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from darkroom.device import to_device
from darkroom.models.tokenizers.dvae.relaxations import gumbel_noise, kl_to_uniform, temperature
from darkroom.models.tokenizers.dvae.settings import DVAE
from darkroom.models.tokenizers.dvae.tokenizer import DiscreteVAE, Way
from darkroom.models.tokenizers.recipe import TokenizerRecipe, in_rows
from darkroom.training.recipe import Batch, Losses

_RECONSTRUCTION: dict[str, Callable[..., Tensor]] = {"mse": functional.mse_loss, "smooth_l1": functional.smooth_l1_loss}


class DVAERecipe(TokenizerRecipe):
    """L = reconstruction(x, decode(z)) + w * KL(q || uniform), z = y @ codebook, y a relaxed draw from q(code | x).

    y = softmax((logits + g) / tau), g Gumbel noise, tau from `temperature`; the one-hot draw with `straight_through`,
    and with ReinMax's gradient with `reinmax`. Ramesh et al., 2021 (arXiv 2102.12092). The KL is the mean over
    positions, or with `kl_reduction: sum` the sum over positions and the images of an update, as in dalle-pytorch: the
    meaning of its weight then depends on batch and image size.
    """

    kind = "dvae"
    knows_length = True  # it is validated at the last temperature
    model: DiscreteVAE
    settings: DVAE

    def untrained(self, image_shape: tuple[int, int, int]) -> DiscreteVAE:
        """Return the network with its initial weights."""
        return DiscreteVAE.from_settings(self.settings, image_shape)

    def set_up(self, image_shape: tuple[int, int, int]) -> None:
        """Set the blocks."""
        self.blocks = [*self.model.network.encoder, *self.model.network.decoder]

    def temperature(self, update: int) -> float:
        """Return the temperature of an update, counted from 0."""
        batch = self.training.batch
        return temperature(self.settings.temperature, update, batch, epoch=-(-len(self.train) // batch))

    @property
    def last_temperature(self) -> float:
        """The temperature of the last update, which all validations and grids of soft codes use."""
        return self.temperature(self.training.images // self.training.batch - 1)

    def kl_weight(self, update: int) -> float:
        """Return the weight of the KL divergence, which increases from 0 over the first `kl_warmup` images."""
        warmup = self.settings.kl_warmup
        return self.settings.kl_weight * (min(1.0, update * self.training.batch / warmup) if warmup else 1.0)

    def loss(self, batch: Batch) -> Losses:
        """Return the losses with noise that follows from each image's place in the training sequence."""
        update = int(batch.positions[0]) // self.training.batch
        tau, weight = self.temperature(update), self.kl_weight(update)
        x = self.model.pixels(batch.data["images"])
        output, logits = self._output(x, self.settings.relaxation, batch, "train", tau)
        reconstruction, kl = self._reconstruction(output, x).mean(), self._kl(logits).mean()
        return {
            # Without a weight the KL needs no backward pass.
            "loss": reconstruction + weight * kl if weight else reconstruction,
            "reconstruction": reconstruction,
            "kl": kl,
            "kl_weight": torch.full((), weight, device=x.device),
            "temperature": torch.full((), tau, device=x.device),
        }

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """Return each image's losses by its most probable codes, which the stages store, and in two other ways.

        reconstruction: by the most probable codes. soft: by relaxed codes, at the training's last temperature and
        with noise that follows from the row. mean: by the expected vectors, which are the continuous latents.
        """
        x = self.model.pixels(batch.data["images"])
        hard, logits = self._output(x, "hard")
        soft, _ = self._output(x, "soft", batch, "val", self.last_temperature)
        mean, _ = self._output(x, "mean")
        reconstruction, kl = self._reconstruction(hard, x), self._kl(logits)
        return {
            "loss": reconstruction + self.settings.kl_weight * kl,
            "reconstruction": reconstruction,
            "soft": self._reconstruction(soft, x),
            "mean": self._reconstruction(mean, x),
            "kl": kl,
        }

    def _output(
        self, x: Tensor, way: Way, batch: Batch | None = None, stream: str = "", tau: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        """Return the reconstruction of x, (N, C, H, W) float32, and the logits; sampled codes need batch and stream."""
        if batch is None:
            output, logits = self.modules["tokenizer"](x, way)
        else:
            noise = to_device(self._noise(batch.positions.tolist(), stream), x.device)
            output, logits = self.modules["tokenizer"](x, way, noise, torch.full((), tau, device=x.device))
        return output.float(), logits

    def _noise(self, positions: Sequence[int], stream: str) -> NDArray[np.float32]:
        shape = (self.settings.codebook_size, *self.model.places)
        return gumbel_noise(self.training.seed, f"tokenizer/{stream}", positions, shape)

    def _reconstruction(self, output: Tensor, x: Tensor) -> Tensor:
        """Return the reconstruction loss of each image, (N,)."""
        return _RECONSTRUCTION[self.settings.reconstruction](output, x, reduction="none").flatten(1).mean(dim=1)

    def _kl(self, logits: Tensor) -> Tensor:
        """Return the KL of each image, (N,). `sum`: so that the mean over an update's images is the sum over them."""
        each = kl_to_uniform(logits).flatten(1)
        return each.sum(dim=1) * self.training.batch if self.settings.kl_reduction == "sum" else each.mean(dim=1)

    def preview(self) -> NDArray[np.uint8]:
        """Return rows of originals, of reconstructions by soft codes, and of those by the most probable ones."""
        images = self.shown()
        batch = Batch(np.arange(len(images)), {"images": images})
        soft, _ = self._output(self.model.pixels(images), "soft", batch, "val", self.last_temperature)
        return in_rows(self.columns, images, self.model.images(soft), self.model.reconstruct(images))
