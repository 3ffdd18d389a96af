"""Distils a U-Net of the decoder into a few calls of a U-Net of the same shape."""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from darkroom.diffusion.denoiser import Guidance
from darkroom.diffusion.few_calls import FewCalls, student_of
from darkroom.diffusion.settings import SOLVERS
from darkroom.diffusion.types import Denoise
from darkroom.models.decoder.network import DecoderUNet, unet_denoiser
from darkroom.models.decoder.opening import DecoderData
from darkroom.models.decoder.recipe import DecoderRecipe
from darkroom.models.decoder.sample import CascadeStage, threshold_of
from darkroom.models.decoder.settings import TrainDecoder
from darkroom.models.decoder.unet_settings import UNet
from darkroom.models.evaluators.evaluation import UNetEvaluation
from darkroom.rng import random_numbers
from darkroom.training.recipe import Batch, Losses, Phase, Recipe


def like_teacher(section: TrainDecoder, name: str, teacher: CascadeStage) -> TrainDecoder:
    """Return the section with a U-Net as that which it distils: its size, what it is told, what it predicts."""
    config, settings = teacher.network.config, section.unets[name]
    ways = {key: getattr(config, key) for key in ("image_tokens", "image_to_time", "image_map", "self_condition")}
    told = settings.model.model_copy(update={**ways, "text_tokens": config.text_shape is not None})
    diffusion = settings.diffusion.model_copy(update={"objective": teacher.metadata["objective"]})
    same = {"size": config.size, "low_size": teacher.metadata["low_size"], "model": told, "diffusion": diffusion}
    return section.model_copy(update={"unets": {**section.unets, name: settings.model_copy(update=same)}})


class DistilledRecipe(Recipe):
    """The loss of few calls, each in the place of several guided steps of the teacher (`FewCalls`).

    x_t is data under the noise at one of the K times where a call begins. Conditions are drawn as in the teacher's own
    training, and none is dropped: guidance is distilled, and what is sampled is unguided.

    Args:
        teacher: the U-Net, on the device; its weights stay, those that are trained begin with them.
        settings: the section of the U-Net that distils it, `like_teacher`.
        opened: what it is trained on.
        seed: the training's.
        evaluation: scores while it trains; None: none.
    """

    def __init__(
        self,
        teacher: CascadeStage,
        settings: UNet,
        opened: DecoderData,
        seed: int,
        evaluation: UNetEvaluation | None = None,
    ) -> None:
        assert settings.calls is not None  # the stage sees to it
        self.teacher, self.objective = teacher.network.eval(), teacher.objective
        self.how, self.seed = settings.teacher, seed
        self.threshold = threshold_of(self.how) if teacher.bounded else None
        self.calls = FewCalls(self.objective, self.how.solver, self.how.count, settings.calls)
        self.model: DecoderUNet = student_of(teacher.network)
        solver = SOLVERS[settings.diffusion.objective][0]
        grids = settings.grids.model_copy(update={"solver": solver, "steps": settings.calls, "guidance": 1.0})
        self.drawing = DecoderRecipe(
            self.model,
            settings.model_copy(update={"grids": grids}),
            self.objective,
            opened.space,
            opened.conditioner,
            seed,
            opened.rows["train"],
            opened.rows["val"],
            evaluation,
        )
        self.drawing.threshold = None  # x0 of a call may lie outside the range of pixels
        self.modules = self.drawing.modules
        self.phases = (Phase("unet", self.loss),)
        self.blocks, self.evaluations = self.drawing.blocks, self.drawing.evaluations
        self.train, self.val = self.drawing.train, self.drawing.val

    def loss(self, batch: Batch) -> Losses:
        """Return the loss; noise, conditions and call follow from each image's place in the training sequence."""
        return {"loss": self._losses(batch, "train")[0].mean()}

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """Return each image's loss, and `loss_call_1`, … of the images of each call, from noise on."""
        losses, call = self._losses(batch, "val")
        return {"loss": losses, **self.calls.of_each(losses, call)}

    def _losses(self, batch: Batch, stream: str) -> tuple[Tensor, NDArray[np.int64]]:
        """Return the loss of each image, (N,), and the number of its call."""
        random = self.drawing.draw(batch, stream)
        x0, noise, conditions = self.drawing.given(batch, random, drops=False, crops=stream == "train")
        _, uniforms = random_numbers(self.seed, f"decoder/distilled/{stream}", batch.positions.tolist(), 0, 1)
        call = self.calls.drawn(uniforms[:, 0])

        def network(x: Tensor, timesteps: Tensor) -> Tensor:
            return self.modules["unet"](x, timesteps, conditions, None)

        def denoise_of(rows: Tensor) -> Denoise:
            guidance = Guidance.of(self.how)
            return unet_denoiser(self.teacher, self.objective, conditions.rows(rows), guidance, self.threshold)

        return self.calls.learned(network, x0, noise, call, denoise_of), call

    def preview(self) -> NDArray[np.uint8]:
        """Return rows of ten as `DecoderRecipe`, made in the few calls."""
        return self.drawing.preview()

    def strip(self) -> NDArray[np.uint8]:
        """Return the first row of images of `preview`."""
        return self.drawing.strip()

    def originals(self) -> NDArray[np.uint8]:
        """Return the first row of originals of `preview`."""
        return self.drawing.originals()
