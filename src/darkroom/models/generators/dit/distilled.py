"""Distil the path of a transformer from noise to data into a few calls of a transformer of the same shape."""

from copy import deepcopy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from darkroom.device import in_float32, to_device
from darkroom.diffusion.denoiser import Guidance
from darkroom.diffusion.flow import Flow
from darkroom.diffusion.samplers import Solver, euler_along, follow, heun_along, multistep, times_of
from darkroom.models.generators.conditions import Condition, condition_of, rows_of
from darkroom.models.generators.data import GeneratorData, drawn_latents
from darkroom.models.generators.dit.network import DiT
from darkroom.models.generators.dit.sample import DiTSampler, dit_denoiser
from darkroom.models.generators.dit.settings import DiTGenerated
from darkroom.models.generators.recipe import GeneratorRecipe
from darkroom.models.generators.sampler import placed
from darkroom.models.generators.settings import few_calls
from darkroom.models.tokenizers.protocol import padded
from darkroom.params.training import Training
from darkroom.rng import derive, normal, random_numbers
from darkroom.training.recipe import Batch, Losses, Phase


def through(solver: str, flow: Flow, times: Tensor) -> Solver:
    """Return a solver that adds no noise, through these times, falling, (K + 1,).

    solver: euler; heun, of second order except in a step that ends at data; or dpm, of first order in the first step
        and in the last.
    """
    if solver == "euler":
        return euler_along(times)
    if solver == "heun":
        calls = times.repeat_interleave(2)[1:-1]
        return heun_along(times, calls if times[-1] > 0 else calls[:-1])
    return multistep(times[:-1], *flow.levels(times))


class DistilledRecipe(GeneratorRecipe):
    """The mean velocity of each of K steps: L = || v(x_t, t, y) - (x_r - x_t) / (r - t) ||², r the end of the step.

    x_t is data with the generator's noise at one of the K times where a call begins; x_r is the result of the teacher's
    solver from there, after ceil(steps / K) steps with guidance. So Euler's method in K steps, unguided, follows the
    teacher: each call replaces several guided ones. It is approximate after the first call, which ends near, but not
    on, the noisy data that the second one is trained on. Progressive distillation (Salimans and Ho,
    2022, arXiv 2202.00512) with all of its halvings in one, and guidance distilled with it (Meng et al., 2022, arXiv
    2210.03142).

    ways: the times that the teacher passes in each call, (ceil(steps / K) + 1,) each.
    """

    def __init__(
        self, teacher: DiTSampler, settings: DiTGenerated, calls: int, training: Training, data: GeneratorData
    ) -> None:
        assert isinstance(teacher.objective, Flow)  # `fits` has checked it
        self.teacher, self.objective, self.settings, self.seed = teacher, teacher.objective, settings, training.seed
        for network in (teacher.model, teacher.guide):
            if network is not None:
                network.eval()
        self.model: DiT = deepcopy(teacher.model)
        for module in self.model.modules():  # the teacher runs without dropout, so the student does too
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        self.modules: dict[str, nn.Module] = {"dit": self.model}
        self.phases = (Phase("dit", self.loss),)
        self.blocks = list(self.model.blocks)
        self.train, self.val = data.train, data.val
        steps = -(-settings.count // calls)
        times = times_of(self.objective, calls * steps)
        self.ways = [times[at : at + steps + 1] for at in range(0, calls * steps, steps)]
        self.sampling = few_calls(calls)
        self.use_conditions(self.model.config.condition, self.model.config.classes, data.conditions, None)

    def loss(self, batch: Batch) -> Losses:
        """Return the loss; noise and call follow from each image's place in the training sequence."""
        return {"loss": self._losses(batch, "train")[0].mean()}

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """Return each image's loss, and `loss_call_1`, … for the images of each call, the first from noise."""
        losses, call = self._losses(batch, "val")
        rows = [to_device(call == number, losses.device) for number in range(len(self.ways))]
        return {"loss": losses, **{f"loss_call_{number + 1}": losses[each] for number, each in enumerate(rows)}}

    def _losses(self, batch: Batch, stream: str) -> tuple[Tensor, NDArray[np.int64]]:
        """Return the loss of each image, (N,), and the number of its call, from 0."""
        condition, count = condition_of(batch.data), 2 * batch.data["mean"][0].numel()
        normals, uniforms = random_numbers(self.seed, f"distilled/{stream}", batch.positions.tolist(), count, 1)
        latents, noise = drawn_latents(batch.data, normals)
        call = (uniforms[:, 0] * len(self.ways)).astype(np.int64)
        ends = torch.stack([way[[0, -1]] for way in self.ways])[torch.from_numpy(call)]
        start, end = to_device(ends, latents.device).unbind(1)
        x = self.objective.add_noise(self.teacher.scaler(latents), noise, start)
        reached = self.reached(x, call, condition)
        output = self.modules["dit"](x, self.objective.timesteps(start), condition)
        velocity = self.objective.denoised(output, x, start).velocity
        assert velocity is not None  # flows have one
        return (velocity - (reached - x) / (end - start)[:, None, None, None]).square().mean(dim=(1, 2, 3)), call

    def reached(self, x: Tensor, call: NDArray[np.int64], condition: Condition) -> Tensor:
        """Return the teacher's result for each image at the end of its call, (N, C, H, W), float32.

        Args:
            x: x_t, (N, C, H, W).
            call: the call of each image, on the CPU.
            condition: that of all images.
        """
        ends, model, guidance = torch.empty_like(x), self.teacher.model, Guidance.of(self.settings)
        order = np.argsort(call, kind="stable")
        counts = np.bincount(call, minlength=len(self.ways)).tolist()
        for way, rows in zip(self.ways, to_device(order, x.device).split(counts), strict=True):
            if not len(rows):
                continue
            some, null = rows_of(condition, rows), model.null_label
            denoise = dit_denoiser(model, self.objective, some, null, guidance, self.teacher.guide)
            with torch.no_grad(), in_float32(x.device):
                ends[rows] = follow(through(self.settings.solver, self.objective, way), denoise, x[rows])
        return ends

    def made(self, count: int) -> NDArray[np.uint8]:
        """Return images of the first ten classes or of ten stored conditions in turn."""
        assert self.conditions is not None  # set from the data
        device, tokenizer = next(self.model.parameters()).device, self.teacher.tokenizer
        condition = placed(self.conditions, np.arange(count) % self.columns, device)
        noise = torch.from_numpy(normal(self.seed, "distilled/preview", range(count), tokenizer.latent_shape))
        sampler = DiTSampler(self.model, self.objective, self.teacher.scaler, tokenizer)
        seeds = [derive(self.seed, "distilled/steps", number) for number in range(count)]
        latents = sampler.latents(noise.to(device), condition, seeds, self.sampling)
        return padded(tokenizer.decode, latents, 10, device).numpy()
