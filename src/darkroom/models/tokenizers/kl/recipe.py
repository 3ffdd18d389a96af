"""Train the KL autoencoder: reconstruction plus a small KL term, and optional perceptual and adversarial losses."""

from diffusers.models.resnet import ResnetBlock2D
from torch import Tensor

from darkroom.device import to_device
from darkroom.models.tokenizers.adversarial import Adversary, Outputs
from darkroom.models.tokenizers.kl.network import KLAutoencoder, build, kl_per_element
from darkroom.models.tokenizers.kl.settings import KL
from darkroom.models.tokenizers.protocol import to_network
from darkroom.models.tokenizers.recipe import TokenizerRecipe, image_losses, total_of
from darkroom.rng import normal
from darkroom.training.recipe import Batch, Losses


class KLRecipe(TokenizerRecipe):
    """L = r + w_p p + w * KL(q(z|x) || N(0, 1)) + w_a λ G, z = mean + std * noise; means of elements.

    r: reconstruction loss of x and decode(z), p: perceptual distance, G: the generator's loss, λ: its adaptive weight,
    each if the section sets a weight. Rombach et al., 2022 (arXiv 2112.10752) with the KL per latent element, so
    that the weight means the same for every latent size.
    """

    kind = "kl"
    model: KLAutoencoder
    settings: KL

    def untrained(self, image_shape: tuple[int, int, int]) -> KLAutoencoder:
        """Return the network with its initial weights."""
        return KLAutoencoder(build(self.settings, image_shape[0], image_shape[1]))

    def set_up(self, image_shape: tuple[int, int, int]) -> None:
        """Add the discriminator's phase, if any."""
        self.adversary = Adversary.of(self.settings.adversarial, self, image_shape[0])
        self.blocks = [m for m in self.model.modules() if isinstance(m, ResnetBlock2D)]

    def loss(self, batch: Batch) -> Losses:
        """Return the losses with noise that follows from each image's place in the training sequence."""
        values, outputs = self._pass(batch, "train")
        losses = {name: value.mean() for name, value in values.items()}
        return self.adversary.add(losses, batch, outputs, self.model.last) if self.adversary else losses

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """Return the losses of each image, without a discriminator's, with noise that follows from its row."""
        return self._pass(batch, "val")[0]

    def _pass(self, batch: Batch, stream: str) -> tuple[dict[str, Tensor], Outputs]:
        """Return the losses of each image, (N,), and the network's outputs."""
        x = to_network(batch.data["images"])
        noise = normal(self.training.seed, f"tokenizer/{stream}", batch.positions.tolist(), self.model.latent_shape)
        output, mean, logvar = self.modules["tokenizer"](x, to_device(noise, x.device))
        output = output.float()
        losses = image_losses(self.settings.reconstruction, x, output, self.perceptual)
        others, perceptual = total_of(losses, self.settings.perceptual.weight)
        losses["kl"] = kl_per_element(mean.float(), logvar.float()).flatten(1).mean(dim=1)  # (N,)
        losses["loss"] = others + self.settings.kl_weight * losses["kl"]
        return losses, Outputs(x, output, others.mean(), None if perceptual is None else perceptual.mean())
