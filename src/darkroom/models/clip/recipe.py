"""The recipe of CLIP: contrastive training on images and captions over the whole batch of an optimizer step."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, distributed, nn

from darkroom.device import in_float32, of_all_processes, process_count
from darkroom.errors import DarkroomError
from darkroom.models.clip.network import Contrastive
from darkroom.models.clip.scores import Examples
from darkroom.training.recipe import Batch, Gather, IndexedDataset, Losses, Phase, Recipe

LARGEST = 100.0  # maximum scale of the cosines: Radford et al., section 2.5


def contrastive_losses(image: Tensor, text: Tensor, scale: Tensor, captions: Tensor | None = None) -> Tensor:
    """Return the loss of each pair of a batch, (N,).

    L_i = - 1/2 [ sum_j q_ij log softmax_j(s x_i . y_j) + sum_j q_ij log softmax_j(s x_j . y_i) ], with q_ij = 1 where
    i = j: Radford et al., "Learning transferable visual models from natural language supervision", 2021, figure 3.
    With captions, q_ij = 1/n_i for the n_i pairs whose caption equals that of pair i, which are not negatives of each
    other: Yang et al., "Unified contrastive learning in image-text-label space", 2022, 2204.03610, equation 3.

    Args:
        image: x, of length 1, (N, D).
        text: y, of length 1, (N, D).
        scale: s, the inverse temperature.
        captions: a number for each pair, the same for equal captions, (N,); None: all differ.
    """
    logits = scale * image @ text.T  # (N, N), a row an image
    if captions is None:
        targets = torch.eye(len(logits), dtype=logits.dtype, device=logits.device)
    else:
        equal = (captions[:, None] == captions).to(logits.dtype)
        targets = equal / equal.sum(dim=1, keepdim=True)
    losses = [-(targets * each.log_softmax(dim=1)).sum(dim=1) for each in (logits, logits.T)]
    return (losses[0] + losses[1]) / 2


class Embedded(NamedTuple):
    """Embeddings of images and of texts, of length 1, (N, D), and the scale of their cosines."""

    image: Tensor
    text: Tensor
    scale: Tensor


@dataclass
class _Update:
    """The loss of an optimizer step, and its gradients by the embeddings of this process's shard and by the scale."""

    whole: Batch
    loss: Tensor
    gradients: Embedded


