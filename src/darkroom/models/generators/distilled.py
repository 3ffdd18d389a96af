"""Distils a transformer's way from noise to data into a few calls of a transformer of the same shape."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from darkroom.diffusion.denoiser import Guidance
from darkroom.diffusion.few_calls import FewCalls, student_of
from darkroom.diffusion.flow import Flow
from darkroom.diffusion.types import Denoise
from darkroom.models.generators.conditions import Asked, condition_of, rows_of
from darkroom.models.generators.data import GeneratorData, drawn_latents
from darkroom.models.generators.dit.network import DiT
from darkroom.models.generators.dit.sample import DiTSampler, dit_denoiser
from darkroom.models.generators.dit.settings import DiTGenerated
from darkroom.models.generators.kind_settings import TEXTS
from darkroom.models.generators.sampler import placed
from darkroom.models.generators.settings import few_calls
from darkroom.models.tokenizers.protocol import padded
from darkroom.params.training import Training
from darkroom.rng import derive, normal, random_numbers
from darkroom.training.recipe import Batch, Losses, Phase, Recipe

_COLUMNS = 10  # of the grid, a class or a stored condition each


class DistilledRecipe(Recipe):
    """The mean velocity of each of K steps: L = || v(x_t, t, y) - (x_r - x_t) / (r - t) ||², r the end of the step.

    x_t is data under the generator's noise at one of the K times where a call begins, and x_r is where the teacher's
    solver leads from there, in ceil(steps / K) steps of its own, with its guidance. So Euler's method in K steps,
    unguided, follows the teacher: each call takes the place of several guided ones, up to that the second call begins
    where the first one ends, and is trained where data under noise lie. Progressive distillation (Salimans and Ho,
    2022, arXiv 2202.00512) with all of its halvings in one, and guidance distilled with it (Meng et al., 2022, arXiv
    2210.03142).

    Args:
        teacher: the generator, with what guides it.
        how: how the teacher draws.
        calls: K.
        training: its settings.
        data: the latents and conditions that the generator was trained on.
    """

    def __init__(
        self, teacher: DiTSampler, how: DiTGenerated, calls: int, training: Training, data: GeneratorData
    ) -> None:
        assert isinstance(teacher.objective, Flow)  # the stage sees to it
        self.teacher, self.objective, self.how, self.seed = teacher, teacher.objective, how, training.seed
        for network in (teacher.model, teacher.weaker):
            if network is not None:
                network.eval()
        self.model: DiT = student_of(teacher.model)
        self.modules: dict[str, nn.Module] = {"dit": self.model}
        self.phases = (Phase("dit", self.loss),)
        self.blocks = list(self.model.blocks)
        self.train, self.val = data.train, data.val
        self.asked: Asked = data.asked
        self.calls = FewCalls(self.objective, how.solver, how.count, calls)
        self.sampling = few_calls(calls)
        self.by_class = self.model.config.condition == "class" and self.model.config.classes > 1
        self.columns = min(_COLUMNS, self.model.config.classes) if self.by_class else _COLUMNS
        if self.asked.caption is not None and self.model.config.condition in TEXTS:
            self.captions = self.asked.caption(np.arange(self.columns))

    def loss(self, batch: Batch) -> Losses:
        """Return the loss; noise and call follow from each image's place in the training sequence."""
        return {"loss": self._losses(batch, "train")[0].mean()}

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """Return each image's loss, and `loss_call_1`, … of the images of each call, from noise on."""
        losses, call = self._losses(batch, "val")
        return {"loss": losses, **self.calls.of_each(losses, call)}

    def _losses(self, batch: Batch, stream: str) -> tuple[Tensor, NDArray[np.int64]]:
        """Return the loss of each image, (N,), and the number of its call."""
        condition, count = condition_of(batch.data), 2 * batch.data["mean"][0].numel()
        normals, uniforms = random_numbers(self.seed, f"distilled/{stream}", batch.positions.tolist(), count, 1)
        latents, noise = drawn_latents(batch.data, normals)
        call = self.calls.drawn(uniforms[:, 0])

        def network(x: Tensor, timesteps: Tensor) -> Tensor:
            return self.modules["dit"](x, timesteps, condition)

        def denoise_of(rows: Tensor) -> Denoise:
            model, null, guidance = self.teacher.model, self.teacher.model.null_label, Guidance.of(self.how)
            return dit_denoiser(model, self.objective, rows_of(condition, rows), null, guidance, self.teacher.weaker)

        return self.calls.learned(network, self.teacher.scaler(latents), noise, call, denoise_of), call

    def preview(self) -> NDArray[np.uint8]:
        """Return ten images for each of the first ten classes, or of ten stored conditions, from the same noise."""
        return self._made(10 * self.columns)

    def strip(self) -> NDArray[np.uint8]:
        """Return the first row of `preview`."""
        return self._made(self.columns)

    def _made(self, count: int) -> NDArray[np.uint8]:
        device, tokenizer = next(self.model.parameters()).device, self.teacher.tokenizer
        condition = placed(self.asked, np.arange(count) % self.columns, device)
        noise = torch.from_numpy(normal(self.seed, "distilled/preview", range(count), tokenizer.latent_shape))
        sampler = DiTSampler(self.model, self.objective, self.teacher.scaler, tokenizer)
        seeds: Sequence[int] = [derive(self.seed, "distilled/steps", number) for number in range(count)]
        latents = sampler.latents(noise.to(device), condition, seeds, self.sampling)
        return padded(tokenizer.decode, latents, 10, device).numpy()
