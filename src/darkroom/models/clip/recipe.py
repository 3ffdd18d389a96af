"""Trains CLIP on images and their captions, by contrast with all others of an update."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, distributed, nn

from darkroom.device import in_float32, of_all_processes, process_count
from darkroom.errors import DarkroomError
from darkroom.models.clip.loss import LARGEST, contrastive_losses
from darkroom.models.clip.network import Contrastive
from darkroom.training.recipe import Batch, Gather, Losses, Phase, Recipe, Rows


class Embedded(NamedTuple):
    """Embeddings of images and of texts, of length 1, (N, D), and the scale of their cosines."""

    image: Tensor
    text: Tensor
    scale: Tensor


class Scorer(Protocol):
    """Scores a CLIP in training on the validation images: `recipes.clip_scores.Examples`."""

    every: int

    def scores(self, model: Contrastive, rank: int, count: int, gather: Gather) -> dict[str, float]:
        """Return zero-shot accuracy and recalls."""
        ...


@dataclass
class _Update:
    """The loss of a whole update and its gradients to the embeddings of this process's share, and to the scale."""

    whole: Batch
    loss: Tensor
    gradients: Embedded


class ClipRecipe(Recipe):
    """L = mean over the images of an update, of all processes, of `contrastive_losses`.

    Where `run.micro_batch` cuts an update into pieces, or several processes share it, an image is compared with the
    texts of all of it: the embeddings are computed once without the memory for gradients, the loss of them all is
    differentiated by them, and each piece then hands these gradients on to the weights. Gao et al., "Scaling deep
    contrastive learning batch size under memory limited setup", 2021, arXiv 2101.06983.

    Args:
        model: the network.
        equal_captions: positives: pairs of an update whose captions are equal find each other; negatives: as if they
            differed, as published.
        train: rows of `images`, `tokens` and `captions`.
        val: the validation dataset, with the same columns.
        scorer: scores the validation images; None: no scores while training.
        merge: compute a caption that several images of a piece have once.
    """

    def __init__(
        self,
        model: Contrastive,
        equal_captions: str,
        train: Rows,
        val: Rows,
        scorer: Scorer | None = None,
        merge: bool = True,
    ) -> None:
        self.model, self.train, self.val = model, train, val
        self.equal, self.merge = equal_captions == "positives", merge
        self.modules: dict[str, nn.Module] = {"clip": model}
        self.phases: Sequence[Phase] = (Phase("clip", self.loss, after=self.cool),)
        self.blocks = [*model.visual_blocks, *model.transformer.resblocks]
        self.scorer = scorer
        self.evaluate_every = scorer.every if scorer else 0
        self._update: _Update | None = None
        self._validated: tuple[Batch, Tensor] | None = None

    def loss(self, batch: Batch) -> Losses:
        """Return the loss of the whole update, whose gradient is what this piece has a part in."""
        found = self._embedded(batch)
        whole, world = batch.whole or batch, process_count()
        if len(whole) == len(batch) and world == 1:
            loss = self._losses(found, batch.data["captions"]).mean()
        else:
            self._require_no_batch_norm()
            loss = self._of_whole(batch, whole, found, world)
        return {"loss": loss, "scale": found.scale.detach()}

    @torch.no_grad()
    def cool(self, batch: Batch) -> None:
        """Keep the scale at 100 at most, once the step was taken."""
        self.model.logit_scale.clamp_(max=float(np.log(LARGEST)))

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """Return the loss of each image among those of its validation batch, also where that comes in pieces."""
        whole = batch.whole or batch
        if self._validated is None or self._validated[0] is not whole:
            pieces = [self._embedded(piece) for piece in whole.split(len(batch))]
            self._validated = whole, self._losses(_joined(pieces), whole.data["captions"])
        rows = _rows(batch, whole)
        return {"loss": self._validated[1][rows]}

    def evaluate(self, rank: int, count: int, gather: Gather) -> dict[str, float]:
        """Return zero-shot accuracy and recalls of the validation images."""
        assert self.scorer is not None  # the loop asks where `evaluate_every` is above 0
        return self.scorer.scores(self.model, rank, count, gather)

    def _embedded(self, batch: Batch) -> Embedded:
        images, tokens, captions = (batch.data[name] for name in ("images", "tokens", "captions"))
        if not self.merge or captions.is_meta:  # how many differ is not known on paper
            return Embedded(*self.modules["clip"](images, tokens))
        numbers, places = captions.unique(return_inverse=True)
        first = torch.full_like(numbers, len(captions)).scatter_reduce(
            0, places, torch.arange(len(captions), device=captions.device), "amin"
        )
        image, text, scale = self.modules["clip"](images, tokens[first])
        return Embedded(image, text[places], scale)

    def _losses(self, found: Embedded, captions: Tensor) -> Tensor:
        with in_float32(found.image.device):
            return contrastive_losses(*found, captions if self.equal else None)

    def _require_no_batch_norm(self) -> None:
        if any(isinstance(module, nn.BatchNorm2d) for module in self.model.modules()):
            raise DarkroomError(
                "`train_clip.trained.model.image_network` is resnet, whose batch norms must see an update as a whole: "
                "leave `run.micro_batch` empty, make the batch smaller, or take vit."
            )

    def _of_whole(self, batch: Batch, whole: Batch, found: Embedded, world: int) -> Tensor:
        """Return the update's loss, with the gradient that adds up to its own over all pieces and processes.

        The loop weights a piece by its share n/m of the process's images and averages over processes: by n/N in all.
        So the embeddings' gradients are multiplied by N/n; that of the scale, in which every piece has it whole, is
        not.
        """
        if self._update is None or self._update.whole is not whole:
            self._update = self._differentiated(batch, whole, found, world)
        update, rows = self._update, _rows(batch, whole)
        gradients = update.gradients
        handed = (found.image * gradients.image[rows]).sum() + (found.text * gradients.text[rows]).sum()
        handed = handed * (len(whole) * world / len(batch)) + found.scale * gradients.scale
        if rows.stop == len(whole):
            self._update = None
        return update.loss + (handed - handed.detach())

    def _differentiated(self, batch: Batch, whole: Batch, found: Embedded, world: int) -> _Update:
        # The piece at hand comes with its graph, and before the others: autocast keeps the weights it has cast first.
        with torch.no_grad():
            pieces = [
                found if piece.positions[0] == batch.positions[0] else self._embedded(piece)
                for piece in whole.split(len(batch))
            ]
            mine = _joined(pieces)
        images, texts = (of_all_processes(each.detach()).requires_grad_() for each in (mine.image, mine.text))
        leaves = Embedded(images, texts, mine.scale.detach().requires_grad_())
        with torch.enable_grad():
            loss = self._losses(leaves, of_all_processes(whole.data["captions"])).mean()
        image, text, scale = torch.autograd.grad(loss, leaves)
        first = len(whole) * (distributed.get_rank() if world > 1 else 0)
        own = slice(first, first + len(whole))
        return _Update(whole, loss.detach(), Embedded(image[own], text[own], scale))


def _rows(batch: Batch, whole: Batch) -> slice:
    """Return where a piece stands in what it is a piece of: positions follow one another."""
    first = int(batch.positions[0] - whole.positions[0])
    return slice(first, first + len(batch))


def _joined(pieces: Sequence[Embedded]) -> Embedded:
    image, text, _ = zip(*pieces, strict=True)
    return Embedded(torch.cat(image), torch.cat(text), pieces[0].scale)
