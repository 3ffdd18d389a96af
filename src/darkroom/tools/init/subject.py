"""Find the source of images for a folder or a name."""

import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from darkroom.dag.hashable import inside, printable, require_hashable
from darkroom.data.keys import shown
from darkroom.data.sources import Source, open_source
from darkroom.data.sources.metadata import FILE_NAME, path_in, read_table
from darkroom.data.sources.walk import TABLES, FolderListing, beside, walk
from darkroom.data.tar_files import TAR_ENDINGS
from darkroom.errors import DarkroomError
from darkroom.params.parts import SECTIONS, Folder, Hub, Part
from darkroom.params.section import NO_FILE, PARAMS, validate
from darkroom.params.stage import OUTPUTS, read_yaml, related
from darkroom.tools.init.columns import IMAGES, Chosen, choose, hub_settings, tar_settings
from darkroom.tools.places import declared

SCENES = 8000  # of `shapes`, which has no end
_NAMES = "digits, shapes, torchvision:NAME, hub:OWNER/NAME, hub:FOLDER, or webdataset tars"
_OWN = (".git", ".dvc", ".darkroom", ".snakemake", ".venv", "logs", "build")  # of the repository, never images


@dataclass(frozen=True)
class Subject:
    """The source and its settings."""

    name: str  # of the part
    part: Part  # its entry under `parts`
    source: Source  # open
    notes: tuple[str, ...] = ()  # sentences about the choice of classes and captions


def opened(source: str, begun: Mapping[str, Any] | None = None) -> Subject:
    """Return the source for a folder or the name of a source.

    Settings of the named source in params.yaml apply, and are written to the part if `begun`, the settings to overwrite
    (None: params.yaml), lack them.

    Raises:
        DarkroomError: it is neither a folder nor the name of a source, cannot be opened, or belongs to the repository.
    """
    kind, _, name = source.partition(":")
    path = Path(source).expanduser()
    notes: tuple[str, ...] = ()
    values = read_yaml(PARAMS)
    here = part_name(Path(os.path.abspath(path)).name)  # noqa: PTH100, a link keeps its name
    if path.is_dir() and not _holds_tars(path):
        require_own(path)
        hint = require_hashable({path: "darkroom init"}).strip()
        of_folder, notes = folder_settings(path)
        label, notes = here, (*notes, *([hint] if hint else []))
        part = Part(source="folder", path=_written(path), settings=of_folder.model_dump(exclude_defaults=True))
    elif path.is_dir() or (path.is_file() and path.name.endswith(TAR_ENDINGS)):
        own = values.get("webdataset") or {}
        fitting = {key: name for key, name in tar_settings(path).items() if key not in own}
        label, part = here, Part(source="webdataset", path=_written(path), settings=fitting)
    elif kind in ("digits", "shapes") and not name:
        part, label = Part(source=kind, stop=SCENES if kind == "shapes" else None), kind  # type: ignore[arg-type]
    elif kind == "torchvision" and name:
        part, label = Part(source="torchvision", settings={"dataset": name}), part_name(name)
    elif kind == "hub" and name:
        folder = Path(name).expanduser()
        label = part_name(name.rstrip("/").rpartition("/")[2])
        is_local = folder.is_dir()
        settings = {} if is_local else {"dataset": name}
        own = values.get("hub") or {}
        columns, notes = hub_settings(validate(Hub, {**own, **settings}, "hub"), folder if is_local else None, set(own))
        part = Part(source="hub", path=_written(folder) if is_local else NO_FILE, settings={**settings, **columns})
    elif "://" in source and ".tar" in source:
        part, label = Part(source="webdataset", settings={"url": source}), "shards"
    else:
        fault = "is a file" if path.is_file() else "does not exist"
        raise DarkroomError(f"{printable(source)} {fault}: use a folder of images, or one of {_NAMES}.")
    of_file = (values.get(part.source) or {}) if part.source != "folder" else {}
    validated = validate(SECTIONS[part.source], {**of_file, **part.settings}, f"parts.{label}.settings")
    remaining = (values if begun is None else begun).get(part.source) or {}
    lost = {key: value for key, value in of_file.items() if (key, value) not in remaining.items()}
    part = part.model_copy(update={"settings": {**lost, **part.settings}})
    return Subject(label, part, open_source(part, validated), notes)


