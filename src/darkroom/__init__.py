"""Darkroom trains image generators as one reproducible DAG.

The Python interface is `darkroom.api`: `darkroom.load("models/generator").sample(labels=[3, 5], n=8, seed=0)`.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"
__all__ = ["compare", "images", "latents", "load", "score"]

if TYPE_CHECKING:
    from darkroom.api import compare, images, latents, load, score
else:  # `darkroom.api` imports torch, which commands and stages without networks do not need

    def _of_api(name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            from darkroom import api

            return getattr(api, name)(*arguments, **options)

        call.__name__ = call.__qualname__ = name
        call.__doc__ = f"See `darkroom.api.{name}`."
        return call

    compare, images, latents, load, score = map(_of_api, ("compare", "images", "latents", "load", "score"))
