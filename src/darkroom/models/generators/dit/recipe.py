"""Trains the diffusion transformer on latents."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, distributed, nn
from torch.nn import functional

from darkroom.device import in_float32, of_all_processes, process_count, to_device
from darkroom.diffusion.objectives import objective_of
from darkroom.diffusion.scalers import EmbeddingScaler, LatentScaler, spaced_rows
from darkroom.models.evaluators.evaluation import Evaluation
from darkroom.models.generators.conditions import (
    Asked,
    Captioned,
    Condition,
    asked_classes,
    balanced,
    condition_of,
    nulled,
)
from darkroom.models.generators.data import Balanced, GeneratorData, drawn_latents, scale_of
from darkroom.models.generators.dit.augment import NUMBERS, Augmentation
from darkroom.models.generators.dit.config import DiTConfig
from darkroom.models.generators.dit.network import DiT
from darkroom.models.generators.dit.sample import DiTSampler
from darkroom.models.generators.dit.settings import Augment, DiTDiffusion, DiTSampling, Representation
from darkroom.models.generators.dit.settings import DiT as Settings
from darkroom.models.generators.kind_settings import READ, TEXTS
from darkroom.models.generators.recipe import GeneratorRecipe
from darkroom.models.generators.sampler import placed
from darkroom.models.tokenizers.protocol import Tokenizer, decode_all
from darkroom.params.training import Training
from darkroom.rng import derive, normal, random_numbers
from darkroom.training.loop import seeded
from darkroom.training.recipe import Batch, IndexedDataset, Losses, Phase

_BANDS = 4  # of the time, in validation
_BLOCKS = ("dispersive", "alignment", "teacher")
_COLUMNS = 10  # of the grid, a class or a stored condition each
_BETA = 0.05  # error at which the alignment turns from squared to linear


class Drawn(NamedTuple):
    """What a batch is with its randomness: x_0 and ε, (B, C, S, S), the time, (B,), and the conditions."""

    x0: Tensor
    noise: Tensor
    time: Tensor
    condition: Condition
    augmented: Tensor | None  # how latents were transformed


class DiTRecipe(GeneratorRecipe):
    """The objective's loss of f(x_t, t, y), y the class or another condition, some dropped; by default flow matching.

    x_0 is sampled from the stored mean and logvar, or is the stored mean, or what the stored codes stand for. While it
    trains w_d L_disp and w_a L_align of its tokens are added, where they have a weight (`dispersive`, `alignment`).

    sampling: how grids and evaluations sample.
    augment: how latents are transformed in training, for which the network then has a condition; None: they are not.
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
        asked: Asked | None = None,
        augment: Augment | None = None,
        representation: Representation | None = None,
    ) -> None:
        self.model, self.settings, self.seed = model, settings, seed
        self.objective = objective_of(settings, settings.timesteps)
        self.train, self.val = train, val
        self.scaler, self.tokenizer = scaler, tokenizer
        self.modules: dict[str, nn.Module] = {"dit": model}
        self.phases: tuple[Phase, ...] = (Phase("dit", self.loss),)
        self.representation = wanted = representation or Representation()
        self.whole_batch = wanted.dispersive > 0
        self._block = {name: wanted.block(f"{name}_block", model.config.depth) for name in _BLOCKS}
        if wanted.alignment:
            self.modules["projector"] = projector(model.config.width, derive(seed, "dit/projector"))
            self.phases += (Phase("projector", self.project),)
        self.blocks = list(model.blocks)
        self.evaluation_settings = sampling
        self.evaluation, self.asked, self.augment = evaluation, asked, augment
        self.by_class = model.config.condition == "class" and model.config.classes > 1
        self.evaluations = [(evaluation.settings.every, self.evaluate)] if evaluation else []
        self.generated = [self.evaluate]
        self.columns = min(_COLUMNS, model.config.classes) if self.by_class else _COLUMNS
        if model.config.condition in TEXTS and asked is not None and asked.caption is not None:
            self.captions = asked.caption(np.arange(self.columns))

    @classmethod
    def build(
        cls, settings: Settings, training: Training, data: GeneratorData, evaluation: Evaluation | None
    ) -> "DiTRecipe":
        """Return the recipe with its untrained network."""
        mean, std = scale_of(settings.diffusion, data.latents)
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
        train = data.train
        if settings.balance:
            train = Balanced(train, data.latents.label_column, settings.balance)
        recipe = cls(
            model,
            settings.diffusion.sized(data.tokenizer.latent_shape),
            training.seed,
            train,
            data.val,
            LatentScaler(mean, std),
            data.tokenizer,
            settings.sampling,
            evaluation,
            data.asked,
            settings.augment,
            settings.representation,
        )
        recipe.scale, recipe.counts = {"latent_mean": mean, "latent_std": std}, data.class_counts
        return recipe

    @property
    def sampler(self) -> DiTSampler:
        """The network as it is, as a sampler of images."""
        return DiTSampler(self.model, self.objective, self.scaler, self.tokenizer)

    def metadata(self) -> dict[str, Any]:
        """Return the scale of the latents, and what the output means."""
        return {**self.scale, **self.settings.prediction()}

    def loss(self, batch: Batch) -> Losses:
        """Return the loss with randomness that follows from each image's place in the training sequence."""
        drawn, wanted = self._drawn(batch, "train", self.settings.label_dropout, self.augment), self.representation
        # Before the pass that is differentiated, whose weights must stay as they are.
        target = self._target(batch, drawn) if wanted.alignment else None
        taps = {name: self._block[name] for name in ("dispersive", "alignment") if getattr(wanted, name)}
        terms, tokens = self._losses(drawn, tuple(taps.values()))
        losses = {name: values.mean() for name, values in terms.items()}
        for name, found in zip(taps, tokens, strict=True):
            if name == "dispersive":
                losses[name] = dispersive(found, wanted.dispersive_tau)
            else:
                assert target is not None
                batch.outputs |= {"tokens": found.detach(), "target": target}
                losses[name] = alignment(self.modules["projector"](found), target)
            losses["loss"] = losses["loss"] + getattr(wanted, name) * losses[name]
        return losses

    def project(self, batch: Batch) -> Losses:
        """Return w_a L_align for the projector, of what the transformer's phase of the same optimizer step left.

        Neither has moved the projector or the target, so this is its gradient of the one loss that both are trained by.
        """
        projected = self.modules["projector"](batch.outputs["tokens"])
        return {"loss": self.representation.alignment * alignment(projected, batch.outputs["target"])}

    @torch.no_grad()
    def _target(self, batch: Batch, drawn: Drawn) -> Tensor:
        """Return tokens of the averaged weights at less noise, (B, N, D): t' = max(0, t - k), k uniform to the gap."""
        assert self.average is not None  # the loop sets it
        uniforms = random_numbers(self.seed, "dit/alignment", batch.positions.tolist(), 0, 1)[1]
        gap = self.representation.noise_gap * self.objective.duration
        less = to_device((gap * uniforms[:, 0]).astype(np.float32), drawn.time.device)
        time = (drawn.time - less).clamp(min=0).to(drawn.time.dtype)
        x, model = self.objective.add_noise(drawn.x0, drawn.noise, time), self.modules["dit"]
        with self.average.applied():
            model.eval()
            given = (x, self.objective.timesteps(time), drawn.condition, drawn.augmented)
            _, tokens = model(*given, (self._block["teacher"],))
            model.train()
        return tokens

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """Return each image's loss, also by bands of the time; randomness follows from its row, and nothing drops.

        No latent is augmented. `loss_time_25_50` is the loss of those images whose time lies in [0.25, 0.5).
        """
        drawn = self._drawn(batch, "val", label_dropout=0.0)
        terms, _ = self._losses(drawn)
        losses, time = terms["loss"], drawn.time / self.objective.duration
        edges = [band / _BANDS for band in range(_BANDS + 1)]
        bands = {
            f"loss_time_{100 * low:.0f}_{100 * high:.0f}": losses[(time >= low) & ((time < high) | (high == 1))]
            for low, high in pairwise(edges)
        }
        return {**terms, **bands}

    def _drawn(self, batch: Batch, stream: str, label_dropout: float, augment: Augment | None = None) -> Drawn:
        """Return what the network is to learn of a batch, with randomness that follows from positions."""
        condition, size = condition_of(batch.data), batch.data["mean"][0].numel()
        # Of each position: the posterior's noise, the path's, a normal number for the time; then a uniform one for it,
        # and whether the condition drops. The same for all forms of latents, which then train under the same noise.
        normals, uniforms = random_numbers(self.seed, f"dit/{stream}", batch.positions.tolist(), 2 * size + 1, 2)
        latents, noise = drawn_latents(batch.data, normals)
        time = to_device(self.objective.times(uniforms[:, 0], normals[:, -1]), noise.device)
        dropped = to_device(uniforms[:, 1] < label_dropout, noise.device)
        x0, augmented = self.scaler(latents), None
        if augment is not None and augment.probability:
            drawn = Augmentation.drawn(augment, self.seed, batch.positions.tolist(), noise.shape[-1]).to(noise.device)
            x0, noise, augmented = drawn(x0), drawn(noise), drawn.condition
        if isinstance(condition, Captioned) and stream == "train":
            # A stream of its own: the other numbers stay those of every condition.
            _, hidden = random_numbers(self.seed, "dit/words", batch.positions.tolist(), 0, condition.tokens.shape[1])
            condition = condition.without(to_device(hidden < self.settings.word_dropout, noise.device))
        return Drawn(x0, noise, time, nulled(condition, self.model.null_label, dropped), augmented)

    def _losses(self, drawn: Drawn, taps: tuple[int, ...] = ()) -> tuple[dict[str, Tensor], Sequence[Tensor]]:
        """Return the losses of each image, (N,), and the tokens after some blocks, (N, L, D)."""
        x0, noise, time, condition, augmented = drawn
        x = self.objective.add_noise(x0, noise, time)
        more = ({} if augmented is None else {"augmented": augmented}) | ({"taps": taps} if taps else {})
        found = self.modules["dit"](x, self.objective.timesteps(time), condition, **more)
        output, *tokens = found if taps else (found,)
        return self.objective.losses(output, x0, noise, x, time), tokens

    def preview(self) -> NDArray[np.uint8]:
        """Return ten images for each of the first ten classes, or a hundred of one, or of ten stored conditions."""
        return self._made(10 * self.columns)

    def strip(self) -> NDArray[np.uint8]:
        """Return the first row of `preview`."""
        return self._made(self.columns)

    def _made(self, count: int) -> NDArray[np.uint8]:
        """Return images of the first ten classes or of ten stored conditions in turn; image i from noise i.

        They are guided where conditions were dropped: nothing else teaches what the null looks like.
        """
        device = next(self.model.parameters()).device
        columns = self.columns
        asked = self.asked or asked_classes(balanced(max(1, self.model.config.classes)))
        condition = placed(asked, np.arange(count) % columns, device)
        shape = self.tokenizer.latent_shape
        noise = to_device(normal(self.seed, "dit/preview", range(count), shape), device)
        sampling = self.evaluation_settings
        if not self.settings.label_dropout:
            sampling = sampling.model_copy(update={"guidance": 1.0})
        seeds = [derive(self.seed, "dit/preview/steps", number) for number in range(count)]
        latents = self.sampler.latents(noise, condition, seeds, sampling)
        return decode_all(self.tokenizer, latents, 10, device).numpy()  # ten at once: pixels take more than latents


