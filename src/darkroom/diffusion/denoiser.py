"""Denoisers: a network's predictions from noisy data, guided and thresholded. Samplers are functions of a denoiser.

Classifier-free guidance: Ho and Salimans, 2022, arXiv 2207.12598. Classifier guidance: Dhariwal and Nichol, 2021, arXiv
2105.05233, section 4.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from darkroom.diffusion.settings import Sampling
from darkroom.diffusion.types import Denoise, Denoised, LogProbability, Network, Objective, Threshold


@dataclass(frozen=True)
class Guidance:
    """The settings of guidance, which moves a prediction f away from another one f': f' + s (f - f').

    scale: s; 1: the network alone, and it is called once.
    channels: the number of guided channels, the first ones; None: all. DiT's published scores guide 3 of 4.
    interval: the times with guidance, from 0 (data) to 1 (noise) (Kynkäänniemi et al., 2024, arXiv 2404.07724).
    schedule: s from noise to data: constant, or growing from 1 to s, linear in time or with the cosine's slow start
        (Wang et al., 2024, "Analysis of classifier-free guidance weight schedulers", arXiv 2404.13040).
    variance: whether a learned variance is guided too.
    classifier: scale of a classifier's gradient, in the same channels and interval, constant or growing from 0.
    """

    scale: float = 1.0
    channels: int | None = None
    interval: tuple[float, float] = (0.0, 1.0)
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    variance: bool = False
    classifier: float = 0.0

    @classmethod
    def of(cls, settings: Sampling) -> "Guidance":
        """Return the guidance of a section of params.yaml."""
        return cls(
            settings.guidance,
            settings.guidance_channels,
            (settings.guidance_from, settings.guidance_to),
            settings.guidance_schedule,
            settings.guidance_variance,
            getattr(settings, "classifier_scale", 0.0),
        )

    @property
    def constant(self) -> bool:
        """Whether both scales are the same at all times."""
        unguided = self.scale == 1 and not self.classifier
        return unguided or (self.interval == (0.0, 1.0) and self.schedule == "constant")

    def at(self, time: float) -> float:
        """Return the scale at a time from 0 to 1."""
        fraction = self._fraction(time)
        if self.scale == 1 or not fraction:
            return 1.0
        return self.scale if fraction == 1 else 1 + (self.scale - 1) * fraction

    def classifier_at(self, time: float) -> float:
        """Return the scale of the classifier's gradient at a time from 0 to 1."""
        return self.classifier * self._fraction(time)

    def _fraction(self, time: float) -> float:
        low, high = self.interval
        if not low <= round(time, 6) <= high:  # a time is float32
            return 0.0
        return {"constant": 1.0, "linear": 1 - time, "cosine": (1 + math.cos(math.pi * time)) / 2}[self.schedule]


def denoiser(
    network: Network,
    objective: Objective,
    guidance: Guidance | float = 1.0,
    threshold: Threshold | None = None,
    *,
    both: Network | None = None,
    guide: Network | None = None,
    classifier: LogProbability | None = None,
) -> Denoise:
    """Return the denoiser of a network.

    Of the output's first C channels, those of x, the first `Guidance.channels` are guided. The channels after them, of
    a learned variance, are guided only with `Guidance.variance`.

    Args:
        network: the network, with its conditions bound to it.
        objective: what the network was trained to predict.
        guidance: the settings of guidance; a number is a scale.
        threshold: applied to x0; None: no threshold.
        both: the same network for twice as many rows, the second half without the conditions that guidance leads away
            from; None: it has no conditions, and nothing guides it.
        guide: another, weaker network, with the conditions bound to it, that guidance leads away from in place of
            `both` (autoguidance: Karras et al., 2024, arXiv 2406.02507).
        classifier: its gradient, times `Guidance.classifier`, is added to the score, guided or not.
    """
    settings = guidance if isinstance(guidance, Guidance) else Guidance(guidance)
    if both is None and guide is None:
        settings = replace(settings, scale=1.0)
    if classifier is None:
        settings = replace(settings, classifier=0.0)

    def predict(x: Tensor, timesteps: Tensor, before: Tensor | None, scale: float) -> Tensor:
        """Return the output of the network, guided, (N, K, ...); with a scale of 1 its own, bit for bit."""
        if scale == 1:
            return network(x, timesteps, before)
        if guide is not None:
            conditional, other = network(x, timesteps, before), guide(x, timesteps, before)
        else:
            assert both is not None
            twice = None if before is None else torch.cat([before, before])
            conditional, other = both(torch.cat([x, x]), torch.cat([timesteps, timesteps]), twice).chunk(2)
        count = x.shape[1] if settings.channels is None else min(settings.channels, x.shape[1])
        prediction = guided(conditional[:, :count], other[:, :count], scale)
        rest = conditional[:, count:]
        if settings.variance:
            parts = rest[:, : x.shape[1] - count], guided(conditional[:, x.shape[1] :], other[:, x.shape[1] :], scale)
            rest = torch.cat(parts, dim=1)
        return torch.cat([prediction, rest], dim=1) if rest.shape[1] else prediction

    def denoise(x: Tensor, t: Tensor, before: Tensor | None) -> Denoised:
        scale, weight = settings.scale, settings.classifier
        if not settings.constant:  # a batch has one time; reading it waits for the device
            time = float(t[0]) / objective.duration
            scale, weight = settings.at(time), settings.classifier_at(time)
        denoised = objective.denoised(predict(x, objective.timesteps(t), before, scale), x, t, threshold)
        if classifier is None or not weight:
            return denoised
        gradient = weight * gradient_of(classifier, x, objective.timesteps(t))
        if settings.channels is not None:
            gradient[:, settings.channels :] = 0
        return objective.scored(denoised, gradient, t)

    return denoise


# ----------------------------------------------------------------------------------------------------------------------
# Guidance


def guided(conditional: Tensor, unconditional: Tensor, scale: float) -> Tensor:
    """Return f(x) + s (f(x, y) - f(x)), of the shape of both; 1 is the conditional prediction up to rounding."""
    return unconditional + scale * (conditional - unconditional)


def guided_halves(output: Tensor, scale: float) -> Tensor:
    """Return `guided` of one batch (2 N, ...) whose first half is conditional, (N, ...)."""
    conditional, unconditional = output.chunk(2)
    return guided(conditional, unconditional, scale)


def gradient_of(classifier: LogProbability, x: Tensor, timesteps: Tensor) -> Tensor:
    """Return the gradient of log p(y | x_t) by x_t, of the shape of x, float32; images of a batch are independent."""
    with torch.enable_grad():
        given = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(classifier(given, timesteps).sum(), given)
    return gradient.float()


# ----------------------------------------------------------------------------------------------------------------------
# Thresholds: guidance drives a predicted x0 beyond [-1, 1], the range of pixels, and colours saturate


def clip_x0(x0: Tensor) -> Tensor:
    """Return x0 clipped to [-1, 1]."""
    return x0.clamp(-1, 1)


def dynamic_threshold(x0: Tensor, percentile: float) -> Tensor:
    """Return x0 clipped to ±s and divided by s, s = max(1, percentile of |x0| in each image).

    Source: Saharia et al., "Photorealistic text-to-image diffusion models", 2022, arXiv 2205.11487, section 2.3.

    Args:
        x0: (N, C, H, W), float32.
        percentile: from 0 to 1, say 0.995.
    """
    size = torch.quantile(x0.flatten(1).abs(), percentile, dim=1).clamp(min=1)[:, None, None, None]
    return x0.clamp(-size, size) / size
