"""Train the quantised autoencoder: reconstruction, perceptual loss, the quantiser's losses, a discriminator's term."""

import torch
from torch import Tensor

from darkroom.models.tokenizers.adversarial import Adversary, Outputs
from darkroom.models.tokenizers.recipe import TokenizerRecipe, image_losses, total_of
from darkroom.models.tokenizers.vqgan.network import Residual, VQGANTokenizer, config_of
from darkroom.models.tokenizers.vqgan.settings import VQGAN
from darkroom.training.recipe import Batch, Losses, Phase


class VQGANRecipe(TokenizerRecipe):
    """L = reconstruction + w_p perceptual + sum of w_i quantiser loss i + w_a lambda generator's loss.

    All are means over elements. Esser et al., 2021 (arXiv 2012.09841), equations 6 and 7. The codebook is updated
    after each optimizer step, by all latents of its batch.
    """

    kind = "vqgan"
    model: VQGANTokenizer
    settings: VQGAN

    def untrained(self, image_shape: tuple[int, int, int]) -> VQGANTokenizer:
        """Return the network with its initial weights."""
        return VQGANTokenizer(config_of(self.settings, image_shape))

    def set_up(self, image_shape: tuple[int, int, int]) -> None:
        """Update the codebook after each step, and add the discriminator's phase, if any."""
        self.phases = (Phase("tokenizer", self.loss, after=self.move_codebook),)
        self.adversary = Adversary.of(self.settings.adversarial, self, image_shape[0])
        self.blocks = [m for m in self.model.modules() if isinstance(m, Residual)]

    def loss(self, batch: Batch) -> Losses:
        """Return the losses, and the recent usage of the codebook."""
        x = self.model.pixels(batch.data["images"])
        output, quantised = self.modules["tokenizer"](x)
        batch.outputs |= {"latents": quantised.latents.detach(), "codes": quantised.codes}
        outputs, parts = self._terms(x, output)
        losses = parts | {name: value.mean() for name, value in quantised.losses.items()}
        weights = self.model.quantiser.weights
        extra = [weights[name] * losses[name] for name in quantised.losses if weights[name]]
        losses |= {"loss": torch.stack([outputs.others, *extra]).sum(), **self.model.quantiser.use()}
        return self.adversary.add(losses, batch, outputs, self.model.last_layer) if self.adversary else losses

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """Return the losses of each image, without those of a whole batch, such as the entropy of all its codes."""
        x = self.model.pixels(batch.data["images"])
        output, quantised = self.modules["tokenizer"](x)
        losses = self._per_image(x, output)
        total, _ = total_of(losses, self.settings.perceptual.weight)
        for name, value in quantised.losses.items():
            if value.ndim:
                losses[name] = value
                total = total + self.model.quantiser.weights[name] * value
        return {"loss": total, **losses}

    def move_codebook(self, batch: Batch) -> None:
        """Update the codebook with the quantised batches of all processes, after the optimizer step."""
        latents, codes = self.quantised(batch, "tokenizer/codebook")
        self.model.quantiser.update(latents, codes)

    def _per_image(self, x: Tensor, output: Tensor) -> dict[str, Tensor]:
        """Return reconstruction and perceptual loss of each image, (N,), without weights."""
        distance = self._distance if self.perceptual else None
        lowest = 0.0 if self.settings.pixels == "unit" else -1.0
        return image_losses(self.settings.reconstruction, x, output.float(), distance, lowest)

    def _distance(self, x: Tensor, output: Tensor) -> Tensor:
        """Return the perceptual distances, (N,), of images as the network sees them."""
        assert self.perceptual is not None
        distances: Tensor = self.perceptual(self.model.signed(output), self.model.signed(x))
        return distances

    def _terms(self, x: Tensor, output: Tensor) -> tuple[Outputs, dict[str, Tensor]]:
        """Return the outputs for the adversary, and the means of the losses."""
        losses = {name: value.mean() for name, value in self._per_image(x, output).items()}
        return Outputs(x, output.float(), *total_of(losses, self.settings.perceptual.weight)), losses
