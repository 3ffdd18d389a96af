"""Scores a CLIP on captioned images, during and after training: zero-shot accuracy and retrieval recalls."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from darkroom.data.draw import drawn
from darkroom.metrics.retrieval import class_embeddings, recalls, zero_shot
from darkroom.models.clip.captions import CaptionedImages
from darkroom.models.clip.network import Contrastive, to_tensor, tokens_of
from darkroom.models.tokenizers.protocol import padded
from darkroom.terminal.terminal import with_progress
from darkroom.training.recipe import Gather

Encode = Callable[[Tensor], Tensor]


class Examples:
    """Captioned images drawn of a split, their distinct captions, and prompts of classes.

    every: the number of training images between two scores.
    count: the number of images.

    Args:
        images: the captioned images of the split.
        prompts: the prompts of each class, see `prompts_of`.
        most: the maximum number of images.
        batch: the number of images, or texts, in a forward pass.
        every: see above.
    """

    def __init__(
        self, images: CaptionedImages, prompts: Mapping[str, Sequence[str]], most: int, batch: int, every: int = 0
    ) -> None:
        self.images, self.prompts, self.batch, self.every = images, prompts, batch, every
        self.rows = np.array(drawn(len(images), most), dtype=np.int64)
        self.count = len(self.rows)
        # The distinct captions in the order of their first images.
        self.texts, self.captions = np.unique(images.numbers[self.rows], return_inverse=True)
        names = {name: number for number, name in enumerate(prompts)}
        labels = images.labels()
        self.labels = np.array([names.get(labels[row] or "", -1) for row in self.rows], dtype=np.int64)

    @property
    def constant(self) -> float:
        """The zero-shot accuracy of a constant answer: the fraction of the most frequent class."""
        known = self.labels[self.labels >= 0]
        return float(np.bincount(known).max() / len(known))

    def scores(self, model: Contrastive, rank: int, count: int, gather: Gather) -> dict[str, float]:
        """Return the scores of a CLIP in training; process `rank` of `count` computes its shard, and all get them."""
        device = model.logit_scale.device

        def images(pixels: Tensor) -> Tensor:
            return model(pixels, tokens[:1])[0]

        def texts(tokens: Tensor) -> Tensor:
            return model(pixels[:1], tokens)[1]

        pixels = torch.from_numpy(self.images.__getitems__([0])["images"]).to(device)
        tokens = torch.from_numpy(self.images.tokens([0])).to(device)
        found = self.scored(images, texts, device, rank, count, gather)
        return {name: value for name, value in found.items() if not name.endswith("_se")}

    def scored(
        self,
        images: Encode,
        texts: Encode,
        device: torch.device,
        rank: int = 0,
        count: int = 1,
        gather: Gather = torch.Tensor.cpu,
    ) -> dict[str, float]:
        """Return recalls and, where at least two classes have prompts and images, zero-shot accuracy.

        Args:
            images: maps uint8 (N, C, H, W) to embeddings (N, D).
            texts: maps tokens, int64 (N, L), to embeddings (N, D).
            device: the device of the inputs of both functions.
            rank: the rank of this process.
            count: the number of processes.
            gather: concatenates the rows of all processes.
        """
        share = np.array_split(self.rows, count)[rank]
        groups = [share[at : at + self.batch] for at in range(0, len(share), self.batch)]
        found = [
            padded(images, torch.from_numpy(self.images.__getitems__(rows.tolist())["images"]), self.batch, device)
            for rows in (with_progress(groups, len(share), "scores") if rank == 0 else groups)
        ]
        mine = torch.cat(found) if found else torch.zeros(0)
        image = functional.normalize(gather(mine).float(), dim=1)
        scores: dict[str, float] = {}
        if len(self.texts) > 1:
            text = self._texts(texts, torch.from_numpy(self.images.tokens(self.texts.tolist())), device)
            scores |= recalls(image, text, torch.from_numpy(self.captions))
        if len(self.prompts) > 1 and (known := torch.from_numpy(self.labels >= 0)).any():
            labels = torch.from_numpy(self.labels)[known]
            scores |= zero_shot(image[known], self._classes(texts, device), labels)
        return scores

    def _texts(self, texts: Encode, tokens: Tensor, device: torch.device) -> Tensor:
        return functional.normalize(padded(texts, tokens, self.batch, device).float(), dim=1)

    def _classes(self, texts: Encode, device: torch.device) -> Tensor:
        prompts = [prompt for own in self.prompts.values() for prompt in own]
        classes = [number for number, own in enumerate(self.prompts.values()) for _ in own]
        tokens = to_tensor(tokens_of(prompts, self.images.context, self.images.truncate))
        return class_embeddings(self._texts(texts, tokens, device), torch.tensor(classes), len(self.prompts))
