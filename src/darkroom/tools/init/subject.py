"""The source of images that a person means by a folder or a name."""

# No effect on any output: reads what a command names

import re
from pathlib import Path
from typing import Any

from darkroom.data.sources import Source, open_source
from darkroom.errors import DarkroomError
from darkroom.params.numbers import NO_FILE
from darkroom.params.parts import Part
from darkroom.params.section import PARAMS, validate
from darkroom.params.sources import SECTIONS
from darkroom.params.stage import read_yaml
from darkroom.tools.init.annotations import folder_settings

_SCENES = 8000  # of `shapes`, which has no end


def opened(source: str) -> tuple[str, Part, Source]:
    """Return the name of the part, its entry under `parts`, and the open source that a person means.

    Raises:
        DarkroomError: it is neither a folder nor the name of a source, or cannot be opened.
    """
    kind, _, name = source.partition(":")
    path = Path(source).expanduser()
    if path.is_dir():
        settings = folder_settings(path)
        part = Part(source="folder", path=str(path), settings=settings.model_dump(exclude_defaults=True))
        label = part_name(path.resolve().name)
    elif kind in ("digits", "shapes") and not name:
        part, label = Part(source=kind, stop=_SCENES if kind == "shapes" else None), kind  # type: ignore[arg-type]
    elif kind == "torchvision" and name:
        part, label = Part(source="torchvision", settings={"dataset": name}), part_name(name)
    elif kind == "hub" and name:
        part, label = Part(source="hub", settings={"name": name}), part_name(name.rpartition("/")[2])
    elif ".tar" in source:
        part, label = Part(source="webdataset", settings={"url": source}), "shards"
    else:
        what = "is a file" if path.is_file() else "does not exist"
        raise DarkroomError(
            f"{source} {what}: name a folder of images, or one of digits, shapes, torchvision:NAME, hub:OWNER/NAME."
        )
    section = SECTIONS[part.source]
    of_file = (read_yaml(PARAMS).get(part.source) or {}) if part.source != "folder" else {}
    validated = validate(section, {**of_file, **part.settings}, f"darkroom init {source}")
    return label, part, open_source(part, validated)


def entry(part: Part) -> dict[str, Any]:
    """Return a part as it is written under `parts`: the keys that dvc.yaml names, and those that differ."""
    return {"source": part.source, "path": part.path, "embeddings": NO_FILE, **part.model_dump(exclude_defaults=True)}


def part_name(text: str) -> str:
    """Return the name of a part that comes near to some text: a to z, 0 to 9, - and _."""
    return re.sub(r"[^a-z0-9_-]+", "-", text.lower()).strip("-_") or "images"
