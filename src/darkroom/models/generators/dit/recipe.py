"""Trains the diffusion transformer on latents."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from darkroom.device import to_device
from darkroom.diffusion.mean_flow import MeanFlow
from darkroom.diffusion.objectives import objective_of
from darkroom.diffusion.scalers import EmbeddingScaler, LatentScaler, spaced_rows
from darkroom.models.evaluators.evaluation import Evaluation
from darkroom.models.generators.conditions import (
    Captioned,
    Condition,
    ConditionSource,
    Embedded,
    asked_classes,
    balanced,
    condition_of,
    nulled,
    rows_of,
)
from darkroom.models.generators.data import GeneratorData, by_time, drawn_latents
from darkroom.models.generators.dit.config import DiTConfig
from darkroom.models.generators.dit.network import DiT
from darkroom.models.generators.dit.sample import DiTSampler
from darkroom.models.generators.dit.settings import DiT as Settings
from darkroom.models.generators.dit.settings import DiTDiffusion, DiTSampling
from darkroom.models.generators.kind_settings import READ
from darkroom.models.generators.recipe import GeneratorRecipe
from darkroom.models.generators.sampler import placed
from darkroom.models.tokenizers.protocol import Tokenizer, padded
from darkroom.params.training import Training
from darkroom.rng import derive, normal, random_numbers
from darkroom.training.loop import seeded
from darkroom.training.recipe import Batch, IndexedDataset, Losses, Phase


class Drawn(NamedTuple):
    """The inputs of a batch with its random numbers.

    x0, noise: (B, C, S, S). time: (B,), or pairs (B, 2). dropped: where the condition is the null, bool (B,).
    """

    x0: Tensor
    noise: Tensor
    time: Tensor
    condition: Condition
    dropped: Tensor


class DiTRecipe(GeneratorRecipe):
    """The objective's loss of f(x_t, t, y), y the class or another condition, some dropped; by default flow matching.

    x_0 is sampled from the stored mean and logvar, or is the stored mean, or the vectors of the stored codes.

    evaluation_settings: the sampling settings of grids and evaluations.
    """

    name = "dit"
    model: DiT
    scale: dict[str, Any]

    def __init__(
        self,
        model: DiT,
        settings: DiTDiffusion,
        seed: int,
        train: IndexedDataset,
        val: IndexedDataset,
        scaler: LatentScaler,
        tokenizer: Tokenizer,
        sampling: DiTSampling,
        evaluation: Evaluation | None = None,
        conditions: ConditionSource | None = None,
    ) -> None:
        self.model, self.settings, self.seed = model, settings, seed
        self.objective = objective_of(settings, settings.timesteps)
        self.train, self.val = train, val
        self.scaler, self.tokenizer = scaler, tokenizer
        self.modules: dict[str, nn.Module] = {"dit": model}
        self.phases = (Phase("dit", self.loss),)
        # Checkpointed activations would be recomputed outside of MeanFlow's forward differentiation.
        self.blocks = [] if isinstance(self.objective, MeanFlow) else list(model.blocks)
        self.evaluation_settings = sampling
        self.use_conditions(model.config.condition, model.config.classes, conditions, evaluation)

    @classmethod
    def build(
        cls, settings: Settings, training: Training, data: GeneratorData, evaluation: Evaluation | None
    ) -> "DiTRecipe":
        """Return the recipe with its untrained network."""
        mean, std = settings.diffusion.scale(*data.latents.statistics, data.latents.principal_deviation)
        channels, size, _ = data.tokenizer.latent_shape
        stored, names = data.embeddings, READ.get(settings.condition, ())
        config = config_of(
            settings,
            channels,
            size,
            len(data.catalog.classes),
            stored.dim if stored is not None else 0,
            stored.encoding_shape if stored is not None and "encoding" in names else None,
            None if data.captions is None else (data.captions.tokens.shape[1], len(data.captions.vocabulary)),
        )
        with seeded(derive(training.seed, "dit/weights")):
            model = DiT(config)
        model.sit = settings.diffusion.time_units == "sit"
        if stored is not None:
            pooled = stored.__getitems__(spaced_rows(len(stored)), names[:1])[names[0]]
            model.vector.set_scaler(EmbeddingScaler.of(pooled[pooled.any(axis=1)]))
        if data.captions is not None:
            model.caption.vocabulary.copy_(torch.from_numpy(data.captions.vocabulary))
        recipe = cls(
            model,
            settings.diffusion,
            training.seed,
            data.train,
            data.val,
            LatentScaler(mean, std),
            data.tokenizer,
            settings.sampling,
            evaluation,
            data.conditions,
        )
        recipe.scale, recipe.counts = {"latent_mean": mean, "latent_std": std}, data.class_counts
        return recipe

    @property
    def sampler(self) -> DiTSampler:
        """The network as it is, as a sampler of images."""
        return DiTSampler(self.model, self.objective, self.scaler, self.tokenizer)

    def metadata(self) -> dict[str, Any]:
        """Return the manifest's entries on the scale of the latents and the meaning of the output."""
        return {**self.scale, **self.settings.prediction()}

    def loss(self, batch: Batch) -> Losses:
        """Return the loss with randomness that follows from each image's place in the training sequence."""
        losses = self._losses(self._drawn(batch, "train", self.settings.label_dropout))
        return {name: values.mean() for name, values in losses.items()}

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """Return each image's loss, also `by_time`; randomness follows from its row, and no condition is dropped."""
        drawn = self._drawn(batch, "val", label_dropout=0.0)
        terms = self._losses(drawn)
        time = drawn.time if drawn.time.ndim == 1 else drawn.time[:, 0]
        return {**terms, **by_time("loss", terms["loss"], time / self.objective.duration)}

    def _drawn(self, batch: Batch, stream: str, label_dropout: float) -> Drawn:
        """Return the inputs and noise of a batch, with randomness that follows from positions."""
        condition, size = condition_of(batch.data), batch.data["mean"][0].numel()
        # Per position: the posterior's noise, the path's, a normal number for the time; then a uniform one for it, and
        # one for dropout. The same for all forms of latents, which then train with the same noise.
        normals, uniforms = random_numbers(self.seed, f"dit/{stream}", batch.positions.tolist(), 2 * size + 1, 2)
        latents, noise = drawn_latents(batch.data, normals)
        time = self.objective.times(uniforms[:, 0], normals[:, -1])
        if isinstance(self.objective, MeanFlow):
            normals, second = random_numbers(self.seed, f"dit/{stream}/pairs", batch.positions.tolist(), 1, 2)
            time = self.objective.pairs(time, self.objective.times(second[:, 0], normals[:, 0]), second[:, 1])
        time = to_device(time, noise.device)
        dropped = to_device(uniforms[:, 1] < label_dropout, noise.device)
        if isinstance(condition, Captioned) and stream == "train":
            # A separate stream: the other numbers are the same for every condition.
            _, hidden = random_numbers(self.seed, "dit/words", batch.positions.tolist(), 0, condition.tokens.shape[1])
            condition = condition.without(to_device(hidden < self.settings.word_dropout, noise.device))
        condition = nulled(condition, self.model.null_label, dropped)
        return Drawn(self.scaler(latents), noise, time, condition, dropped)

    def _losses(self, drawn: Drawn) -> dict[str, Tensor]:
        """Return the losses of each image, (N,)."""
        x0, noise, time, condition, dropped = drawn
        if isinstance(self.objective, MeanFlow):
            null = nulled(condition, self.model.null_label)
            predict, unconditional = (partial(self._predict, condition=each) for each in (condition, null))
            both = None if condition is None else unconditional
            conditional = ~dropped & condition.keep if isinstance(condition, Embedded | Captioned) else ~dropped
            return self.objective.trained(predict, both, x0, noise, time, conditional)
        x = self.objective.add_noise(x0, noise, time)
        output = self.modules["dit"](x, self.objective.timesteps(time), condition)
        return self.objective.losses(output, x0, noise, x, time)

    def _predict(self, x: Tensor, timesteps: Tensor, rows: Tensor, condition: Condition) -> Tensor:
        return self.modules["dit"](x, timesteps, rows_of(condition, rows))

    def made(self, count: int) -> NDArray[np.uint8]:
        """Return images of the first ten classes or of ten stored conditions in turn; image i from noise i.

        They are guided if conditions are dropped: otherwise the null is untrained.
        """
        device = next(self.model.parameters()).device
        conditions = self.conditions or asked_classes(balanced(max(1, self.model.config.classes)))
        condition = placed(conditions, np.arange(count) % self.columns, device)
        shape = self.tokenizer.latent_shape
        noise = to_device(normal(self.seed, "dit/preview", range(count), shape), device)
        sampling = self.evaluation_settings
        if not self.settings.label_dropout:
            sampling = sampling.model_copy(update={"guidance": 1.0})
        seeds = [derive(self.seed, "dit/preview/steps", number) for number in range(count)]
        latents = self.sampler.latents(noise, condition, seeds, sampling)
        return padded(self.tokenizer.decode, latents, 10, device).numpy()  # ten at once: pixels take more than latents


def config_of(
    settings: Settings,
    channels: int,
    size: int,
    classes: int,
    embed_dim: int = 0,
    text_shape: tuple[int, int] | None = None,
    caption_shape: tuple[int, int] | None = None,
) -> DiTConfig:
    """Return the shape of a transformer for latents (C, S, S) of images of `classes` classes, with stored embeddings.

    `caption_shape`, if it embeds captions itself: the numbers of a caption's tokens and of known tokens.
    """
    variance = settings.diffusion.learns_variance
    named = settings.model.model_dump(exclude={"size", "context_length"}) | settings.model.shape
    return DiTConfig(
        channels,
        size,
        classes,
        **named,
        learned_variance=variance,
        embed_dim=embed_dim,
        text_shape=text_shape,
        caption_shape=caption_shape,
        two_times=settings.diffusion.objective == "mean_flow",
    )
