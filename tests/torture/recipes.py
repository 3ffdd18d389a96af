"""The two models that are tortured: a small GAN with a codebook, and the DiT of the library, both on real digits."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import spectral_norm

from darkroom.data.catalog import load_catalog
from darkroom.data.catalog_writer import write_catalog
from darkroom.data.images import ImageSpec
from darkroom.data.latent_writer import write_latents
from darkroom.data.latents import LatentShards
from darkroom.data.parts import Policy, write_part
from darkroom.data.pipeline import outcomes
from darkroom.data.preparing import Preparation
from darkroom.data.reader import ImageShards
from darkroom.data.sources.digits import Digits as DigitsSource
from darkroom.data.splits import SPLITS
from darkroom.diffusion.scalers import LatentScaler
from darkroom.models.generators.data import LabelledLatents
from darkroom.models.generators.dit.config import DiTConfig
from darkroom.models.generators.dit.network import DiT
from darkroom.models.generators.dit.recipe import DiTRecipe
from darkroom.models.generators.dit.settings import DiTDiffusion, DiTSampling
from darkroom.params.parts import Digits as Settings
from darkroom.rng import normal
from darkroom.training.loop import seeded
from darkroom.training.recipe import Batch, Losses, Phase, Recipe

SHAPE = (2, 4, 4)  # of a latent
_IMAGES = 400  # digits that become latents


# ---------------------------------------------------------------------------------------------------------------------
# A GAN with everything that a checkpoint can forget


class Codebook(nn.Module):
    """Vector quantisation whose codes are no parameters but buffers, moved by averages (van den Oord et al., 2017).

    n_k <- d n_k + (1 - d) count_k,  m_k <- d m_k + (1 - d) sum_k,  code_k = m_k / n_k.
    """

    def __init__(self, codes: int, width: int, decay: float = 0.9) -> None:
        super().__init__()
        self.decay = decay
        self.register_buffer("codes", torch.randn(codes, width))
        self.register_buffer("counts", torch.ones(codes))
        self.register_buffer("sums", self.codes.clone())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the nearest codes, (B, D, H, W), with the gradient passed straight through, and the commitment."""
        flat = x.detach().movedim(1, -1).reshape(-1, x.shape[1])  # (B H W, D)
        chosen = functional.one_hot(torch.cdist(flat, self.codes).argmin(dim=1), len(self.codes)).float()
        quantised = (chosen @ self.codes).reshape(x.shape[0], *x.shape[2:], -1).movedim(-1, 1)
        if self.training:
            self.counts.lerp_(chosen.sum(dim=0), 1 - self.decay)
            self.sums.lerp_(chosen.T @ flat, 1 - self.decay)
            self.codes.copy_(self.sums / self.counts.clamp_min(1e-3)[:, None])
        return x + (quantised - x).detach(), functional.mse_loss(x, quantised)


class Generator(nn.Module):
    """Encodes, quantises and decodes digits, (B, 1, 8, 8) in [-1, 1]: batch norms, dropout and a codebook."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Dropout(0.1), nn.Conv2d(16, 8, 1)
        )
        self.codebook = Codebook(32, 8)
        self.decoder = nn.Sequential(
            nn.Conv2d(8, 16, 3, 1, 1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(16, 1, 3, 1, 1),
            nn.Tanh(),
        )

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return the reconstructions and the commitment loss."""
        latents, commitment = self.codebook(self.encoder(images))
        return self.decoder(latents), commitment


def discriminator() -> nn.Module:
    """Return a patch discriminator: spectral norms, whose power iterations are buffers, and dropout."""
    return nn.Sequential(
        spectral_norm(nn.Conv2d(1, 16, 3, 1, 1)),
        nn.LeakyReLU(0.2),
        nn.Dropout2d(0.2),
        spectral_norm(nn.Conv2d(16, 32, 4, 2, 1)),
        nn.LeakyReLU(0.2),
        spectral_norm(nn.Conv2d(32, 1, 3, 1, 1)),
    )


class Digits:
    """Rows `start` to `stop` of scikit-learn's digits: `images` float32 (N, 1, 8, 8) in [-1, 1]."""

    def __init__(self, start: int, stop: int) -> None:
        from sklearn.datasets import load_digits

        self._images = (load_digits().images[start:stop, None] / 8 - 1).astype(np.float32)

    def __len__(self) -> int:
        return len(self._images)

    def __getitems__(self, rows: Sequence[int], positions: Any = None) -> dict[str, Any]:
        return {"images": self._images[list(rows)]}

    def keys(self, rows: Sequence[int]) -> list[str]:
        return [f"digit-{row:04d}" for row in rows]


