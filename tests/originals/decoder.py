"""`train_decoder` beside DALLE2-pytorch's `Decoder`: losses, schedules, small images, guidance and thresholds.

The U-Nets are others: both sides get one that says the same numbers, whatever it is asked.
"""

from collections.abc import Iterator
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn

from darkroom.diffusion.denoiser import clip_x0, dynamic_threshold
from darkroom.diffusion.gaussian import Gaussian
from darkroom.diffusion.schedules import NoiseSchedule
from darkroom.models.decoder.network import Conditions, unet_denoiser
from darkroom.models.decoder.recipe import DecoderRecipe
from darkroom.models.decoder.sample import downsampled, noised
from darkroom.training.recipe import Batch
from models.decoder.small_decoder import IMAGES, Rows, recipe, section, up_sampler
from originals.loading import unclip
from originals.pairs import apart

STEPS, SIZE = 1000, 8
SCHEDULES = ("cosine", "linear", "quadratic", "jsd", "sigmoid")

# By what is compared: our keys of `diffusion`, and the decoder's arguments. With another target than noise, theirs
# computes the bound as if it were noise: the simple loss alone is compared.
SIMPLE, THEIRS = {"variance": "fixed_small"}, {"learned_variance": False}
LOSSES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "l2": ({}, {}),
    "l1": ({"loss": "l1"}, {"loss_type": "l1"}),
    "huber": ({"loss": "huber"}, {"loss_type": "huber"}),
    "linear": ({"schedule": "linear"}, {"beta_schedule": "linear"}),
    "P2": ({"p2_gamma": 0.5, "p2_k": 2.0}, {"p2_loss_weight_gamma": 0.5, "p2_loss_weight_k": 2}),
    "variance within its bounds": ({"variance_range": "sigmoid"}, {"learned_variance_constrain_frac": True}),
    "x0": ({"target": "x0", **SIMPLE}, {"predict_x_start": True, **THEIRS}),
    "v, P2": ({"target": "v", "p2_gamma": 1.0, **SIMPLE}, {"predict_v": True, "p2_loss_weight_gamma": 1.0, **THEIRS}),
}


class Says(nn.Module):
    """A U-Net that says `output`, or, asked without conditions, `nothing`; keeps what it was asked."""

    self_cond = False

    def __init__(self, output: Tensor, nothing: Tensor | None = None) -> None:
        super().__init__()
        self.output = nn.Parameter(output)
        self.nothing = nothing
        self.asked: tuple[Any, ...] = ()

    def forward(self, x: Tensor, steps: Tensor, *more: Any, **conditions: Any) -> Tensor:
        """Answer either side: ours gives `Conditions`, theirs names them, and drops all or none."""
        self.asked = (x, steps, *more)
        told = more[0] if more else None
        kept = getattr(told, "image_kept", None)
        if self.nothing is None:
            return self.output
        if kept is not None:
            return torch.where(
                kept[:, None, None, None], self.output.repeat(2, 1, 1, 1), self.nothing.repeat(2, 1, 1, 1)
            )
        return self.nothing if conditions.get("image_cond_drop_prob") == 1 else self.output


def compare() -> dict[str, float]:
    """Return how far apart they are, by what is compared."""
    original = unclip()
    return dict((*schedules(original), *losses(original), *small_images(original), *guidance(original)))


def schedules(original: ModuleType) -> Iterator[tuple[str, float]]:
    """Compare the tables of the five schedules, but for a last β of 1, which we cut off."""
    for name in SCHEDULES:
        for steps in (STEPS, 100):
            theirs = original.NoiseScheduler(
                beta_schedule=name, timesteps=steps, loss_type="l2", p2_loss_weight_gamma=1.0, p2_loss_weight_k=1
            )
            ours = NoiseSchedule.named(name, steps)
            tables = {
                "betas": ours.betas,
                "alphas_cumprod": ours.alphas_cumprod,
                "posterior_variance": ours.posterior_variance,
                "p2_loss_weight": (1 + ours.snr) ** -1.0,
            }
            for key, table in tables.items():
                other = getattr(theirs, key)
                yield f"{name}, {steps} steps: {key}", apart(torch.from_numpy(table)[:-1], other[:-1])


def decoder(original: ModuleType, **arguments: Any) -> Any:
    """Return their decoder of 8 x 8 grey pixels; its own U-Net is never asked."""
    unet = original.Unet(16, dim_mults=(1,), image_embed_dim=6, cond_dim=8, channels=1)
    return original.Decoder(
        unet, image_size=SIZE, channels=1, timesteps=STEPS, **{"beta_schedule": "cosine", **arguments}
    )


def made(keys: dict[str, Any]) -> tuple[DecoderRecipe, Batch, Tensor]:
    """Return our recipe, a batch, and its noise; the steps go from the first to the last, most of them early."""
    ours = recipe(section(diffusion=keys), steps=STEPS)
    ours.threshold = None  # theirs does not clip the x_0 of the bound
    batch = Batch(np.arange(IMAGES), {key: torch.as_tensor(value) for key, value in Rows().all.items()})
    random = ours.draw(batch, "train")
    steps = (torch.linspace(0, 1, IMAGES) ** 2 * (STEPS - 1)).long()
    random.time = steps
    ours.draw = lambda *_: random  # type: ignore[method-assign]
    return ours, batch, random.noise


