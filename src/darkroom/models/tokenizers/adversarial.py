"""Adversarial training of a tokenizer: discriminator, losses, weight, and its phase of an optimizer step."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn import functional

from darkroom.device import in_float32, process_count
from darkroom.errors import DarkroomError
from darkroom.models.tokenizers.sections import WINDOW, Adversarial
from darkroom.params.training import Training
from darkroom.training.recipe import Batch, Losses, Phase

_SLOPE = 0.1


class PatchDiscriminator(nn.Module):
    """A discriminator of overlapping patches of an image: one logit each, high for real ones.

    After PatchGAN (Isola et al., 2017, arXiv 1611.07004) with group norms, so that an image's logits do not depend on
    the batch: a 5 x 5 convolution, then for each further level a 4 x 4 convolution of stride 2 with a group norm,
    then 1 x 1 and 4 x 4 convolutions to logits, leaky ReLU of slope 0.1 between them.

    Args:
        in_channels: of the images.
        channels: width of each level; each but the first halves the resolution.
        norm_groups: groups of the norms.
    """

    def __init__(self, in_channels: int, channels: Sequence[int], norm_groups: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(in_channels, channels[0], 5, padding=2), nn.LeakyReLU(_SLOPE)]
        for inner, outer in pairwise(channels):
            layers += [
                nn.Conv2d(inner, outer, 4, stride=2, padding=1),
                nn.GroupNorm(norm_groups, outer),
                nn.LeakyReLU(_SLOPE),
            ]
        layers += [nn.Conv2d(channels[-1], channels[-1], 1), nn.LeakyReLU(_SLOPE), nn.Conv2d(channels[-1], 1, WINDOW)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (N, 1, h, w) of images x (N, C, H, W); h = H / 2^(levels - 1) - 3, and w from W."""
        return self.layers(x)


NAME = "discriminator"
_SCALE = 1024.0  # of the losses whose gradients are compared: fp16 would round small ones to zero; exact otherwise
_LARGEST = 1e4


def discriminator_loss(kind: str, real: Tensor, fake: Tensor) -> Tensor:
    """Return the discriminator's loss, a scalar, from its logits of real and generated images, of any shape.

    hinge: (E max(0, 1 - D(x)) + E max(0, 1 + D(x'))) / 2 (Lim and Ye, 2017, arXiv 1705.02894; Esser et al., 2021, with
        the factor). hinge_sum: without the factor 1/2, as in MUSE's VQGAN-VAE.
    bce: E softplus(-D(x)) + E softplus(D(x')), that is -log σ(D(x)) - log(1 - σ(D(x'))) (Goodfellow et al., 2014).
    """
    real, fake = real.float(), fake.float()
    if kind == "bce":
        return functional.softplus(-real).mean() + functional.softplus(fake).mean()
    both = functional.relu(1 - real).mean() + functional.relu(1 + fake).mean()
    return both if kind == "hinge_sum" else both / 2


def generator_loss(kind: str, fake: Tensor) -> Tensor:
    """Return the generator's loss, a scalar: -E D(x') of the hinge losses, E softplus(-D(x')) of bce."""
    return functional.softplus(-fake.float()).mean() if kind == "bce" else -fake.float().mean()


def gradient_penalty(network: Callable[[Tensor], Tensor], real: Tensor) -> Tensor:
    """Return E (||∇x D(x)|| - 1)², a scalar, at real images (N, C, H, W); D(x) is the sum of the logits of x.

    In float32, since it is differentiated twice. Source: Gulrajani et al., 2017, arXiv 1704.00028, equation 3:
    there between real and generated images, here at real ones, as in MUSE's VQGAN-VAE.
    """
    x = real.detach().float().requires_grad_()
    with in_float32(x.device):
        # Not x itself: `darkroom plan` counts operations with hooks that cannot stand on a leaf.
        (gradient,) = torch.autograd.grad(network(x * 1).sum(), x, create_graph=True)
    return (gradient.flatten(1).norm(dim=1) - 1).square().mean()


def adaptive_weight(rule: str, others: Tensor, generator: Tensor) -> Tensor:
    """Return the weight of the generator's loss, a scalar, from gradients at the decoder's last layer, of any shape.

    taming: ||∇ others|| / (||∇ generator|| + 1e-4), within 0 and 1e4; others are reconstruction and perceptual loss
        (Esser et al., 2021, arXiv 2012.09841, equation 7).
    perceptual: ||∇ others|| / ||∇ generator||, at most 1e4; others is the perceptual loss alone, as in MUSE.
    """
    if rule == "taming":
        return (others.norm() / (generator.norm() + 1e-4)).clamp(0, _LARGEST)
    return (others.norm() / generator.norm().clamp(min=1e-8)).clamp(max=_LARGEST)