def config_of(
    settings: Settings,
    channels: int,
    size: int,
    classes: int,
    embed_dim: int = 0,
    text_shape: tuple[int, int] | None = None,
    caption_shape: tuple[int, int] | None = None,
) -> DiTConfig:
    """Return the shape of a transformer for latents (C, S, S) of images of so many classes, with stored embeddings.

    Where it embeds captions itself: of a caption's tokens, and of so many that are known.
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
        augmented=NUMBERS if settings.augment.probability else 0,
    )


# ---------------------------------------------------------------------------------------------------------------------
# Losses of what a transformer's tokens say of its images, beside that of its prediction


def dispersive(tokens: Tensor, tau: float) -> Tensor:
    """Return log mean_{i,j} exp(-|z_i - z_j|² / (D τ)) of tokens (B, N, W), a scalar, float32; D = N W.

    z_i: all tokens of image i. The mean is over all pairs of the images of all processes, i = j among them.
    Source: Wang and He, "Diffuse and disperse", 2025, arXiv 2506.09027.
    """
    world = process_count()
    with in_float32(tokens.device):
        z = tokens.float().flatten(1)  # (B, D)
        if world > 1:  # those of the other processes are constants here
            pieces = list(of_all_processes(z.detach()).chunk(world))
            pieces[distributed.get_rank()] = z
            z = torch.cat(pieces)
        z = z - z.detach().mean(dim=0)  # distances stay, and the difference below loses less
        gram = z @ z.T / z.shape[1]
        squares = gram.diagonal()
        loss = (-(squares[:, None] + squares - 2 * gram) / tau).exp().mean().log()
    # The mean of the gradients over the processes is then that of the loss.
    return loss.detach() + world * (loss - loss.detach()) if world > 1 else loss


def projector(width: int, seed: int) -> nn.Module:
    """Return the untrained network that maps tokens of a block to those of a later one; it is not saved."""
    with seeded(seed):
        return nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))


def alignment(projected: Tensor, target: Tensor) -> Tensor:
    """Return the smooth L1 distance of tokens (B, N, W) from a teacher's, the mean over elements, a scalar, float32.

    d² / (2 β) where |d| < β, else |d| - β / 2, β = 0.05.
    Source: Jiang et al., "No other representation component is needed", 2025, arXiv 2505.02831 (SRA).
    """
    return functional.smooth_l1_loss(projected.float(), target.float(), beta=_BETA)
