"""Learns the mean of each class's latents."""

from typing import Any

from torch import Tensor

from darkroom.models.evaluators.evaluation import Evaluation
from darkroom.models.generators.data import GeneratorData
from darkroom.models.generators.normal.sample import Means, NormalSampler
from darkroom.models.generators.normal.settings import Normal
from darkroom.models.generators.recipe import GeneratorRecipe
from darkroom.params.training import Training
from darkroom.training.recipe import Batch, Losses, Phase


class NormalRecipe(GeneratorRecipe):
    """L = |latent - mean of its class|²."""

    name = "means"

    @classmethod
    def build(
        cls, settings: Normal, training: Training, data: GeneratorData, evaluation: Evaluation | None
    ) -> "NormalRecipe":
        """Return the recipe; the means start at 0."""
        recipe = cls()
        recipe.model = Means(len(data.catalog.classes), data.tokenizer.latent_shape)
        recipe.train, recipe.val, recipe.data = data.train, data.val, data
        recipe.modules = {cls.name: recipe.model}
        recipe.phases = (Phase(cls.name, recipe.loss),)
        return recipe

    @property
    def sampler(self) -> NormalSampler:
        """The means as they are."""
        return NormalSampler(self.model, self.data.latents.statistics[1], self.data.tokenizer)

    def metadata(self) -> dict[str, Any]:
        """Return the deviations."""
        return {"latent_std": self.data.latents.statistics[1]}

    def loss(self, batch: Batch) -> Losses:
        """Return the mean squared error."""
        return {"loss": self.validate(batch)["loss"].mean()}

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """Return the mean squared error of each latent, (N,)."""
        means = self.modules[self.name](batch.data["labels"])
        return {"loss": (batch.data["mean"].float() - means).square().flatten(1).mean(dim=1)}