@dataclass(frozen=True)
class Outputs:
    """The inputs of a tokenizer's adversarial losses, with gradients.

    real, fake: the images and their reconstructions, (N, C, H, W) as the tokenizer's network sees them.
    others: reconstruction and perceptual loss as they are minimised, a scalar.
    perceptual: the perceptual loss with its weight, a scalar, or None.
    """

    real: Tensor
    fake: Tensor
    others: Tensor
    perceptual: Tensor | None = None


class Adversary:
    """The discriminator of a tokenizer's recipe, which adds its term to the loss and runs its phase.

    Only the network is kept between optimizer steps. The tokenizer's phase leaves its outputs for the batch to the
    discriminator's phase, which sees the reconstructions of the same step, from before the weights changed, without
    another forward pass. `modules` are those of the recipe, to which the discriminator is added.
    """

    def __init__(self, settings: Adversarial, training: Training, channels: int, modules: dict[str, nn.Module]) -> None:
        self.settings, self.batch = settings, training.batch
        self.network = PatchDiscriminator(channels, settings.channels, settings.norm_groups)
        self.modules = modules
        modules[NAME] = self.network

    @classmethod
    def of(cls, settings: Adversarial, recipe: Any, channels: int) -> "Adversary | None":
        """Return the adversary of a tokenizer's recipe, and add its module and phase there; None: no discriminator."""
        if not settings.active:
            return None
        adversary = cls(settings, recipe.training, channels, recipe.modules)
        recipe.phases += adversary.phases
        return adversary

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The discriminator's phase, after the tokenizer's."""
        of = self.settings
        limit = float("inf") if of.clip_norm == "none" else of.clip_norm
        return (Phase(NAME, self.loss, lr_scale=of.lr_scale, betas=of.betas, clip_norm=limit, start=of.start),)

    def step(self, batch: Batch) -> int:
        """Return the discriminator's optimizer step of a batch, from 0; negative: it has not started."""
        return int(batch.positions[0]) // self.batch - -(-self.settings.start // self.batch)

    def add(self, losses: Losses, batch: Batch, outputs: Outputs, last: nn.Parameter) -> Losses:
        """Return the tokenizer's losses with the generator's term, added to "loss" and separately.

        Args:
            losses: of the tokenizer.
            batch: their batch; all of this process's if the weight is adaptive (`whole_batch`).
            outputs: those of the same forward pass.
            last: weight of the decoder's last layer.
        """
        if self.step(batch) < 0:
            return losses
        batch.outputs |= {"real": outputs.real, "fake": outputs.fake.detach()}
        with _frozen(self.network):  # the network itself: its gradients are not needed, so no process waits for them
            term = generator_loss(self.settings.loss, self.network(outputs.fake))
        if self.settings.adaptive == "none":
            return {**losses, "loss": losses["loss"] + self.settings.weight * term, "adversarial": term}
        weight = self.settings.weight * self._adapted(outputs, term, last)
        return {**losses, "loss": losses["loss"] + weight * term, "adversarial": term, "adversarial_weight": weight}

    def loss(self, batch: Batch) -> Losses:
        """Return the discriminator's losses on the reconstructions of the same optimizer step."""
        real, fake = batch.outputs["real"], batch.outputs["fake"]
        logits = self.modules[NAME](torch.cat([real, fake])).float()
        on_real, on_fake = logits.chunk(2)
        loss = discriminator_loss(self.settings.loss, on_real, on_fake)
        losses = {"loss": loss, "discriminator/real": on_real.mean(), "discriminator/fake": on_fake.mean()}
        if self.settings.gradient_penalty and self.step(batch) % self.settings.gradient_penalty_every == 0:
            # The network itself, not a wrapper that shares gradients: those of this pass are added to the other's.
            # Its `forward`, since a call compiled by torch.compile cannot be differentiated twice.
            penalty = gradient_penalty(self.network.forward, real)
            losses |= {"loss": loss + self.settings.gradient_penalty * penalty, "discriminator/penalty": penalty}
        return losses

    def _adapted(self, outputs: Outputs, term: Tensor, last: nn.Parameter) -> Tensor:
        """Return the adaptive weight, of the batches of all processes."""
        if isinstance(last, DTensor):
            raise DarkroomError("`adversarial.adaptive` needs whole layers, but FSDP shards them: set it to none.")
        others = outputs.perceptual if self.settings.adaptive == "perceptual" else outputs.others
        assert others is not None  # `unfit_losses`
        gradients = torch.stack([_gradient(others, last), _gradient(term, last)]).contiguous()  # one order of summation
        if process_count() > 1:
            dist.all_reduce(gradients)
            gradients /= process_count()
        return adaptive_weight(self.settings.adaptive, gradients[0], gradients[1]).detach()


def _gradient(loss: Tensor, last: nn.Parameter) -> Tensor:
    return torch.autograd.grad(loss * _SCALE, last, retain_graph=True)[0].float() / _SCALE


@contextmanager
def _frozen(module: nn.Module) -> Iterator[None]:
    """Disable gradients of a module's parameters in the forward pass inside the block."""
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)
