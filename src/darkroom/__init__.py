"""Darkroom trains image generators as one reproducible DAG.

The Python interface is `darkroom.api`: `darkroom.load("models/generator").sample(labels=[3, 5], n=8, seed=0)`.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"
__all__ = ["compare", "images", "latents", "load", "score"]

if TYPE_CHECKING:
    from darkroom.api import compare, images, latents, load, score
else:  # `darkroom.api` imports torch, which commands and stages without networks do not need

    def _api() -> Any:
        from darkroom import api

        return api

    def load(*arguments: Any, **options: Any) -> Any:
        """Load a trained model: see `darkroom.api.load`."""
        return _api().load(*arguments, **options)

    def score(*arguments: Any, **options: Any) -> Any:
        """Score images against reference images: see `darkroom.api.score`."""
        return _api().score(*arguments, **options)

    def compare(*arguments: Any, **options: Any) -> Any:
        """Compare the scores of two revisions: see `darkroom.api.compare`."""
        return _api().compare(*arguments, **options)

    def images(*arguments: Any, **options: Any) -> Any:
        """Return the images of a split as a dataset of torch: see `darkroom.api.images`."""
        return _api().images(*arguments, **options)

    def latents(*arguments: Any, **options: Any) -> Any:
        """Return the latents of a split as a dataset of torch: see `darkroom.api.latents`."""
        return _api().latents(*arguments, **options)
