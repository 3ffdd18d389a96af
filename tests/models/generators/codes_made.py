"""Small generators of codes, and codes whose distribution is known."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from darkroom.models.generators.autoregressive.recipe import AutoregressiveRecipe
from darkroom.models.generators.autoregressive.settings import Autoregressive
from darkroom.models.generators.codes.network import CodesConfig, CodeTransformer
from darkroom.models.generators.conditions import asked_classes, balanced
from darkroom.models.generators.masked.recipe import MaskedRecipe
from darkroom.models.generators.masked.settings import Masked
from darkroom.training.recipe import Batch
from helpers import training

RECIPES = {"autoregressive": (AutoregressiveRecipe, Autoregressive), "masked": (MaskedRecipe, Masked)}


class Grey:
    """A tokenizer whose images show the codes as grey levels."""

    codebook_size, codebook = 4, torch.zeros(4, 2)
    latent_shape = (2, 4, 4)

    def encode_codes(self, images: Tensor) -> Tensor:
        """Return the levels of the first channel."""
        return images[:, 0].long()

    def decode_codes(self, codes: Tensor) -> Tensor:
        """Return images, uint8 (N, 1, h, w)."""
        return codes[:, None].to(torch.uint8)


class Rows:
    """Codes in memory, with classes, as the stored ones are read."""

    shape, codebook = (2, 4, 4), np.zeros((4, 2), np.float32)

    def __init__(self, codes: NDArray[np.int64], labels: NDArray[np.int64]) -> None:
        self.codes, self.labels = codes, labels

    def __len__(self) -> int:
        return len(self.codes)

    def __getitems__(self, rows: Any, positions: Any = None) -> dict[str, Any]:
        return {"codes": self.codes[rows], "labels": self.labels[rows]}


def network(causal: bool = True, **changes: Any) -> CodeTransformer:
    """Return a small transformer with random weights for 4 x 4 of 4 codes and three classes, in evaluation mode."""
    torch.manual_seed(0)
    named = {"codes": 4, "side": 4, "classes": 3, "width": 16, "depth": 2, "heads": 2, "causal": causal, **changes}
    model = CodeTransformer(CodesConfig(**named))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model.eval()


def recipe(kind: str, codes: NDArray[np.int64], labels: NDArray[np.int64], images: int = 1000, **section: Any) -> Any:
    """Return the recipe of a small generator of codes (N, 4, 4) with classes (N,)."""
    made, settings = RECIPES[kind]
    rows = Rows(codes, labels)
    data = SimpleNamespace(
        train=rows,
        val=rows,
        latents=rows,
        tokenizer=Grey(),
        catalog=SimpleNamespace(classes=["a", "b", "c"]),
        conditions=asked_classes(balanced(3)),
        embeddings=None,
        captions=None,
        class_counts=[1, 1, 1],
    )
    model = {"width": 32, "depth": 2, "heads": 2, "dropout": 0.0, **section.pop("model", {})}
    chosen = settings.model_validate({"model": model, **section})
    return made.build(chosen, training(images=images), data, None)


def batch(rows: Rows, positions: Any) -> Batch:
    """Return the batch at some places of the training sequence, in turn."""
    positions = np.asarray(positions)
    stored = rows.__getitems__(positions % len(rows))
    return Batch(positions, {name: torch.from_numpy(value) for name, value in stored.items()})


def trained(made: Any, steps: int, size: int = 64, rate: float = 3e-3) -> Any:
    """Train a recipe by Adam with a falling rate."""
    optimizer = torch.optim.Adam(made.model.parameters(), lr=rate)
    made.model.train()
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = rate * min(1, (steps - step) / (steps / 2))
        optimizer.zero_grad()
        made.loss(batch(made.train, np.arange(step * size, (step + 1) * size)))["loss"].backward()
        optimizer.step()
    made.model.eval()
    return made


# A chain of codes: the next is the same with probability 0.7, else one of the others.
STAYS, CODES = 0.7, 4
NEXT = np.full((CODES, CODES), (1 - STAYS) / (CODES - 1)) + np.eye(CODES) * (STAYS - (1 - STAYS) / (CODES - 1))


def chains(count: int, seed: int) -> NDArray[np.int64]:
    """Return chains of 16 codes row by row, uniform at first, int64 (N, 4, 4)."""
    rng = np.random.default_rng(seed)
    codes = np.empty((count, 16), np.int64)
    codes[:, 0] = rng.integers(0, CODES, count)
    for place in range(1, 16):
        other = (codes[:, place - 1] + rng.integers(1, CODES, count)) % CODES
        codes[:, place] = np.where(rng.random(count) < STAYS, codes[:, place - 1], other)
    return codes.reshape(count, 4, 4)


def field(count: int, seed: int) -> NDArray[np.int64]:
    """Return a Markov mesh, int64 (N, 4, 4): a code follows that on its left or above, each with probability 0.5."""
    rng = np.random.default_rng(seed)
    codes = np.empty((count, 4, 4), np.int64)
    for row in range(4):
        for column in range(4):
            left, above = codes[:, row, column - 1], codes[:, row - 1, column]
            from_left = (rng.random(count) < 0.5) & (column > 0) | (row == 0)
            before = np.where(from_left, left, above) if row or column else rng.integers(0, CODES, count)
            other = (before + rng.integers(1, CODES, count)) % CODES
            codes[:, row, column] = np.where(rng.random(count) < STAYS, before, other)
    return codes


def entropy() -> float:
    """Return the bits per code of `chains`."""
    of_next = -(NEXT[0] * np.log2(NEXT[0])).sum()
    return float((np.log2(CODES) + 15 * of_next) / 16)
