"""Trains the two linear maps on the squared error."""

from torch import Tensor

from darkroom.models.tokenizers.patches.network import Config, PatchTokenizer
from darkroom.models.tokenizers.patches.settings import Patches
from darkroom.models.tokenizers.pixels import to_network
from darkroom.models.tokenizers.recipe import TokenizerRecipe
from darkroom.training.recipe import Batch, Losses


class PatchRecipe(TokenizerRecipe):
    """L = |decode(encode(x)) - x|²."""

    kind = "patches"
    settings: Patches

    def untrained(self, image_shape: tuple[int, int, int]) -> PatchTokenizer:
        """Return the network with its initial weights."""
        channels, size, _ = image_shape
        return PatchTokenizer(Config(channels, size, self.settings.patch, self.settings.latent_channels))

    def loss(self, batch: Batch) -> Losses:
        """Return the mean squared error."""
        return {"loss": self.validate(batch)["loss"].mean()}

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """Return the mean squared error of each image, (N,)."""
        x = to_network(batch.data["images"])
        return {"loss": (self.modules["tokenizer"](x) - x).square().flatten(1).mean(dim=1)}
