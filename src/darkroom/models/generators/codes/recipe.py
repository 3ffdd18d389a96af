"""What the trainings of the generators of codes share: the network for stored codes, and the loss of a batch."""

import math
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from darkroom.device import to_device
from darkroom.diffusion.scalers import EmbeddingScaler, spaced_rows
from darkroom.models.evaluators.evaluation import Evaluation
from darkroom.models.generators.codes.network import CodesConfig, CodeTransformer
from darkroom.models.generators.codes.sample import CodeSampler
from darkroom.models.generators.codes.settings import OfCodes
from darkroom.models.generators.conditions import Captioned, Condition, asked_classes, balanced, condition_of, nulled
from darkroom.models.generators.data import GeneratorData
from darkroom.models.generators.kind_settings import READ
from darkroom.models.generators.recipe import GeneratorRecipe
from darkroom.models.generators.sampler import placed
from darkroom.models.tokenizers.protocol import Tokenizer
from darkroom.params.training import Training
from darkroom.rng import derive, random_numbers
from darkroom.training.loop import seeded
from darkroom.training.recipe import Batch, Losses, Phase

_COUNTED = 16_384  # images whose codes are counted


class CodeRecipe(GeneratorRecipe):
    """A transformer over codes in training; kinds add `_losses`.

    images: of the whole training.
    frequencies: of each code in the train split, for the entropy of codes without any context, (K,).
    """

    causal: ClassVar[bool]
    sampler_class: ClassVar[type[CodeSampler]]
    name = "transformer"
    model: CodeTransformer
    settings: Any
    seed: int
    tokenizer: Tokenizer
    images: int
    frequencies: NDArray[np.float32]

    @classmethod
    def build(
        cls, settings: OfCodes, training: Training, data: GeneratorData, evaluation: Evaluation | None
    ) -> "CodeRecipe":
        """Return the recipe with its untrained network."""
        recipe, stored = cls(), data.embeddings
        with seeded(derive(training.seed, "codes/weights")):
            model = CodeTransformer(config_of(settings, data, cls.causal))
        if stored is not None:
            names = READ[settings.condition]
            pooled = stored.__getitems__(spaced_rows(len(stored)), names[:1])[names[0]]
            model.vector.set_scaler(EmbeddingScaler.of(pooled[pooled.any(axis=1)]))
        if data.captions is not None:
            model.vocabulary.copy_(torch.from_numpy(data.captions.vocabulary))
        recipe.model, recipe.settings, recipe.seed = model, settings, training.seed
        recipe.images = training.images
        recipe.modules = {cls.name: model}
        recipe.phases = (Phase(cls.name, recipe.loss),)
        recipe.blocks = list(model.blocks)
        recipe.train, recipe.val, recipe.tokenizer = data.train, data.val, data.tokenizer
        recipe.evaluation_settings = settings.sampling  # type: ignore[attr-defined]  # of the kind
        recipe.counts = data.class_counts
        recipe.use_conditions(settings.condition, len(data.catalog.classes), data.conditions, evaluation)
        recipe.frequencies = frequencies(data)
        return recipe

    @property
    def sampler(self) -> CodeSampler:
        """The network as it is, as a sampler of images."""
        return self.sampler_class(self.model, self.tokenizer)

    def made(self, count: int) -> NDArray[np.uint8]:
        """Return images of the first ten classes or of ten stored conditions in turn, uint8 (count, C, H, W).

        They are guided if conditions are dropped: otherwise the null is untrained.
        """
        sampler, settings = self.sampler, self.evaluation_settings
        if not self.settings.label_dropout:
            settings = settings.model_copy(update={"guidance": 1.0})
        conditions = self.conditions or asked_classes(balanced(max(1, sampler.classes)))
        made = []
        for first in range(0, count, 10):  # the cache of all images may take more memory than the training
            numbers = range(first, min(first + 10, count))
            condition = placed(conditions, np.array(numbers) % self.columns, sampler.device)
            made.append(sampler(numbers, condition, derive(self.seed, "codes/preview"), settings).cpu().numpy())
        return np.concatenate(made)

    def loss(self, batch: Batch) -> Losses:
        """Return the loss with randomness that follows from each image's place in the training sequence."""
        losses = self._losses(batch, "train", self.settings.label_dropout)
        return {name: values.mean() for name, values in losses.items()}

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """Return each image's losses, and its nats per code by the train split's frequencies, and by equal ones."""
        codes = batch.data["codes"].flatten(1).long()
        unigram = -to_device(self.frequencies, codes.device).log()[codes].mean(dim=1)
        uniform = torch.full_like(unigram, math.log(len(self.frequencies)))
        return {**self._losses(batch, "val", 0.0), "unigram": unigram, "uniform": uniform}

    def _losses(self, batch: Batch, stream: str, label_dropout: float) -> dict[str, Tensor]:
        """Return `loss`, nats per code, and its terms, of each image, (N,), float32."""
        raise NotImplementedError

    def _drawn(
        self, batch: Batch, stream: str, label_dropout: float, uniforms: int
    ) -> tuple[Tensor, Condition, NDArray[np.float64]]:
        """Return the codes of a batch, int64 (N, T), conditions, some of them null, and uniform numbers, (N, uniforms).

        All follow from the images' positions.
        """
        positions = batch.positions.tolist()
        _, uniform = random_numbers(self.seed, f"codes/{stream}", positions, 0, 1 + uniforms)
        codes = batch.data["codes"].flatten(1).long()
        dropped = to_device(uniform[:, 0] < label_dropout, codes.device)
        return codes, nulled(condition_of(batch.data), self.model.null_label, dropped), uniform[:, 1:]

    def words_hidden(self, batch: Batch, condition: Condition) -> Condition:
        """Return a condition with some words of its captions replaced by the unknown token, by position."""
        if not isinstance(condition, Captioned):
            return condition
        length = condition.tokens.shape[1]
        _, hidden = random_numbers(self.seed, "codes/words", batch.positions.tolist(), 0, length)
        return condition.without(to_device(hidden < self.settings.loss.word_dropout, condition.tokens.device))


