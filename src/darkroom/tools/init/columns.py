"""Which columns of a table, of a data set of the Hub, or of the JSON in tars hold classes and captions."""

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from darkroom.data.sources.captions import answer_of
from darkroom.data.sources.hub import first_text, holds_texts, open_split
from darkroom.data.sources.tar_names import in_folder, shown_tar
from darkroom.data.tar_files import TarFiles
from darkroom.data.tars import Sample, compression, members, samples
from darkroom.errors import DarkroomError
from darkroom.params.parts import Hub

# The names that people give them, in lower case; the first that fits.
LABELS = ("label", "class", "category", "label_name", "class_name", "labels", "classes", "species", "breed", "style")
CAPTIONS = ("text", "caption", "captions", "description", "prompt", "title", "alt", "alt_text", "conversations")
# Columns that repeat their values and say nothing of what an image shows.
_OTHERS = {"split", "set", "subset", "source", "license", "author", "user", "url", "date", "year", "month", "format"}
_THERE = 0.5  # fraction of the rows in which a column must have a value
IMAGES = 5  # of a class, on average, from which on columns or folders may be classes
_OF_FOLDER = "folder.label_column"
_LETTERS = 40  # mean length of a class's name at most
_WORDS = 3  # of a caption in a column of an unknown name, on average


@dataclass(frozen=True)
class Chosen:
    """The column of the classes and that of the captions, None where there is none, and why, as sentences on each."""

    label: str | None
    caption: str | None
    on_label: tuple[str, ...] = ()
    on_caption: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """All sentences."""
        return (*self.on_label, *self.on_caption)


def choose(table: Mapping[str, Sequence[str | None]], where: str, known: bool = False, key: str = _OF_FOLDER) -> Chosen:
    """Return the columns of a table that hold classes and captions, and sentences on it, which call it `where`.

    known: whether classes are of a column of a known name alone, and never true and false, as folders are classes.
    key: of params.yaml, that names another column of classes.
    """
    caption = column_of([name for name, values in table.items() if not _no_text(values)], CAPTIONS) or _only(
        [name for name, values in table.items() if _is_prose(values) and name.lower() not in LABELS]
    )
    rest = {name: values for name, values in table.items() if name != caption}
    unfit = {name: why for name, values in rest.items() if (why := _no_class(values))}
    fitting = [name for name in rest if name not in unfit]
    booleans = [name for name in fitting if _is_boolean(rest[name])]
    unknown = [name for name in fitting if not (name.lower() in _OTHERS or name in booleans or _is_number(rest[name]))]
    if known:
        unfit |= dict.fromkeys(booleans, "true and false say less than the names of the folders")
    label = column_of([name for name in fitting if name not in unfit], LABELS) or (None if known else _only(unknown))
    on_label, on_caption = list[str](), list[str]()
    others = ", ".join(f"`{name}`" for name in unknown if name != label)
    if label is not None:
        more = f"; {others} would do, too: `{key}`" if others else ""
        on_label.append(f"Classes are of the column `{label}` of {where}{more}.")
    elif unknown:
        how = "name that column `label` in the table" if key == _OF_FOLDER else f"name one as `{key}`"
        on_label.append(f"{others} of {where} may hold classes: {how}, and run this again.")
    if caption is not None:
        on_caption.append(f"Captions are of the column `{caption}` of {where}.")
    for name, values in rest.items():
        if column_of([name], CAPTIONS) and name != label and (why := _no_text(values)):
            on_caption.append(f"The column `{name}` of {where} holds no captions: {why}.")
        if column_of([name], LABELS) and name in unfit:
            on_label.append(f"The column `{name}` of {where} holds no classes: {unfit[name]}.")
    return Chosen(label, caption, tuple(on_label), tuple(on_caption))


def column_of(columns: Iterable[str], names: Sequence[str]) -> str | None:
    """Return the column that has the first of several names, in any letters."""
    found = {column.strip().lower(): column for column in columns}
    return next((found[name] for name in names if name in found), None)


def _only(names: Sequence[str]) -> str | None:
    """Return the name where there is one alone."""
    return names[0] if len(names) == 1 else None


def _said(values: Sequence[str | None]) -> list[str]:
    """Return the values that are there; none where most are missing."""
    found = [value for value in values if value is not None and value.strip()]
    return found if len(found) >= _THERE * len(values) else []


def _no_text(values: Sequence[str | None]) -> str:
    """Return why a column holds no texts, "" where it does: in most rows, and not always the same."""
    said = set(_said(values))
    return "" if len(said) > 1 else "its values are all the same" if said else "most of it is empty"


def _is_prose(values: Sequence[str | None]) -> bool:
    """Return whether a column holds sentences, most of them different."""
    said = _said(values)
    words = sum(len(value.split()) for value in said)
    return bool(said) and words >= _WORDS * len(said) and len(set(said)) > len(said) / 2


