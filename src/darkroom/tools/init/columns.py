"""Which columns of a table, of a data set of the Hub, or of the JSON in tars hold classes and captions."""

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from darkroom.data.sources.captions import answer_of
from darkroom.data.sources.hub import first_text, holds_texts, open_split
from darkroom.data.tar_files import in_folder, shown_tar
from darkroom.data.tars import Sample, members, samples
from darkroom.errors import DarkroomError
from darkroom.params.parts import Hub

# The names that people give them, in lower case; the first that fits.
LABELS = ("label", "class", "category", "label_name", "class_name", "labels", "classes", "species", "breed", "style")
CAPTIONS = ("text", "caption", "captions", "description", "prompt", "title", "alt", "alt_text", "conversations")
# Columns that repeat their values and say nothing of what an image shows.
_OTHERS = {"split", "set", "subset", "source", "license", "author", "user", "url", "date", "year", "month", "format"}
_THERE = 0.5  # fraction of the rows in which a column must have a value
IMAGES = 5  # of a class, on average, from which on columns or folders may be classes
_LETTERS = 40  # mean length of a class's name at most
_WORDS = 3  # of a caption in a column of an unknown name, on average
_BOOLEANS = {"true", "false", "yes", "no"}
_IN_TABLE = "name that column `label` in the table, and run this again"

Table = Mapping[str, Sequence[str | None]]


class Chosen(NamedTuple):
    """The columns of the classes and of the captions, None where there is none, and sentences on them."""

    label: str | None
    caption: str | None
    notes: tuple[str, ...]


def choose(table: Table, where: str, known: bool = False) -> Chosen:
    """Return the columns of a table that hold classes and captions; `known` as for `label_in`."""
    caption, on_captions = caption_in(table, where)
    label, on_labels = label_in({name: table[name] for name in table if name != caption}, where, known)
    return Chosen(label, caption, (*on_labels, *on_captions))


def caption_in(table: Table, where: str) -> tuple[str | None, list[str]]:
    """Return the column of the captions, and sentences on it, which call the table `where`."""
    unfit = {name: why for name, values in table.items() if (why := _no_text(values))}
    prose = [name for name, values in table.items() if _is_prose(values) and name.lower() not in LABELS]
    name = column_of(table.keys() - unfit.keys(), CAPTIONS) or _only(prose)
    notes = [f"Captions are of the column `{name}` of {where}."] if name is not None else []
    return name, [*notes, *_refused(unfit, CAPTIONS, where, "captions")]


def label_in(table: Table, where: str, known: bool = False, how: str = _IN_TABLE) -> tuple[str | None, list[str]]:
    """Return the column of the classes, and sentences on it, which call the table `where`.

    `known`: only a column of a known name holds classes, and never true and false: folders are classes, too. `how`
    says how to choose another column. The table lacks the column of the captions.
    """
    unfit = {name: why for name, values in table.items() if (why := _no_class(values, known))}
    fitting = [name for name in table if name not in unfit]
    others = [name for name in fitting if name.lower() not in _OTHERS and not _is_number_or_boolean(table[name])]
    name = column_of(fitting, LABELS) or (None if known else _only(others))
    notes = [f"Classes are of the column `{name}` of {where}."] if name is not None else []
    if may := ", ".join(f"`{other}`" for other in others if other != name):
        notes.append(f"{may} of {where} may hold classes: {how}.")
    return name, [*notes, *_refused(unfit, LABELS, where, "classes")]


def _refused(unfit: Mapping[str, str], names: Sequence[str], where: str, what: str) -> list[str]:
    known = {name: why for name, why in unfit.items() if column_of([name], names)}
    return [f"The column `{name}` of {where} holds no {what}: {why}." for name, why in known.items()]


def column_of(columns: Iterable[str], names: Sequence[str]) -> str | None:
    """Return the column that has the first of several names, in any letters."""
    found = {column.strip().lower(): column for column in columns}
    return next((found[name] for name in names if name in found), None)


