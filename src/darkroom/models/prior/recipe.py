"""Trains the prior: denoising image embeddings under the texts of their images."""

from torch import Tensor, nn

from darkroom.device import to_device
from darkroom.models.prior.sample import Prior, text_direction
from darkroom.models.prior.scores import Scorer
from darkroom.models.prior.settings import PriorDiffusion
from darkroom.rng import random_numbers
from darkroom.training.recipe import Batch, Gather, IndexedDataset, Losses, Phase, Recipe


class PriorRecipe(Recipe):
    """The objective's loss of f(z_t, t, y), z_t a noisy image embedding, y its text, sometimes dropped.

    With the target x0 of Gaussian diffusion it is L_prior of Ramesh et al., 2022, arXiv 2204.06125, equation 1.
    """

    judge = "eval/cosine"

    def __init__(
        self,
        prior: Prior,
        settings: PriorDiffusion,
        seed: int,
        train: IndexedDataset,
        val: IndexedDataset,
        scorer: Scorer | None = None,
    ) -> None:
        """Take in the parts.

        Args:
            prior: the untrained network with its statistics, and what it predicts.
            settings: its section of params.yaml.
            seed: the training's.
            train: what is trained on, `image` and `text` (N, D), `encoding` (N, L, W) where it is read.
            val: what is validated on, likewise.
            scorer: scores the validation images; None: no scores while training.
        """
        self.prior, self.model, self.settings, self.seed = prior, prior.network, settings, seed
        self.train, self.val, self.scorer = train, val, scorer
        self.modules: dict[str, nn.Module] = {"prior": self.model}
        self.phases = (Phase("prior", self.loss),)
        self.blocks = self.model.blocks
        self.evaluations = [(scorer.every, self.evaluate)] if scorer else []

    def loss(self, batch: Batch) -> Losses:
        """Return the loss, texts dropped; randomness follows from each image's place in the training."""
        return {"loss": self._losses(batch, "train", self.settings.text_dropout).mean()}

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """Return each image's loss with its text; randomness follows from its row."""
        return {"loss": self._losses(batch, "val", dropout=0.0)}

    def evaluate(self, rank: int, count: int, gather: Gather) -> dict[str, float]:
        """Return the cosines of sampled validation embeddings."""
        assert self.scorer is not None  # it is an evaluation only where there is one
        return self.scorer.scores(self.prior, rank, count, gather)

    def _losses(self, batch: Batch, stream: str, dropout: float) -> Tensor:
        """Return the loss of each image, (N,)."""
        objective = self.prior.objective
        x0 = self.model.to_unit(batch.data["image"])  # (N, D)
        text, encoding = text_direction(batch.data["text"]), batch.data.get("encoding")
        # Of each position: the noise; then the time, and whether the text drops.
        normals, uniforms = random_numbers(self.seed, f"prior/{stream}", batch.positions.tolist(), x0.shape[1], 2)
        noise = to_device(normals, x0.device)
        time = to_device(objective.times(uniforms[:, 0]), x0.device)
        kept = to_device(uniforms[:, 1] >= dropout, x0.device)
        x = objective.add_noise(x0, noise, time)
        words = None if encoding is None else encoding.float()
        output = self.modules["prior"](x, objective.timesteps(time), text, words, kept)
        return objective.losses(output, x0, noise, x, time)["loss"]