class GANRecipe(Recipe):
    """Hinge loss (Lim and Ye, 2017): two turns, two optimizers, noise by position, dropout from torch's generator."""

    def __init__(self) -> None:
        with seeded(1):
            self.modules = {"generator": Generator(), "discriminator": discriminator()}
        self.phases = (Phase("generator", self.generate), Phase("discriminator", self.discriminate))
        self.train, self.val = Digits(0, 1000), Digits(1000, 1064)

    def _noisy(self, batch: Batch, stream: str) -> Tensor:
        noise = torch.from_numpy(normal(0, f"gan/{stream}", batch.positions.tolist(), (1, 8, 8)))
        return batch.data["images"] + 0.1 * noise

    def generate(self, batch: Batch) -> Losses:
        """L = |x - G(x)| + commitment - 0.1 D(G(x))."""
        made, commitment = self.modules["generator"](self._noisy(batch, "train"))
        reconstruction = (made - batch.data["images"]).abs().mean()
        adversarial = -self.modules["discriminator"](made).mean()
        return {"loss": reconstruction + commitment + 0.1 * adversarial, "reconstruction": reconstruction}

    def discriminate(self, batch: Batch) -> Losses:
        """L = max(0, 1 - D(x)) + max(0, 1 + D(G(x)))."""
        with torch.no_grad():
            made, _ = self.modules["generator"](self._noisy(batch, "train"))
        real, false = self.modules["discriminator"](batch.data["images"]), self.modules["discriminator"](made)
        return {"loss_d": (value := (1 - real).relu().mean() + (1 + false).relu().mean()).detach(), "loss": value}

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        """The distance between each image and its reconstruction."""
        made, _ = self.modules["generator"](self._noisy(batch, "val"))
        return {"loss": (made - batch.data["images"]).abs().mean(dim=(1, 2, 3))}


# ---------------------------------------------------------------------------------------------------------------------
# The DiT on stored latents


def _encode(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Some function of each image alone: (N, 1, 8, 8) uint8 to mean and logvar, (N, 2, 4, 4)."""
    values = images.astype(np.float32) / 255
    return np.concatenate([values[:, :, ::2, ::2], values[:, :, 1::2, 1::2]], axis=1), np.full(
        (len(images), *SHAPE), -4, dtype=np.float32
    )


def store_latents(folder: Path) -> None:
    """Write digits as shards, catalog and latents below `folder`, as the stages do."""
    source = DigitsSource(Settings(caption="{word}"))
    how = Preparation(ImageSpec(8, "L", "png"), "center", "box", 0, 64, 1, 95)
    found = outcomes(source, source.entries(0, _IMAGES), how, processes=1)
    part, shares = folder / "shards" / "digits", {"train": 0.8, "val": 0.1, "test": 0.1}
    part.mkdir(parents=True)
    write_part(part, "digits", found, {}, how, Policy({}, shares, 0), 100, False, folder / "logs")
    (folder / "catalog").mkdir()
    write_catalog(folder / "catalog", ["digits"], folder / "shards")
    images = {split: ImageShards.open_parts(["digits"], split, folder / "shards") for split in SPLITS}
    write_latents(folder / "latents" / "digits", "digits", images, _encode, "float32", "t" * 64, SHAPE)


def dit_recipe(folder: Path) -> DiTRecipe:
    """Return the library's recipe of a small DiT over the latents that `store_latents` wrote."""
    catalog = load_catalog(folder / "catalog", folder / "shards")
    train, val = (LatentShards.open_parts(["digits"], split, folder / "latents") for split in ("train", "val"))
    with seeded(1):
        model = DiT(DiTConfig(SHAPE[0], SHAPE[1], len(catalog.classes), 32, 2, 2, 2))
    recipe = DiTRecipe(
        model,
        DiTDiffusion(normalise="channel", time="logit_normal", time_mean=0.0, time_std=1.0, label_dropout=0.1),
        3,
        LabelledLatents(train, catalog),
        LabelledLatents(val, catalog),
        LatentScaler(*train.statistics),
        None,
        DiTSampling(solver="euler", steps=25, guidance=1.5),
    )
    recipe.sample_evolution = lambda: None  # type: ignore[method-assign]  # it has no tokenizer
    return recipe
