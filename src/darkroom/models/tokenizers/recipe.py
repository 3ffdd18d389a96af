"""The shared base of the recipes of all kinds of tokenizers: losses, codebook usage, and grids."""

from collections.abc import Callable, Mapping
from typing import ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn import functional

from darkroom.data.colours import is_rgba
from darkroom.data.draw import drawn
from darkroom.data.grid import blank
from darkroom.device import of_all_processes
from darkroom.models.tokenizers.protocol import Codes, Tokenizer
from darkroom.models.tokenizers.sections import Kind
from darkroom.params.training import Training
from darkroom.rng import derive
from darkroom.training.precision import seed_rng
from darkroom.training.recipe import Batch, Evaluate, Gather, IndexedDataset, Losses, Phase, Recipe

_COLUMNS = 10  # of a grid while training, at most


_RECONSTRUCTION = {"mse": functional.mse_loss, "l1": functional.l1_loss}


def image_losses(
    reconstruction: str,
    x: Tensor,
    output: Tensor,
    perceptual: Callable[[Tensor, Tensor], Tensor] | None,
    lowest: float = -1.0,
) -> dict[str, Tensor]:
    """Return `reconstruction` and, if there is a network, `perceptual` of each image, (N,), without weights.

    In RGBA, most of which is fully transparent or opaque, an output beyond the range of pixels is no error where x is
    the end of that range: it is clamped when decoded. So more transparent pixels stay transparent.
    The perceptual distance takes the output as it is.

    Args:
        reconstruction: mse or l1.
        x: images as the tokenizer's network sees them, from `lowest` to 1, (N, C, H, W).
        output: their reconstructions, (N, C, H, W), float32.
        perceptual: maps x and output to their distances, (N,), or None.
        lowest: the lower end of the range of pixels.
    """
    decoded = output
    if is_rgba(x):
        decoded = x.where(((x <= lowest) & (output < x)) | ((x >= 1) & (output > x)), output)
    compare = _RECONSTRUCTION[reconstruction]
    losses = {"reconstruction": compare(decoded, x, reduction="none").flatten(1).mean(dim=1)}
    if perceptual is not None:
        losses["perceptual"] = perceptual(x, output)
    return losses


def total_of(losses: Mapping[str, Tensor], weight: float) -> tuple[Tensor, Tensor | None]:
    """Return reconstruction + weight * perceptual, and the second term alone, or None.

    Args:
        losses: from `image_losses`, or their means.
        weight: that of the perceptual loss.
    """
    if "perceptual" not in losses:
        return losses["reconstruction"], None
    perceptual = weight * losses["perceptual"]
    return losses["reconstruction"] + perceptual, perceptual


