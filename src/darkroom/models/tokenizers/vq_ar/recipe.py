"""Train the vector-quantised autoregressive autoencoder: codebook, reconstruction and prediction together."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from darkroom.device import in_float32, to_device
from darkroom.models.tokenizers.protocol import to_network
from darkroom.models.tokenizers.recipe import TokenizerRecipe, in_rows
from darkroom.models.tokenizers.vq_ar.network import Pass, VQAutoregressive, configure
from darkroom.models.tokenizers.vq_ar.own_images import own_images
from darkroom.models.tokenizers.vq_ar.settings import VQAR
from darkroom.rng import random_numbers
from darkroom.training.recipe import Batch, Losses, Phase


class VQARRecipe(TokenizerRecipe):
    """L = CE(logits, codes) + w_rec MSE(x, x̂) + w_vq MSE(z, sg e) + w_ar MSE(prediction, quantised); means over tokens.

    z are the latents, e the vectors of their codes, logits = -scale ||prediction - e_k||; pixels count in [0, 1]. The
    codebook moves by exponential averages of the whole batch, after each optimizer step.
    """

    kind = "vq_ar"
    model: VQAutoregressive
    settings: VQAR

    def untrained(self, image_shape: tuple[int, int, int]) -> VQAutoregressive:
        """Return the network with its initial weights; with `classes`, the training images name them (`classes`)."""
        classes: Sequence[str] = getattr(self.train, "classes", ()) if self.settings.classes else ()
        return VQAutoregressive(configure(self.settings, image_shape, len(classes)))

    def set_up(self, image_shape: tuple[int, int, int]) -> None:
        """Update the codebook after each step."""
        self.phases = (Phase("tokenizer", self.loss, after=self.move_codebook),)
        self.blocks = [block for _, block, _ in self.model.decoder.layers]
        self._begun = False  # whether an update has read `started`: reading it waits for the device

    def loss(self, batch: Batch) -> Losses:
        """Return the means of the losses; label dropout follows from each image's place in the training."""
        losses, outputs = self._losses(batch, self._labels(batch, self.settings.label_dropout))
        batch.outputs |= {"latents": outputs.latents.detach(), "codes": outputs.codes}
        return {name: values.mean() for name, values in losses.items()}

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """Return the losses of each image, without label dropout."""
        return self._losses(batch, self._labels(batch, 0.0))[0]

    def move_codebook(self, batch: Batch) -> None:
        """Update the codebook with the latents and codes of all processes from before the optimizer step."""
        latents, codes = self.quantised(batch, "vq_ar/codebook")
        if self._begun or not self.settings.kmeans_init or self.model.started:
            self.model.move_codebook(latents, codes)
        else:
            self.model.start_codebook(latents)
        self._begun = True

    def preview(self) -> NDArray[np.uint8]:
        """Return rows of originals and their reconstructions, and rows of its own images, one class after the other."""
        drawn = own_images(self.model, self.settings.sampling, guided=self.settings.label_dropout > 0)
        return np.concatenate([super().preview(), in_rows(self.columns, torch.from_numpy(drawn))])

    def _labels(self, batch: Batch, dropout: float) -> Tensor:
        """Return the number of each image's start token, (N,): its class, or the null label."""
        images = batch.data["images"]
        null = torch.full((len(batch),), self.model.null_label, device=images.device)
        if not self.model.config.classes:
            return null
        keep = np.ones(len(batch), dtype=bool)
        if dropout:
            keep = (
                random_numbers(self.training.seed, "vq_ar/labels", batch.positions.tolist(), 0, 1)[1][:, 0] >= dropout
            )
        return torch.where(to_device(keep, images.device), batch.data["labels"], null)

    def _losses(self, batch: Batch, labels: Tensor) -> tuple[dict[str, Tensor], Pass]:
        """Return the losses of each image, (N,), and their inputs."""
        x, settings = to_network(batch.data["images"]), self.settings
        after = settings.logits_codebook == "after" and self.model.training
        outputs = self.modules["tokenizer"](x, labels, settings.recon_from_pred_codes, after)
        with in_float32(x.device):
            logits = self.model.distances(outputs.prediction, outputs.codebook)  # (N, T, K)
            cross_entropy = functional.cross_entropy(logits.transpose(1, 2), outputs.codes, reduction="none")
            fixed = self.model.codebook[outputs.codes].detach()
            losses = {
                "cross_entropy": cross_entropy,
                "reconstruction": (outputs.output - x).square() / 4,  # a difference in [-1, 1] is twice that in [0, 1]
                "commitment": (outputs.latents - fixed).square(),
                "ar_commitment": (outputs.prediction - outputs.quantised).square(),
            }
        means = {name: values.flatten(1).mean(dim=1) for name, values in losses.items()}
        total = (
            means["cross_entropy"]
            + settings.reconstruction_weight * means["reconstruction"]
            + settings.commitment_weight * means["commitment"]
            + settings.ar_commitment_weight * means["ar_commitment"]
        )
        return {"loss": total, **means}, outputs
