"""Render captioned scenes of coloured forms: any number, at any size.

They need no download, their captions are exactly true, and the same attributes can be measured in generated images.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from darkroom.data.sample import Entry, Raw
from darkroom.data.scenes.captions import caption, label
from darkroom.data.scenes.rendering import render
from darkroom.data.scenes.scene import scene
from darkroom.params.parts import Shapes as Settings


class Shapes:
    """Samples `shapes-SEED-000000000` and on; labels are colour and form, "red circle": 48 classes."""

    def __init__(self, settings: Settings, path: Path | None = None) -> None:
        self._settings = settings

    def size(self) -> None:
        """Return None: the number of scenes is unlimited."""
        return

    def entries(self, start: int, stop: int | None) -> Iterator[Entry]:
        """Return the scenes `start` to `stop` (not included), one by one."""
        assert stop is not None  # `Part` requires it
        seed = self._settings.seed
        return (Entry(f"shapes-{seed}-{number:09d}", f"scene {number}", number) for number in range(start, stop))

    def read(self, entry: Entry) -> Raw:
        """Return a scene, RGB or RGBA. It has no identity: two equal pictures are two samples."""
        settings = self._settings
        drawn_scene = scene(settings.seed, entry.payload, settings.kinds)
        return Raw(render(drawn_scene, settings.size, settings.transparent), label(drawn_scene), caption(drawn_scene))

    def metadata(self) -> dict[str, Any]:
        """Return the settings: together with the number of a scene they determine its picture."""
        return self._settings.model_dump()