def require_own(path: Path) -> None:
    """Refuse a folder that contains the repository or outputs of stages, which would be read as images."""
    here, target = Path.cwd().resolve(), path.resolve()
    inside = target.relative_to(here).as_posix() if target.is_relative_to(here) else ""
    written = inside and (inside.split("/")[0] in _OWN or any(related(inside, output) for output in declared(OUTPUTS)))
    if written or here.is_relative_to(target):
        raise DarkroomError(
            f"{path} contains this repository, or stages write there: put the images into a separate folder, such as "
            "data/raw, and use that."
        )


def _holds_tars(path: Path) -> bool:
    """Return whether a folder directly contains tars and no images: a webdataset, not an archive next to its images."""
    with suppress(OSError):
        has_tars = any(name.endswith(TAR_ENDINGS) for name in os.listdir(path))  # noqa: PTH208, names alone
        return has_tars and not walk(os.fsencode(path), captions=False, tables=False).images
    return False


def _written(path: Path) -> str:
    """Return a path for params.yaml: absolute unless in the repository, with links unresolved."""
    text = inside(path) or os.path.abspath(path)  # noqa: PTH100, a link stays one
    if printable(text) != text:
        raise DarkroomError(f"{printable(text)}: params.yaml cannot store this name: rename the folder.")
    return text


def entry(subject: Subject, images: int) -> dict[str, Any]:
    """Return a part for `parts`: the keys that dvc.yaml names, and those that differ from the defaults.

    The end of a Hub data set is unknown before it is read, so that in its metadata is written.
    """
    part = subject.part.model_copy(update={"stop": images}) if subject.part.source == "hub" else subject.part
    return {"source": part.source, "path": part.path, "embeddings": NO_FILE, **part.model_dump(exclude_defaults=True)}


def part_name(text: str) -> str:
    """Return a name of a part similar to a text: a to z, 0 to 9, - and _; accents are removed."""
    plain = unicodedata.normalize("NFKD", text.lower()).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9_-]+", "-", plain).strip("-_")[:40].rstrip("-_") or "images"


_MOST = 0.8  # fraction of the images that must lie in folders for these to be classes
_TEXTS = 0.5  # fraction of images with a text file, above which the texts are captions
_TRIED = 200  # images that are checked for a text file
_ENDINGS = (".csv", ".tsv", ".json", ".jsonl", ".parquet", ".xlsx")  # of files that may describe the images
_NAMED = 5  # of these files
# Names of folders that are dates, not classes: 2019, 2019-05, 2019-05-03 at home.
_DATE = re.compile(r"(19|20)\d\d([-_. ]?(0[1-9]|1[0-2])([-_. ]?[0-3]\d)?)?([-_ ].*)?")
_MONTH = re.compile(
    r"\d{1,2}|(\d{1,2}[-_. ]+)?(jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?|sept?(ember)?"
    r"|oct(ober)?|nov(ember)?|dec(ember)?)",
    re.IGNORECASE,
)
_SPLITS = {"train", "training", "val", "valid", "validation", "test", "testing", "images", "img", "data"}


def folder_settings(root: Path) -> tuple[Folder, tuple[str, ...]]:
    """Return settings for a folder, from a table, subfolders and texts next to the images, with reasons as sentences.

    Raises:
        DarkroomError: the folder cannot be listed or has no images, or one of its tables cannot be read.
    """
    try:
        listing = walk(os.fsencode(root), captions=True, tables=True)
    except OSError as error:
        raise DarkroomError(f"the folder {root} cannot be listed: {error.strerror}.") from error
    if not listing.images:
        raise DarkroomError(
            f"the folder {root} has no image files{_others(listing)}: use the folder of your images. PNG and JPEG are "
            "supported, for example; convert others, such as SVG, PSD or raw camera files."
        )
    label, why = _label_by_folder(listing.images)
    settings: dict[str, str | bool] = {"label": label}
    columns = _columns(root, listing)
    notes = [*columns.notes]
    if columns.label is not None:
        settings |= {"label": "metadata", "label_column": columns.label}
    elif why:
        notes.append(why)
    fraction = _texts_beside(root, listing)
    if columns.caption is not None:
        settings |= {"caption": "metadata", "caption_column": columns.caption}
    elif fraction > _TEXTS:
        settings["caption"] = "txt"
        other = f"; {listing.overruled:,} `.caption` next to a `.txt` are not read" if listing.overruled else ""
        notes.append(f"Captions come from the text files next to the images, `.txt` or `.caption`{other}.")
    elif fraction:
        notes.append(f"{fraction:.0%} of the images have a text file next to them: too few to be read as captions.")
    return Folder.model_validate(settings), (*notes, *_other_tables(root))


