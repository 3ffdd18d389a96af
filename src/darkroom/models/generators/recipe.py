"""The shared base of the recipes of all kinds of generators."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from darkroom.models.evaluators.evaluation import Evaluation
from darkroom.models.generators.conditions import ConditionSource, asked_classes, balanced, by_frequency
from darkroom.models.generators.data import GeneratorData
from darkroom.models.generators.kind_settings import TEXTS
from darkroom.models.generators.sampler import Sampler, generate
from darkroom.params.training import Training
from darkroom.training.recipe import Gather, Recipe

_COLUMNS = 10  # of the grid, a class or a stored condition each


class GeneratorRecipe(Recipe):
    """A generator in training.

    name: that of the saved module in `modules`.
    model: the network; it has `save_pretrained(folder)`.
    evaluation: scores while it trains, or None.
    evaluation_settings: the sampler's settings in evaluations.
    conditions: those of grids, and of evaluations without classes; None: all classes in turn.
    counts: images of each class in the train split, the class frequencies of evaluations; None: `conditions`.
    """

    name: ClassVar[str]
    model: Any
    evaluation: Evaluation | None = None
    evaluation_settings: Any
    conditions: ConditionSource | None = None
    counts: Sequence[int] | None = None

    @classmethod
    def build(
        cls, settings: Any, training: Training, data: GeneratorData, evaluation: Evaluation | None
    ) -> "GeneratorRecipe":
        """Return the recipe with its untrained network; `settings` is the kind's section."""
        raise NotImplementedError

    def use_conditions(
        self, condition: str, classes: int, conditions: ConditionSource | None, evaluation: Evaluation | None
    ) -> None:
        """Set the conditions of grids and evaluations, and which evaluations there are."""
        self.conditions, self.evaluation = conditions, evaluation
        self.evaluations = [(evaluation.settings.every, self.evaluate)] if evaluation else []
        self.generated = [self.evaluate]
        self.by_class = condition == "class" and classes > 1
        self.columns = min(_COLUMNS, classes) if self.by_class else _COLUMNS
        if condition in TEXTS and conditions is not None and conditions.caption is not None:
            self.captions = conditions.caption(np.arange(self.columns))

    @property
    def sampler(self) -> Sampler:
        """The network as it is, as a sampler of images."""
        raise NotImplementedError

    def metadata(self) -> dict[str, Any]:
        """Return the manifest's entries on the model."""
        return {}

    def preview(self) -> NDArray[np.uint8] | None:
        """Return ten images for each of the first ten classes, or a hundred of one, or of ten stored conditions."""
        return self.made(10 * self.columns)

    def sample_evolution(self) -> NDArray[np.uint8] | None:
        """Return the first row of `preview`."""
        return self.made(self.columns)

    def made(self, count: int) -> NDArray[np.uint8] | None:
        """Return images of the first ten classes or of ten stored conditions in turn; None: no grids."""
        return None

    def evaluate(self, rank: int, count: int, gather: Gather) -> dict[str, float]:
        """Return the scores of `train_generator.evaluate`."""
        assert self.evaluation is not None  # `evaluations` is empty without one
        sampler, settings = self.sampler, self.evaluation.settings
        conditions = self.conditions or asked_classes(balanced(sampler.classes))
        if self.counts is not None:
            conditions = asked_classes(by_frequency(self.counts))
        numbers = None if conditions.label is None else conditions.label(np.arange(settings.images))
        make = partial(generate, sampler, settings, self.evaluation_settings, conditions=conditions)
        return self.evaluation.scores(make, numbers, sampler.device, rank, count, gather)

    def save(self, folder: Path) -> None:
        """Write the weights as they are."""
        self.model.save_pretrained(folder)
