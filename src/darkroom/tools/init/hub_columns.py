"""Which columns of a data set of the Hub hold images, classes and captions: what settings of `hub` fit it."""

# No effect on any output: proposes settings

from pathlib import Path
from typing import Any

from darkroom.data.sources.hub_open import open_split
from darkroom.params.sources import Hub
from darkroom.tools.init.columns import LABELS, choose, column_of

_ROWS = 300  # whose texts are looked at


def hub_settings(settings: Hub, path: Path | None) -> tuple[dict[str, str | None], tuple[str, ...]]:
    """Return the columns of a split, by the keys of `hub`, and sentences on what was chosen.

    Columns whose type is that of class names are classes, whatever they are called; others are judged by their names
    and by what stands in the first rows.

    Raises:
        DarkroomError: the data set cannot be opened.
    """
    stream, _, files = open_split(settings, path)
    import datasets

    features: dict[str, Any] = stream.features
    images = [name for name, feature in features.items() if isinstance(feature, datasets.Image)]
    classes = [name for name, feature in features.items() if isinstance(feature, datasets.ClassLabel)]
    texts = [name for name, feature in features.items() if _is_text(feature)]
    rows = list(stream.select_columns(texts).take(_ROWS)) if texts else []
    table = {name: [_text(row[name]) for row in rows] for name in texts}
    chosen = choose(table, files.name, known=bool(classes), key="hub.label")
    label, notes = chosen.label, [*chosen.notes]
    if classes:
        label = column_of(classes, LABELS) or classes[0]
        others = [f"`{name}`" for name in classes if name != label]
        more = f"; {', '.join(others)} would do, too: `hub.label`" if others else ""
        notes.insert(0, f"Classes are of the column `{label}` of {files.name}{more}.")
    image = settings.image if settings.image in features or len(images) != 1 else images[0]
    return {"image": image, "label": label, "caption": chosen.caption}, tuple(notes)


def _is_text(feature: Any) -> bool:
    """Return whether a column holds texts, or lists of them."""
    return str(getattr(getattr(feature, "feature", feature), "dtype", "")) in ("string", "large_string")


def _text(value: str | list[str] | None) -> str | None:
    """Return a text, the first of several."""
    return value if value is None or isinstance(value, str) else value[0] if value else None
