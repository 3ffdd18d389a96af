"""Train a U-Net of the unCLIP decoder: denoising conditioned on CLIP embeddings and on the image that it enlarges."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from darkroom.data.draw import drawn
from darkroom.data.grid import blank
from darkroom.device import to_device
from darkroom.diffusion.denoiser import clip_x0
from darkroom.diffusion.samplers import sample
from darkroom.diffusion.types import Objective
from darkroom.models.decoder.data import Conditioner, Space
from darkroom.models.decoder.network import Conditions, DecoderUNet, unet_denoiser
from darkroom.models.decoder.sample import blurred, downsampled, noised, upsampled
from darkroom.models.decoder.unet_settings import LowResolution, UNet
from darkroom.models.evaluators.evaluation import UNetEvaluation
from darkroom.rng import derive, normal, random_numbers
from darkroom.training.data import with_means
from darkroom.training.recipe import Batch, Gather, IndexedDataset, Losses, Phase, Recipe

_GUIDANCE = 2.0  # of grids, if `grids.guidance` is null
# Columns of the uniform numbers of a position.
_TIME, _IMAGE, _TEXT, _EMBEDDING, _BLUR, _SIGMA, _LOW, _DOWN, _RIGHT, _SELF = range(10)


@dataclass
class Random:
    """The random numbers of a batch: `noise` and `low` (N, C, S, S), `embedding` (N, D), `uniform` (N, 10).

    time: in the objective's units, (N,).
    """

    noise: Tensor
    low: Tensor
    embedding: Tensor
    uniform: Tensor
    time: Tensor


class DecoderRecipe(Recipe):
    """The objective's loss of f(x_t, t, c), c the conditions, some of which are dropped (`darkroom.diffusion`)."""

    def __init__(
        self,
        model: DecoderUNet,
        settings: UNet,
        objective: Objective,
        space: Space,
        conditioner: Conditioner,
        seed: int,
        train: IndexedDataset,
        val: IndexedDataset,
        evaluation: UNetEvaluation | None = None,
    ) -> None:
        """Set the untrained U-Net and its section, and `evaluation`, which scores it while it trains.

        `space` maps a batch to x_0, and x_0 to images; `conditioner` maps it to image embeddings and text encodings.
        """
        self.model, self.settings, self.objective = model, settings, objective
        self.space, self.conditioner, self.seed = space, conditioner, seed
        self.threshold = clip_x0 if space.bounded else None
        self.train, self.val = train, val
        self.modules: dict[str, nn.Module] = {"unet": model}
        self.phases = (Phase("unet", self.loss),)
        self.blocks = model.blocks
        self.evaluation = evaluation
        self.evaluations = [(evaluation.settings.every, self.evaluate)] if evaluation else []

    def loss(self, batch: Batch) -> Losses:
        """Return the losses, conditions dropped; randomness follows from each image's place in the training."""
        losses = self._losses(batch, self.draw(batch, "train"), drops=True)
        return {name: values.mean() for name, values in losses.items()}

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """Return each image's losses with all conditions; randomness follows from its row."""
        return self._losses(batch, self.draw(batch, "val"), drops=False)

    def draw(self, batch: Batch, stream: str) -> Random:
        """Return the random numbers of each position."""
        config = self.model.config
        shape = (config.image_channels, config.size, config.size)
        size, embedding = int(np.prod(shape)), config.embed_dim * config.embedding_noise
        count = size * (1 + config.low_noise) + embedding
        normals, uniforms = random_numbers(self.seed, f"decoder/{stream}", batch.positions.tolist(), count, _SELF + 1)
        device = next(iter(batch.data.values())).device
        numbers = to_device(normals, device)
        noise = numbers[:, :size].unflatten(1, shape)
        low = numbers[:, size : 2 * size].unflatten(1, shape) if config.low_noise else noise
        rest = numbers[:, -embedding:] if embedding else numbers[:, :0]
        uniform = uniforms.astype(np.float32)
        time = self.objective.times(uniform[:, _TIME])
        return Random(noise, low, rest, to_device(uniform, device), to_device(time, device))

    def _losses(self, batch: Batch, random: Random, drops: bool) -> dict[str, Tensor]:
        whole = self.space.data(batch.data)  # (N, C, S, S), S of the data
        x0, conditions = downsampled(whole, self.model.config.size), self._conditions(batch, whole, random, drops)
        noise, time = random.noise, random.time
        if drops and self.settings.low.crop is not None:
            x0, noise, conditions = self._cropped(x0, noise, conditions, random.uniform)
        x = self.objective.add_noise(x0, noise, time)
        before = self._before(x, time, conditions, random.uniform[:, _SELF])
        output = self.modules["unet"](x, self.objective.timesteps(time), conditions, before)
        return self.objective.losses(output, x0, noise, x, time, self.threshold)

    def _conditions(self, batch: Batch, whole: Tensor, random: Random, drops: bool) -> Conditions:
        """Return the conditions, in training with noise, blur and drops."""
        settings, config, uniform = self.settings, self.model.config, random.uniform
        image, text = self.conditioner(batch.data)
        metadata: dict[str, Any] = {"image": image, "text": text}
        if config.embedding_noise and image is not None:
            level = uniform[:, _EMBEDDING] * settings.diffusion.embedding_noise
            metadata |= {"image": noised(image, random.embedding, level), "image_noise": level}
        if drops:
            metadata["image_kept"] = uniform[:, _IMAGE] >= settings.diffusion.image_dropout
            metadata["text_kept"] = uniform[:, _TEXT] >= settings.diffusion.text_dropout
        if settings.low_size is not None:
            metadata |= self._low(whole, settings.low_size, settings.low, random)
        return Conditions(**metadata)

    def _low(self, whole: Tensor, size: int, settings: LowResolution, random: Random) -> dict[str, Tensor]:
        """Return the image to enlarge, and the noise in it."""
        uniform = random.uniform
        small = downsampled(whole, size, settings.downsample)
        if settings.blur:
            least, most = settings.blur_sigma
            soft = blurred(small, least + (most - least) * uniform[:, _SIGMA], settings.blur_kernel)
            small = torch.where((uniform[:, _BLUR] < settings.blur)[:, None, None, None], soft, small)
        large = upsampled(small, self.model.config.size)
        if not settings.noise:
            return {"low": large}
        level = uniform[:, _LOW] * settings.noise
        return {"low": noised(large, random.low, level), "low_noise": level}

    def _cropped(
        self, x0: Tensor, noise: Tensor, conditions: Conditions, uniform: Tensor
    ) -> tuple[Tensor, Tensor, Conditions]:
        """Return one square of each image, its corner at a pixel of the low-resolution image."""
        crop, size = self.settings.low.crop, self.model.config.size
        assert crop is not None and self.settings.low_size is not None and conditions.low is not None
        factor = size // self.settings.low_size
        places = (size - crop) // factor + 1
        top, left = ((uniform[:, at] * places).long().clamp(max=places - 1) * factor for at in (_DOWN, _RIGHT))
        along = torch.arange(crop, device=x0.device)
        number = torch.arange(len(x0), device=x0.device)[:, None, None]
        rows, columns = (top[:, None] + along)[:, :, None], (left[:, None] + along)[:, None, :]

        def cut(images: Tensor) -> Tensor:
            return images[number, :, rows, columns].permute(0, 3, 1, 2).contiguous()

        metadata = {**vars(conditions), "low": cut(conditions.low)}
        return cut(x0), cut(noise), Conditions(**metadata)

    def _before(self, x: Tensor, time: Tensor, conditions: Conditions, uniform: Tensor) -> Tensor | None:
        """Return the x0 that a self-conditioned U-Net predicts without any, for half of the images, else zero.

        Chen et al., "Analog bits", 2022, arXiv 2208.04202, section 2.2.
        """
        if not self.model.config.self_condition:
            return None
        with torch.no_grad():
            output = self.modules["unet"](x, self.objective.timesteps(time), conditions, None)
            x0 = self.objective.denoised(output, x, time, self.threshold).x0
        return torch.where((uniform < 0.5)[:, None, None, None], x0, torch.zeros_like(x0))

    @torch.no_grad()
    def preview(self) -> NDArray[np.uint8]:
        """Return rows of ten: originals, then images from their conditions; for validation, then for training."""
        splits = (("preview", self.val), ("preview/train", self.train))
        return np.concatenate([self._previewed(stream, rows) for stream, rows in splits if len(rows)])

    @torch.no_grad()
    def sample_evolution(self) -> NDArray[np.uint8]:
        """Return the first row of images of `preview`."""
        return self._made(*self._in_evolution())[0].cpu().numpy()

    def originals(self) -> NDArray[np.uint8]:
        """Return the first row of originals of `preview`."""
        return self._real(*self._in_evolution()[1:]).cpu().numpy()

    def _in_evolution(self) -> tuple[str, IndexedDataset, list[int]]:
        """Return the stream of noise, the data set and the rows of the images of `sample_evolution`."""
        stream, source = ("preview", self.val) if len(self.val) else ("preview/train", self.train)
        return stream, source, drawn(len(source), min(self.settings.grids.images, self.columns))

    def _previewed(self, stream: str, source: IndexedDataset) -> NDArray[np.uint8]:
        """Return originals and images from their conditions, row above row, the last ones filled with white."""
        rows = drawn(len(source), self.settings.grids.images)
        shown = [images.cpu().numpy() for images in self._made(stream, source, rows)]
        both = np.stack([_filled(images, self.columns) for images in reversed(shown)], axis=1)
        return both.reshape(-1, *both.shape[3:])  # of (rows, 2, 10, C, S, S)

    @torch.no_grad()
    def evaluate(self, rank: int, count: int, gather: Gather) -> dict[str, float]:
        """Return the scores of `train_decoder.evaluate`: of images from validation conditions, sampled as the grids."""
        assert self.evaluation is not None  # `evaluations` is empty without one
        generate = partial(self._made, "evaluate", self.val)
        real = partial(self._real, self.train)
        return self.evaluation.scores(generate, len(self.val), real, len(self.train), rank, count, gather)

    def _read(self, source: IndexedDataset, rows: Sequence[int]) -> Batch:
        device = next(self.model.parameters()).device
        data = {name: torch.as_tensor(value).to(device) for name, value in source.__getitems__(rows).items()}
        return Batch(np.array(rows), with_means(data, getattr(source, "codebook", None)))

    def _real(self, source: IndexedDataset, rows: Sequence[int]) -> Tensor:
        """Return images of some rows at the size of the U-Net, uint8 (N, C, S, S)."""
        return self.space.images(downsampled(self.space.data(self._read(source, rows).data), self.model.config.size))

    def _made(self, stream: str, source: IndexedDataset, rows: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return images sampled under the conditions of some rows, and their originals, each uint8 (N, C, S, S)."""
        batch, config = self._read(source, rows), self.model.config
        random, device = self.draw(batch, stream), next(self.model.parameters()).device
        whole = self.space.data(batch.data)
        conditions = self._conditions(batch, whole, random, drops=False)
        shape = (config.image_channels, config.size, config.size)
        noise = torch.from_numpy(normal(self.seed, f"decoder/{stream}/noise", rows, shape)).to(device)
        guidance = self._guidance(conditions)
        denoise = unet_denoiser(self.model, self.objective, conditions, guidance, self.threshold, config.self_condition)
        sampling = self.settings.grids.sampling(self.settings.diffusion, self.objective.duration)
        seeds = [derive(self.seed, f"decoder/{stream}/steps", row) for row in rows]
        x0 = sample(denoise, noise, self.objective, sampling, [torch.Generator().manual_seed(each) for each in seeds])
        return self.space.images(x0), self.space.images(downsampled(whole, config.size))

    def _guidance(self, conditions: Conditions) -> float:
        """Return the scale of grids: the setting, or `_GUIDANCE` if the unconditional prediction is learned."""
        if self.settings.grids.guidance is not None:
            return self.settings.grids.guidance
        diffusion = self.settings.diffusion
        image = conditions.image is None or diffusion.image_dropout
        text = conditions.text is None or diffusion.text_dropout
        return _GUIDANCE if image and text else 1.0


def _filled(images: NDArray[np.uint8], columns: int) -> NDArray[np.uint8]:
    """Return images (N, C, H, W) in rows, (R, columns, C, H, W), the last one filled with `blank`."""
    missing = -len(images) % columns
    return np.concatenate([images, blank((missing, *images.shape[1:]))]).reshape(-1, columns, *images.shape[1:])