def config_of(settings: OfCodes, data: GeneratorData, causal: bool) -> CodesConfig:
    """Return the shape of a transformer for stored codes."""
    stored, captions, codebook = data.embeddings, data.captions, data.latents.codebook
    assert codebook is not None  # `fits` has checked it
    named = settings.model.model_dump(exclude={"size", "context_length"}) | settings.model.shape
    encoded = stored is not None and "encoding" in READ[settings.condition]
    return CodesConfig(
        codes=len(codebook),
        side=data.latents.shape[-1],
        classes=len(data.catalog.classes),
        causal=causal,
        **named,
        embed_dim=0 if stored is None else stored.dim,
        text_shape=stored.encoding_shape if stored is not None and encoded else None,
        caption_shape=None if captions is None else (captions.tokens.shape[1], len(captions.vocabulary)),
    )


def frequencies(data: GeneratorData) -> NDArray[np.float32]:
    """Return the frequency of each code in evenly spaced train images, with one added to each count."""
    assert data.latents.codebook is not None  # `fits` has checked it
    codes = data.latents.__getitems__(spaced_rows(len(data.latents), _COUNTED))["codes"]
    counts = 1 + np.bincount(codes.astype(np.int64).ravel(), minlength=len(data.latents.codebook))
    return (counts / counts.sum()).astype(np.float32)


def cross_entropy(logits: Tensor, codes: Tensor, smoothing: float = 0.0) -> Tensor:
    """Return -log p of codes, in nats, float32, of their shape; logits are (..., K)."""
    flat = functional.cross_entropy(
        logits.float().flatten(0, -2), codes.flatten(), reduction="none", label_smoothing=smoothing
    )
    return flat.view_as(codes)


def correct(logits: Tensor, codes: Tensor) -> Tensor:
    """Return 1 where the most likely code is the right one, float32, of the shape of codes."""
    return (logits.detach().argmax(dim=-1) == codes).float()
