"""Which columns of a table hold classes and captions: by their names, and by what stands in them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

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
    """Return the columns of a table that hold classes and captions.

    Args:
        table: the values of each column, row by row.
        where: what the table is called in sentences.
        key: of params.yaml, that names another column of classes.
        known: whether classes are of a column of a known name alone, and never true and false, as folders are classes.
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
    if label is not None:
        others = [name for name in unknown if name != label]
        more = f"; {_listed(others)} would do, too: `{key}`" if others else ""
        on_label.append(f"Classes are of the column `{label}` of {where}{more}.")
    elif unknown:
        how = "name the column that does `label` in the table" if key == _OF_FOLDER else f"name one as `{key}`"
        on_label.append(f"{_listed(unknown)} of {where} may hold classes: {how}, and run this again.")
    if caption is not None:
        on_caption.append(f"Captions are of the column `{caption}` of {where}.")
    named = [name for name in rest if column_of([name], CAPTIONS) and name != label]
    unused = {name: why for name in named if (why := _no_text(rest[name]))}
    on_caption += [f"The column `{name}` of {where} holds no captions: {why}." for name, why in unused.items()]
    unused = {name: why for name, why in unfit.items() if column_of([name], LABELS)}
    on_label += [f"The column `{name}` of {where} holds no classes: {why}." for name, why in unused.items()]
    return Chosen(label, caption, tuple(on_label), tuple(on_caption))


def column_of(columns: Iterable[str], names: Sequence[str]) -> str | None:
    """Return the column that has the first of several names, in any letters."""
    found = {column.strip().lower(): column for column in columns}
    return next((found[name] for name in names if name in found), None)


def _only(names: Sequence[str]) -> str | None:
    """Return the name where there is one alone."""
    return names[0] if len(names) == 1 else None


def _listed(names: Sequence[str]) -> str:
    """Return names as they stand in a sentence."""
    return ", ".join(f"`{name}`" for name in names)


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