class ClipRecipe(Recipe):
    """L = mean over the images of an optimizer step, of all processes, of `contrastive_losses`.

    Where `run.micro_batch` splits a step into micro-batches, or several processes share it, an image is still compared
    with all texts of the step: all embeddings are computed once without gradients, the loss is differentiated with
    respect to the embeddings, and each micro-batch propagates these gradients to the weights. Gao et al., "Scaling deep
    contrastive learning batch size under memory limited setup", 2021, arXiv 2101.06983.

    Args:
        equal_captions: positives: pairs with equal captions are positives of each other; negatives: they are negatives,
            as published.
        train, val: datasets with `images`, `tokens` and `captions`.
        merge: whether to compute each distinct caption of a micro-batch only once.
    """

    def __init__(
        self,
        model: Contrastive,
        equal_captions: str,
        train: IndexedDataset,
        val: IndexedDataset,
        scorer: Examples | None = None,
        merge: bool = True,
    ) -> None:
        self.model, self.train, self.val = model, train, val
        self.equal, self.merge = equal_captions == "positives", merge
        self.modules: dict[str, nn.Module] = {"clip": model}
        self.phases: Sequence[Phase] = (Phase("clip", self.loss, after=self.cool),)
        self.blocks = [*model.visual_blocks, *model.transformer.resblocks]
        self.scorer = scorer
        self.evaluations = [(scorer.every, self.evaluate)] if scorer else []
        self._update: _Update | None = None
        self._validated: tuple[Batch, Tensor] | None = None

    def loss(self, batch: Batch) -> Losses:
        """Return the loss of the whole optimizer step, with the gradient of this micro-batch."""
        embedded = self._embedded(batch)
        whole, world = batch.whole or batch, process_count()
        if len(whole) == len(batch) and world == 1:
            loss = self._losses(embedded, batch.data["captions"]).mean()
        else:
            self._require_no_batch_norm()
            loss = self._of_whole(batch, whole, embedded, world)
        return {"loss": loss, "scale": embedded.scale.detach()}

    @torch.no_grad()
    def cool(self, batch: Batch) -> None:
        """Clamp the scale to at most 100, after the optimizer step."""
        self.model.logit_scale.clamp_(max=float(np.log(LARGEST)))

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """Return the loss of each image within its whole validation batch, not within a micro-batch."""
        whole = batch.whole or batch
        if self._validated is None or self._validated[0] is not whole:
            pieces = [self._embedded(piece) for piece in whole.split(len(batch))]
            self._validated = whole, self._losses(_joined(pieces), whole.data["captions"])
        return {"loss": self._validated[1][_rows(batch, whole)]}

    def evaluate(self, rank: int, count: int, gather: Gather) -> dict[str, float]:
        """Return zero-shot accuracy and recalls of the validation images."""
        assert self.scorer is not None  # `evaluations` is empty without one
        return self.scorer.scores(self.model, rank, count, gather)

    def _embedded(self, batch: Batch) -> Embedded:
        images, tokens, captions = (batch.data[name] for name in ("images", "tokens", "captions"))
        if not self.merge or captions.is_meta:  # the number of distinct captions is unknown on the meta device
            return Embedded(*self.modules["clip"](images, tokens))
        numbers, places = captions.unique(return_inverse=True)
        first = torch.full_like(numbers, len(captions)).scatter_reduce(
            0, places, torch.arange(len(captions), device=captions.device), "amin"
        )
        image, text, scale = self.modules["clip"](images, tokens[first])
        return Embedded(image, text[places], scale)

    def _losses(self, embedded: Embedded, captions: Tensor) -> Tensor:
        with in_float32(embedded.image.device):
            return contrastive_losses(*embedded, captions if self.equal else None)

    def _require_no_batch_norm(self) -> None:
        if any(isinstance(module, nn.BatchNorm2d) for module in self.model.modules()):
            raise DarkroomError(
                "`train_clip.trained.model.image_network` is resnet, whose batch norms need the whole batch: "
                "leave `run.micro_batch` empty, make the batch smaller, or use vit."
            )

    def _of_whole(self, batch: Batch, whole: Batch, embedded: Embedded, world: int) -> Tensor:
        """Return the loss of the step, with gradients that add up to its own over all micro-batches and processes.

        The loop weights a micro-batch by its fraction n/m of the images of the process and averages over processes: by
        n/N in all. So the gradients of the embeddings are multiplied by N/n; the gradient of the scale, which every
        micro-batch has in full, is not.
        """
        if self._update is None or self._update.whole is not whole:
            self._update = self._differentiated(batch, whole, embedded, world)
        update, rows = self._update, _rows(batch, whole)
        gradients = update.gradients
        handed = (embedded.image * gradients.image[rows]).sum() + (embedded.text * gradients.text[rows]).sum()
        handed = handed * (len(whole) * world / len(batch)) + embedded.scale * gradients.scale
        if rows.stop == len(whole):
            self._update = None
        return update.loss + (handed - handed.detach())

    def _differentiated(self, batch: Batch, whole: Batch, embedded: Embedded, world: int) -> _Update:
        # This micro-batch has a graph and comes before the others: autocast caches the weights that it casts first.
        with torch.no_grad():
            pieces = [
                embedded if piece.positions[0] == batch.positions[0] else self._embedded(piece)
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
    """Return the slice of a micro-batch within its batch; positions are consecutive."""
    first = int(batch.positions[0] - whole.positions[0])
    return slice(first, first + len(batch))


def _joined(pieces: Sequence[Embedded]) -> Embedded:
    image, text, _ = zip(*pieces, strict=True)
    return Embedded(torch.cat(image), torch.cat(text), pieces[0].scale)