def _no_class(values: Sequence[str | None]) -> str:
    """Return why a column holds no classes, "" where it does: few short values, several images each."""
    said = _said(values)
    if why := _no_text(values):
        return why
    if (different := len(set(said))) > len(said) / IMAGES:
        return f"it has {different:,} values for {len(said):,} images, and each class needs {IMAGES}"
    return "its values are too long" if sum(map(len, said)) > _LETTERS * len(said) else ""


def _is_boolean(values: Sequence[str | None]) -> bool:
    """Return whether all values are true or false, yes or no."""
    return {value.strip().lower() for value in _said(values)} <= {"true", "false", "yes", "no"}


def _is_number(values: Sequence[str | None]) -> bool:
    """Return whether all values are numbers, whole or with a decimal point."""
    return all(value.strip().lstrip("-").replace(".", "", 1).isdigit() for value in _said(values))


_ROWS = 300  # whose texts are looked at


def hub_settings(settings: Hub, path: Path | None, own: Set[str]) -> tuple[dict[str, str | None], tuple[str, ...]]:
    """Return the columns of a split that differ from the defaults, by the keys of `hub`, and sentences on them.

    Columns whose type is that of class names are classes, whatever they are called; others are judged by their names
    and by what stands in the first rows.

    `path` is a folder in the Hub's layout, None where the data set is on the Hub; `own` are keys that a person has set,
    which nothing is said of.

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
    table = {name: [first_text(row[name]) for row in rows] for name in texts}
    where = f"{files.name} (by its first {len(rows)} rows)"
    chosen = choose(table, where, known=bool(classes), key="hub.label")
    found = {"label": chosen.label, "caption": chosen.caption}
    notes = [*(() if "label" in own else chosen.on_label), *(() if "caption" in own else chosen.on_caption)]
    if classes and "label" not in own:
        found["label"] = column_of(classes, LABELS) or classes[0]
        others = ", ".join(f"`{name}`" for name in classes if name != found["label"])
        more = f"; {others} would do, too: `hub.label`" if others else ""
        notes.insert(0, f"Classes are of the column `{found['label']}` of {files.name}{more}.")
    if settings.image not in features and len(images) == 1:
        found["image"] = images[0]
    return {key: name for key, name in found.items() if key not in own and name != getattr(Hub(), key)}, tuple(notes)


_MEMBERS = 3000  # of the first tar, that are looked at
_JSON = 500  # samples whose JSON is read
_MOST = 0.8  # fraction of the samples that must have a member, for this to be the rule
_LABELS = ("cls", "label", "class")
_CAPTIONS = ("txt", "caption", "text")


def tar_settings(path: Path) -> dict[str, Any]:
    """Return the settings that fit a folder of tars, or a tar: members or fields of the JSON for classes and captions.

    Raises:
        DarkroomError: the first tar cannot be read.
    """
    files = TarFiles(in_folder(path))
    shard = shown_tar(files.names[0])
    try:
        plain, packed = files(0), compression(files.stored(0)) is not None
        found = samples(islice(members(plain, shard, unread=[]), _MEMBERS))[:-1]  # the last may be cut
        rows = _json(plain, found)
    except OSError as error:
        raise DarkroomError(f"{shard} cannot be read: {error.strerror}.") from error
    names = dict.fromkeys(name for row in rows for name in row)
    columns = choose({name: [row.get(name) for row in rows] for name in names}, "JSON")
    label = _ending(found, _LABELS) or (f"json:{columns.label}" if columns.label else None)
    caption = _ending(found, _CAPTIONS) or (f"json:{columns.caption}" if columns.caption else None)
    return {"label": label, "caption": caption, **({"repack": True} if packed else {})}


def _ending(found: list[Sample], endings: tuple[str, ...]) -> str | None:
    """Return the first ending that most samples have as a member."""
    return next(
        (each for each in endings if sum(each in sample for _, sample in found) >= max(1, _MOST * len(found))), None
    )


def _json(plain: Path, found: list[Sample]) -> list[dict[str, str | None]]:
    """Return the texts and numbers in the JSON of some samples, as texts."""
    rows: list[dict[str, str | None]] = []
    with plain.open("rb") as file:
        for _, sample in found[:_JSON]:
            if (member := sample.get("json")) is None:
                continue
            file.seek(member.offset)
            try:
                row = json.loads(file.read(member.size))
            except (ValueError, RecursionError):
                continue
            if isinstance(row, dict):
                values = {name: answer_of(value) for name, value in row.items()}
                rows.append({key: str(each) for key, each in values.items() if isinstance(each, str | int | float)})
    return rows
