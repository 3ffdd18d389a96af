"""The source of images that a person means by a folder or a name."""

import os
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from darkroom.dag.hashable import inside, printable, require_hashable
from darkroom.data.sources import Source, open_source
from darkroom.data.sources.tar_names import ENDINGS
from darkroom.data.sources.walk import walk
from darkroom.errors import DarkroomError
from darkroom.params.parts import SECTIONS, Hub, Part
from darkroom.params.section import NO_FILE, PARAMS, validate
from darkroom.params.stage import read_yaml, related
from darkroom.tools.init.annotations import folder_settings
from darkroom.tools.init.columns import hub_settings, tar_settings
from darkroom.tools.places import outputs

SCENES = 8000  # of `shapes`, which has no end
_NAMES = "digits, shapes, torchvision:NAME, hub:OWNER/NAME, hub:FOLDER, or webdataset tars"
_OWN = (".git", ".dvc", ".darkroom", ".snakemake", ".venv", "logs", "build")  # of the repository, never images


@dataclass(frozen=True)
class Subject:
    """What a person means."""

    name: str  # of the part
    part: Part  # its entry under `parts`
    source: Source  # open
    notes: tuple[str, ...] = ()  # what was decided about classes and captions, sentences


def opened(source: str, begun: Mapping[str, Any] | None = None) -> Subject:
    """Return the source that a person means by a folder or the name of a source.

    What params.yaml says of a source by its name counts, and is written into the part where `begun`, the settings that
    are written over (None: params.yaml), lack it.

    Raises:
        DarkroomError: it is neither a folder nor the name of a source, or cannot be opened, or is the repository's own.
    """
    kind, _, name = source.partition(":")
    path = Path(source).expanduser()
    notes: tuple[str, ...] = ()
    values = read_yaml(PARAMS)
    here = part_name(Path(os.path.abspath(path)).name)  # noqa: PTH100, a link keeps its name
    if path.is_dir() and not _holds_tars(path):
        require_own(path)
        hint = require_hashable({path: "darkroom init"}).strip()
        fitting, notes = folder_settings(path)
        label, notes = here, (*notes, *([hint] if hint else []))
        part = Part(source="folder", path=_written(path), settings=fitting.model_dump(exclude_defaults=True))
    elif path.is_dir() or (path.is_file() and path.name.endswith(ENDINGS)):
        label, part = here, Part(source="webdataset", path=_written(path), settings=tar_settings(path))
    elif kind in ("digits", "shapes") and not name:
        part, label = Part(source=kind, stop=SCENES if kind == "shapes" else None), kind  # type: ignore[arg-type]
    elif kind == "torchvision" and name:
        part, label = Part(source="torchvision", settings={"dataset": name}), part_name(name)
    elif kind == "hub" and name:
        folder = Path(name).expanduser()
        label = part_name(name.rstrip("/").rpartition("/")[2])
        there = folder.is_dir()
        settings = {} if there else {"dataset": name}
        own = values.get("hub") or {}
        columns, notes = hub_settings(validate(Hub, {**own, **settings}, "hub"), folder if there else None, set(own))
        part = Part(source="hub", path=_written(folder) if there else NO_FILE, settings={**settings, **columns})
    elif "://" in source and ".tar" in source:
        part, label = Part(source="webdataset", settings={"url": source}), "shards"
    else:
        what = "is a file" if path.is_file() else "does not exist"
        raise DarkroomError(f"{printable(source)} {what}: name a folder of images, or one of {_NAMES}.")
    section = SECTIONS[part.source]
    of_file = (values.get(part.source) or {}) if part.source != "folder" else {}
    validated = validate(section, {**of_file, **part.settings}, f"parts.{label}.settings")
    kept = (values if begun is None else begun).get(part.source) or {}
    lost = {key: value for key, value in of_file.items() if (key, value) not in kept.items()}
    part = part.model_copy(update={"settings": {**lost, **part.settings}})
    return Subject(label, part, open_source(part, validated), notes)


def require_own(path: Path) -> None:
    """Refuse a folder that holds the repository, or is of it: what stages write would be read as images."""
    here, there = Path.cwd().resolve(), path.resolve()
    inside = there.relative_to(here).as_posix() if there.is_relative_to(here) else ""
    written = inside and (inside.split("/")[0] in _OWN or any(related(inside, output) for output in outputs()))
    if written or here.is_relative_to(there):
        raise DarkroomError(
            f"{path} holds this repository, or stages write there: put the images into a folder of their own, say "
            "data/raw, and name that."
        )


def _holds_tars(path: Path) -> bool:
    """Return whether a folder directly holds tars, and no images: one of webdataset, no archive beside its images."""
    try:
        if not any(name.endswith(ENDINGS) for name in os.listdir(path)):  # noqa: PTH208, names alone
            return False
        return not walk(os.fsencode(path), captions=False, tables=False).images
    except OSError:
        return False


def _written(path: Path) -> str:
    """Return a path as params.yaml has it: absolute but in the repository, links as they are.

    Raises:
        DarkroomError: its name is not UTF-8.
    """
    text = inside(path) or os.path.abspath(path)  # noqa: PTH100, a link stays one
    if printable(text) != text:
        raise DarkroomError(f"{printable(text)}: params.yaml cannot hold this name: rename the folder.")
    return text


def entry(subject: Subject, images: int) -> dict[str, Any]:
    """Return a part as it is written under `parts`: the keys that dvc.yaml names, and those that differ.

    A data set of the Hub has no end before it is read, so that of its metadata is written.
    """
    part = subject.part.model_copy(update={"stop": images}) if subject.part.source == "hub" else subject.part
    return {"source": part.source, "path": part.path, "embeddings": NO_FILE, **part.model_dump(exclude_defaults=True)}


def part_name(text: str) -> str:
    """Return the name of a part that comes near to some text: a to z, 0 to 9, - and _; letters lose their accents."""
    plain = unicodedata.normalize("NFKD", text.lower()).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9_-]+", "-", plain).strip("-_")[:40].rstrip("-_") or "images"
