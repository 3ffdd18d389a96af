"""Images of classes by a diffusion transformer; needs diffusers alone. Exported networks carry a copy of this file.

from diffusers import DiffusionPipeline

pipeline = DiffusionPipeline.from_pretrained(FOLDER, custom_pipeline=f"{FOLDER}/pipeline.py", trust_remote_code=True)
pipeline([0, 1, 2], guidance_scale=2.0).images[0].save("image.png")
"""

# mypy: ignore-errors

from typing import Any

import numpy as np
import torch
from diffusers import AutoencoderKL, DiTPipeline, DiTTransformer2DModel, ImagePipelineOutput
from diffusers.utils.torch_utils import randn_tensor


class DarkroomDiTPipeline(DiTPipeline):
    """A DiT of any number of classes, of Gaussian diffusion or of a flow.

    Unlike `DiTPipeline` it takes the null class from the transformer, embeds time as the DiT paper's code does
    (frequencies 10000^(-i / 128); diffusers has 127 in place of 128), and follows flows from pure noise.
    """

    def __init__(
        self,
        transformer: DiTTransformer2DModel,
        vae: AutoencoderKL,
        scheduler: Any,
        id2label: dict[str, str] | None = None,
    ) -> None:
        super().__init__(transformer, vae, scheduler, id2label)
        for block in transformer.transformer_blocks:
            block.norm1.emb.time_proj.downscale_freq_shift = 0

    @torch.no_grad()
    def __call__(
        self,
        class_labels: list[int],
        guidance_scale: float = 2.0,
        generator: torch.Generator | list[torch.Generator] | None = None,
        num_inference_steps: int = 50,
        output_type: str = "pil",
        return_dict: bool = True,
        latents: torch.Tensor | None = None,
        guidance_channels: int | None = None,
    ) -> Any:
        """Return images of classes.

        Args:
            class_labels: numbers of classes, one an image.
            guidance_scale: of classifier-free guidance; 1: none.
            generator: of the noise.
            num_inference_steps: of the scheduler; with DDIM a divisor of its training's timesteps.
            output_type: `pil`, `np` (N, H, W, C) or `pt` (N, C, H, W), both from 0 to 1; `latent`: not decoded.
            return_dict: an object with `images`, or a tuple.
            latents: the noise, (N, C, H, W); None: drawn from the generator.
            guidance_channels: that are guided, the first ones; None: all.
        """
        config, device = self.transformer.config, self._execution_device
        labels = torch.tensor(class_labels, device=device)
        shape = (len(labels), config.in_channels, config.sample_size, config.sample_size)
        if latents is None:
            latents = randn_tensor(shape, generator=generator, device=device, dtype=self.transformer.dtype)
        x = latents.to(device, self.transformer.dtype)
        guided = guidance_scale != 1
        if guided:
            labels = torch.cat([labels, torch.full_like(labels, config.num_embeds_ada_norm)])
        count = min(guidance_channels or config.in_channels, config.in_channels)
        flow = "flow" in type(self.scheduler).__name__.lower()
        if flow:
            self.scheduler.set_timesteps(sigmas=np.linspace(1, 1 / num_inference_steps, num_inference_steps))
        else:
            self.scheduler.set_timesteps(num_inference_steps)
        for time in self.progress_bar(self.scheduler.timesteps):
            both = torch.cat([x, x]) if guided else x
            output = self.transformer(both, timestep=time.to(device).expand(len(both)), class_labels=labels).sample
            output = output[:, : config.in_channels]  # behind it lies a learned variance
            if guided:
                output, other = output.chunk(2)
                led = other[:, :count] + guidance_scale * (output[:, :count] - other[:, :count])
                output = torch.cat([led, output[:, count:]], dim=1)
            x = self.scheduler.step(output, time, x).prev_sample
        images: Any = x
        if output_type != "latent":
            how = self.vae.config
            if how.latents_mean is not None:
                mean, std = (x.new_tensor(each)[:, None, None] for each in (how.latents_mean, how.latents_std))
                x = x * std + mean
            side = how.sample_size  # the decoder's whole positions may cover more
            images = self.vae.decode(x / how.scaling_factor).sample
            images = torch.nn.functional.pixel_shuffle(images, how.get("_patch", 1))[..., :side, :side]
            images = (images / 2 + 0.5).clamp(0, 1)
            if images.shape[1] == 4:  # premultiplied RGBA, decoded as Darkroom does: `darkroom.data.colours`
                alpha = images[:, 3:].where(images[:, 3:] > 16.5 / 255, 0.0)
                alpha = alpha.where(alpha < 238.5 / 255, 1.0)
                images = torch.cat([images[:, :3].minimum(alpha) / alpha.clamp(min=1 / 255), alpha], dim=1)
            if output_type != "pt":
                images = images.cpu().permute(0, 2, 3, 1).float().numpy()
            if output_type == "pil":
                images = self.numpy_to_pil(images)
        self.maybe_free_model_hooks()
        return ImagePipelineOutput(images=images) if return_dict else (images,)
