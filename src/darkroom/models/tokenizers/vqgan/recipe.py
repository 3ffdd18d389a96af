"""Trains the quantised autoencoder: reconstruction, perceptual loss, the quantiser's losses, a discriminator's term."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from darkroom.models.tokenizers.adversarial import Adversary, Made
from darkroom.models.tokenizers.kind_settings import Kind
from darkroom.models.tokenizers.quantiser import Quantised
from darkroom.models.tokenizers.recipe import TokenizerRecipe, image_losses, require_fit, total_of
from darkroom.models.tokenizers.seen import Seen, of_all_processes
from darkroom.models.tokenizers.vqgan.network import Residual, VQGANTokenizer, config_of
from darkroom.models.tokenizers.vqgan.settings import VQGAN
from darkroom.params.training import Training
from darkroom.random import derive
from darkroom.training.precision import seed_draws
from darkroom.training.recipe import Batch, Losses, Phase, Rows

_RECONSTRUCTION = {"mse": functional.mse_loss, "l1": functional.l1_loss}


class VQGANRecipe(TokenizerRecipe):
    """L = reconstruction + w_p perceptual + sum of w_i quantiser loss i + w_a lambda generator's loss.

    All are means over elements. Esser et al., 2021 (arXiv 2012.09841), equations 6 and 7. The codebook moves once
    an update, after the step, by all of the update's latents.
    """

    model: VQGANTokenizer
    settings: VQGAN

    @classmethod
    def build(
        cls,
        settings: Kind,
        training: Training,
        image_shape: tuple[int, int, int],
        train: Rows,
        val: Rows,
        perceptual: nn.Module | None = None,
    ) -> "VQGANRecipe":
        """Return the recipe with an untrained network."""
        assert isinstance(settings, VQGAN)
        require_fit("vqgan", settings, training, image_shape)
        model = VQGANTokenizer(config_of(settings, image_shape))
        return cls(model, settings, training, train, val, perceptual)

    def __init__(
        self,
        model: VQGANTokenizer,
        settings: VQGAN,
        training: Training,
        train: Rows,
        val: Rows,
        perceptual: nn.Module | None = None,
    ) -> None:
        super().__init__(model, settings, training, train, val)
        self.perceptual = perceptual if settings.perceptual.active else None
        self.phases: tuple[Phase, ...] = (Phase("tokenizer", self.loss, after=self.move_codebook),)
        self.adversary: Adversary | None = None
        if settings.adversarial.active:
            shape = (model.config.image_channels, model.config.image_size, model.config.image_size)
            self.adversary = Adversary(settings.adversarial, training, shape, self.modules)
            self.phases += (self.adversary.phase,)
        self.blocks = [m for m in model.modules() if isinstance(m, Residual)]
        self._seen = Seen(training.batch)
        self._mean: tuple[int, Tensor | None] | None = None

    def loss(self, batch: Batch) -> Losses:
        """Return the losses, and how the codebook has been used lately."""
        x, output, quantised = self._made(batch)
        self._seen.add(batch.positions, quantised.latents, quantised.codes)
        made, parts = self._terms(x, output)
        losses = parts | {name: value.mean() for name, value in quantised.losses.items()}
        weights = self.model.quantiser.weights
        extra = [weights[name] * losses[name] for name in quantised.losses if weights[name]]
        losses |= {"loss": torch.stack([made.others, *extra]).sum(), **self.model.quantiser.use()}
        if self.adversary is None:
            return losses

        def again(piece: Batch) -> Made:
            x, output, _ = self._made(piece)
            return self._terms(x, output)[0]

        return self.adversary.add(losses, batch, made, again, self.model.last_layer)

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """Return the losses of each image: what belongs to a batch, the entropy of all its codes, is not among them."""
        x = self.model.pixels(batch.data["images"])
        output, quantised = self.modules["tokenizer"](x)
        losses = self._per_image(x, output)
        total, _ = total_of(losses, self.settings.perceptual.weight)
        for name, value in quantised.losses.items():
            if value.ndim:
                losses[name] = value
                total = total + self.model.quantiser.weights[name] * value
        return {"loss": total, **losses}

    def move_codebook(self, batch: Batch) -> None:
        """Give the codebook all that the update has quantised, of all processes, once the step was taken."""
        latents, codes = self._seen.take()
        seed_draws(derive(self.training.seed, "tokenizer/codebook", self._update(batch)), latents.device)
        self.model.quantiser.update(latents, codes)

    def _update(self, batch: Batch) -> int:
        return self._seen.update_of(batch.positions)

    def _made(self, batch: Batch) -> tuple[Tensor, Tensor, Quantised]:
        x = self.model.pixels(batch.data["images"])
        output, quantised = self.modules["tokenizer"](x, self._shared(batch))
        return x, output, quantised

    def _shared(self, batch: Batch) -> Tensor | None:
        """Return what the quantiser asks of the whole update, once an update, where the batch is not all of it."""
        whole = batch.whole or batch
        if len(whole) == len(batch) == self.training.batch or not self.model.quantiser.shares:
            return None
        if self._mean is None or self._mean[0] != self._update(batch):
            with torch.no_grad():
                pieces = whole.split(len(batch))
                means = [self.model.share(self.model.pixels(piece.data["images"])) for piece in pieces]
            weighted = [mean * (len(piece) / len(whole)) for mean, piece in zip(means, pieces, strict=True)]
            self._mean = self._update(batch), of_all_processes(torch.stack(weighted).sum(dim=0)[None]).mean(dim=0)
        return self._mean[1]

    def _per_image(self, x: Tensor, output: Tensor) -> dict[str, Tensor]:
        """Return reconstruction and perceptual loss of each image, (N,), without weights."""
        compare = _RECONSTRUCTION[self.settings.reconstruction]
        return image_losses(compare, x, output.float(), self._distance if self.perceptual else None)

    def _distance(self, x: Tensor, output: Tensor) -> Tensor:
        """Return the perceptual distances, (N,), of images as the network sees them."""
        assert self.perceptual is not None
        distances: Tensor = self.perceptual(self.model.signed(output), self.model.signed(x))
        return distances

    def _terms(self, x: Tensor, output: Tensor) -> tuple[Made, dict[str, Tensor]]:
        """Return what the adversary asks for, and the means of the losses."""
        losses = {name: value.mean() for name, value in self._per_image(x, output).items()}
        return Made(x, output.float(), *total_of(losses, self.settings.perceptual.weight)), losses