def losses(original: ModuleType) -> Iterator[tuple[str, float]]:
    """Compare the losses, and their gradients by what the U-Net says."""
    for name, (keys, arguments) in LOSSES.items():
        ours, batch, noise = made(keys)
        theirs = decoder(original, **arguments)
        torch.manual_seed(0)
        output = noise + 0.3 * torch.randn(noise.shape)
        learned = ours.objective.learns_variance
        bounded = ours.objective.variance_range == "sigmoid"
        if learned:
            share = torch.randn(noise.shape).tanh()
            # At the first step the posterior has no variance: theirs takes 1e-20 for it, ours that of the next step. Of
            # the largest variance, the other end, there is one.
            share[0] = 100 if bounded else 1
            output = torch.cat([output, share], dim=1)
        mine = Says(output)
        ours.modules["unet"] = mine
        found = ours.loss(batch)
        found["loss"].backward()

        # Theirs takes the logistic function of (v + 1) / 2.
        other = Says(torch.cat([output[:, :1], 2 * output[:, 1:] - 1], dim=1) if bounded else output)
        x0 = downsampled(ours.space.data(batch.data), SIZE)
        given = {
            "image_embed": None,
            "noise": noise.to(x0.dtype),
            "noise_scheduler": theirs.noise_schedulers[0],
            "learned_variance": learned,
            **{key: arguments.get(key, False) for key in ("predict_x_start", "predict_v")},
        }
        steps = mine.asked[1]
        loss = theirs.p_losses(other, (x0 + 1) / 2, steps, **given)
        loss.backward()
        assert mine.output.grad is not None and other.output.grad is not None
        yield f"{name}: noisy image", apart(mine.asked[0], other.asked[0])
        yield f"{name}: loss", apart(found["loss"], loss)
        yield f"{name}: gradient", apart(mine.output.grad[:, :1], other.output.grad[:, :1])
        if learned:
            # Later the largest and the smallest variance are apart by little more than their logarithms are rounded.
            early, scale = slice(1, IMAGES // 4), 2 if bounded else 1
            mine_there, other_there = mine.output.grad[early, 1:], scale * other.output.grad[early, 1:]
            yield f"{name}: gradient of the variance", apart(mine_there, other_there)
            parts = []
            for weight in (0.0, 1.0):
                theirs.vb_loss_weight = weight
                parts.append(theirs.p_losses(other, (x0 + 1) / 2, steps, **given))
            yield f"{name}: simple", apart(found["simple"], parts[0])
            yield f"{name}: bound", apart(found["bound"], parts[1] - parts[0])


def small_images(original: ModuleType) -> Iterator[tuple[str, float]]:
    """Compare what an up-sampler is told: the first pixel of each block, blurred, enlarged, and noised."""
    ours = recipe(up_sampler({"downsample": "nearest", "blur": 1.0, "blur_sigma": (0.6, 0.6), "blur_kernel": 3}))
    pictures = torch.as_tensor(Rows().all["images"])
    mine = Says(torch.zeros(IMAGES, 2, 16, 16))
    ours.modules["unet"] = mine
    ours.loss(Batch(np.arange(IMAGES), {"images": pictures}))
    whole = ours.space.data({"images": pictures})
    theirs = original.LowresConditioner(
        blur_prob=1.0,
        blur_sigma=0.6,
        blur_kernel_size=3,
        use_noise=True,
        input_image_range=(0.0, 1.0),
        normalize_img_fn=lambda x: 2 * x - 1,
        unnormalize_img_fn=lambda x: (x + 1) / 2,
    )
    noise, levels = torch.randn(whole.shape), torch.linspace(0, 999, IMAGES).long()
    theirs.use_noise = False
    other, _ = theirs((whole + 1) / 2, target_image_size=16, downsample_image_size=8)
    yield "small image, blurred", apart(mine.asked[2].low, 2 * other - 1)
    with patch.object(torch, "randn_like", lambda _: noise):
        noisy, _ = theirs.noise_image((whole + 1) / 2, levels)
    share = torch.from_numpy(np.sqrt(1 - NoiseSchedule.named("linear").alphas_cumprod))[levels].to(whole.dtype)
    yield "small image, noised", apart(noised(whole, noise, share), 2 * noisy - 1)


def guidance(original: ModuleType) -> Iterator[tuple[str, float]]:
    """Compare x_0 under guidance, of each target, cut off at 1 and at a percentile."""
    torch.manual_seed(1)
    x, told, null = (torch.randn(IMAGES, 1, SIZE, SIZE) for _ in range(3))
    steps = torch.linspace(0, 0.9 * STEPS, IMAGES).long()  # at the last, noise is divided by 5e-5
    targets: dict[Any, dict[str, bool]] = {"eps": {}, "x0": {"predict_x_start": True}, "v": {"predict_v": True}}
    for target, how in targets.items():
        for scale in (1.0, 0.0, 3.0):
            for dynamic in (False, True):
                objective = Gaussian(NoiseSchedule.named("cosine", STEPS), target)
                threshold = (lambda found: dynamic_threshold(found, 0.9)) if dynamic else clip_x0
                conditions = Conditions(image=torch.zeros(IMAGES, 6))
                asked = unet_denoiser(Says(told, null), objective, conditions, scale, threshold)
                theirs = decoder(original, use_dynamic_thres=dynamic, dynamic_thres_percentile=0.9, **THEIRS)
                unet = Says(told, null)
                unet.forward_with_cond_scale = lambda *args, unet=unet, **more: (  # type: ignore[assignment]
                    original.Unet.forward_with_cond_scale(unet, *args, **more)
                )
                with torch.no_grad():
                    scheduler = theirs.noise_schedulers[0]
                    *_, other = theirs.p_mean_variance(unet, x, steps, None, scheduler, cond_scale=scale, **how)
                    ours = asked(x, steps, None).x0
                yield f"{target}, guidance {scale}, {'dynamic' if dynamic else 'clip'}: x_0", apart(ours, other)