def _others(listing: FolderListing) -> str:
    counts = [f"{count:,} {ending or 'without ending'}" for ending, count in listing.ignored.most_common(_NAMED)]
    counts += [f"{listing.aside_images:,} hidden images"] if listing.aside_images else []
    return f", but {', '.join(counts)}" if counts else ""


def _other_tables(root: Path) -> list[str]:
    """Return a sentence on files at the top of a folder that may be tables, but have other names."""
    names = sorted(path.name for path in root.iterdir() if path.suffix.lower() in _ENDINGS and path.is_file())
    others = [f"`{shown(name)}`" for name in names if name not in TABLES and not name.startswith(".")]
    if not others:
        return []
    more = f" and {len(others) - _NAMED:,} more" if len(others) > _NAMED else ""
    rule = f"A table is named {', '.join(TABLES[:-1])} or {TABLES[-1]}, and has a column `{FILE_NAME}`."
    return [f"Not read: {', '.join(others[:_NAMED])}{more}. {rule}"]


def _label_by_folder(images: Iterable[str]) -> tuple[str, str]:
    """Return `parent` or `top` if the folders of this level seem to be classes, else `none`, and why."""
    folders = [path.split("/")[:-1] for path in images]
    inside = [path for path in folders if path]
    level, why = _level(inside)
    if level == "none" or len(inside) >= _MOST * len(folders):
        return level, why if len(inside) >= _MOST * len(folders) else ""
    return "none", (
        f"{len(inside):,} of {len(folders):,} images are in folders; for classes, at least {_MOST:.0%} must be: move "
        "the others into folders of their classes."
    )


def _level(inside: Sequence[Sequence[str]]) -> tuple[str, str]:
    levels = {"parent": Counter(path[-1] for path in inside), "top": Counter(path[0] for path in inside)}
    dated = {level: all(map(_DATE.fullmatch, names)) for level, names in levels.items()}
    months = dated["top"] and all((_MONTH.fullmatch(name) or _DATE.fullmatch(name)) for name in levels["parent"])
    if months or (dated["parent"] and len(levels["top"]) == 1):
        return "none", "The folders are dates, not classes."
    for level, names in levels.items():
        splits = sorted(name for name in names if name.lower() in _SPLITS)
        if dated[level] or len(names) < 2 or len(splits) == len(names) or len(inside) < IMAGES * len(names):
            continue
        also = f" So {', '.join(splits)} is also read as a class." if splits else ""
        return level, f"Classes are the folders {'that hold the images' if level == 'parent' else 'at the top'}.{also}"
    few = len(levels["parent"]) > 1 and not {name.lower() for name in levels["parent"]} <= _SPLITS
    return "none", f"{len(levels['parent']):,} folders for {len(inside):,} images are not classes." if few else ""


def _texts_beside(root: Path, listing: FolderListing) -> float:
    """Estimate the fraction of images with a text file of the same name, from a few of them."""
    images = sorted(listing.images)
    chosen = images[:: max(1, len(images) // _TRIED)]
    return sum(any(path_in(root, text).is_file() for text in beside(path)) for path in chosen) / len(chosen)


def _columns(root: Path, listing: FolderListing) -> Chosen:
    """Return the columns of classes and captions in all tables of a folder.

    Tables without `file_name` are skipped, since the source reads no table if no column is chosen.
    """
    tables: list[dict[str, Sequence[str | None]]] = []
    others = []
    for name in sorted(listing.tables):
        path, columns = path_in(root, name), set[str]()
        for _ in read_table(path, shown(name), [], columns):
            pass
        if FILE_NAME in columns:
            tables.append(_values(path, name, sorted(columns - {FILE_NAME})))
        else:
            others.append(f"`{shown(name)}`")
    shared = [column for column in (tables[0] if tables else ()) if all(column in table for table in tables)]
    joined = {column: [value for table in tables for value in table[column]] for column in shared}
    chosen = choose(joined, "the table" if len(tables) == 1 else "the tables")
    if others and (chosen.label or chosen.caption):
        raise DarkroomError(
            f"the table {others[0]} has no column `{FILE_NAME}`, unlike the others: add it, or rename the table."
        )
    more = [f"Not read: {', '.join(others)}, without a column `{FILE_NAME}`."] if others else []
    return chosen._replace(notes=(*chosen.notes, *more))


def _values(path: Path, name: str, columns: Iterable[str]) -> dict[str, Sequence[str | None]]:
    """Return the text and number columns of a table, by name."""
    values: dict[str, Sequence[str | None]] = {}
    for column in columns:
        with suppress(DarkroomError):
            values[column] = [row[0] for _, row in read_table(path, name, [column], set())]
    return values
