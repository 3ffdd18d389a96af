"""What the recipes of all kinds of generators share."""

from pathlib import Path
from typing import Any, ClassVar

from darkroom.models.generators.conditions import Asked, asked_classes
from darkroom.models.generators.data import GeneratorData
from darkroom.models.generators.evaluation import Evaluation
from darkroom.models.generators.labels import balanced
from darkroom.models.generators.sampler import Sampler
from darkroom.params.training import Training
from darkroom.training.recipe import Gather, Recipe


class GeneratorRecipe(Recipe):
    """A generator in training.

    name: of its only module in `modules`.
    model: the network; it has `save_pretrained(folder)`.
    evaluation: scores while it trains; None: none.
    evaluation_settings: how evaluations sample: what the sampler is given.
    asked: what images of evaluations are asked to show; None: all classes in turn.
    """

    name: ClassVar[str]
    model: Any
    evaluation: Evaluation | None = None
    evaluation_settings: Any
    asked: Asked | None = None

    @classmethod
    def build(
        cls, settings: Any, training: Training, data: GeneratorData, evaluation: Evaluation | None
    ) -> "GeneratorRecipe":
        """Return the recipe with its untrained network; `settings` is the kind's section."""
        raise NotImplementedError

    @property
    def sampler(self) -> Sampler:
        """The network as it is, as a sampler of images."""
        raise NotImplementedError

    def metadata(self) -> dict[str, Any]:
        """Return what the manifest says of the model beside its weights."""
        return {}

    def evaluate(self, rank: int, count: int, gather: Gather) -> dict[str, float]:
        """Return the scores of `train_generator.evaluate`."""
        assert self.evaluation is not None  # the loop asks where `evaluate_every` is above 0
        sampler = self.sampler
        asked = self.asked or asked_classes(balanced(sampler.classes))
        return self.evaluation.scores(sampler, self.evaluation_settings, asked, rank, count, gather)

    def save(self, folder: Path) -> None:
        """Write the weights as they are."""
        self.model.save_pretrained(folder)