class TokenizerRecipe(Recipe):
    """A tokenizer in training. With codes, each validation reports how much of the codebook the validation images use.

    kind: its name in params.yaml.
    model: the network that the training produces.
    settings: the kind's section.
    training: the settings of the loop.
    perceptual: the frozen network of a perceptual loss, or None.
    """

    kind: ClassVar[str]
    model: Tokenizer
    settings: Kind
    training: Training

    def __init__(
        self,
        settings: Kind,
        training: Training,
        image_shape: tuple[int, int, int],
        train: IndexedDataset,
        val: IndexedDataset,
        perceptual: nn.Module | None = None,
    ) -> None:
        """Build the recipe with an untrained network for images of shape (C, H, W), rows `images`, uint8, of the data.

        `perceptual` is frozen, and maps two batches of images (N, C, H, W) in [-1, 1] to their distances (N,).
        """
        self.settings, self.training = settings, training
        self.perceptual = perceptual
        self.train, self.val = train, val
        self.model = self.untrained(image_shape)
        assert isinstance(self.model, nn.Module)
        self.modules = {"tokenizer": self.model}
        self.phases: tuple[Phase, ...] = (Phase("tokenizer", self.loss),)
        self.evaluations: list[tuple[int, Evaluate]] = []
        if settings.discrete and len(val):
            self.evaluations.append((training.validate_every, self.evaluate))
        self.whole_batch = settings.whole_batch
        self.columns = min(settings.grid_images, _COLUMNS)
        self.set_up(image_shape)

    def untrained(self, image_shape: tuple[int, int, int]) -> Tokenizer:
        """Return the network with its initial weights, for images of shape (C, H, W)."""
        raise NotImplementedError

    def set_up(self, image_shape: tuple[int, int, int]) -> None:
        """Set further inputs of the loss, blocks, modules, phases and evaluations."""

    def loss(self, batch: Batch) -> Losses:
        """Return the losses of a batch, scalars; "loss" is minimised."""
        raise NotImplementedError

    @property
    def device(self) -> torch.device:
        """The device of the tokenizer."""
        return next(self.modules["tokenizer"].parameters()).device

    @property
    def sharded(self) -> bool:
        """Whether FSDP shards the weights: forward passes in `loss` gather them, those of the protocol do not."""
        return any(isinstance(parameter, DTensor) for parameter in self.modules["tokenizer"].parameters())

    def quantised(self, batch: Batch, stream: str) -> tuple[Tensor, Tensor]:
        """Return the latents and codes of a batch from all processes, left by its losses, to update a codebook.

        The generators are seeded from `stream` and the optimizer step: the same random numbers in every process,
        independent of the draws of the losses.
        """
        latents, codes = (of_all_processes(batch.outputs[name]) for name in ("latents", "codes"))
        step = int(batch.positions[0]) // self.training.batch
        seed_rng(derive(self.training.seed, stream, step), latents.device)
        return latents, codes

    def evaluate(self, rank: int, count: int, gather: Gather) -> dict[str, float]:
        """Return the fraction of the codebook that validation images use, and the perplexity of their codes.

        Perplexity: exp(-sum_k p_k log p_k), p_k the frequency of code k over all positions. Under FSDP: nothing.
        """
        if self.sharded:
            return {}
        model = cast(Codes, self.model)
        rows = range(rank, len(self.val), count)
        size = self.training.batch
        counts = torch.zeros(model.codebook_size, dtype=torch.int64)
        for at in range(0, len(rows), size):
            images = torch.from_numpy(self.val.__getitems__(rows[at : at + size])["images"]).to(self.device)
            codes = model.encode_codes(images).cpu()
            counts += torch.bincount(codes.flatten(), minlength=len(counts))
        counts = gather(counts[None]).sum(dim=0)
        self.histograms = {"codes": counts.numpy()}
        frequencies = counts.double() / counts.sum()
        return {
            "usage": float((counts > 0).double().mean()),
            "perplexity": float(torch.special.entr(frequencies).sum().exp()),
        }

    def preview(self) -> NDArray[np.uint8]:
        """Return rows of originals, each followed by a row of their reconstructions."""
        images = self.shown()
        return in_rows(self.columns, images, self.model.reconstruct(images))

    def sample_evolution(self) -> NDArray[np.uint8]:
        """Return the reconstructions of the first row of originals."""
        return self.model.reconstruct(self.shown()[: self.columns]).cpu().numpy()

    def originals(self) -> NDArray[np.uint8]:
        """Return the first row of originals."""
        return self.shown()[: self.columns].cpu().numpy()

    def shown(self) -> Tensor:
        """Return the images of the grids while training, uint8 (N, C, H, W): drawn, of validation if any."""
        source = self.val if len(self.val) else self.train
        rows = drawn(len(source), self.settings.grid_images)
        return torch.from_numpy(source.__getitems__(rows)["images"]).to(self.device)


def in_rows(columns: int, *groups: Tensor) -> NDArray[np.uint8]:
    """Return a row of each group, then the next row of each, uint8 (N, C, H, W); a last row is filled up with `blank`.

    Args:
        columns: images in a row.
        groups: the same number of images each, uint8 (n, C, H, W).
    """
    count = len(groups[0])
    grid = torch.from_numpy(blank((-(-count // columns), len(groups), columns, *groups[0].shape[1:])))
    for number, images in enumerate(groups):
        for row, piece in enumerate(images.cpu().split(columns)):
            grid[row, number, : len(piece)] = piece
    return grid.flatten(0, 2).numpy()
