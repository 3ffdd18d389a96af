"""What an extractor gives of images in one forward pass."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Views:
    """Features of N images, and of Inception what else its forward pass gives.

    pool: (N, D) float32, what distances are taken in.
    spatial: (N, 2023) float32, 17 x 17 places of 7 channels, those of sFID (Nash et al., 2021, arXiv 2103.03841); None:
        of another network than Inception.
    logits: (N, 1008) float32, those of the Inception Score; None likewise.
    """

    pool: Tensor
    spatial: Tensor | None = None
    logits: Tensor | None = None

    def __len__(self) -> int:
        return len(self.pool)

    def take(self, rows: Tensor | list[int]) -> "Views":
        """Return some of the images, by their rows or by a mask."""
        return Views(*(None if part is None else part[rows] for part in (self.pool, self.spatial, self.logits)))  # type: ignore[arg-type]