def _only(names: Sequence[str]) -> str | None:
    return names[0] if len(names) == 1 else None


def _filled(values: Sequence[str | None]) -> list[str]:
    """Return the values that are not empty; none if most are."""
    filled = [value for value in values if value is not None and value.strip()]
    return filled if len(filled) >= _THERE * len(values) else []


def _no_text(values: Sequence[str | None]) -> str:
    """Return why a column holds no texts, "" where it does: in most rows, and not always the same."""
    different = set(_filled(values))
    return "" if len(different) > 1 else "its values are all the same" if different else "most of it is empty"


def _is_prose(values: Sequence[str | None]) -> bool:
    """Return whether a column holds sentences, most of them different."""
    filled = _filled(values)
    words = sum(len(value.split()) for value in filled)
    return bool(filled) and words >= _WORDS * len(filled) and len(set(filled)) > len(filled) / 2


def _no_class(values: Sequence[str | None], known: bool) -> str:
    """Return why a column holds no classes, "" where it does: few short values, several images each."""
    filled = _filled(values)
    if why := _no_text(values):
        return why
    if (different := len(set(filled))) > len(filled) / IMAGES:
        return f"it has {different:,} values for {len(filled):,} images, and each class needs {IMAGES}"
    if known and {value.strip().lower() for value in filled} <= _BOOLEANS:
        return "true and false say less than the names of the folders"
    return "its values are too long" if sum(map(len, filled)) > _LETTERS * len(filled) else ""


def _is_number_or_boolean(values: Sequence[str | None]) -> bool:
    plain = [value.strip().lower() for value in _filled(values)]
    return all(value in _BOOLEANS or value.lstrip("-").replace(".", "", 1).isdigit() for value in plain)


_ROWS = 300  # whose texts are looked at


def hub_settings(settings: Hub, path: Path | None, own: Set[str]) -> tuple[dict[str, str | None], tuple[str, ...]]:
    """Return the columns of a split that differ from the defaults, by the keys of `hub`, and sentences on them.

    Columns whose type is that of class names are classes, whatever they are called; others are judged by their names
    and by what stands in the first rows.

    `path` is a folder in the Hub's layout, None where the data set is on the Hub; `own` are keys that a person has set.

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
    found, notes = dict[str, str | None](), list[str]()
    if "caption" not in own:
        found["caption"], notes = caption_in(table, files.name)
    if "label" not in own and classes:
        found["label"] = column_of(classes, LABELS) or classes[0]
        others = f", of {', '.join(classes)}: `hub.label`" if len(classes) > 1 else ""
        notes.insert(0, f"Classes are of the column `{found['label']}` of {files.name}{others}.")
    elif "label" not in own:
        rest = {name: table[name] for name in table if name != found.get("caption")}
        found["label"], on_labels = label_in(rest, files.name, how="name one as `hub.label`, and run this again")
        notes = [*on_labels, *notes]
    if settings.image not in features and len(images) == 1 and "image" not in own:
        found["image"] = images[0]
    return {key: name for key, name in found.items() if name != getattr(Hub(), key)}, tuple(notes)


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
    tar = Path(in_folder(path)[0])
    shard = shown_tar(str(tar))
    try:
        found = samples(islice(members(tar, shard, unread=[]), _MEMBERS))[:-1]  # the last may be cut
        rows = _json(tar, found)
    except OSError as error:
        raise DarkroomError(f"{shard} cannot be read: {error.strerror}.") from error
    names = dict.fromkeys(name for row in rows for name in row)
    columns = choose({name: [row.get(name) for row in rows] for name in names}, "JSON")
    label = _ending(found, _LABELS) or (f"json:{columns.label}" if columns.label else None)
    caption = _ending(found, _CAPTIONS) or (f"json:{columns.caption}" if columns.caption else None)
    return {"label": label, "caption": caption}


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
