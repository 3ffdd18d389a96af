"""A small CLIP on noise, and its gradients as one of several processes, in float64."""

from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

from darkroom.models.clip.network import Contrastive, tokens_of
from darkroom.models.clip.recipe import ClipRecipe
from darkroom.training.loop import seeded
from darkroom.training.recipe import Batch

SIZE = {
    "image_network": "vit",
    "image_size": 8,
    "patch": 4,
    "image_width": 64,
    "image_layers": 1,
    "text_width": 64,
    "text_layers": 1,
    "context_length": 8,
    "embed_dim": 8,
}
TEXTS = ["a red circle", "a blue square", "a ring", "two red circles"]


class Pairs:
    """Twelve images of noise, each with one of four captions; `hook` is told how many images were asked for."""

    def __init__(self, hook=None):
        self.hook = hook
        self.images = np.random.default_rng(0).integers(0, 256, (12, 3, 8, 8), dtype=np.uint8)
        self.captions = np.arange(12) * 7 % 4
        self.tokens = tokens_of(TEXTS, SIZE["context_length"], False).astype(np.int64)

    def __len__(self):
        return 12

    def __getitems__(self, rows, positions=None):
        if self.hook and positions is not None:
            self.hook(int(positions[-1]) + 1)
        rows = list(rows)
        captions = self.captions[rows]
        return {"images": self.images[rows], "tokens": self.tokens[captions], "captions": captions}

    def keys(self, rows):
        return [str(row) for row in rows]


def recipe(equal="positives", hook=None, merge=True, dtype=torch.float32, **changes):
    with seeded(0):
        model = Contrastive({**SIZE, **changes})
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):  # theirs computes in float32 always
            module.forward = partial(nn.LayerNorm.forward, module)
    return ClipRecipe(model.to(dtype), equal, Pairs(hook), Pairs(), merge=merge)


def batch_of(rows, positions=None):
    data = {name: torch.as_tensor(value) for name, value in Pairs().__getitems__(rows).items()}
    return Batch(np.asarray(rows if positions is None else positions), data)


def gradients(made, batch, micro):
    """Return loss and gradients as the loop adds them up: each piece by its share of the batch."""
    total, pieces = 0.0, batch.split(micro or len(batch))
    for number, piece in enumerate(pieces, start=1):
        share = len(piece) / len(batch)
        apart = getattr(made.modules["clip"], "no_sync", nullcontext)
        with nullcontext() if number == len(pieces) else apart():
            loss = made.loss(piece)["loss"]
            (loss * share).backward()
        total += share * loss.item()
    return total, {name: value.grad.clone() for name, value in made.model.named_parameters()}


def member(folder: Path, rank: int, count: int, micro: int | None, equal: str) -> None:
    """Write loss and gradients of the twelve images, of which each process has its share, wrapped as the loop does."""
    from torch import distributed
    from torch.nn.parallel import DistributedDataParallel

    made = recipe(equal, dtype=torch.float64)
    if count > 1:
        distributed.init_process_group("gloo")
        made.modules["clip"] = DistributedDataParallel(made.model, find_unused_parameters=True)
    share = 12 // count
    batch = batch_of(range(rank * share, (rank + 1) * share))
    total, found = gradients(made, batch, micro)
    if rank == 0:
        torch.save({"loss": total, "gradients": found}, folder / "found.pt")
    if count > 1:
        distributed.destroy_process_group()
