"""Trains a U-Net of the unCLIP decoder: denoising under CLIP's embeddings, and under the image that it enlarges."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from darkroom.diffusion.denoising import sample
from darkroom.diffusion.gaussian import distance, min_snr_weight, p2_weight, target_of, variational_bound
from darkroom.diffusion.prediction import Prediction
from darkroom.diffusion.thresholds import clipped
from darkroom.models.decoder.data import Space, Teller
from darkroom.models.decoder.denoiser import denoiser
from darkroom.models.decoder.low_resolution import blurred, downsampled, noised, upsampled
from darkroom.models.decoder.settings import Low, UNet
from darkroom.models.decoder.unet import Conditions, DecoderUNet
from darkroom.random import draws, normal
from darkroom.training.recipe import Batch, Losses, Phase, Recipe, Rows

_PREVIEW, _PREVIEW_STEPS, _PREVIEW_GUIDANCE = 10, 20, 2.0
# Uniform numbers of a position, by what they decide.
_TIME, _IMAGE, _TEXT, _EMBEDDING, _BLUR, _SIGMA, _LOW, _DOWN, _RIGHT, _SELF = range(10)


@dataclass
class _Draws:
    """The random numbers of a batch: `noise` (N, C, S, S), `low` likewise, `embedding` (N, D), `uniform` (N, 10)."""

    noise: Tensor
    low: Tensor
    embedding: Tensor
    uniform: Tensor


class DecoderRecipe(Recipe):
    """L = λ_t |f(x_t, t, c) - target|² + w L_vb, of x_t under the schedule's noise.

    λ_t, P2's weight (k + SNR_t)^(-γ) or Min-SNR's, is 1 by default; L_vb teaches the variance, where it is learned.
    w = 0.001 on the term of the one step that is drawn, as the unCLIP decoder of DALLE2-pytorch has it; T / 1000 is the
    sum over all steps that Nichol and Dhariwal, 2021, weight by 0.001.
    """

    def __init__(
        self,
        model: DecoderUNet,
        settings: UNet,
        prediction: Prediction,
        space: Space,
        teller: Teller,
        seed: int,
        train: Rows,
        val: Rows,
    ) -> None:
        """Take in the parts.

        Args:
            model: the untrained U-Net.
            settings: its section of params.yaml.
            prediction: what it predicts.
            space: makes x_0 of a batch, and images of x_0: of pixels or of latents.
            teller: gives image embeddings and text encodings of a batch.
            seed: the training's.
            train: what is trained on.
            val: what is validated on.
        """
        self.model, self.settings, self.prediction = model, settings, prediction
        self.space, self.teller, self.seed = space, teller, seed
        self.train, self.val = train, val
        self.modules: dict[str, nn.Module] = {"unet": model}
        self.phases = (Phase("unet", self.loss),)
        self.blocks = model.blocks

    def loss(self, batch: Batch) -> Losses:
        """Return the losses, conditions dropped; randomness follows from each image's place in the training."""
        found = self._losses(batch, self._draw(batch, "train"), drops=True)
        return {name: values.mean() for name, values in found.items()}

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """Return each image's losses with all conditions; randomness follows from its row."""
        return self._losses(batch, self._draw(batch, "val"), drops=False)

    def _draw(self, batch: Batch, stream: str) -> _Draws:
        """Return the random numbers of each position."""
        config = self.model.config
        shape = (config.image_channels, config.size, config.size)
        size, embedding = int(np.prod(shape)), config.embed_dim * config.embedding_noise
        count = size * (1 + config.low_noise) + embedding
        normals, uniforms = draws(self.seed, f"decoder/{stream}", batch.positions.tolist(), count, _SELF + 1)
        device = next(iter(batch.data.values())).device
        numbers = torch.from_numpy(normals).to(device)
        noise = numbers[:, :size].unflatten(1, shape)
        low = numbers[:, size : 2 * size].unflatten(1, shape) if config.low_noise else noise
        rest = numbers[:, -embedding:] if embedding else numbers[:, :0]
        return _Draws(noise, low, rest, torch.from_numpy(uniforms).to(device, torch.float32))

    def _losses(self, batch: Batch, random: _Draws, drops: bool) -> dict[str, Tensor]:
        settings, schedule = self.settings.diffusion, self.prediction.schedule
        whole = self.space.data(batch.data)  # (N, C, S, S), S of the data
        x0 = downsampled(whole, self.model.config.size)
        steps = (random.uniform[:, _TIME].double() * len(schedule)).long().clamp(max=len(schedule) - 1)
        told = self._told(batch, whole, random, drops)
        noise = random.noise
        if drops and self.settings.low.crop is not None:
            x0, noise, told = self._cropped(x0, noise, told, random.uniform)
        x = schedule.add_noise(x0, noise, steps)
        before = self._before(x, steps, told, random.uniform[:, _SELF])
        mean, share = self.prediction.split(self.modules["unet"](x, steps, told, before))
        target = target_of(x0, noise, steps, schedule, self.prediction.target)
        simple = distance(mean, target, settings.loss)
        if settings.p2_gamma:
            simple = simple * p2_weight(steps, schedule, settings.p2_gamma, settings.p2_k)
        if settings.min_snr is not None:
            simple = simple * min_snr_weight(steps, schedule, settings.min_snr, self.prediction.target)
        if share is None:
            return {"loss": simple}
        guess = self.prediction.x0(mean, x, steps)
        guess = clipped(guess) if self.prediction.bounded else guess
        bound = variational_bound(x0, x, guess, share, steps, schedule)
        return {"loss": simple + settings.bound_weight * bound, "simple": simple, "bound": bound}

    def _told(self, batch: Batch, whole: Tensor, random: _Draws, drops: bool) -> Conditions:
        """Return the conditions, in training with noise, blur and drops."""
        settings, config, uniform = self.settings, self.model.config, random.uniform
        image, text = self.teller(batch.data)
        facts: dict[str, Any] = {"image": image, "text": text}
        if config.embedding_noise and image is not None:
            level = uniform[:, _EMBEDDING] * settings.diffusion.embedding_noise
            facts |= {"image": noised(image, random.embedding, level), "image_noise": level}
        if drops:
            facts["image_kept"] = uniform[:, _IMAGE] >= settings.diffusion.image_dropout
            facts["text_kept"] = uniform[:, _TEXT] >= settings.diffusion.text_dropout
        if settings.low_size is not None:
            facts |= self._low(whole, settings.low_size, settings.low, random)
        return Conditions(**facts)

    def _low(self, whole: Tensor, size: int, how: Low, random: _Draws) -> dict[str, Tensor]:
        """Return the image to enlarge, and the noise in it."""
        uniform = random.uniform
        small = downsampled(whole, size, how.downsample)
        if how.blur:
            least, most = how.blur_sigma
            soft = blurred(small, least + (most - least) * uniform[:, _SIGMA], how.blur_kernel)
            small = torch.where((uniform[:, _BLUR] < how.blur)[:, None, None, None], soft, small)
        large = upsampled(small, self.model.config.size)
        if not how.noise:
            return {"low": large}
        level = uniform[:, _LOW] * how.noise
        return {"low": noised(large, random.low, level), "low_noise": level}

    def _cropped(
        self, x0: Tensor, noise: Tensor, told: Conditions, uniform: Tensor
    ) -> tuple[Tensor, Tensor, Conditions]:
        """Return one square of each image, its corner at a pixel of the low-resolution image."""
        crop, size = self.settings.low.crop, self.model.config.size
        assert crop is not None and self.settings.low_size is not None and told.low is not None
        factor = size // self.settings.low_size
        places = (size - crop) // factor + 1
        top, left = ((uniform[:, at] * places).long().clamp(max=places - 1) * factor for at in (_DOWN, _RIGHT))
        along = torch.arange(crop, device=x0.device)
        number = torch.arange(len(x0), device=x0.device)[:, None, None]
        rows, columns = (top[:, None] + along)[:, :, None], (left[:, None] + along)[:, None, :]

        def cut(images: Tensor) -> Tensor:
            return images[number, :, rows, columns].permute(0, 3, 1, 2).contiguous()

        facts = {**vars(told), "low": cut(told.low)}
        return cut(x0), cut(noise), Conditions(**facts)

    def _before(self, x: Tensor, steps: Tensor, told: Conditions, uniform: Tensor) -> Tensor | None:
        """Return what the U-Net finds at first, for half of the images, where it is self-conditioned.

        Chen et al., "Analog bits", 2022, arXiv 2208.04202, section 2.2.
        """
        if not self.model.config.self_condition:
            return None
        with torch.no_grad():
            mean, _ = self.prediction.split(self.modules["unet"](x, steps, told, None))
            found = self.prediction.x0(mean, x, steps)
            found = clipped(found) if self.prediction.bounded else found
        return torch.where((uniform < 0.5)[:, None, None, None], found, torch.zeros_like(found))

    @torch.no_grad()
    def preview(self) -> NDArray[np.uint8]:
        """Return originals, then images decoded from their conditions: rows of ten, one above the other."""
        source = self.val if len(self.val) else self.train
        rows = list(range(min(_PREVIEW, len(source))))
        device = next(self.model.parameters()).device
        data = {
            name: torch.as_tensor(np.asarray(value)).to(device) for name, value in source.__getitems__(rows).items()
        }
        batch, config = Batch(np.array(rows), data), self.model.config
        random = self._draw(batch, "preview")
        whole = self.space.data(data)
        told = self._told(batch, whole, random, drops=False)
        shape = (config.image_channels, config.size, config.size)
        noise = torch.from_numpy(normal(self.seed, "decoder/preview/noise", rows, shape)).to(device)
        keep = clipped if self.prediction.bounded else None
        diffusion, schedule = self.settings.diffusion, self.prediction.schedule
        # Without is learned where all that is told was dropped at times.
        image, text = told.image is None or diffusion.image_dropout, told.text is None or diffusion.text_dropout
        guidance = _PREVIEW_GUIDANCE if image and text else 1.0
        denoise = denoiser(self.model, self.prediction, told, guidance, keep, config.self_condition)
        found = sample(denoise, noise, schedule, "ddim", min(_PREVIEW_STEPS, len(schedule)))
        return torch.cat([self.space.images(each) for each in (downsampled(whole, config.size), found)]).cpu().numpy()
