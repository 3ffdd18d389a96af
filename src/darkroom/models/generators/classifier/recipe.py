"""The recipe of the classifier: classes of latents under all levels of the generator's noise."""

from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional

from darkroom.device import to_device
from darkroom.diffusion.objectives import objective_of
from darkroom.diffusion.scalers import LatentScaler
from darkroom.models.generators.classifier.network import Classifier
from darkroom.models.generators.data import means_of
from darkroom.models.generators.dit.settings import DiTDiffusion
from darkroom.rng import random_numbers
from darkroom.training.recipe import Batch, IndexedDataset, Losses, Phase, Recipe

_BANDS = 4  # of the time, in validation


class ClassifierRecipe(Recipe):
    """L = -log p(y | x_t), x_t as the generator's, t uniform over its times.

    Args:
        model: the network.
        diffusion: that of the generator, with the size of `time_shift` known.
        seed: the seed of the training.
        train: the training dataset, latents with `labels`.
        val: the validation dataset, with the same columns.
        scaler: of the latents, the generator's.
        codebook: of codes, the vector that each stands for, float32 (K, C).
    """

    judge = "val/accuracy"  # the loss rises where a network is too sure of itself, right or wrong

    def __init__(
        self,
        model: Classifier,
        diffusion: DiTDiffusion,
        seed: int,
        train: IndexedDataset,
        val: IndexedDataset,
        scaler: LatentScaler,
        codebook: Tensor | None = None,
    ) -> None:
        self.model, self.seed, self.scaler, self.codebook = model, seed, scaler, codebook
        self.objective = objective_of(diffusion.model_copy(update={"time": "uniform"}), diffusion.timesteps)
        self.train, self.val = train, val
        self.modules: dict[str, nn.Module] = {"classifier": model}
        self.phases = (Phase("classifier", self.loss),)
        self.blocks = list(model.blocks)

    def loss(self, batch: Batch) -> Losses:
        """Return the cross-entropy and the accuracy."""
        scores, _ = self._scores(batch, "train")
        return {name: values.mean() for name, values in scores.items()}

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """Return cross-entropy and accuracy of each image, (N,), the accuracy also by bands of the time.

        `accuracy_time_25_50` is that of the images whose time lies in [0.25, 0.5) of the way to noise.
        """
        scores, time = self._scores(batch, "val")
        edges = [band / _BANDS for band in range(_BANDS + 1)]
        bands = {
            f"accuracy_time_{100 * low:.0f}_{100 * high:.0f}": scores["accuracy"][
                (time >= low) & ((time < high) | (high == 1))
            ]
            for low, high in pairwise(edges)
        }
        return {**scores, **bands}

    def _scores(self, batch: Batch, stream: str) -> tuple[dict[str, Tensor], Tensor]:
        """Return the scores and the time of each image, (N,), the time as a fraction of the way to noise."""
        mean, labels = means_of(batch.data, self.codebook), batch.data["labels"]
        size = mean[0].numel()
        normals, uniforms = random_numbers(self.seed, f"classifier/{stream}", batch.positions.tolist(), 2 * size, 1)
        posterior, noise = (to_device(normals[:, at : at + size], mean.device).view_as(mean) for at in (0, size))
        time = to_device(self.objective.times(uniforms[:, 0]), mean.device)
        if "logvar" in batch.data:
            mean = mean + (0.5 * batch.data["logvar"].float()).exp() * posterior
        x = self.objective.add_noise(self.scaler(mean), noise, time)
        logits = self.modules["classifier"](x, self.objective.timesteps(time)).float()
        accuracy = (logits.argmax(dim=1) == labels).float()
        loss = functional.cross_entropy(logits, labels, reduction="none")
        return {"loss": loss, "accuracy": accuracy}, time / self.objective.duration
