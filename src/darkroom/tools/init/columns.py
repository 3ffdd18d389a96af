"""Find the columns of a table, or of a Hub data set, with classes and captions."""

from collections.abc import Callable, Mapping, Sequence, Set
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from darkroom.data.sources.hub import first_text, holds_texts, open_split
from darkroom.data.tar_files import in_folder, shown_tar
from darkroom.data.tars import members, samples
from darkroom.errors import DarkroomError
from darkroom.params.parts import Hub

# Common names of the columns, in lower case; the first that fits is used.
LABELS = ("label", "class", "category", "label_name", "class_name", "labels", "classes", "species", "breed", "style")
CAPTIONS = ("text", "caption", "captions", "description", "prompt", "title", "alt", "alt_text", "conversations")
_FILLED = 0.5  # fraction of the rows in which a column must have a value
IMAGES = 5  # images of a class, on average, from which columns or folders may be classes
_LETTERS = 40  # maximum mean length of the names of classes

Table = Mapping[str, Sequence[str | None]]


class Chosen(NamedTuple):
    """The columns of classes and captions, None if there are none, and sentences about them."""

    label: str | None
    caption: str | None
    notes: tuple[str, ...]


def choose(table: Table, where: str, own: Set[str] = frozenset()) -> Chosen:
    """Return the columns of a table with classes and captions, by their names and values.

    The sentences call the table `where`, and list the columns with a known name that are not used. `own`: which of
    label and caption are already known.
    """
    caption, on_captions = _column(table, () if "caption" in own else CAPTIONS, _no_text, f"{where} has no captions")
    label, on_labels = _column(table, () if "label" in own else LABELS, _no_class, f"{where} has no classes")
    columns = {"Classes": label, "Captions": caption}
    notes = [f"{kind} come from the column `{name}` of {where}." for kind, name in columns.items() if name is not None]
    return Chosen(label, caption, (*notes, *on_labels, *on_captions))


def _column(
    table: Table, names: Sequence[str], unfit: Callable[[Sequence[str | None]], str], holds: str
) -> tuple[str | None, list[str]]:
    """Return the column that has the first of several names and fits, and sentences on those that do not."""
    columns = {name.strip().lower(): name for name in table}
    known = {columns[name]: unfit(table[columns[name]]) for name in names if name in columns}
    notes = [f"The column `{name}` of {holds}: {why}." for name, why in known.items() if why]
    return next((name for name, why in known.items() if not why), None), notes


def _filled(values: Sequence[str | None]) -> list[str]:
    """Return the values that are not empty; none if most are."""
    filled = [value for value in values if value is not None and value.strip()]
    return filled if len(filled) >= _FILLED * len(values) else []


def _no_text(values: Sequence[str | None]) -> str:
    """Return why a column holds no texts; "" if most rows have a text, and texts differ."""
    different = set(_filled(values))
    return "" if len(different) > 1 else "its values are all the same" if different else "most values are empty"


def _no_class(values: Sequence[str | None]) -> str:
    """Return why a column holds no classes; "" if it has few short values, with several images each."""
    filled = _filled(values)
    if why := _no_text(values):
        return why
    if (different := len(set(filled))) > len(filled) / IMAGES:
        return f"it has {different:,} values for {len(filled):,} images, but each class needs {IMAGES}"
    return "its values are too long" if sum(map(len, filled)) > _LETTERS * len(filled) else ""


_ROWS = 300  # rows whose texts are inspected


def hub_settings(settings: Hub, path: Path | None, own: Set[str]) -> tuple[dict[str, str | None], tuple[str, ...]]:
    """Return the columns of a split that differ from the defaults, by the keys of `hub`, and sentences about them.

    Columns with the type of class names are classes, whatever their name; for others, see `choose`.

    `path` is a folder in the Hub's layout, None for a data set on the Hub; `own` are the keys that the user has set.

    Raises:
        DarkroomError: the data set cannot be opened.
    """
    stream, _, files = open_split(settings, path)
    import datasets

    features: dict[str, Any] = stream.features
    named = {getattr(settings, key) for key in own & {"image", "label", "caption"}}
    images = [name for name, feature in features.items() if isinstance(feature, datasets.Image)]
    classes = [name for name, feature in features.items() if isinstance(feature, datasets.ClassLabel)]
    texts = [name for name, feature in features.items() if holds_texts(feature) and name not in named]
    rows = list(stream.select_columns(texts).take(_ROWS)) if texts else []
    table: Table = {name: [first_text(row[name]) for row in rows] for name in texts}
    chosen = choose(table, files.name, own | {"label"} if classes else own)
    columns: dict[str, str | None] = {"label": chosen.label, "caption": chosen.caption}
    notes = [*chosen.notes]
    if classes and "label" not in own:
        columns["label"] = next((name for name in classes if name.strip().lower() in LABELS), classes[0])
        others = f", of {', '.join(classes)}: `hub.label`" if len(classes) > 1 else ""
        notes.insert(0, f"Classes come from the column `{columns['label']}` of {files.name}{others}.")
    if settings.image not in features and len(images) == 1 and "image" not in own:
        columns["image"] = images[0]
    columns = {key: name for key, name in columns.items() if key not in own and name != getattr(Hub(), key)}
    return columns, tuple(notes)


_MEMBERS = 3000  # members of the first tar that are inspected
_MOST = 0.8  # fraction of the samples that must have a member


def tar_settings(path: Path) -> dict[str, str | None]:
    """Return the members, cls and txt, that most samples of a folder of tars, or of a tar, have.

    Raises:
        DarkroomError: the first tar cannot be read.
    """
    tar = Path(in_folder(path)[0])
    shard = shown_tar(str(tar))
    try:
        tar_samples = samples(islice(members(tar, shard, unread=[]), _MEMBERS))[:-1]  # the last may be cut
    except OSError as error:
        raise DarkroomError(f"{shard} cannot be read: {error.strerror}.") from error

    def ending(name: str) -> str | None:
        return name if sum(name in sample for _, sample in tar_samples) >= max(1, _MOST * len(tar_samples)) else None

    return {"label": ending("cls"), "caption": ending("txt")}
