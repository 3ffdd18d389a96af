"""Trains the two linear maps on the squared error."""

from darkroom.models.tokenizers.patches.network import Config, PatchTokenizer
from darkroom.models.tokenizers.patches.settings import Patches
from torch import Tensor, nn

from darkroom.models.tokenizers.pixels import to_network
from darkroom.models.tokenizers.recipe import TokenizerRecipe, require_fit
from darkroom.params.training import Training
from darkroom.training.recipe import Batch, IndexedDataset, Losses, Phase


class PatchRecipe(TokenizerRecipe):
    """L = |decode(encode(x)) - x|²."""

    @classmethod
    def build(
        cls,
        settings: Patches,
        training: Training,
        image_shape: tuple[int, int, int],
        train: IndexedDataset,
        val: IndexedDataset,
        perceptual: nn.Module | None = None,
    ) -> "PatchRecipe":
        """Return the recipe with an untrained network."""
        require_fit("patches", settings, training, image_shape)
        model = PatchTokenizer(Config(image_shape[0], image_shape[1], settings.patch, settings.latent_channels))
        recipe = cls(model, settings, training, train, val)
        recipe.phases = (Phase("tokenizer", recipe.loss),)
        return recipe

    def loss(self, batch: Batch) -> Losses:
        """Return the mean squared error."""
        return {"loss": self.validate(batch)["loss"].mean()}

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """Return the mean squared error of each image, (N,)."""
        x = to_network(batch.data["images"])
        return {"loss": (self.modules["tokenizer"](x) - x).square().flatten(1).mean(dim=1)}
